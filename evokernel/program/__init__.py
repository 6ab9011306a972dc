"""Owns `Program`: a task's file, executed; makes its inputs, its module and its outputs."""

import contextlib
import itertools
import linecache
import random
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from evokernel.errors import TaskError
from evokernel.nested import leaves
from evokernel.opgraph import TensorSpec
from evokernel.program import arguments
from evokernel.program.casting import CASTS, convert, to_dtype
from evokernel.program.weights import load_weights
from evokernel.task import Task, Workload

if TYPE_CHECKING:
    import torch

    from evokernel.opgraph import OpGraph
    from evokernel.program.estimate import MemoryEstimate

__all__ = ["CASTS", "Program", "convert", "spec_of", "to_dtype"]

_NUMBERS = itertools.count()
"""Keeps the modules of one task apart that was executed twice."""


class Program:
    """The executed file of a task; trusted code, to be run outside of a candidate's worker.

    Seeds are set where KernelBench sets them: before `get_inputs`, before `get_init_inputs`, and
    again before the constructor, so that a candidate's `ModelNew` built in the same way has the
    same weights. Everything is made on the CPU; the random state of the process is left alone.
    """

    def __init__(self, task: Task) -> None:
        """Execute the file.

        Raises:
            TaskError: it raises, with the end of its traceback.
        """
        self.task = task
        self._label = f"`{task.path or task.name}`"
        self.module = self._execute()
        self._made = self._workloads()

    def workloads(self) -> tuple[Workload, ...]:
        """`default`, which is `get_inputs`, then those of `get_workloads` in order."""
        return tuple(workload for workload, _ in self._made)

    def make_inputs(self, workload: Workload | None = None, seed: int | None = None) -> list[Any]:
        """Arguments of `forward`, made afresh; the same seed gives the same values.

        Args:
            workload: One of `workloads()`; None is the first.
            seed: None is the workload's own.

        Returns:
            Positional arguments, nested as the file nests them, floating-point tensors cast to the
            task's precision.

        Raises:
            TaskError: the file raises, or returns something else than a list of arguments.
        """
        chosen, make = self._made[0 if workload is None else workload.index]
        called = f"the inputs of workload `{chosen.name}`"
        with _seeded(chosen.seed if seed is None else seed):
            made = self._guard(called, make)
        found = arguments.of_forward(self.module.Model, made, f"{called} of {self._label}")
        return [self._cast(value) for value in found]

    def init_inputs(self, seed: int = 0) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments of the constructor; both empty if the file has none.

        Raises:
            TaskError: the file raises, or returns something else than arguments.
        """
        make = getattr(self.module, "get_init_inputs", None)
        if make is None:
            return [], {}
        with _seeded(seed):
            made = self._guard("`get_init_inputs()`", make)
        return arguments.of_constructor(self.module.Model, made, self._label)

    def build(self, seed: int = 0, dtype: "torch.dtype | None" = None) -> "torch.nn.Module":
        """Construct the reference module with seeded weights.

        Args:
            seed: Set before `get_init_inputs` and again before the constructor.
            dtype: Floating-point type to which the finished weights are converted, e.g.
                `torch.float64` for the reference that sets the scale; None keeps them.

        Raises:
            TaskError: the constructor raises or makes something that is not a module.
        """
        import torch

        args, kwargs = self.init_inputs(seed)
        with _seeded(seed):
            module = self._guard(
                "the constructor of `Model`", lambda: self.module.Model(*args, **kwargs)
            )
        if not isinstance(module, torch.nn.Module):
            raise TaskError(
                f"`Model` of {self._label} makes a {type(module).__name__}; expected a "
                "`torch.nn.Module`."
            )
        if self.task.options.weights is not None:
            load_weights(module, self.task.options.weights, self._label)
        for target in (getattr(torch, CASTS.get(self.task.options.precision, ""), None), dtype):
            if target is not None:
                convert(module, target)
        return module.train(self.task.options.mode == "train")

    def call(self, module: "torch.nn.Module", inputs: list[Any]) -> Any:
        """Call the module without gradients, as KernelBench does.

        Returns:
            What `forward` returns: a tensor, or tensors in lists, tuples and dictionaries, among
            which None may stand.

        Raises:
            TaskError: the inputs do not fit, `forward` raises, or an output is not a tensor.
        """
        import torch

        arguments.require_fit(module, inputs, self._label)
        with torch.no_grad():
            outputs = self._guard("`Model.forward`", lambda: module(*inputs))
        self._require_tensors(outputs)
        return outputs

    def check(self, workload: Workload | None = None) -> None:
        """Build, make inputs and call once for real.

        Raises:
            TaskError: whatever is wrong with the file that only running it shows.
        """
        self.call(self.build(), self.make_inputs(workload))

    def memory_estimate(
        self, workload: Workload | None = None, graph: "OpGraph | None" = None
    ) -> "MemoryEstimate":
        """Bytes that judging this workload takes; see `evokernel.program.estimate`."""
        from evokernel.program.estimate import memory_estimate

        return memory_estimate(self, workload, graph)

    def _execute(self) -> ModuleType:
        task = self.task
        filename = task.path or f"<task {task.name}>"
        module = ModuleType(f"evokernel_task_{task.sha}_{next(_NUMBERS)}")
        module.__file__ = filename
        lines = task.source.splitlines(keepends=True)
        linecache.cache[filename] = (len(task.source), None, lines, filename)
        # Compilers and pickle look a function's globals up by the name of its module.
        sys.modules[module.__name__] = module
        weakref.finalize(self, sys.modules.pop, module.__name__, None)
        code = compile(task.source, filename, "exec")
        self._guard("the file", lambda: exec(code, module.__dict__))
        for part in ("Model", "get_inputs"):
            if not callable(getattr(module, part, None)):
                raise TaskError(
                    f"{self._label} has no `{part}` that can be called after running it."
                )
        return module

    def _workloads(self) -> list[tuple[Workload, Callable[[], Any]]]:
        made: list[tuple[Workload, Callable[[], Any]]] = [
            (Workload(name="default", index=0), self.module.get_inputs)
        ]
        more = getattr(self.module, "get_workloads", None)
        if more is not None:
            listed = self._guard("`get_workloads()`", more)
            made += arguments.of_workloads(listed, self._label)
        return made

    def _require_tensors(self, outputs: Any) -> None:
        import torch

        found = leaves(outputs)
        strange = [
            (path, leaf) for path, leaf in found if not isinstance(leaf, torch.Tensor | None)
        ]
        if strange or all(leaf is None for _, leaf in found):
            path, leaf = strange[0] if strange else ("", None)
            where = f"output `{path}`" if path else "the output"
            raise TaskError(
                f"`forward` of {self._label}: {where} is a {type(leaf).__name__}; expected "
                "tensors, alone or in lists, tuples and dictionaries."
            )

    def _cast(self, tree: Any) -> Any:
        import torch

        name = CASTS.get(self.task.options.precision)
        return tree if name is None else to_dtype(tree, getattr(torch, name))

    def _guard(self, called: str, call: Callable[[], Any]) -> Any:
        """Run the file's code; prints go to standard error, exceptions become a `TaskError`."""
        try:
            with contextlib.redirect_stdout(sys.stderr):
                return call()
        except (Exception, SystemExit) as error:
            message = f"{type(error).__name__}: {' '.join(str(error).split()):.400}"
            raise TaskError(
                f"{self._label}: {called} raised `{message}`"
                f"{self._place(error)}. Expected it to run as it stands; repair the file."
            ) from error

    def _place(self, error: BaseException) -> str:
        """Where in the user's file, innermost first."""
        own = self.task.path or f"<task {self.task.name}>"
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == own]
        places = [f"line {frame.lineno} (`{frame.line}`)" for frame in reversed(frames[-3:])]
        return f" at {', called from '.join(places)}" if places else ""


def spec_of(tensor: "torch.Tensor") -> TensorSpec:
    """Shape, dtype and, unless it is contiguous, strides of a tensor, real or fake."""
    shape = tuple(int(size) for size in tensor.shape)
    strides = () if tensor.is_contiguous() else tuple(int(step) for step in tensor.stride())
    return TensorSpec(shape=shape, dtype=str(tensor.dtype).removeprefix("torch."), strides=strides)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch, `random` and, if the file uses it, numpy; put the old states back afterwards."""
    import numpy
    import torch

    state, numpy_state = random.getstate(), numpy.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            random.seed(seed)
            numpy.random.seed(seed % 2**32)
            yield
    finally:
        random.setstate(state)
        numpy.random.set_state(numpy_state)
