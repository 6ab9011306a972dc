"""Owns the process that runs a candidate once, to see which C++ sources it asks for.

`python -m evokernel.export.survey TASK.json CANDIDATE.py ANSWER.json`; the candidate runs here and
not in the process that writes the exported file.
"""

import linecache
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from evokernel import jit
from evokernel.compilers import Artefact, BuildFailure, KernelSource
from evokernel.compilers.cpp import CppCompiler
from evokernel.config import BenchConfig
from evokernel.frozen import Frozen
from evokernel.task import Task


class Survey(Frozen):
    """What was seen."""

    kernels: tuple[KernelSource, ...] = ()
    """In the order of building."""
    shapes: dict[str, tuple[int, ...]] = {}
    """Shapes of the candidate's own parameters and buffers, by name."""
    fault: str = ""
    """Why it did not come to its end."""


def main(task_file: Path, candidate: Path, answer: Path) -> None:
    """Build, construct and call the candidate on every workload; write down what was seen."""
    config = BenchConfig()
    compiler = CppCompiler(config.cache, config.compile_s)
    kernels: list[KernelSource] = []

    def build(kernel: KernelSource) -> Artefact | BuildFailure:
        kernels.append(kernel)
        return compiler.build(kernel)

    jit.use_broker(build)
    task = Task.model_validate_json(task_file.read_text(encoding="utf-8"))
    shapes: dict[str, tuple[int, ...]] = {}
    fault = ""
    try:
        shapes = _run(task, candidate)
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
    survey = Survey(kernels=tuple(kernels), shapes=shapes, fault=fault)
    answer.write_text(survey.model_dump_json(), encoding="utf-8")


def _run(task: Task, candidate: Path) -> dict[str, tuple[int, ...]]:
    import torch

    from evokernel.program import CASTS, convert

    program = task.program()
    args, kwargs = program.init_inputs()
    torch.manual_seed(0)
    model: Any = _module(candidate).ModelNew(*args, **kwargs)
    if cast := CASTS.get(task.options.precision):
        convert(model, getattr(torch, cast))
    model.train(task.options.mode == "train")
    for workload in program.workloads():
        program.call(model, program.make_inputs(workload))
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def _module(file: Path) -> ModuleType:
    text = file.read_text(encoding="utf-8")
    linecache.cache[file.name] = (len(text), None, text.splitlines(keepends=True), file.name)
    module = ModuleType("evokernel_candidate")
    module.__file__ = file.name
    sys.modules[module.__name__] = module
    exec(compile(text, file.name, "exec"), vars(module))
    return module


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
