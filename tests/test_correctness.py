"""What counts as right: limits, comparison, form, input families, and the oracle that judges."""

import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from evokernel.attempt import Candidate
from evokernel.bench import correctness, families, patterns, pieces, tolerance, weights
from evokernel.bench.correctness import Compared
from evokernel.bench.evaluator import LocalEvaluator
from evokernel.bench.families import Nature
from evokernel.bench.messages import Foreign, Outcome, TensorFacts, Variant
from evokernel.bench.oracle import Case, Oracle
from evokernel.bench.reference import Reference
from evokernel.bench.tensors import same_bytes, vary
from evokernel.config import BenchConfig
from evokernel.errors import TaskError
from evokernel.evaluation import Status
from evokernel.nested import leaves
from evokernel.opgraph import capture
from evokernel.task import Task, Tolerance, Workload

DEFAULT = Workload(name="default", index=0)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def limits(reference: Any, x: torch.Tensor, depth: int = 1, **options: Any) -> tolerance.Limits:
    rule = Tolerance(**options)
    return tolerance.limits(reference(x), reference(x.double()), rule, depth, follow=True)


def test_a_task_that_sets_its_own_limits_keeps_them_on_whole_numbers():
    source = (
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x.sum(-1)\ndef get_inputs():\n    return [torch.randn(4, 32)]\n"
    )
    ours = Task.from_source(source, "sums")
    theirs = Task.from_source(f'{source}EVOKERNEL = {{"tolerance": {{"rtol": 0.25}}}}\n', "sums")
    for task, expected in ((ours, 0.0), (theirs, 0.25)):
        reference = Reference(task.program(), weights_seed=0)
        want = reference.expect([torch.ones(4, 32)], DEFAULT, is_exact=True)
        assert want.limits[0].reach.unique().tolist() == [expected]


def compared(reference: Any, x: torch.Tensor, got: torch.Tensor, depth: int = 1) -> Compared:
    return correctness.compare(limits(reference, x, depth), got)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


# Limits


def test_a_softmax_of_many_columns_is_not_zeros():
    x = drawn(4, 100_000)
    zeros = compared(softmax, x, torch.zeros_like(x), depth=100_000)
    assert zeros.wrong == x.numel()
    assert zeros.worst_ratio > 1000


def test_constants_are_wrong():
    x = drawn(64, 512)
    for reference in (softmax, torch.exp, lambda v: functional.layer_norm(v, (512,))):
        own = reference(x)
        assert compared(reference, x, torch.full_like(own, float(own.mean())), depth=512).wrong


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("depth", [1, 512, 1 << 22])
def test_results_of_lower_precision_are_wrong(narrow, depth):
    x = drawn(64, 512)
    for reference in (softmax, functional.gelu, lambda v: v.cumsum(-1)):
        assert compared(reference, x, reference(x).to(narrow).float(), depth=depth).wrong


def test_a_product_of_lower_precision_is_wrong():
    x, weight = drawn(64, 256), drawn(256, 64, seed=1)
    rounded = x.bfloat16().float() @ weight.bfloat16().float()
    assert compared(lambda v: v @ weight.to(v.dtype), x, rounded, depth=256).wrong


def test_other_orders_of_summation_are_right():
    x = drawn(16, 4096)
    one_by_one = torch.zeros(16)
    for column in range(0, 4096, 4):
        one_by_one += x[:, column : column + 4].sum(1)
    assert not compared(lambda v: v.sum(1), x, one_by_one, depth=4096).wrong
    by_hand = (x - x.amax(1, keepdim=True)).exp()
    by_hand /= by_hand.flip(1).sum(1, keepdim=True)
    assert not compared(softmax, x, by_hand, depth=4096).wrong
    spread = x.square().mean(1, keepdim=True) - x.mean(1, keepdim=True).square()
    one_pass = (x - x.mean(1, keepdim=True)) * torch.rsqrt(spread + 1e-5)
    normed = compared(lambda v: functional.layer_norm(v, (4096,)), x, one_pass, depth=4096)
    assert not normed.wrong


