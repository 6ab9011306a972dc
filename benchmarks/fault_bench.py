"""Owns the judging of a planted fault: by the evaluation, the usual check, and random inputs."""

import json
import subprocess
import sys
import tempfile
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from fault_report import RIGHT, STOCK
from fault_subjects import HERE, SEED, Planted, Subject

from evokernel.attempt import Candidate
from evokernel.bench.evaluator import LocalEvaluator
from evokernel.bench.messages import Faulted
from evokernel.bench.session import Session
from evokernel.config import BenchConfig
from evokernel.errors import WorkerError
from evokernel.evaluation import Evaluation, Status
from evokernel.nested import leaves

INPUTS = 10_000
"""Random inputs on which a fault that was let through is compared with the right kernel."""
NOT_PLANTED = {
    *(Status.COMPILE_ERROR, Status.COMPILE_TIMEOUT, Status.INVALID_SOURCE, Status.RUNTIME_ERROR)
}


class Bench:
    """Judges faults of one task; a context manager.

    Args:
        subject: The task.
        crowded: Take many rows, so that threads surely work at the same time.
    """

    def __init__(self, subject: Subject, crowded: bool = False) -> None:
        self.subject = subject
        self._task = subject.judged_on(crowded)
        self._evaluator = LocalEvaluator(self._task, config())

    @cached_property
    def _session(self) -> Session:
        return Session(self._task, config())

    @cached_property
    def _usual(self) -> list[tuple[list[Any], list[torch.Tensor]]]:
        """Five normal inputs, and what the reference makes of them."""
        program, seed = self._session.program, self._session.oracle.reference.weights_seed
        module = program.build(seed)
        made = [program.make_inputs(seed=number) for number in range(5)]
        return [
            (args, _tensors(program.call(module, program.make_inputs(seed=n))))
            for n, args in enumerate(made)
        ]

    def judge(self, planted: Planted) -> dict[str, Any]:
        """The evaluation's answer, the usual check's, and what random inputs say of the rest."""
        began = time.monotonic()
        verdict = self.evaluate(Candidate(source=planted.fault.source, backend="cpp"))
        status, reason = verdict.status, verdict.reason
        answer: dict[str, Any] = {
            "task": planted.task,
            "form": planted.form,
            "kind": planted.fault.kind,
        }
        answer |= {"what": planted.fault.what, "status": str(status), "reason": reason[:200]}
        if planted.fault.kind == RIGHT:
            return answer | {"outcome": "passed" if status is Status.PASSED else "refused"}
        if status in NOT_PLANTED or "in `load`" in reason:
            return answer | {"outcome": "not planted"}
        is_found = status is not Status.PASSED
        answer["outcome"] = "found" if is_found else self._looked_closer(planted, answer)
        answer["stock"] = self._stock(planted.fault.source)
        return answer | {"seconds": round(time.monotonic() - began, 2)}

    def evaluate(self, candidate: Candidate) -> Evaluation:
        """The evaluation's verdict; asked again where the machine was at fault.

        Raises:
            WorkerError: It was at fault three times.
        """
        for _ in range(3):
            found = self._evaluator.verify(candidate)
            if found.status is not Status.INFRASTRUCTURE:
                return found
        raise WorkerError(f"`{self.subject.name}` could not be judged: {found.reason}")

    def _stock(self, source: str) -> list[bool]:
        """Whether the usual check finds it, for each of its tolerances."""
        wrong = [False] * len(STOCK)
        try:
            worker, _ = self._session.fork(Candidate(source=source, backend="cpp"))
            with worker:
                for number, (args, want) in enumerate(self._usual):
                    worker.put(f"usual {number}", args)
                    got = _tensors(worker.run(f"usual {number}", poison=False).outputs)
                    for place, limit in enumerate(STOCK):
                        wrong[place] |= not _close(got, want, limit)
        except Faulted:
            return [True] * len(STOCK)
        return wrong

    def _looked_closer(self, planted: Planted, answer: dict[str, Any]) -> str:
        """What a fault is that the evaluation let through."""
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder, name) for name in ("task.json", "right.py", "faulty.py")]
            texts = (self.subject.many.model_dump_json(), planted.right, planted.fault.source)
            for file, text in zip(files, texts, strict=True):
                file.write_text(text)
            threads = 2 if planted.is_race else 1
            given = [*map(str, files), str(INPUTS), str(threads)]
            done = subprocess.run(
                [sys.executable, str(HERE / "random_inputs.py"), *given],
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode:
            answer["random"] = {"crashed": done.returncode, "log": done.stderr[-400:]}
            return "missed" if done.returncode < 0 else "not told"  # a signal is the kernel's doing
        found = answer["random"] = json.loads(done.stdout.splitlines()[-1])
        if found["wrong"]:
            return "missed"
        return "within tolerance" if found["differing"] else "no fault"

    def __enter__(self) -> "Bench":
        self._evaluator.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._evaluator.__exit__(*exc)
        if "_session" in self.__dict__:
            self._session.close()


def config() -> BenchConfig:
    """The quick evaluation, without a contest: only right or wrong is asked."""
    return BenchConfig(
        measurement="quick", baselines=(), contract="library_allowed", threads=2, seed=SEED
    )


def _tensors(outputs: Any) -> list[torch.Tensor]:
    return [leaf for _, leaf in leaves(outputs) if isinstance(leaf, torch.Tensor)]


def _close(got: list[torch.Tensor], want: list[torch.Tensor], limit: float) -> bool:
    if len(got) != len(want):
        return False
    return all(
        one.shape == two.shape and torch.allclose(one.float(), two.float(), rtol=limit, atol=limit)
        for one, two in zip(got, want, strict=True)
    )
