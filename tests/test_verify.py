"""Whether a recorded result holds: judged again in fresh processes, compared with the record."""

import pytest

from evokernel.attempt import Candidate
from evokernel.cli import main
from evokernel.compilers import KernelSource
from evokernel.config import BenchConfig
from evokernel.evaluation import Interval, Status
from evokernel.export.claims import Claim, claims_of_evaluation
from evokernel.export.domain import verified
from evokernel.export.subject import Subject, of_file
from evokernel.export.text import assembled
from evokernel.task import Task
from evokernel.testing import fake_evaluation
from evokernel.verify import comparisons, tells, verify
from tests.export_samples import CPP, KERNEL, TASK

BENCH = BenchConfig(
    measurement="quick", baselines=("eager",), contract="library_allowed", cache="unused"
)


@pytest.fixture(scope="module")
def bench(warm_cache) -> BenchConfig:
    """Quick, and against eager alone: torch.compile takes half a minute."""
    return BENCH.model_copy(update={"cache": warm_cache})


def subject(bench: BenchConfig, source: str = KERNEL, **ratios: tuple[float, float]) -> Subject:
    """A candidate of which these intervals were recorded, or nothing."""
    task = Task.from_source(TASK, "affine-rows")
    candidate = Candidate(source=source, backend="cpp")
    speedups = {
        name: Claim(ratio=Interval(value=low, low=low, high=high), processes=3)
        for name, (low, high) in ratios.items()
    }
    claims = claims_of_evaluation(task, fake_evaluation(candidate, task))
    return Subject(
        name="it",
        task=task,
        candidate=candidate,
        bench=bench,
        claims=claims.model_copy(update={"speedups": speedups}) if ratios else None,
    )


@pytest.fixture(scope="module")
def exported(bench, tmp_path_factory):
    """An exported file, and what verifying it found."""
    folder = tmp_path_factory.mktemp("exported")
    given = subject(bench, eager=(0.001, 0.002))
    shapes = {"shift": (32,)}
    domain = verified(given.task, ("default",), shapes)
    kernels = [KernelSource(backend="cpp", source=CPP)]
    (folder / "affine_kernel.py").write_text(
        assembled(given.task, KERNEL, kernels, domain, given.claims, is_strict=False)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVOKERNEL_EXPORT_CACHE", str(folder / "built"))
        read = of_file(folder / "affine_kernel.py", None, bench)
        quick = read.bench.model_copy(update={"measurement": "quick"})
        said: list[str] = []
        return verify(read.model_copy(update={"bench": quick}), said.append), said


def test_exported_file_is_judged_and_goes_through_its_own_door(exported):
    found, said = exported
    assert found.holds
    assert found.found.timing.processes == 3
    assert found.found.correctness.workloads == ("default", "small", "timed")[:2]
    assert [(check.mode, check.is_well) for check in found.door] == [
        ("train", True),
        ("eval", True),
    ]
    assert found.is_same_device is False
    assert "judging in fresh process 3" in said


@pytest.mark.parametrize(
    ("recorded", "holds", "said"),
    [
        ({"eager": (0.001, 0.002)}, True, "faster than recorded 0.00x [0.00, 0.00]"),
        ({"eager": (500.0, 600.0)}, False, "no longer measurably faster"),
        ({"compile": (1.5, 1.6)}, False, "which does not run here"),
    ],
)
def test_recorded_speedup_is_compared(bench, exported, recorded, holds, said):
    slow = exported[0].found.timing
    ratio = Interval(value=1.0, low=0.98, high=1.005)
    speedup = slow.speedups[0].model_copy(update={"ratio": ratio})
    now = exported[0].found.model_copy(
        update={"timing": slow.model_copy(update={"speedups": (speedup,)})}
    )
    (answer,) = comparisons(subject(bench, **recorded), now)
    assert answer.holds is holds
    assert said in answer.said


@pytest.mark.parametrize(
    ("now", "recorded", "holds", "said"),
    [
        ((1.45, 1.55), (1.5, 1.6), True, "as recorded"),
        ((1.40, 1.43), (1.5, 1.6), True, "as recorded"),
        ((1.30, 1.40), (1.5, 1.6), False, "slower than recorded"),
        ((1.80, 1.90), (1.5, 1.6), True, "faster than recorded"),
        ((0.96, 1.00), (0.97, 1.01), True, "as recorded"),
        ((1.00, 1.60), (1.5, 1.6), False, "no longer measurably faster"),
        ((1.20, 1.30), None, True, "faster"),
        ((1.00, 1.30), None, False, "not measurably faster; nothing was recorded"),
    ],
)
def test_intervals_decide(bench, exported, now, recorded, holds, said):
    timing = exported[0].found.timing
    ratio = Interval(value=now[0], low=now[0], high=now[1])
    speedup = timing.speedups[0].model_copy(update={"ratio": ratio})
    found = exported[0].found.model_copy(
        update={"timing": timing.model_copy(update={"speedups": (speedup,)})}
    )
    (answer,) = comparisons(subject(bench, **({"eager": recorded} if recorded else {})), found)
    assert (answer.holds, answer.said.startswith(said)) == (holds, True)


def test_wrong_candidate_does_not_hold(bench):
    found = verify(subject(bench, KERNEL.replace("+ offset;", "+ 2 * offset;"), eager=(0.1, 0.2)))
    assert not found.holds
    assert not found.undecided
    assert found.found.status is Status.WRONG_VALUES
    assert found.comparisons == ()


@pytest.mark.parametrize("status", Status)
def test_what_the_machine_may_have_done_does_not_show_a_kernel_wrong(status):
    never = {Status.INFRASTRUCTURE, Status.COMPILE_TIMEOUT, Status.TIMEOUT, Status.OUT_OF_MEMORY}
    here_alone = {Status.COMPILE_ERROR, Status.CRASHED, Status.RUNTIME_ERROR}
    assert tells(status, is_same_device=True) is (status not in never)
    assert tells(status, is_same_device=None) is (status not in never)
    assert tells(status, is_same_device=False) is (status not in never | here_alone)


def test_what_is_only_not_built_on_another_device_is_not_wrong(bench):
    found = verify(subject(bench, KERNEL.replace("extern", "nothing; extern"), eager=(0.1, 0.2)))
    assert found.found.status is Status.COMPILE_ERROR
    assert found.is_same_device is False
    assert (found.holds, found.is_wrong) == (False, False)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["{kernel}"], "name its task with `--task TASK`"),
        (["{tmp}/missing.py"], "cannot read"),
        (["nothing"], "there is no run `nothing`"),
        (["{tmp}"], "is not a run folder: expected `run.json` in it"),
    ],
)
def test_command_says_what_is_wrong(arguments, word, tmp_path, capsys):
    (tmp_path / "kernel.py").write_text(KERNEL)
    places = {"kernel": tmp_path / "kernel.py", "tmp": tmp_path}
    assert main(["verify", *(word.format(**places) for word in arguments)]) == 2
    assert word in capsys.readouterr().err
