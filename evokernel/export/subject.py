"""Owns what `export` and `verify` are asked about: a kernel with its task and its claims."""

from collections.abc import Callable
from pathlib import Path

from evokernel.attempt import NO_TEXT, Candidate, source_of
from evokernel.config import BenchConfig
from evokernel.errors import ConfigError, RecordError
from evokernel.evaluation import Evaluation
from evokernel.export.claims import Claims, claims_of_evaluation, claims_of_run
from evokernel.export.reading import read_exported
from evokernel.frozen import Frozen
from evokernel.record import RunRecord
from evokernel.record.entries import label_of
from evokernel.record.outcome import Outcome
from evokernel.task import Task


class Subject(Frozen):
    """A kernel, the task that it is for, and what is claimed of it."""

    name: str
    """As the user named it."""
    task: Task
    candidate: Candidate
    bench: BenchConfig
    """How it was, or is to be, judged."""
    claims: Claims | None = None
    """None for a candidate of which nothing was recorded."""
    workloads: tuple[str, ...] = ()
    """Names of those on which it was found right."""
    exported: str = ""
    """The text of an exported file; empty for other kinds."""
    memory: Path | None = None
    """The memory that its run learned for; None where no run is named by its folder."""


def of_run(folder: Path) -> Subject:
    """The best kernel of a run.

    Raises:
        RecordError: It is no run, it is damaged, or no kernel has passed.
    """
    found = Outcome(RunRecord.open(folder))
    if found.best is None:
        raise RecordError(
            f"the run `{folder}` has no kernel that passed; expected one to work with. Go on with "
            f"`evokernel resume {folder}`, or see what failed with `evokernel report {folder}`"
        )
    correctness = found.best.evaluation.correctness
    return Subject(
        name=str(folder),
        task=found.record.task(),
        candidate=found.best.proposal.candidate,
        bench=found.record.config.bench.model_copy(update={"cache": BenchConfig().cache}),
        claims=claims_of_run(found),
        memory=found.record.memory,
        workloads=correctness.workloads if correctness else (),
    )


def of_file(path: Path, task: str | None, bench: BenchConfig) -> Subject:
    """A candidate, or an exported file, which brings its own task.

    Raises:
        ConfigError: It cannot be read, or no task was named for a candidate.
        TaskError: The task cannot be loaded.
    """
    try:
        source = source_of(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else NO_TEXT
        raise ConfigError(
            f"cannot read `{path}`: {reason}; expected a run folder, a candidate with `ModelNew`, "
            "or a file that `evokernel export` wrote"
        ) from error
    if (exported := read_exported(path, source)) is not None:
        return Subject(
            name=str(path),
            task=exported.task,
            candidate=exported.candidate,
            bench=bench.model_copy(
                update={
                    "measurement": exported.claims.measurement,
                    "contract": exported.claims.contract,
                }
            ),
            claims=exported.claims,
            exported=source,
        )
    if task is None:
        raise ConfigError(
            f"`{path}` does not say what it is for: name its task with `--task TASK` (a built-in "
            "task or a task file)"
        )
    candidate = Candidate(source=source, backend="cpp")
    return Subject(name=str(path), task=Task.load(task), candidate=candidate, bench=bench)


def judged(
    subject: Subject, say: Callable[[str], None] = lambda text: None
) -> tuple[Subject, Evaluation]:
    """Judge a candidate of which nothing is recorded; torch.compile is left out.

    Args:
        subject: What is to be exported.
        say: Told in a few words what begins now.

    Returns:
        The subject with its claims, where the candidate passed, and the verdict.
    """
    from importlib.metadata import version

    from evokernel.bench import processor
    from evokernel.bench.checkup import checkup
    from evokernel.bench.evaluator import LocalEvaluator

    config = subject.bench.model_copy(update={"baselines": ("eager",)})
    with LocalEvaluator(subject.task, config, say=say) as evaluator:
        candidate = subject.candidate
        evaluation = evaluator.compile(candidate) or evaluator.verify(candidate)
    if not evaluation.status.is_feasible or evaluation.correctness is None:
        return subject, evaluation
    claims = claims_of_evaluation(subject.task, evaluation, processor.name(), version("torch"))
    failed = checkup(subject.task, config.cache).examination.failed
    claims = claims.model_copy(update={"label": label_of(failed)})
    workloads = evaluation.correctness.workloads
    return subject.model_copy(update={"claims": claims, "workloads": workloads}), evaluation