def test_small_values_are_judged_beside_a_huge_one():
    x = drawn(64, 512)
    x[:, 0] = 10.0
    got = torch.exp(x)
    got[:, 1:] *= 1.01
    assert compared(torch.exp, x, got).wrong == 64 * 511


def test_half_precision_leaves_room_for_its_own_rounding():
    x = drawn(64, 512).bfloat16()

    def reference(v: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(v, (512,))

    own = reference(x)
    in_single = reference(x.float()).bfloat16()
    assert not compared(reference, x, in_single, depth=512).wrong
    assert compared(reference, x, own * 1.25, depth=512).wrong
    assert compared(reference, x, torch.zeros_like(own), depth=512).wrong


def test_a_reference_that_loses_all_digits_shows_nothing():
    x = drawn(64, 512)

    def unstable(v: torch.Tensor) -> torch.Tensor:
        return (v + 1e9) - 1e9

    found = limits(unstable, x)
    assert not found.is_evidence


def test_special_values_follow_the_reference():
    x = drawn(8, 128)
    x[0, 0], x[1, 1], x[2, 2] = float("nan"), float("inf"), -float("inf")
    own = functional.relu(x)
    assert not compared(functional.relu, x, own).wrong
    for place, value in [
        ((0, 0), 0.0),
        ((1, 1), 1e38),
        ((2, 2), -float("inf")),
        ((3, 3), math.nan),
    ]:
        got = own.clone()
        got[place] = value
        found = compared(functional.relu, x, got)
        assert (found.wrong, found.worst) == (1, place[0] * 128 + place[1])
        assert math.isinf(found.worst_ratio)


def test_overflow_on_the_way_may_be_avoided():
    x = torch.full((4, 128), 1e30)

    def norm(v: torch.Tensor) -> torch.Tensor:
        return v / v.square().sum(-1, keepdim=True).sqrt()

    found = limits(norm, x)
    truth = norm(x.double()).float()
    assert not correctness.compare(found, truth).wrong
    assert not correctness.compare(found, norm(x)).wrong
    assert not found.is_evidence


def test_denormal_results_must_not_be_flushed():
    x = drawn(8, 128) * 1e-40
    assert compared(lambda v: v * 1.0, x, torch.zeros_like(x)).wrong > 1000
    assert not compared(lambda v: v * 1.0, x, x.clone()).wrong


def test_integers_must_be_equal():
    x = drawn(8, 128)
    index = x.argmax(1)
    found = limits(lambda v: v.argmax(1), x)
    assert not correctness.compare(found, index).wrong
    assert correctness.compare(found, index + torch.tensor([0] * 7 + [1])).wrong == 1


def test_a_rule_of_the_task_replaces_ours():
    x = drawn(8, 128)
    rule = Tolerance(atol=0.5)
    found = tolerance.limits(x, x.double(), rule, 1, follow=True)
    assert not correctness.compare(found, x + 0.49).wrong
    assert correctness.compare(found, x + 0.51).wrong == x.numel()
    assert "as the task demands" in tolerance.describe(rule, 1)


def test_the_worst_element_is_named():
    x = drawn(6, 70)
    got = x.clone()
    got[4, 69] += 1.0
    got[2, 3] += 0.5
    found = compared(lambda v: v * 1.0, x, got)
    form = correctness.form("0", x)
    said = correctness.mismatch("default", "normal", form, found)
    assert (said.wrong, said.total, said.worst_index) == (2, 420, (4, 69))
    assert said.got == pytest.approx(float(got[4, 69]))
    assert said.expected == pytest.approx(float(x[4, 69]))
    assert "2 of 420 elements" in said.detail


def test_every_piece_of_a_large_tensor_is_compared():
    x = drawn(3, pieces.CHUNK + 5)
    for place in [(0, 0), (1, pieces.CHUNK + 4), (2, pieces.CHUNK - 1)]:
        got = x.clone()
        got[place] += 1
        found = compared(lambda v: v * 1.0, x, got)
        assert (found.wrong, found.worst) == (1, place[0] * x.shape[1] + place[1])


# Form


def outcome(outputs: Any, changed: tuple[int, ...] = (), **other: Any) -> Outcome:
    facts = tuple(
        TensorFacts(
            path=path,
            dtype=str(value.dtype).removeprefix("torch."),
            shape=tuple(value.shape),
            strides=tuple(value.stride()),
            device="cpu",
            type_name=other.get("type_name", "torch.Tensor"),
            requires_grad=False,
            aliases=None,
        )
        for path, value in leaves(outputs)
        if isinstance(value, torch.Tensor)
    )
    return Outcome(outputs, facts, changed, 0.0, {}, (), 0)


def fault(want: Any, got: Any, **other: Any) -> Status | None:
    forms = tuple(correctness.form(path, value) for path, value in correctness.tensors(want))
    found = outcome(got, **other)
    said = correctness.check_form(correctness.skeleton(want), forms, found.outputs, found.facts)
    return said.status if said else None


@pytest.mark.parametrize(
    ("want", "got", "status"),
    [
        (torch.ones(2, 3), torch.ones(2, 3), None),
        (torch.ones(2, 3), torch.ones(3, 2), Status.WRONG_STRUCTURE),
        (torch.ones(2, 3), (torch.ones(2, 3),), Status.WRONG_STRUCTURE),
        (torch.ones(2, 3), Foreign(type_name="Lazy"), Status.WRONG_STRUCTURE),
        (torch.ones(2, 3), 1.0, Status.WRONG_STRUCTURE),
        (torch.ones(2, 3), torch.ones(2, 3).double(), Status.WRONG_DTYPE),
        (torch.ones(2, 3), torch.ones(3, 2).t(), Status.WRONG_STRUCTURE),
        (torch.ones(3, 2).t(), torch.ones(2, 3), Status.WRONG_STRUCTURE),
        (torch.ones(1, 3), torch.ones(3, 1).t(), None),
        (torch.ones(0, 3), torch.ones(0, 3).double(), Status.WRONG_DTYPE),
        ((torch.ones(2), {"a": torch.ones(1)}), (torch.ones(2), {"a": torch.ones(1)}), None),
        ({"a": torch.ones(1)}, {"b": torch.ones(1)}, Status.WRONG_STRUCTURE),
        ((torch.ones(2), None), (torch.ones(2), torch.ones(2)), Status.WRONG_STRUCTURE),
    ],
)
def test_form(want, got, status):
    assert fault(want, got) is status


def test_subclasses_are_no_tensors():
    assert fault(torch.ones(2), torch.ones(2), type_name="Lazy") is Status.WRONG_STRUCTURE


def test_bits_are_compared_not_values():
    one = torch.tensor([0.0, math.nan])
    assert correctness.same_bits(one, one.clone()) is None
    assert correctness.same_bits(one, torch.tensor([-0.0, math.nan])) is not None


# Families


def test_natures():
    assert families.nature(drawn(64)) is Nature.GENERIC
    assert families.nature(torch.rand(64)) is Nature.UNIFORM
    assert families.nature(drawn(64).exp()) is Nature.NONNEGATIVE
    assert families.nature(softmax(drawn(8, 64))) is Nature.PROBABILITY
    assert families.nature(torch.arange(64)) is Nature.LABEL
    assert families.nature(torch.ones(64) * -1) is Nature.EXACT
    assert families.nature(torch.rand(64) > 0.5) is Nature.MASK


@pytest.mark.parametrize("family", families.FAMILIES)
def test_labels_and_probabilities_keep_their_nature(family):
    labels, chances = torch.arange(64), softmax(drawn(8, 64))
    inputs = [labels, [chances, 3]]
    made = families.apply(family, inputs, families.natures(inputs), seed=0)
    assert torch.equal(made[0], labels)
    assert made[1][1] == 3
    assert torch.allclose(made[1][0].sum(-1), torch.ones(8))


@pytest.mark.parametrize("family", families.FAMILIES)
def test_nonnegative_values_stay_nonnegative(family):
    x = drawn(64, 64).exp()
    (made,) = families.apply(family, [x], families.natures([x]), seed=0)
    assert not (made < 0).any()


def test_families_change_what_they_promise():
    x = drawn(64, 64)

    def made(family: str, keep_domain: bool = False) -> torch.Tensor:
        return families.apply(family, [x], families.natures([x]), 0, keep_domain)[0]

    assert torch.equal(made("large"), x * 1000)
    assert torch.equal(made("negated"), -x)
    assert torch.equal(made("zeros"), torch.zeros(64, 64))
    assert set(made("ties").unique().tolist()) == {-2, -1, 0, 1, 2}
    assert made("special").isnan().any()
    assert made("special").isfinite().sum() > 4000
    tiny = torch.finfo(torch.float32).tiny
    assert 0 < made("denormal").abs().max() < tiny


@pytest.mark.parametrize("family", ["large", *patterns.FLOATING])
def test_half_precision_stays_in_range(family):
    x = drawn(64, 64).half()
    (made,) = families.apply(family, [x], families.natures([x]), seed=0)
    assert made.isfinite().all()
    assert made.dtype is torch.float16


def changed(family: str, *inputs: torch.Tensor) -> list[torch.Tensor]:
    made: list[torch.Tensor] = families.apply(family, inputs, families.natures(inputs), seed=0)
    assert [m.shape for m in made] == [x.shape for x in inputs]
    return list(made)


def test_spikes_stand_at_both_ends_of_every_dimension():
    (made,) = changed("spiked", drawn(9, 10, 12, 13))
    for dim in range(4):
        highest = made.amax(tuple(other for other in range(4) if other != dim), keepdim=True)
        first, last = highest.select(dim, 0).item(), highest.select(dim, -1).item()
        assert min(first, last) > 50 * drawn(9, 10, 12, 13).abs().max()
        places = made.argmax(dim)
        assert {0, made.shape[dim] - 1} <= set(places.flatten().tolist())


def test_patterns_are_what_they_promise():
    x = drawn(8, 6, 10, 10)
    (constant,) = changed("constant", x)
    assert (constant.flatten(2).amax(-1) == constant.flatten(2).amin(-1)).all()
    assert (constant[:4].flatten(1).amax(-1) == constant[:4].flatten(1).amin(-1)).all()
    assert constant.unique().numel() > 8
    (far,) = changed("offset", x)
    assert ((far / x.square().mean().sqrt()).abs().round(decimals=-1) == 300).all()
    assert {True, False} == set((far > 0).flatten(1).all(1).tolist())
    one, two = changed("cancelling", drawn(64, 64), drawn(64, 64, seed=1))
    for dim in (0, 1):
        assert (one.sum(dim).abs() < 0.5 * one.abs().sum(dim)).all()
    assert (two.mean() / two.std()).item() == pytest.approx(1, rel=0.1)
    (spread,) = changed("wide", torch.rand(64, 64))
    assert (spread < 0).any()
    assert (spread.abs().max() / spread.abs().min()).item() > 5000
    assert set(changed("binary", x)[0].unique().tolist()) == {0, 1}


def test_extreme_inputs_stay_valid():
    labels = torch.where(torch.arange(64) > 50, -100, torch.randint(0, 30, (64,)))
    chances, mask = softmax(drawn(9, 64)), torch.rand(64, 64) > 0.5
    made = changed("extreme", labels, chances, mask)
    assert sorted(made[0][1:-1].tolist()) != sorted(labels[1:-1].tolist())
    assert set(made[0].tolist()) <= set(labels.tolist())
    assert (made[1].sum(-1) == 1).all()
    assert {0, 63} <= set(made[1].argmax(-1).tolist())
    assert (made[2] & ~mask).sum() == 0
    assert 0 < made[2].sum() < mask.sum()


# Oracle

TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, {arguments}):
        return {result}

