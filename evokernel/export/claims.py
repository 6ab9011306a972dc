"""Owns what an exported file says about itself: which kernel it holds and what was measured."""

import re
from typing import Literal

from evokernel.answers import BASELINES
from evokernel.evaluation import Evaluation, Interval
from evokernel.frozen import Frozen
from evokernel.record.outcome import Outcome
from evokernel.task import Task, TaskOptions
from evokernel.wording import call_time, with_interval


class Claim(Frozen):
    """One speedup as it was measured."""

    ratio: Interval
    """Opponent's time over the kernel's."""
    processes: int
    """Fresh processes that it was measured in; 1 is a first measurement."""


class Claims(Frozen):
    """`RECORD` of an exported file."""

    format: Literal[1] = 1
    """Of the exported file."""
    task: str
    """Name of the task."""
    task_sha: str
    """Content hash of its text, which the file embeds."""
    options: TaskOptions
    """Precision, tolerance and mode by which the kernel was judged."""
    candidate: str
    """Content hash of the kernel's text, which the file embeds."""
    run: str = ""
    """Id of the run that made it; empty for a candidate that was given."""
    attempt: int | None = None
    """Number of the attempt."""
    harness: str
    """Version of the harness that judged."""
    device: str
    """Fingerprint of the device it was measured on."""
    processor: str = ""
    """The device in words."""
    torch: str = ""
    """Version of torch that it was compared with."""
    measurement: Literal["standard", "quick"]
    """How long it was measured."""
    contract: Literal["own_kernels_only", "library_allowed"] = "library_allowed"
    """Who was allowed to compute."""
    median_ms: float | None
    """Median time of one call, milliseconds; on a GPU device time."""
    wall_ms: float | None = None
    """On a GPU, its wall time from launch to end."""
    speedups: dict[str, Claim]
    """By baseline."""
    margin: float = 0.01
    """What a win had to exceed."""
    label: str = ""
    """What has to be known first, such as that the task failed its check."""

    def sentence(self) -> str:
        """What was measured, in words."""
        origin = f"attempt {self.attempt} of run {self.run}" if self.run else "a given candidate"
        said = f"Kernel {self.candidate} for the task `{self.task}` ({origin})."
        if self.median_ms is None or not self.speedups:
            return f"{said} It is right; it was not timed."
        ratios = " and ".join(
            f"{with_interval(claim.ratio)} as fast as {BASELINES.get(name, name)} "
            f"({'one process' if claim.processes == 1 else f'{claim.processes} processes'})"
            for name, claim in self.speedups.items()
        )
        said += f" {self.label[:1].upper()}{self.label[1:]}." if self.label else ""
        time = call_time(self.median_ms, self.wall_ms)
        return (
            f"{said} Measured on {self.processor or self.device} with torch {self.torch}: "
            f"{time} a call, {ratios}; in brackets 95 % intervals."
        )


def file_name(task: str) -> str:
    """What an exported file of a task is called, so that Python can import it."""
    plain = re.sub(r"\W", "_", task, flags=re.ASCII)
    return f"{'task_' * (not plain or plain[0].isdigit())}{plain}_kernel.py"


def claims_of_run(found: Outcome) -> Claims:
    """What a run says about its best kernel, which it must have."""
    assert found.best is not None
    record, evaluation = found.record, found.best.evaluation
    speedups: dict[str, Claim] = {}
    for name in BASELINES:
        if (ratio := found.ratio(name)) is not None:
            look = found.second_look(name)
            again = look is not None and look.ratio is not None
            processes = look.processes if look is not None and again else 1
            speedups[name] = Claim(ratio=ratio, processes=processes)
    given = claims_of_evaluation(record.task(), evaluation)
    facts = record.header.environment
    return given.model_copy(
        update={
            "run": record.id,
            "attempt": found.best.number,
            "processor": facts.get("processor", ""),
            "torch": facts.get("torch", ""),
            "speedups": speedups,
            "margin": record.config.bench.margin,
            "label": record.header.label,
        }
    )


def claims_of_evaluation(
    task: Task, evaluation: Evaluation, processor: str = "", torch: str = ""
) -> Claims:
    """What one evaluation says about a candidate that passed."""
    timing = evaluation.timing
    return Claims(
        task=task.name,
        task_sha=task.sha,
        options=task.options,
        candidate=evaluation.candidate,
        harness=evaluation.harness,
        device=evaluation.device,
        processor=processor,
        torch=torch,
        measurement=evaluation.measurement,
        contract=evaluation.contract.policy if evaluation.contract else "library_allowed",
        median_ms=timing.median_ms if timing else None,
        wall_ms=timing.wall_ms if timing else None,
        speedups={
            s.against: Claim(ratio=s.ratio, processes=timing.processes if timing else 1)
            for s in (timing.speedups if timing else ())
        },
    )
