"""Rewards and values: the hand-computed trace, the scale, and refit against the running fold."""

import math
import random

import pytest

from evokernel.attempt import Stage
from evokernel.errors import ConfigError
from evokernel.evaluation import Interval, Status
from evokernel.memory.reward_rules import rule_of, start_advance
from evokernel.memory.rewards import Normaliser, Reward, draft_reward, refine_reward
from evokernel.memory.store import Memory
from evokernel.memory.values import Rewarded, Value, Values
from tests.memory_samples import BAD, GOOD, config, judged, keep, lesson, query, shows


class TestRewards:
    def test_draft(self):
        assert draft_reward(judged()).value == 1
        assert draft_reward(judged(Status.WRONG_VALUES)).value == -1

    @pytest.mark.parametrize(
        ("ratio", "value"),
        # tanh(ln y) = (y^2 - 1) / (y^2 + 1)
        [(1, 0), (1.05, 0.1025 / 2.1025), (2, 0.6), (3, 0.8), (10, 99 / 101), (0.5, -0.6)],
    )
    def test_refine(self, ratio, value):
        reward = refine_reward(judged(ms=1.0), best_ms=ratio, parent_ms=4.0)
        assert reward.value == pytest.approx(value, abs=1e-15)
        assert reward.gain == pytest.approx(math.log(4))

    def test_infeasible_refinement(self):
        reward = refine_reward(judged(Status.CRASHED), best_ms=1.0, parent_ms=1.0)
        assert (reward.value, reward.feasible, reward.gain) == (-1, False, None)

    def test_what_the_machine_did_is_no_reward(self):
        disturbed = judged(Status.INFRASTRUCTURE)
        assert draft_reward(disturbed) is None
        assert refine_reward(disturbed, best_ms=1.0) is None

    def test_noise_gate_is_a_choice(self):
        wide = judged(ms=0.98, eager=Interval(value=1.0, low=0.9, high=1.1))
        paper, gated = (refine_reward(wide, best_ms=1.0, noise_gate=on) for on in (False, True))
        assert paper.value == pytest.approx(0.0202, abs=1e-4)
        assert gated.value == 0
        assert gated.noise == pytest.approx(math.log(1.1 / 0.9) / 2)


def told(name: str, stage: Stage = Stage.REFINE, **parts) -> float | None:
    """What a reward function makes of a step."""
    reward = Reward(**{"value": 0.25, "feasible": True, **parts})
    event = Rewarded(seq=1, step="a/1", stage=stage, value=reward.value, shown=(), reward=reward)
    return rule_of(name).of(event)


WRONG = {"value": -1.0, "feasible": False}


class TestRewardRules:
    def test_the_paper_is_taken_as_logged(self):
        assert told("evokernel") == 0.25

    def test_against_the_parent(self):
        slow_start = {"parent_ms": 2.0, "latency_ms": 1.0, "best_ms": 0.5}
        assert told("parent", **slow_start) == pytest.approx(math.tanh(math.log(2) / 0.3))
        assert told("parent", **{**slow_start, "parent_ms": 1.1}) == pytest.approx(0.308, abs=1e-3)
        assert told("parent", **{**slow_start, "parent_ms": 1.1}, noise=0.1) == 0
        assert told("parent", **WRONG) == -1
        assert told("parent", Stage.DRAFT, value=1.0) == 1

    @pytest.mark.parametrize(
        ("speedups", "value"),
        [
            ({"eager": 1.04}, 1),
            ({"eager": 1.06}, 2),
            ({"eager": 1.06, "compile": 1.0}, 2),
            ({"eager": 1.06, "compile": 1.06}, 3),
            ({"eager": 0.5, "compile": 2.0}, 1),
            ({}, None),
        ],
    )
    def test_milestones(self, speedups, value):
        assert told("milestone", speedups=speedups) == value
        assert told("milestone", **WRONG) == -1

    def test_kevin(self):
        assert told("kevin", speedups={"eager": 2.0}) == pytest.approx(2.3)
        assert told("kevin", **WRONG) == 0

    def test_makora_has_parity_near_a_half(self):
        assert told("sigmoid", speedups={"compile": 1.0}) == pytest.approx(0.55, abs=0.001)
        assert told("sigmoid", speedups={"compile": 1.0, "eager": 9.0}) < 0.6
        assert told("sigmoid", **WRONG) == 0

    def test_cuda_l1_is_smoothed_in_both_stages(self):
        values = Values(1.0, 0.2, rule=rule_of("cuda-l1"))
        for seq, speed in enumerate([1.0, 1.2, 1.1, 100.0], 1):
            reward = Reward(value=1, feasible=True, speedups={"eager": speed})
            event = {"stage": Stage.DRAFT, "value": 1.0, "shown": ("a",), "reward": reward}
            values.fold([Rewarded(seq=seq, step=f"a/{seq}", **event)])
        assert values.of("a", Stage.DRAFT).q == 1.5

    def test_the_start_point_earns_what_moves_the_best(self):
        known = {"value": 0.0, "feasible": True, "parent_ms": 4.0}
        assert start_advance(Reward(latency_ms=1.0, best_ms=2.0, **known)) == math.log(2)
        assert start_advance(Reward(latency_ms=2.0, best_ms=1.0, **known)) == 0
        assert start_advance(Reward(latency_ms=1.0, best_ms=1.05, noise=0.1, **known)) == 0

    def test_an_unknown_one_suggests_the_nearest(self):
        with pytest.raises(ConfigError, match="did you mean `milestone`"):
            rule_of("milestones")

    def test_a_memory_is_refitted_under_another_one(self, tmp_path):
        with Memory.open(config(tmp_path, alpha=0.5)) as memory:
            (a,) = keep(memory, lesson("A"))
            memory.recall(query("1"))
            reward = refine_reward(judged(ms=0.5, eager=Interval(value=2, low=2, high=2)), 1.0)
            memory.reinforce("new/1", Stage.REFINE, reward)
            assert memory.value(a, Stage.REFINE).q == pytest.approx(0.3)
        with Memory.open(config(tmp_path, alpha=0.5, reward="kevin")) as memory:
            assert memory.value(a, Stage.REFINE).q == pytest.approx(1.15)
        with Memory.open(config(tmp_path, alpha=0.5)) as memory:
            assert memory.value(a, Stage.REFINE).q == pytest.approx(0.3)


