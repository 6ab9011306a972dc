"""Owns `Program`: a task's file, executed; makes its inputs, its module and its outputs."""

import contextlib
import inspect
import linecache
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from evokernel.errors import TaskError
from evokernel.nested import leaves, map_leaves
from evokernel.opgraph import TensorSpec
from evokernel.task import Task, Workload

if TYPE_CHECKING:
    import torch

_CASTS = {"fp16": "float16", "bf16": "bfloat16"}
"""Precisions to which inputs and parameters are cast."""


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
        self._made = self._read_workloads()

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
        return [self._cast(value) for value in self._arguments(made, called)]

    def shape_inputs(self, workload: Workload | None = None) -> list[Any]:
        """As `make_inputs`, but of tensors without storage where the file allows that."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                return self.make_inputs(workload)
        except TaskError:  # the values are looked at, by numpy or in Python
            return self.make_inputs(workload)

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
        match made:
            case dict():
                return [], made
            case [list() | tuple() as args, dict() as kwargs] if self._takes(args, kwargs):
                return list(args), kwargs
            case list() | tuple():
                return list(made), {}
        raise TaskError(
            f"`get_init_inputs()` of {self._label} returned a {type(made).__name__}; expected a "
            "list of positional arguments or a dictionary of keyword arguments."
        )

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
                "the constructor of `Model`", lambda: self._model()(*args, **kwargs)
            )
        if not isinstance(module, torch.nn.Module):
            raise TaskError(
                f"`Model` of {self._label} makes a {type(module).__name__}; expected a "
                "`torch.nn.Module`."
            )
        for target in (getattr(torch, _CASTS.get(self.task.options.precision, ""), None), dtype):
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

        self._require_fit(module, inputs)
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

    def _execute(self) -> ModuleType:
        task = self.task
        filename = task.path or f"<task {task.name}>"
        module = ModuleType(f"evokernel_task_{task.sha}")
        module.__file__ = filename
        lines = task.source.splitlines(keepends=True)
        linecache.cache[filename] = (len(task.source), None, lines, filename)
        # Compilers and pickle look a function's globals up by the name of its module.
        sys.modules[module.__name__] = module
        code = compile(task.source, filename, "exec")
        self._guard("the file", lambda: exec(code, module.__dict__))
        for part in ("Model", "get_inputs"):
            if not callable(getattr(module, part, None)):
                raise TaskError(
                    f"{self._label} has no `{part}` that can be called after running it."
                )
        return module

    def _model(self) -> Callable[..., Any]:
        model: Callable[..., Any] = self.module.Model
        return model

    def _read_workloads(self) -> list[tuple[Workload, Callable[[], Any]]]:
        made = [(Workload(name="default", index=0), self.module.get_inputs)]
        more = getattr(self.module, "get_workloads", None)
        if more is None:
            return made
        listed = self._guard("`get_workloads()`", more)
        if not isinstance(listed, list | tuple):
            raise TaskError(
                f"`get_workloads()` of {self._label} returned a {type(listed).__name__}; "
                "expected a list."
            )
        for index, entry in enumerate(listed, start=1):
            made.append(self._read_workload(entry, index))
        if len({workload.name for workload, _ in made}) < len(made):
            raise TaskError(
                f"`get_workloads()` of {self._label} uses a name twice (`default` is taken)."
            )
        return made

    def _read_workload(self, entry: Any, index: int) -> tuple[Workload, Callable[[], Any]]:
        known = {"name", "inputs", "hidden"}
        if not isinstance(entry, dict) or "inputs" not in entry or set(entry) - known:
            raise TaskError(
                f"Entry {index} of `get_workloads()` of {self._label} is {entry!r:.80}; expected a "
                'dictionary with "inputs" (a list, or a function that returns one) and, as needed, '
                '"name" and "hidden".'
            )
        inputs = entry["inputs"]
        name = str(entry.get("name", f"workload_{index}"))
        workload = Workload(name=name, index=index, hidden=bool(entry.get("hidden", False)))
        return workload, inputs if callable(inputs) else lambda: _copied(inputs)

    def _arguments(self, made: Any, called: str) -> list[Any]:
        if isinstance(made, list | tuple):
            return list(made)
        if not isinstance(made, dict):
            raise TaskError(
                f"{called} of {self._label} are a {type(made).__name__}; expected a list with one "
                "entry per argument of `forward`, or a dictionary by argument name."
            )
        signature = inspect.signature(self._model().forward)  # type: ignore[attr-defined]
        try:
            bound = signature.bind(None, **made)
        except TypeError as error:
            raise self._misfit(error) from error
        bound.apply_defaults()
        if bound.kwargs:
            raise TaskError(
                f"`forward` of {self._label} takes keyword-only arguments "
                f"({', '.join(bound.kwargs)}); expected arguments that can be passed by position."
            )
        return list(bound.args[1:])

    def _takes(self, args: list[Any] | tuple[Any, ...], kwargs: dict[Any, Any]) -> bool:
        """Whether the constructor takes these; tells `[args, kwargs]` from two plain arguments."""
        try:
            inspect.signature(self._model()).bind(*args, **kwargs)
        except TypeError:
            return False
        return True

    def _require_fit(self, module: "torch.nn.Module", inputs: list[Any]) -> None:
        try:
            inspect.signature(module.forward).bind(*inputs)
        except TypeError as error:
            raise self._misfit(error) from error

    def _misfit(self, error: TypeError) -> TaskError:
        signature = inspect.signature(self._model().forward)  # type: ignore[attr-defined]
        return TaskError(
            f"The inputs of {self._label} do not fit `forward{signature}`: {error}. `get_inputs()` "
            "returns a list with one entry per argument of `forward`."
        )

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

        name = _CASTS.get(self.task.options.precision)
        return tree if name is None else to_dtype(tree, getattr(torch, name))

    def _guard(self, called: str, call: Callable[[], Any]) -> Any:
        """Run the file's code; prints go to standard error, exceptions become a `TaskError`."""
        try:
            with contextlib.redirect_stdout(sys.stderr):
                return call()
        except (Exception, SystemExit) as error:
            raise TaskError(
                f"{self._label}: {called} raised `{type(error).__name__}: {error}`.\n"
                f"{self._tail(error)}"
            ) from error

    def _tail(self, error: BaseException) -> str:
        """The part of the traceback that lies in the user's file, else its last two frames."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [
            frame
            for frame in frames
            if frame.filename == (self.task.path or f"<task {self.task.name}>")
        ]
        return "".join(traceback.format_list(own[-3:] or list(frames[-2:]))).rstrip()


def to_dtype(tree: Any, dtype: "torch.dtype") -> Any:
    """The same nesting with floating-point tensors converted; other leaves as they are."""
    return map_leaves(lambda leaf: leaf.to(dtype) if _is_real(leaf) else leaf, tree)


def _is_real(leaf: Any) -> bool:
    import torch

    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()


def convert(module: "torch.nn.Module", dtype: "torch.dtype") -> None:
    """Convert parameters, buffers, and tensors kept as plain attributes, which `.to` skips."""
    module.to(dtype)
    for part in module.modules():
        for name, value in list(vars(part).items()):
            if not name.startswith("_") and any(_is_real(leaf) for _, leaf in leaves(value)):
                part.__dict__[name] = to_dtype(value, dtype)


def spec_of(tensor: "torch.Tensor") -> TensorSpec:
    """Shape, dtype and, unless it is contiguous, strides of a tensor, real or fake."""
    shape = tuple(int(size) for size in tensor.shape)
    strides = () if tensor.is_contiguous() else tuple(int(step) for step in tensor.stride())
    return TensorSpec(shape=shape, dtype=str(tensor.dtype).removeprefix("torch."), strides=strides)


def _copied(inputs: Any) -> Any:
    """Fresh tensors, so that nothing can spoil the file's own."""
    return map_leaves(lambda leaf: leaf.clone() if hasattr(leaf, "clone") else leaf, inputs)


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
