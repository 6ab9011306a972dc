"""Recorded template spaces, their replay, and the comparison of policies on them."""

import json
import random

import pytest

from evokernel.config import MemoryConfig
from evokernel.errors import ConfigError, EvoKernelError
from evokernel.evaluation import Status
from evokernel.study import recording, results
from evokernel.study.ablation import Outcome, ablate, design, memory_at, shops
from evokernel.study.draws import ratio_of
from evokernel.study.effects import contrast, curves, effects
from evokernel.study.fixed import best_fixed, share, worth
from evokernel.study.recording import Times, typical
from evokernel.study.replay import DeclaredProposer, DeclaredTemplate, RecordedEvaluator
from evokernel.study.searches import SEARCHES
from evokernel.study.simulation import Course, Workshop
from evokernel.study.space import plans, size, thinned
from evokernel.study.starter import starter_bank
from evokernel.study.tape import Tape
from tests.study_samples import invented, with_points

TASKS = ("softmax", "gelu", "rms_norm")


@pytest.fixture(scope="module")
def recordings():
    return tuple(invented(name) for name in TASKS)


@pytest.fixture(scope="module")
def workshop(recordings):
    return Workshop(recordings)


# The declared space


def test_a_space_lists_each_plan_once_and_the_plain_one_first(recordings):
    for each in recordings:
        space = each.subject.space
        found = list(plans(space))
        assert found[0] == space.plain()
        assert len({plan.line for plan in found}) == len(found) == size(space, 999)
        assert all(space.settle(plan.choices) == plan for plan in found)


def test_thinning_keeps_every_choice_and_stays_within_the_limit(recordings):
    space = DeclaredTemplate(recordings[0]).language.space(DeclaredTemplate(recordings[0]).program)
    for limit in (6, 30, 200):
        small = thinned(space, lambda technique: 1.0, limit)
        assert size(small, limit) <= limit
        assert [c.name for c in small.choices] == [c.name for c in space.choices]
        assert all(
            c.options[0] == o.options[0] for c, o in zip(small.choices, space.choices, strict=True)
        )
    fixed = thinned(space, lambda technique: 1.0, 200, plain=("form",))
    assert len(next(c for c in fixed.choices if c.name == "form").options) == 1


def test_other_values_of_a_technique_go_first_then_what_promises_least(recordings):
    template = DeclaredTemplate(recordings[0])
    space = template.language.space(template.program)
    promised = {"nontemporal-stores": 0.0, "vectorized-math": 3.0}
    small = thinned(space, lambda technique: promised.get(technique, 1.0), 100)
    by_name = {choice.name: choice for choice in small.choices}
    assert len(by_name["form"].options) == 3  # three ways, none a repetition of another
    assert len(by_name["stores"].options) == 1
    for choice in small.choices:
        names = [option.technique for option in choice.options]
        assert len(names) == len(set(names))


# Recordings as files


def test_a_recording_is_read_back_and_always_packed_alike(recordings, tmp_path):
    path = recording.write(recordings[0], tmp_path)
    first = path.read_bytes()
    assert recording.read(path) == recordings[0]
    assert recording.write(recording.read(path), tmp_path).read_bytes() == first
    found = recording.recorded(tmp_path, ["softmax"], "cpp")
    assert [each.subject.name for each in found] == ["softmax"]
    assert found[0].graph().fingerprint == recordings[0].graph().fingerprint


def test_a_missing_recording_is_named_with_what_there_is(recordings, tmp_path):
    with pytest.raises(ConfigError, match="no recordings"):
        recording.recorded(tmp_path, [], "cpp")
    recording.write(recordings[0], tmp_path)
    with pytest.raises(ConfigError, match=r"no recording of `gelu`.*softmax"):
        recording.recorded(tmp_path, ["gelu"], "cpp")
    (tmp_path / "cpp-broken.json.gz").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="cpp-broken"):
        recording.recorded(tmp_path, [], "cpp")


def test_shipped_recordings_can_be_replayed():
    for each in recording.shipped():
        template = DeclaredTemplate(each)
        assert {plan.line for plan in plans(each.subject.space)} == set(each.by_plan)
        assert all(point.is_complete for point in each.points)
        assert template.candidate(template.space.plain()).source
        evaluator = RecordedEvaluator(each, "seed")
        assert evaluator.verify(template.candidate(template.space.plain())).harness