class TestNormaliser:
    def test_a_longer_warm_up(self):
        normaliser = Normaliser(sigma_floor=0.2, warm_up=20)
        assert [normaliser.standardise(0.5) for _ in range(20)] == [0.5] * 20
        assert normaliser.standardise(-1.0) == -3.0

    def test_first_two_pass_unscaled(self):
        normaliser = Normaliser(sigma_floor=0.2)
        assert [normaliser.standardise(r) for r in (0.6, -1.0)] == [0.6, -1.0]

    def test_a_reward_never_scales_itself(self):
        normaliser = Normaliser(sigma_floor=0.2)
        normaliser.standardise(0.6)
        normaliser.standardise(-1.0)
        assert normaliser.standardise(0.6) == pytest.approx(1.0)  # mean -0.2, sigma 0.8

    def test_floor_and_clip(self):
        normaliser = Normaliser(sigma_floor=0.2)
        normaliser.standardise(0.5)
        normaliser.standardise(0.5)  # no spread: sigma is the floor
        assert normaliser.standardise(0.6) == pytest.approx(0.5)
        assert normaliser.standardise(-1.0) == -3.0


def test_ten_steps_by_hand():
    """Alpha 0.5, sigma floor 0.2, three experiences A, B, C; Q starts at 0.

    Draft rewards enter as they are, refine rewards as (r - mean) / sigma with the statistics of the
    refine rewards before; the first two enter as they are. Welford: d = r - mean; mean += d / n;
    m2 += d (r - mean); sigma = sqrt(m2 / n).

     step          shown r          r^                       Q after                       n  mean   m2        sigma
      1 draft      A B   -1         -1                       Q1(A)=-0.5     Q1(B)=-0.5
      2 draft      A C   +1         +1                       Q1(A)=0.25     Q1(C)=0.5
      3 draft      B     +1         +1                       Q1(B)=0.25
      4 refine 2:1 A B   0.6        0.6                      Q2(A)=0.3      Q2(B)=0.3      1  0.6    0
      5 refine --  A     -1         -1                       Q2(A)=-0.35                   2 -0.2    1.28      0.8
      6 refine 2:1 B C   0.6        (0.6+0.2)/0.8=1          Q2(B)=0.65     Q2(C)=0.5      3  1/15   1.70667   8 sqrt2/15
      7 refine 1:1 C     0          -1/(8 sqrt2)=-0.0883883  Q2(C)=0.2058058               4  0.05   1.71      0.6538348
      8 refine --  none  -1         only the statistics                                    5 -0.16   2.592     0.72
      9 refine 1:2 A C   -0.6       (-0.6+0.16)/0.72=-0.6111 Q2(A)=-0.4805556 Q2(C)=-0.2026526
     10 draft      A B   +1         +1                       Q1(A)=0.625    Q1(B)=0.625
    """  # noqa: E501
    memory = Memory.open(config(alpha=0.5, sigma_floor=0.2))
    a, b, c = keep(memory, lesson("A"), lesson("B"), lesson("C"))
    failed, passed = judged(Status.WRONG_VALUES), judged()
    steps = [
        (Stage.DRAFT, {a, b}, draft_reward(failed)),
        (Stage.DRAFT, {a, c}, draft_reward(passed)),
        (Stage.DRAFT, {b}, draft_reward(passed)),
        (Stage.REFINE, {a, b}, refine_reward(judged(ms=1.0), best_ms=2.0)),
        (Stage.REFINE, {a}, refine_reward(failed, best_ms=1.0)),
        (Stage.REFINE, {b, c}, refine_reward(judged(ms=0.5), best_ms=1.0)),
        (Stage.REFINE, {c}, refine_reward(judged(ms=0.5), best_ms=0.5)),
        (Stage.REFINE, set(), refine_reward(failed, best_ms=0.5)),
        (Stage.REFINE, {a, c}, refine_reward(judged(ms=1.0), best_ms=0.5)),
        (Stage.DRAFT, {a, b}, draft_reward(passed)),
    ]
    for number, (stage, shown, reward) in enumerate(steps):
        hidden = {a, b, c} - shown
        assert set(shows(memory, str(number), *hidden, stage=stage)) == shown
        assert memory.reinforce(f"new/{number}", stage, reward)

    def value(id: str, stage: Stage) -> tuple[float, int]:
        found = memory.value(id, stage)
        return pytest.approx(found.q, abs=1e-14), found.visits

    assert value(a, Stage.DRAFT) == (0.625, 3)
    assert value(b, Stage.DRAFT) == (0.625, 3)
    assert value(c, Stage.DRAFT) == (0.5, 1)
    assert value(a, Stage.REFINE) == (-173 / 360, 3)
    assert value(b, Stage.REFINE) == (0.65, 2)
    assert value(c, Stage.REFINE) == ((1 / 4 - 1 / (16 * math.sqrt(2)) - 11 / 18) / 2, 3)
    memory.close()