def get_inputs():
    return [{inputs}]
"""


def oracle(result: str, inputs: str = "torch.randn(8, 96)", arguments: str = "x") -> Oracle:
    source = TASK.format(result=result, inputs=inputs, arguments=arguments)
    return Oracle(Task.from_source(source, "small").program(), seed=7)


def judged(truth: Oracle, kernel: Any, family: str = "normal", **other: Any) -> Status | None:
    (case,) = truth.cases((family,))
    found = truth.judge(case, outcome(kernel(*truth.inputs(case)), **other))
    return found.fault.status if found.fault else None


def test_the_reference_is_right_on_every_family():
    truth = oracle("torch.softmax(x, -1)")
    for case in truth.cases():
        (x,) = truth.inputs(case)
        assert truth.judge(case, outcome(softmax(x))).fault is None, case.family
    assert [case.family for case in truth.cases()] == list(truth.input_families)


@pytest.mark.parametrize(
    ("kernel", "status"),
    [
        (lambda x: x * 0, Status.WRONG_VALUES),
        (lambda x: torch.softmax(x, 0), Status.WRONG_VALUES),
        (lambda x: torch.softmax(x, -1).double(), Status.WRONG_DTYPE),
        (lambda x: torch.softmax(x, -1)[:, :-1], Status.WRONG_STRUCTURE),
    ],
)
def test_wrong_kernels(kernel, status):
    assert judged(oracle("torch.softmax(x, -1)"), kernel) is status


def graphed(result: str, inputs: str, arguments: str = "x") -> Oracle:
    """An oracle that knows what kind of operators its reference has."""
    source = TASK.format(result=result, inputs=inputs, arguments=arguments)
    program = Task.from_source(source, "small").program()
    return Oracle(program, seed=7, graph=capture(program))


def found_on(truth: Oracle, kernel: Any) -> set[str]:
    """The families on which a kernel is wrong."""
    cases = truth.cases()
    bad = [case for case in cases if truth.judge(case, outcome(kernel(*truth.inputs(case)))).fault]
    return {case.family for case in bad}


def test_whole_numbers_are_compared_exactly():
    truth = graphed("a @ b", "torch.randn(24, 5000), torch.randn(5000, 12)", "a, b")
    assert found_on(truth, lambda a, b: a @ b) == set()
    assert found_on(truth, lambda a, b: (a.double() @ b.double()).float()) == set()
    assert found_on(truth, lambda a, b: (a @ b) * (1 + 2**-22)) == {"binary"}


def test_a_variance_of_mean_squares_is_refused():
    def norm(x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = (x * x).mean(-1, keepdim=True) - mean * mean
        return (x - mean) * torch.rsqrt(variance.clamp(min=0) + 1e-5)

    truth = graphed("torch.nn.functional.layer_norm(x, (512,))", "torch.randn(32, 512)")
    assert "offset" in found_on(truth, norm)
    assert "normal" not in found_on(truth, norm)
    assert found_on(truth, lambda x: functional.layer_norm(x.double(), (512,)).float()) == set()


def test_a_maximum_that_forgets_an_end_is_refused():
    truth = graphed("x.amax(0)", "torch.randn(700, 24)")
    for kept in (slice(1, None), slice(None, -1)):
        assert "spiked" in found_on(truth, lambda x, kept=kept: x[kept].amax(0))


def test_what_the_reference_loses_must_be_finite():
    x = drawn(4, 128)
    found = limits(lambda v: (v + 1e6) - 1e6, x)
    assert found.lost is not None
    for value, wrong in ((5.0, 0), (math.nan, found.lost.numel())):
        got = x.flatten().index_fill(0, found.lost, value).reshape(4, 128)
        assert correctness.compare(found, got).wrong == wrong


def test_constant_weights_are_drawn_anew():
    layer = torch.nn.BatchNorm1d(64)
    made = weights.redrawn(layer.state_dict(), seed=3)
    assert set(made) == {"weight", "bias", "running_mean", "running_var"}
    assert (made["running_var"] > 0.4).all()
    assert all(value.std() > 0.1 for value in made.values())
    assert weights.constant(torch.nn.Linear(8, 8).state_dict()) == ()


NORM = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(96)
    def forward(self, x):
        return self.norm(x)

def get_inputs():
    return [torch.randn(8, 96)]
"""