def test_a_tape_goes_on_where_it_was_torn(recordings, tmp_path):
    subject, path = recordings[0].subject, tmp_path / "tape.jsonl"
    tape = Tape(path, subject)
    point = recordings[0].points[1].model_copy(update={"times": ()})
    tape.judged(point)
    assert tape.points[point.plan.line].typical_ms is None
    times = Times(times_ms=(1.0,) * 6, eager_ms=(2.0,), dropped=1, foreign=0.5)
    tape.timed(point.plan.line, times)
    with path.open("a") as file:
        file.write('{"line": "half a')
    again = Tape(path, subject)
    assert again.points[point.plan.line].times == (times,)
    again.timed(point.plan.line, times)
    assert Tape(path, subject).points[point.plan.line].times_ms == (1.0,) * 12
    assert [json.loads(line) for line in path.read_text().splitlines()]


def test_a_tape_refuses_another_space_and_another_device(recordings, tmp_path):
    tape = Tape(tmp_path / "tape.jsonl", recordings[0].subject)
    facts = {"device": "one", "machine": "", "harness": "", "tools": "", "made": ""}
    tape.about(facts)
    with pytest.raises(ConfigError, match="another device|two devices"):
        Tape(tape.path, recordings[0].subject).about(facts | {"device": "two"})
    with pytest.raises(ConfigError, match="another space"):
        Tape(tape.path, recordings[1].subject)


# The replay


def test_verdicts_are_drawn_from_what_was_recorded(recordings):
    each = recordings[0]
    template, evaluator = DeclaredTemplate(each), RecordedEvaluator(each, "a")
    for plan in plans(each.subject.space):
        candidate = template.candidate(plan)
        verdict = evaluator.verify(candidate)
        point = each.by_plan[plan.line]
        assert verdict.candidate == candidate.sha
        assert verdict.timing.median_ms in point.times_ms
        assert evaluator.profile(candidate, verdict).profile.bound_by == point.bound_by
    one, two = RecordedEvaluator(each, "b"), RecordedEvaluator(each, "b")
    assert one.verify(candidate) == two.verify(candidate)


def test_recorded_failures_fail():
    each = invented("gelu", broken="vectorized-math")
    template, evaluator = DeclaredTemplate(each), RecordedEvaluator(each, "a")
    failed = template.space.settle({"form": "vector"})
    verdict = evaluator.verify(template.candidate(failed))
    assert verdict.status is Status.WRONG_VALUES
    assert verdict.timing is None


def test_a_kernel_from_elsewhere_is_no_part_of_a_recording(recordings):
    other = DeclaredTemplate(recordings[1]).candidate(recordings[1].points[0].plan)
    with pytest.raises(EvoKernelError, match=r"softmax.*record it anew"):
        RecordedEvaluator(recordings[0], "a").verify(other.model_copy(update={"source": "x = 1"}))


def test_an_interval_of_equal_times_is_a_point_and_noise_widens_it():
    assert ratio_of([2.0] * 9, [1.0] * 9).value == pytest.approx(2.0)
    steady = ratio_of([2.0] * 9, [1.0] * 9)
    noisy = ratio_of([2.0, 2.2, 1.9] * 3, [1.0, 1.1, 0.9] * 3)
    assert noisy.high - noisy.low > steady.high - steady.low == pytest.approx(0.0)


def test_a_run_repeats_with_its_seed_and_stays_in_the_space(workshop):
    def run(seed):
        config = MemoryConfig(policy="evokernel")
        with memory_at(None, config) as memory:
            first = workshop.run("softmax", memory, config, seed, 6, "one")
            second = workshop.run("gelu", memory, config, seed, 6, "one")
            return first, second, memory.stats().experiences

    once = run(1)
    assert once == run(1)
    assert [len(course.tried) for course in once[:2]] == [6, 6]
    assert once[2] > 6
    assert once != run(2)


def test_memory_is_shown_and_rewarded_in_a_simulated_run(workshop):
    config = MemoryConfig(policy="similarity")
    with memory_at(None, config) as memory:
        workshop.run("softmax", memory, config, 0, 8, "one")
        workshop.run("gelu", memory, config, 0, 8, "one")
        stats = memory.stats()
        assert stats.policies == {"similarity": 16}
        assert sum(stage.rewards for stage in stats.stages) == 16
        assert sum(stage.shown for stage in stats.stages) > 0


