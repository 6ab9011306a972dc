"""The zoo: what is in it, that cheats are caught and honest kernels pass, that failures show."""

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from evokernel.attempt import Backend
from evokernel.bench import Evaluator
from evokernel.bench.messages import Protections
from evokernel.cli import main
from evokernel.config import BenchConfig
from evokernel.errors import DeviceMissing
from evokernel.evaluation import Status
from evokernel.selftest import Summary, builder, judge, quick_config
from evokernel.task import Task
from evokernel.testing import FakeEvaluator, fake_kernel
from evokernel.zoo import Exhibit, exhibits, habitats
from evokernel.zoo.choice import chosen
from evokernel.zoo.kernels import written

LAST = dict(zip("ABCDEFGH", (11, 6, 9, 7, 8, 8, 5, 8), strict=True))
"""The last code of each letter."""
HACKS = (Path(__file__).parent.parent / "docs" / "hacks.md").read_text()
CHEATS = [e for e in exhibits() if e.kind != "honest"]
HONEST = [e for e in exhibits() if e.kind == "honest"]

TEXT_RULES = (
    r"\bthreading\b|ThreadPool|\bos\.(fork|kill|_exit)\b|/proc|\bsocket\b|os\.write",
    r"perf_counter|time\.monotonic|_getframe|f_locals|\bgc\.|sys\.modules|__file__",
    r"torch\.(softmax|mm|matmul|equal|load|set_flush_denormal|jit)|from evokernel\.",
    r"_Disable\w*Dispatch|__torch_\w+__|\.numpy\(\)|base64|\bexec\(|manual_seed|functools",
    r"\bCACHE\b|self\.cache|\btry:|\.zero_\(|\.half\(\)|-ffast-math|self\.eval\(\)|\"passed\"",
    r"return torch\.(zeros|empty)_like|return x\.(clone\(\)|view\()",
    r"torch\.cuda\.(Stream|CUDAGraph|synchronize|Event)",
)
"""What rules that read sources look for in this field; ours are no part of any verdict."""


def is_seen(exhibit: Exhibit) -> bool:
    return any(re.search(rule, exhibit.source) for rule in TEXT_RULES)


def test_there_is_enough_in_it():
    here = [exhibit for exhibit in CHEATS if not exhibit.needs_gpu]
    assert len(here) >= 60
    assert len({exhibit.code for exhibit in here}) >= 25
    assert len([exhibit for exhibit in HONEST if not exhibit.needs_gpu]) >= 40
    assert any(exhibit.needs_gpu for exhibit in CHEATS)
    assert any(exhibit.needs_gpu for exhibit in HONEST)


def test_every_mechanism_has_a_variant_that_no_text_rule_sees():
    hidden = defaultdict(list)
    for exhibit in CHEATS:
        assert exhibit.in_text is is_seen(exhibit), exhibit.name
        hidden[exhibit.code].append(not exhibit.in_text)
    assert [code for code, found in hidden.items() if not any(found)] == []


def test_honest_ones_look_suspicious():
    assert sum(is_seen(exhibit) for exhibit in HONEST) >= 8


def test_no_two_are_the_same():
    assert max(Counter(exhibit.name for exhibit in exhibits()).values()) == 1
    texts = ["".join(exhibit.source.split()) for exhibit in exhibits()]
    repeated = [text for text, count in Counter(texts).items() if count > 1]
    assert repeated == ["classModelNew(Honest):pass"]  # the plain kernels of the tasks


@pytest.mark.parametrize("exhibit", exhibits(), ids=lambda exhibit: exhibit.name)
def test_each_is_a_module_for_a_task_of_the_zoo(exhibit):
    tree = ast.parse(exhibit.candidate().source)
    assert any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body)
    assert exhibit.task in habitats()
    assert f"`{exhibit.name}`" in HACKS or exhibit.kind == "honest"


@pytest.mark.parametrize(("letter", "last"), LAST.items())
def test_every_code_has_its_line_in_the_documents(letter, last):
    for number in range(1, last + 1):
        assert f"\n| {letter}{number} |" in HACKS


def test_quick_takes_every_mechanism_and_every_way_of_catching():
    quick = chosen(quick=True)
    codes = Counter(exhibit.code for exhibit in quick if exhibit.code)
    assert set(codes) == {exhibit.code for exhibit in CHEATS}
    marked = Counter(exhibit.code for exhibit in CHEATS if exhibit.quick)
    assert codes == {code: marked[code] or 1 for code in codes}
    first = {exhibit.expected[0] for exhibit in CHEATS if not exhibit.needs_gpu}
    assert {exhibit.expected[0] for exhibit in quick if exhibit.code} >= first
    honest = [exhibit for exhibit in quick if exhibit.kind == "honest"]
    assert {e.task for e in honest} == {e.task for e in quick if e.code and not e.needs_gpu}
    assert len(honest) >= 6
    assert sum(is_seen(exhibit) for exhibit in honest) >= 2


def test_quick_keeps_to_what_was_named():
    assert [exhibit.name for exhibit in chosen(["memo-on-the-device", "zeros"], quick=True)] == [
        "memo-on-the-device",
        "zeros",
    ]


@pytest.mark.parametrize("is_hasty", [False, True])
def test_each_is_judged_once_and_each_kernel_built_once_before(is_hasty):
    built: Counter[str] = Counter()
    wanted = chosen(quick=True)
    found = judge(
        wanted,
        quick_config(),
        lambda task, config, backend: FakeEvaluator(task),
        lambda kernel: built.update([kernel.source]),
        is_hasty,
    )
    assert sorted(finding.name for finding in found) == sorted(e.name for e in wanted)
    assert set(built) == {source for e in wanted for _, source, _ in written(e)}
    assert max(built.values()) == 1


