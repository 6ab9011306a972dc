"""Owns what faults are planted into: built-in tasks at small sizes, and their right kernels."""

import ast
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fault import Fault
from fault_report import RIGHT
from mutations import faults
from softmax_faults import of_benchmark

import evokernel
from evokernel.opgraph import capture
from evokernel.proposers.templates.template import Template
from evokernel.task import Task

HERE = Path(__file__).parent
RACE = "race"
"""The kind of a fault that shows only while several threads work."""
SEED = 7
"""Of every draw and evaluation."""
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


@cache
def sources() -> str:
    """Hash of the whole package, so that answers are not taken for those of another version."""
    package = Path(evokernel.__file__).parent
    parts = (package, *(part.resolve() for part in package.iterdir() if part.is_symlink()))
    files = sorted({file for part in parts for file in part.rglob("*.py")})
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


class Planted(NamedTuple):
    """One fault in one kernel of one task."""

    task: str
    form: str
    """Which of the task's kernels: `plain`, `vector`, `last`, or a file of `kernels/`."""
    fault: Fault
    right: str
    """The kernel without the fault."""
    sha: str
    """Hash of the resized task that it is judged on."""

    @property
    def is_race(self) -> bool:
        """Whether it shows only while several threads work."""
        return self.fault.kind == RACE

    @property
    def key(self) -> str:
        """Name of its answer, which another evaluator or other sizes do not share."""
        known = f"{sources()}\n{self.task}\n{self.sha}\n{self.fault.source}"
        return hashlib.sha256(known.encode()).hexdigest()[:16]


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
            yield self._planted(form, Fault(RIGHT, "nothing", source), source)

    def planted(self) -> Iterator[Planted]:
        """Every fault that can be planted into its kernels, each text once."""
        seen = set(self.kernels.values())
        for form, right in self.kernels.items():
            made = of_benchmark(right) if form == OWN.name else faults(right, self.rows)
            for fault in made:
                if fault.source not in seen:
                    seen.add(fault.source)
                    yield self._planted(form, fault, right)

    def judged_on(self, is_race: bool) -> Task:
        """The task on which a fault is judged: threads surely meet only over many rows."""
        return self.crowded if is_race else self.task

    def _planted(self, form: str, fault: Fault, right: str) -> Planted:
        sha = self.judged_on(fault.kind == RACE).sha
        return Planted(self.name, form, fault, right, sha)


def _quickly_built(source: str) -> str:
    """Have a kernel built with fewer optimisations, which takes half the time."""
    return re.sub(r"(?m)^(kernels = cpp_module\(\w+)\)$", r'\1, flags=("-O1",))', source)