def test_values_are_a_fold_of_the_events():
    rng = random.Random(3)
    events = [
        Rewarded(
            seq=seq,
            step=str(seq),
            stage=rng.choice(list(Stage)),
            value=rng.uniform(-1, 1),
            shown=tuple(rng.sample("abcdef", rng.randint(0, 4))),
        )
        for seq in range(1, 200)
    ]
    at_once, bit_by_bit = Values(0.2, 0.2), Values(0.2, 0.2)
    at_once.fold(events)
    for event in events:
        bit_by_bit.fold([event])
        bit_by_bit.fold([event])  # known already
    assert bit_by_bit.table == at_once.table
    assert at_once.differences(bit_by_bit) == ()


def busy(memory: Memory, steps: range) -> None:
    """Some steps with rewards of both stages."""
    for number in steps:
        stage = Stage.DRAFT if number % 3 else Stage.REFINE
        memory.recall(query(str(number), stage, seed=number))
        memory.reinforce(f"new/{number}", stage, GOOD if number % 2 else BAD)


def test_refit_equals_the_running_values(tmp_path):
    settings = config(tmp_path, epsilon=0.5)
    with Memory.open(settings) as memory:
        ids = keep(memory, *(lesson(name) for name in "ABCDE"))
        busy(memory, range(20))
    with Memory.open(settings) as memory:  # carries on from the snapshot
        busy(memory, range(20, 30))
        before = {(id, stage): memory.value(id, stage) for id in ids for stage in Stage}
        report = memory.refit()
        assert report.rewards == 30
        assert report.changes == ()
        assert {key: memory.value(*key) for key in before} == before


def test_refit_reports_what_other_constants_change(tmp_path):
    with Memory.open(config(tmp_path, alpha=0.2)) as memory:
        (a,) = keep(memory, lesson("A"))
        memory.recall(query("1", Stage.DRAFT))
        memory.reinforce("new/1", Stage.DRAFT, GOOD)
    with Memory.open(config(tmp_path, alpha=0.5)) as memory:
        assert memory.value(a, Stage.DRAFT) == Value(q=0.3, visits=1)
        (change,) = memory.refit().changes
        assert (change.experience, change.stage) == (a, Stage.DRAFT)
        assert (change.before.q, change.after.q) == (pytest.approx(0.12), pytest.approx(0.3))
        assert memory.refit().changes == ()


def test_a_reward_is_recorded_with_its_parts(tmp_path):
    reward = Reward(value=0.6, feasible=True, latency_ms=1.0, best_ms=2.0, parent_ms=3.0, noise=0.1)
    assert Reward.model_validate_json(reward.model_dump_json()) == reward