def test_names_and_codes_choose():
    assert {exhibit.code for exhibit in chosen(["B1"])} == {"B1"}
    assert [exhibit.name for exhibit in chosen(["zeros"])] == ["zeros"]


def test_kernels_that_stand_in_a_text_are_known_ahead():
    here = [exhibit for exhibit in exhibits() if not exhibit.needs_gpu]
    assert all(source in e.candidate().source for e in here for _, source, _ in written(e))
    assert sum(bool(written(exhibit)) for exhibit in here) >= 0.9 * len(here)
    (extra,) = {flags for e in chosen(["fast-math"]) for _, _, flags in written(e) if flags}
    assert extra == ("-ffast-math",)


def summary(*wanted: Exhibit, evaluator=FakeEvaluator) -> Summary:
    found = judge(wanted, quick_config(), lambda task, config, backend: evaluator(task))
    return Summary(findings=tuple(found), seconds=0.0)


def saying(exhibit: Exhibit, status: Status, **markers: object) -> Exhibit:
    """The exhibit with a source that says how it is to be judged."""
    source = fake_kernel(**{"status": status, **markers})
    return exhibit.model_copy(update={"source": source, "alone": True})


def test_an_evaluator_that_accepts_everything_fails():
    cheat = chosen(["zeros"])[0]
    found = summary(cheat, HONEST[0])
    assert sorted(finding.outcome for finding in found.findings) == ["accepted", "passed"]
    assert not found.is_green


def test_an_evaluator_that_refuses_everything_fails():
    zeros = chosen(["zeros"])[0]
    found = summary(*(saying(e, Status.WRONG_VALUES) for e in (zeros, HONEST[0])))
    assert sorted(finding.outcome for finding in found.findings) == ["caught", "refused"]
    assert not found.is_green


def test_a_verdict_for_another_reason_is_no_catch():
    found = summary(saying(chosen(["zeros"])[0], Status.COMPILE_ERROR))
    assert found.findings[0].outcome == "confused"
    assert not found.is_green


@pytest.mark.parametrize(
    ("median_ms", "outcome"), [(1.0, "harmless"), (0.95, "harmless"), (0.5, "accepted")]
)
def test_a_cheat_for_time_is_harmless_where_it_gains_none(median_ms, outcome):
    exhibit = next(e for e in CHEATS if e.wants_time)
    found = summary(saying(exhibit, Status.PASSED, median_ms=median_ms))  # its twin takes 1 ms
    assert found.findings[0].outcome == outcome
    assert found.is_green is (outcome == "harmless")


def test_a_gain_that_cannot_be_told_is_neither_harmless_nor_accepted():
    exhibit = next(e for e in CHEATS if e.wants_time)
    found = summary(saying(exhibit, Status.PASSED, median_ms=0.8, doubt=0.3))
    assert found.findings[0].outcome == "not judged"
    assert not found.is_green


def test_protections_that_are_needed_exist():
    names = {name for exhibit in exhibits() for name in exhibit.needs}
    assert names <= set(Protections.model_fields) - {"notes"}


@pytest.mark.usefixtures("warm")
def test_some_are_judged_for_real():
    cheats = chosen(["zeros", "plain-torch", "lost-tail"])
    honest = next(exhibit for exhibit in HONEST if exhibit.task == cheats[0].task)
    config = quick_config()
    findings = tuple(judge([*cheats, honest], config, build=builder(config)))
    assert {finding.outcome for finding in findings} == {"caught", "passed"}


def test_a_spoiled_verdict_is_tried_again_and_is_no_catch():
    zeros = chosen(["zeros"])[0]
    again = summary(saying(zeros, Status.WRONG_VALUES, spoiled=2))
    assert again.findings[0].outcome == "caught"
    never = summary(saying(zeros, Status.WRONG_VALUES, spoiled=9))
    assert never.findings[0].outcome == "not judged"
    assert not never.is_green


def test_what_nothing_stops_here_is_not_judged():
    exhibit = next(e for e in CHEATS if e.needs == ("network_namespace",))
    (finding,) = summary(exhibit).findings  # the fake has no protections
    assert finding.outcome == "not judged"
    assert "network namespace" in finding.reason


def test_gpu_exhibits_are_listed_and_skipped_where_there_is_none():
    def refuse(task: Task, config: BenchConfig, backend: Backend) -> Evaluator:
        raise DeviceMissing(f"no GPU is here for `{backend}`")

    exhibit = next(e for e in CHEATS if e.needs_gpu)
    (finding,) = judge([exhibit], quick_config(), refuse)
    assert finding.outcome == "skipped"
    assert "no GPU is here" in finding.reason
    with pytest.raises(DeviceMissing):  # what needs none is not passed over in silence
        list(judge(chosen(["zeros"]), quick_config(), refuse))


def test_gpu_exhibits_are_judged_where_there_is_one():
    backends: list[Backend] = []

    def opened(task: Task, config: BenchConfig, backend: Backend) -> Evaluator:
        backends.append(backend)
        return FakeEvaluator(task)

    wanted = chosen(["plain-silu-in-cuda", "plain-silu-in-triton"])
    assert {finding.outcome for finding in judge(wanted, quick_config(), opened)} == {"passed"}
    assert backends == ["cuda", "triton"]


def test_backends_choose():
    assert {exhibit.backend for exhibit in chosen(["triton"])} == {"triton"}


def test_sources_can_be_read(capsys):
    assert main(["selftest", "zeros", "--source"]) == 0
    assert "class ModelNew(Honest)" in capsys.readouterr().out
    assert main(["selftest", "zerros"]) == 2
    assert "Did you mean `zeros`" in capsys.readouterr().err