def test_the_first_draft_can_be_given(recordings, workshop):
    fixed = best_fixed(recordings)
    config = MemoryConfig(policy="none")
    for each in recordings:
        with memory_at(None, config) as memory:
            name = each.subject.name
            course = workshop.run(name, memory, config, 0, 2, "one", fixed)
        assert course.tried[0] == pytest.approx(share(fixed, each))
    assert DeclaredProposer((), fixed).name == "templates"


# Without memory


def test_the_fixed_configuration_is_the_best_for_all(recordings):
    found = best_fixed(recordings)
    rng = random.Random(0)
    for _ in range(40):
        other = {
            c.name: rng.choice(c.values) for each in recordings for c in each.subject.space.choices
        }
        assert worth(other, recordings) <= worth(found, recordings) + 1e-9
    assert found["form"] == "vector"


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_tries_every_plan_once(recordings, workshop, name):
    fixed = best_fixed(recordings)
    for each in recordings:
        task, many = each.subject.name, len(each.points)
        course = workshop.search(task, SEARCHES[name], fixed, 0, many + 5)
        assert len(course.tried) == many
        assert sorted(course.tried) == pytest.approx(
            sorted(each.best_ms / p.typical_ms for p in each.points)
        )
        assert course.tried[0] == pytest.approx(share(fixed, each))
        assert workshop.search(task, SEARCHES[name], fixed, 0, 5).tried == course.tried[:5]


# What is made of the runs


def test_a_course_says_when_the_target_was_reached():
    course = Course(tried=(0.5, 0.0, 0.96, 1.0), kept=(0.5, 0.5, 0.96, 0.96))
    assert course.needed() == 3
    assert course.needed(1.01) is None
    assert course.final == 0.96
    assert course.area(8) == pytest.approx((0.5 + 0.5 + 6 * 0.96) / 8)
    assert Course(tried=(), kept=()).area(4) == 0.0


def outcome(arm, task, seed, needed, setting="transfer"):
    shares = {"first": 0.5, "final": 1.0, "area": 0.9, "held": (0.5, 1.0)}
    return Outcome(arm=arm, setting=setting, seed=seed, task=task, place=1, needed=needed, **shares)


def test_arms_are_compared_within_tasks():
    found = [outcome("none", f"t{t}", s, 4 + 4 * t) for t in range(6) for s in range(3)]
    found += [outcome("evokernel", f"t{t}", s, 2 + 2 * t) for t in range(6) for s in range(3)]
    compared = contrast(found, "evokernel", "none", "transfer", 30)
    assert compared.ratio.value == pytest.approx(0.5)
    assert compared.is_better
    assert compared.tasks == 6
    assert contrast(found, "evokernel", "none", "adaptation", 30) is None
    (none, rule) = effects(found, 30)
    assert (none.ratio, rule.needed) == (None, 7.0)
    assert curves(found, "transfer", 3)["none"] == [0.5, 1.0, 1.0]


def test_a_missed_target_counts_one_more_than_the_budget():
    found = [outcome("none", "t", 0, None), outcome("evokernel", "t", 0, 5)]
    (none, rule) = effects(found, 9)
    assert (none.needed, none.reached) == (10.0, 0.0)
    assert rule.ratio.value == pytest.approx(0.5)


def test_a_time_counts_by_its_lower_quartile():
    assert typical([4.0, 1.0, 2.0, 3.0]) == 2.0
    assert typical([1.0]) == 1.0


def test_an_ablation_runs_every_arm_on_the_same_tasks(recordings, tmp_path):
    arms = ("none", "random-plans", "evokernel", "oracle")
    plan = design(recordings, arms, seeds=(0,), budget=5)
    found = ablate(plan, shops(plan, recordings))
    assert {(o.arm, o.task) for o in found if o.setting == "adaptation"} == {
        (arm, task) for arm in arms[:3] for task in TASKS
    }
    held_out = {o.task for o in found if o.setting == "transfer" and o.arm == "none"}
    assert len(held_out) == 2
    assert {o.task for o in found if o.arm == "oracle"} == held_out
    made = results.results(plan, recordings, found, 1.0)
    results.write(made, tmp_path / "ablation.json")
    assert results.read(tmp_path / "ablation.json") == made
    assert made.contrast("evokernel", "none", "transfer").tasks == 2
    assert ablate(plan, shops(plan, recordings)) == found