def test_weights_as_constructed_hide_nothing():
    truth = Oracle(Task.from_source(NORM, "norm").program(), seed=7)
    other = truth.with_other_weights()
    assert other is not None
    (case,) = other.weights_cases
    (x,) = other.inputs(case)
    state = other.reference.state
    plain = functional.layer_norm(x, (96,))
    assert other.judge(case, outcome(plain)).fault is not None
    right = plain * state["norm.weight"] + state["norm.bias"]
    assert other.judge(case, outcome(right)).fault is None
    assert oracle("x + 1").with_other_weights() is None


MUTE = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(96)
        self.made = torch.empty(8, 96)
    def forward(self, x):
        {body}
"""


def test_what_only_other_weights_or_later_calls_show(warm, servers):
    config = BenchConfig(measurement="quick", baselines=(), contract="library_allowed")
    bodies = {
        "return self.norm(x)": (Status.PASSED, ""),
        "return torch.nn.functional.layer_norm(x, (96,))": (Status.WRONG_VALUES, "`weights`"),
        "return self.made.copy_(self.norm(x))": (Status.WRONG_VALUES, "an earlier one"),
    }
    task = Task.from_source(NORM, "norm")
    with LocalEvaluator(task, config, servers=servers) as evaluator:
        for body, (status, words) in bodies.items():
            candidate = Candidate(source=MUTE.format(body=body), backend="cpp")
            found = evaluator.verify(candidate)
            assert found.status is status, found.reason
            assert words in found.reason


def test_inputs_must_be_left_alone_unless_the_reference_changes_them():
    assert judged(oracle("x + 1"), lambda x: x + 1, changed=(0,)) is Status.INPUT_MODIFIED
    assert judged(oracle("x.add_(1)"), lambda x: x + 1, changed=(0,)) is None


def test_uniform_inputs_become_negative_where_the_reference_allows_it():
    relu = oracle("torch.relu(x)", "torch.rand(8, 96)")
    assert judged(relu, lambda x: x, "negated") is Status.WRONG_VALUES
    log = oracle("torch.log(x)", "torch.rand(8, 96)")
    assert "negated" not in {case.family for case in log.cases()}
    assert any("`negated`" in note for note in log.notes)
    entropy = oracle(
        "torch.nn.functional.binary_cross_entropy(x, y)",
        "torch.rand(8, 96), (torch.rand(8, 96) > 0.5).float()",
        "x, y",
    )
    assert {"normal", "small", "ties"} <= {case.family for case in entropy.cases()}


def test_seeds_are_secret_and_repeatable():
    source = TASK.format(result="x", inputs="torch.randn(8, 96)", arguments="x")
    program = Task.from_source(source, "small").program()
    same = [Oracle(program, seed).inputs(Case(DEFAULT, "normal"))[0] for seed in (1, 1, 2)]
    assert torch.equal(same[0], same[1])
    assert not torch.equal(same[0], same[2])
    assert not torch.equal(same[0], program.make_inputs(DEFAULT)[0])


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 1000])
@pytest.mark.parametrize("start", [0, 1, 8])
def test_bits_are_compared_at_any_place_and_of_any_length(start, length):
    one = torch.arange(start + length).to(torch.uint8)[start:]
    two = one.clone()
    assert same_bytes(one, two)
    for place in range(length)[:: max(1, length - 1)]:
        two[place] += 1
        assert not same_bytes(one, two)
        two[place] -= 1


def test_timed_inputs_vary_bit_for_bit():
    truth = oracle("x * 2")
    truth.prepare(truth.cases())
    for case in (case for draw in (0, 1) for case in truth.checkable(draw)):
        (x,) = truth.inputs(case)
        (plain,) = truth.inputs(Case(case.workload, "timed", draw=case.draw))
        variant = case.variant or Variant()
        changed = plain * (variant.sign * variant.scale) + variant.offset
        assert torch.equal(x, changed.flatten().roll(variant.roll).view_as(x))
        assert truth.judge(case, outcome(x * 2), are_inputs_told=False).fault is None
        wrong = outcome(plain * 2)
        assert truth.judge(case, wrong, are_inputs_told=False).fault is not None
    truth.close()


ENTROPY = "torch.nn.functional.binary_cross_entropy(x, y)"
TABLE = "torch.arange(60.0).view(20, 3)"


@pytest.mark.parametrize(
    ("result", "inputs", "arguments", "still"),
    [
        ("torch.log(x)", "torch.rand(8, 96)", "x", ()),
        ("(x / x.mean()).log()", "torch.randn(8, 96).softmax(-1)", "x", ()),
        (ENTROPY, "torch.rand(8, 96), torch.randint(2, (8, 96)).float()", "x, y", (1,)),
        (f"{TABLE}[x]", "torch.randint(20, (8, 96))", "x", ()),
        ("x.view_as_complex().abs()", "torch.randn(8, 2)", "x", ()),
        ("torch.fft.ifft(x).real", "torch.fft.fft(torch.randn(8, 96))", "x", ()),
        # What ascends may be offsets, whose order means something.
        (f"{TABLE}[x].sum() * y", "torch.arange(20), torch.randn(8)", "x, y", (0,)),
        ("x * y", "torch.ones(8, 96).bool(), torch.randn(8, 96)", "x, y", (0,)),
    ],
)
def test_every_input_that_may_varies_in_timed_calls(result, inputs, arguments, still):
    result = result.replace("x.view_as_complex()", "torch.view_as_complex(x)")
    truth = oracle(result, inputs, arguments)
    truth.prepare(truth.cases(("normal", "negated")))
    for case in (case for draw in (0, 1) for case in truth.checkable(draw)):
        plain = truth.inputs(Case(case.workload, "timed", draw=case.draw))
        for index, (x, before) in enumerate(zip(truth.inputs(case), plain, strict=True)):
            assert torch.equal(x, before) is (index in still)
        assert truth.expected(case).is_evidence
    assert not [note for note in truth.notes if "two sets only" in note]
    truth.close()


@pytest.mark.parametrize(
    ("result", "inputs", "why"),
    [
        (f"{TABLE}[x]", "torch.arange(20)", "none of them may have other values"),
        (
            "torch.cholesky_inverse(torch.linalg.cholesky(x))",
            "torch.eye(4) + 0.1 * torch.ones(4, 4)",
            "the reference refuses inputs with other values",
        ),
    ],
)
def test_inputs_that_cannot_vary_are_noted(result, inputs, why):
    truth = oracle(result, inputs)
    truth.prepare(truth.cases(("normal",)))
    (note,) = [note for note in truth.notes if "two sets only" in note]
    assert why in note
    truth.close()


def test_zeros_meet_infinities():
    """A product that skips zeros loses what they should have become."""
    product = oracle("x @ y", "torch.randn(24, 64), torch.randn(64, 24)", "x, y")
    (case,) = product.cases(("special",))
    x, y = product.inputs(case)
    assert 0.1 < float((x == 0).float().mean()) < 0.4
    skipped = torch.stack([sum(v * row for v, row in zip(r, y, strict=True) if v) for r in x])
    found = product.judge(case, outcome(skipped))
    assert found.fault is not None
    assert found.fault.status is Status.WRONG_VALUES
    assert product.judge(case, outcome(x @ y)).fault is None


def test_timed_inputs_keep_their_layout():
    """Whatever is not contiguous varies in the order of memory, as in a worker."""
    truth = oracle("x * 2", "torch.randn(96, 8).t()")
    truth.prepare(truth.cases())
    for case in (case for draw in (0, 1) for case in truth.checkable(draw)):
        (x,) = truth.inputs(case)
        assert x.stride() == (1, 8)
        assert truth.judge(case, outcome(x * 2), are_inputs_told=False).fault is None
        (flat,) = truth.package(case).flats()
        out = torch.empty_like(flat)
        vary(0, flat, out, case.variant or Variant())
        assert torch.equal(x.t().flatten(), out)
    truth.close()


def test_a_random_reference_is_refused():
    truth = oracle("torch.nn.functional.dropout(x, 0.5, True)")
    with pytest.raises(TaskError, match="differs from one call to the next"):
        truth.cases()


def test_a_reference_without_a_finite_value_is_refused():
    with pytest.raises(TaskError, match="no finite value"):
        oracle("x / 0").cases()


def test_expected_values_that_do_not_fit_are_made_again():
    program = Task.from_source(
        TASK.format(result="x + 1", inputs="torch.randn(64, 96)", arguments="x"), "small"
    ).program()
    truth = Oracle(program, seed=7, budget_bytes=1)
    for case in (*truth.cases(), *truth.cases()):
        (x,) = truth.inputs(case)
        assert truth.package(case).bytes >= x.numel() * 4
        assert truth.judge(case, outcome(x + 1)).fault is None
    truth.close()
