"""Plants faults into the templates' kernels and counts how many the evaluation finds.

Every fault is one change of a right kernel (`mutations.py`). The evaluation is that of `evokernel
evaluate --quick`, on small sizes with an odd hidden workload; next to it stands the check that is
usual elsewhere: five normal inputs, `allclose` with 1e-2 and with 1e-4. What the evaluation lets
through is compared with the right kernel on 10,000 random inputs (`random_inputs.py`): a fault that
differs by more than is allowed was missed; one that stays within the limits is listed as such; one
that gives the same bits is no fault. What does not compile or run is left out.

    python benchmarks/planted_faults.py [--task NAME ...] [--each 15] [--limit N] [--seconds S]

Answers are kept in `--folder` as they come, so that a run that was cut short goes on where it was.
The table goes to `results/planted_faults.{txt,json}`. About ten minutes on a quiet machine.
"""

import argparse
import ast
import hashlib
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fault import CLASSES, Fault
from fault_report import RIGHT, STOCK, report
from mutations import faults, of_benchmark

from evokernel.attempt import Candidate
from evokernel.bench.evaluator import LocalEvaluator
from evokernel.bench.messages import Faulted
from evokernel.bench.session import Session
from evokernel.config import BenchConfig, home
from evokernel.errors import WorkerError
from evokernel.evaluation import Evaluation, Status
from evokernel.nested import leaves
from evokernel.opgraph import capture
from evokernel.proposers.templates.template import Template
from evokernel.task import Task

HERE = Path(__file__).parent
INPUTS = 10_000
SEED = 7
SIZES = {
    **{"BATCH": 4, "CHANNELS": 8, "CLASSES": 83, "COLUMNS": 101, "DOCUMENTS": 29, "FILTERS": 6},
    **{"GROUPS": 2, "HEADS": 2, "HEAD_WIDTH": 16, "HIDDEN": 85, "IMAGES": 4, "INNER": 27},
    **{"LENGTH": 37, "OUTPUTS": 43, "PADDED": 13, "QUERIES": 40, "ROWS": 256, "SAMPLES": 99},
    **{"SIDE": 9, "TOKENS": 256, "VOCABULARY": 203, "WIDTH": 77},
}
"""Small and odd, so that most loops have a rest; constants of the built-in tasks."""
MANY = 256
"""Independent rows of one call on random inputs."""
CROWD = 16
"""So many times the rows for races: threads that work for microseconds hardly ever meet."""
OWN = HERE / "kernels" / "softmax_jit.py"
LEADING = ("BATCH", "IMAGES", "ROWS", "TOKENS", "QUERIES")
"""Constants that say how many independent rows there are; the hidden workload has more."""
_HIDDEN = """

def get_workloads():
    def odd():
        kept = globals()["{name}"]
        globals()["{name}"] = {rows}
        try:
            return get_inputs()
        finally:
            globals()["{name}"] = kept

    return [{{"name": "odd", "inputs": odd, "hidden": True}}]
"""
NOT_PLANTED = {
    *(Status.COMPILE_ERROR, Status.COMPILE_TIMEOUT, Status.INVALID_SOURCE, Status.RUNTIME_ERROR)
}


class Planted(NamedTuple):
    """One fault in one kernel of one task."""

    task: str
    form: str
    """Which of the task's kernels: `plain`, `vector`, `last`, or a file of `kernels/`."""
    fault: Fault
    right: str
    """The kernel without the fault."""

    @property
    def is_race(self) -> bool:
        """Whether it shows only while several threads work."""
        return self.fault.kind == "race"

    @property
    def key(self) -> str:
        """Name of its answer."""
        return hashlib.sha256(f"{self.task}\n{self.fault.source}".encode()).hexdigest()[:16]


class Subject:
    """A task at small sizes, and its right kernels."""

    def __init__(self, name: str) -> None:
        self.name = name
        task = Task.load(name)
        bound = {n.targets[0].id for n in ast.parse(task.source).body if isinstance(n, ast.Assign)}  # type: ignore[attr-defined]
        task = task.resized(**{key: value for key, value in SIZES.items() if key in bound})
        graph = capture(task.program())
        self.rows = 0
        leading = next((key for key in LEADING if key in bound), None)
        if leading is not None and graph.row_inputs is not None:
            self.rows = SIZES[leading]
            more = _HIDDEN.format(name=leading, rows=self.rows + 5)
            task = task.model_copy(update={"source": task.source + more})
        self.task = task
        template = Template(task, graph)
        last = {choice.name: choice.values[-1] for choice in template.space.choices}
        wishes = {"plain": {}, "vector": {"form": "vector"}, "last": last}
        self.kernels = {
            form: _quickly_built(template.source(template.space.settle(wish)))
            for form, wish in wishes.items()
        }
        if name == "softmax":
            self.kernels[OWN.name] = OWN.read_text()
        self.many = self._with_rows(leading, MANY)
        self.crowded = self._with_rows(leading, CROWD * self.rows)

    def _with_rows(self, leading: str | None, rows: int) -> Task:
        """The task with another number of independent rows, if it has any."""
        return self.task.resized(**{leading: rows}) if leading and self.rows else self.task

    def right(self) -> Iterator[Planted]:
        """Its kernels without a fault, each text once."""
        for source, form in {source: form for form, source in self.kernels.items()}.items():
            yield Planted(self.name, form, Fault(RIGHT, "nothing", source), source)

    def planted(self) -> Iterator[Planted]:
        """Every fault that can be planted into its kernels, each text once."""
        seen = set(self.kernels.values())
        for form, right in self.kernels.items():
            made = of_benchmark(right) if form == OWN.name else faults(right, self.rows)
            for fault in made:
                if fault.source not in seen:
                    seen.add(fault.source)
                    yield Planted(self.name, form, fault, right)