def test_tasks_without_headroom_are_left_out_and_named(recordings):
    points = tuple(p for p in recordings[0].points if not p.techniques)
    flat = with_points(recordings[0], points)
    plan = design((flat, *recordings[1:]), ("none",), (0,), 4)
    assert plan.tasks == TASKS[1:]
    assert plan.left_out == {"softmax": 1.0}


@pytest.mark.slow
def test_a_space_is_recorded_and_recording_goes_on(warm, tmp_path, capsys):
    from evokernel.cli.memory_study import record

    def go():
        record(["rms_norm"], tmp_path, limit=1, size=["TOKENS=8", "WIDTH=64"], threads=1, minutes=2)
        return capsys.readouterr().out

    out = go()
    assert "headroom" in out
    (made,) = recording.recorded(tmp_path, ["rms_norm"], "cpp")
    assert {point.plan.line for point in made.points} == {
        plan.line for plan in plans(made.subject.space)
    }
    assert all(point.is_complete and point.typical_ms > 0 for point in made.points)
    tape = (tmp_path / "rms_norm.jsonl").read_bytes()
    assert "headroom" in go()
    assert (tmp_path / "rms_norm.jsonl").read_bytes() == tape, "there was nothing left to do"


@pytest.mark.slow
def test_what_was_imported_is_judged_here_before_it_is_shown(warm, recordings, tmp_path):
    from evokernel.attempt import Stage
    from evokernel.bench.evaluator import LocalEvaluator
    from evokernel.config import BenchConfig
    from evokernel.memory.experience import Experience, ExperienceStatus, Origin
    from evokernel.opgraph import capture
    from evokernel.proposers.templates.template import Template
    from evokernel.study.admission import admit
    from evokernel.task import Task
    from tests.study_samples import sized

    task = sized(Task.load("rms_norm"), TOKENS=8, WIDTH=64)
    graph = capture(task.program())
    template = Template(task, graph, "cpp")
    candidate = template.candidate(template.space.plain())

    def kernel(source, name):
        origin = Origin(
            run="theirs", step=f"theirs/{name}", task="rms_norm", candidate=candidate.sha
        )
        return Experience(
            kind="kernel",
            stage=Stage.DRAFT,
            backend="cpp",
            family=graph.family,
            fingerprint=graph.fingerprint,
            summary=name,
            payload={"source": source},
            origin=origin,
        )

    good, forged = kernel(candidate.source, "good"), kernel(candidate.source + "\n", "forged")
    with memory_at(tmp_path / "theirs", MemoryConfig()) as memory:
        for each in (good, forged):
            memory.add([each], each.origin.step, graph)
        bank = memory.bank()
    config = BenchConfig(measurement="quick", baselines=("eager",), threads=1)
    with (
        memory_at(tmp_path / "mine", MemoryConfig()) as memory,
        LocalEvaluator(task, config) as evaluator,
    ):
        assert memory.take_over(bank).refused == (forged.id,)
        found = admit(memory, evaluator, "rms_norm", graph.fingerprint)
        assert (found.judged, found.active, found.left) == (1, (good.id,), 0)
        assert memory.get(good.id).experience.measurement.speedup is not None
        assert memory.get(good.id).status is ExperienceStatus.ACTIVE


def test_the_starter_bank_says_what_was_recorded(recordings, tmp_path):
    checked = tuple(_as_written(each) for each in recordings)
    bank = starter_bank((*checked[:2], recordings[2]))
    found = [held.experience for held in bank.held.values()]
    kernels = [each for each in found if each.kind == "kernel"]
    assert [each.origin.task for each in kernels] == ["softmax", "gelu"]
    notes = {(each.family, each.techniques[0]): each for each in found if each.kind == "technique"}
    helpful, harmful = notes["softmax", "row-caching"], notes["softmax", "nontemporal-stores"]
    assert (helpful.outcome, harmful.outcome) == ("success", "failure")
    assert "1.10x as fast" in helpful.payload["note"]
    with memory_at(tmp_path, MemoryConfig()) as memory:
        taken = memory.take_over(bank, is_trusted=True)
        assert len(taken.new) == len(found) == len(memory.list(run="starter"))
        assert memory.take_over(bank, is_trusted=True).new == ()


def _as_written(made):
    """The recording of kernels that the templates still write."""
    template = DeclaredTemplate(made)
    points = (
        point.model_copy(update={"candidate": template.candidate(point.plan).sha})
        for point in made.points
    )
    return with_points(made, points)