class Bench:
    """Judges faults of one task; a context manager.

    Args:
        subject: The task.
        crowded: Take many rows, so that threads surely work at the same time.
    """

    def __init__(self, subject: Subject, crowded: bool = False) -> None:
        self.subject = subject
        self._task = subject.crowded if crowded else subject.task
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
            return "missed"
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


def chosen(subjects: Sequence[Subject], each: int, limit: int | None) -> list[Planted]:
    """As many faults of each class, spread over tasks and forms by a fixed draw."""
    waiting: dict[str, dict[str, list[Planted]]] = defaultdict(lambda: defaultdict(list))
    for subject in subjects:
        for planted in subject.planted():
            waiting[planted.fault.kind][planted.task].append(planted)
    found: list[Planted] = []
    for kind in CLASSES:
        found += _spread(waiting[kind], each, random.Random(f"{SEED}/{kind}"))
    if limit is not None and limit < len(found):
        found = random.Random(SEED).sample(found, limit)
    return sorted(found, key=lambda planted: planted.task)


def _spread(by_task: dict[str, list[Planted]], count: int, dice: random.Random) -> list[Planted]:
    """One of each task in turn, until there are enough."""
    for choices in by_task.values():
        dice.shuffle(choices)
    found: list[Planted] = []
    while len(found) < count and any(by_task.values()):
        tasks = [task for task, choices in by_task.items() if choices]
        dice.shuffle(tasks)
        found += [by_task[task].pop() for task in tasks[: count - len(found)]]
    return found


def _quickly_built(source: str) -> str:
    """Have a kernel built with fewer optimisations, which takes half the time."""
    return re.sub(r"(?m)^(kernels = cpp_module\(\w+)\)$", r'\1, flags=("-O1",))', source)


def _tensors(outputs: Any) -> list[torch.Tensor]:
    return [leaf for _, leaf in leaves(outputs) if isinstance(leaf, torch.Tensor)]


def _close(got: list[torch.Tensor], want: list[torch.Tensor], limit: float) -> bool:
    if len(got) != len(want):
        return False
    return all(
        one.shape == two.shape and torch.allclose(one.float(), two.float(), rtol=limit, atol=limit)
        for one, two in zip(got, want, strict=True)
    )


def judged(
    wanted: list[Planted], subjects: dict[str, Subject], file: Path, deadline: float
) -> bool:
    """Judge what has no answer yet and write it down; False if time was up before the end."""
    known = answers(file)
    for name, crowded in dict.fromkeys((p.task, p.is_race) for p in wanted):
        todo = [p for p in wanted if (p.task, p.is_race) == (name, crowded)]
        todo = [p for p in todo if p.key not in known]
        if not todo:
            continue
        with Bench(subjects[name], crowded) as bench:
            for planted in todo:
                if time.monotonic() > deadline:
                    return False
                answer = bench.judge(planted) | {"key": planted.key}
                with file.open("a") as out:
                    out.write(json.dumps(answer) + "\n")
                if answer["outcome"] not in {"found", "not planted", "passed"}:
                    print(
                        f"{name}: {answer['kind']}: {answer['outcome']}: {answer['what']}",
                        flush=True,
                    )
        print(f"{name}: {len(todo)} judged", flush=True)
    return True


def answers(file: Path) -> dict[str, dict[str, Any]]:
    """What was found so far, by key."""
    if not file.is_file():
        return {}
    lines = [json.loads(line) for line in file.read_text().splitlines() if line]
    return {line["key"]: line for line in lines}


def main() -> None:
    """Plant, judge and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--task", action="append", help="built-in task, may be repeated; all by default"
    )
    parser.add_argument("--each", type=int, default=15, help="faults of each class")
    parser.add_argument("--limit", type=int, help="at most so many faults, drawn at random")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so many seconds")
    parser.add_argument(
        "--folder", type=Path, default=home() / "planted-faults", help="where answers are kept"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results", help="where the table goes")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    options.folder.mkdir(parents=True, exist_ok=True)
    subjects = {name: Subject(name) for name in options.task or Task.names()}
    wanted = [right for subject in subjects.values() for right in subject.right()]
    wanted += chosen(list(subjects.values()), options.each, options.limit)
    file = options.folder / "answers.jsonl"
    is_complete = judged(wanted, subjects, file, deadline)
    known = answers(file)
    found = [known[planted.key] for planted in wanted if planted.key in known]
    command = " ".join(["python benchmarks/planted_faults.py", *sys.argv[1:]])
    if not is_complete:
        command += f"\ncut short: {len(found)} of {len(wanted)} kernels; the same command goes on"
    text = report(found, command)
    print(text)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "planted_faults.txt").write_text(text)
    (options.out / "planted_faults.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
