"""Owns `patch`: a verified kernel in the place of parts of a live model, checked and undoable.

A patched part keeps its class, weights and hooks; its `forward` asks the guard of exported files
whether a call was verified, and runs what it had before where it was not.
"""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import torch

from evokernel.errors import ConfigError, PatchError
from evokernel.export.checking import contrasted
from evokernel.export.door import Check, modes_served
from evokernel.export.fitting import Fitting, attribute, device_of
from evokernel.export.guard import Guard
from evokernel.export.kernels import executed
from evokernel.export.spec import Domain, described
from evokernel.export.subject import Subject, of_run
from evokernel.jit import BuildError
from evokernel.program import CASTS
from evokernel.task.constants import nearest


class HasPath(Protocol):
    """A `RunResult`, or whatever else names a run folder."""

    @property
    def path(self) -> Path:
        """The run folder."""


class Patch:
    """Kernels in the place of parts of a model, until `undo` or the end of a `with` block."""

    def __init__(self, model: torch.nn.Module, parts: dict[str, "Swapped"]) -> None:
        """Made by `evokernel.patch`."""
        self.model = model
        """The live model."""
        self.parts = parts
        """What stands in place of `forward`, by the path of the part; `` is the model itself."""

    @property
    def calls(self) -> int:
        """Calls that kernels served."""
        return sum(part.guard.calls for part in self.parts.values())

    @property
    def fallbacks(self) -> int:
        """Calls that the originals served, since they lay outside of what was verified."""
        return sum(part.guard.fallbacks for part in self.parts.values())

    @property
    def reasons(self) -> dict[str, int]:
        """Why, and how often."""
        found: dict[str, int] = {}
        for part in self.parts.values():
            for reason, count in part.guard.reasons.items():
                found[reason] = found.get(reason, 0) + count
        return found

    def undo(self) -> None:
        """Give every part its own `forward` back; a second time does nothing."""
        for part in self.parts.values():
            part.take_out()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.undo()


def patch(
    model: torch.nn.Module,
    result: HasPath | Path | str,
    at: str | tuple[str, ...] | None = None,
    *,
    is_strict: bool = False,
) -> Patch:
    """Put the best kernel of a run into a live model.

    Every part is checked before anything is changed: it must compute the very program that the
    kernel was verified for (both are recorded with `torch.export` and compared operator by
    operator), and on fresh inputs, with its own weights and with others, the kernel must agree.

    Args:
        model: What the kernel goes into.
        result: A run's result, or its folder.
        at: Path of the part, or several, as `model.named_modules()` names them; None is every part
            that the kernel fits.
        is_strict: Let calls outside of what was verified raise, instead of running the original.

    Raises:
        PatchError: no part fits, or one that was named does not; the model is as it was.
        RecordError: no run, or one without a kernel that passed.
    """
    folder = Path(result) if isinstance(result, str | Path) else result.path
    subject = of_run(folder)
    fitting = Fitting(subject.task.program(), subject.workloads)
    chosen = dict(_named(model, at) if at is not None else _suitable(model, fitting))
    parts: dict[str, Swapped] = {}
    for path, part in chosen.items():
        if isinstance(part.__dict__.get("forward"), Swapped):
            raise PatchError(f"{_label(path)} is patched already; undo that first")
        if why := fitting.misfit(part):
            raise PatchError(f"the kernel does not fit {_label(path)}: {why}")
        parts[path] = _made(subject, fitting, part, path, is_strict)
    for swapped in parts.values():
        swapped.put_in()
    return Patch(model, parts)


def loaded(folder: Path, *, is_strict: bool = False) -> torch.nn.Module:
    """The task's own module with the best kernel of a run in it.

    Raises:
        PatchError: the kernel cannot take the module's place.
        RecordError: no run, or one without a kernel that passed.
    """
    subject = of_run(folder)
    fitting = Fitting(subject.task.program(), subject.workloads)
    module = fitting.reference.to(_place(subject))
    swapped = _made(subject, fitting, module, "", is_strict)
    swapped.put_in()
    return module


class Swapped:
    """Stands in the place of a module's `forward`."""

    def __init__(self, module: torch.nn.Module, guard: Guard) -> None:
        self.guard = guard
        """Decides about each call, and counts."""
        self._module = module
        self._before = {
            name: module.__dict__[name]
            for name in ("forward", "evokernel")
            if name in module.__dict__
        }

    def put_in(self) -> None:
        """Take the place of `forward`; the guard is `module.evokernel`, as in exported files."""
        vars(self._module).update(forward=self, evokernel=self.guard)

    def take_out(self) -> None:
        """Leave the module as it was found."""
        held = self._module.__dict__
        if held.get("forward") is self:
            del held["forward"], held["evokernel"]
            held.update(self._before)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Serve a call, by the kernel or by the original."""
        if torch.compiler.is_compiling():  # the compiler makes its own kernels of the original
            return self._original(args, kwargs)
        kernel = self.guard.ready(self._module, args, kwargs)
        if kernel is None:
            return self._original(args, kwargs)
        return kernel(*self.guard.ordered(args, kwargs))

    def _original(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        before = self._before.get("forward")
        if before is not None:
            return before(*args, **kwargs)
        return type(self._module).forward(self._module, *args, **kwargs)


class _Maker:
    """Makes the kernel's module, with the reference's weights where it has them."""

    def __init__(self, subject: Subject, constructor: tuple[list[Any], dict[str, Any]]) -> None:
        self._name = f"evokernel_kernel_{subject.candidate.sha}"
        self._source = subject.candidate.source
        self._constructor = constructor
        self._device = _place(subject)

    def __call__(self) -> Callable[[], Any]:
        return self._make

    def _make(self) -> Any:
        args, kwargs = self._constructor
        return executed(self._name, self._source).ModelNew(*args, **kwargs).to(self._device)


def _place(subject: Subject) -> str:
    return "cpu" if subject.candidate.backend == "cpp" else "cuda"


def _named(
    model: torch.nn.Module, at: str | tuple[str, ...]
) -> Iterator[tuple[str, torch.nn.Module]]:
    known = dict(model.named_modules())
    for path in (at,) if isinstance(at, str) else at:
        if path not in known:
            raise PatchError(
                f"the model has no part `{path}`.{nearest(path, known)} Expected a path as "
                "`model.named_modules()` gives it"
            )
        yield path, known[path]


def _suitable(model: torch.nn.Module, fitting: Fitting) -> Iterator[tuple[str, torch.nn.Module]]:
    """Every part that fits, outermost first, and none inside of one that does."""
    found: list[str] = []
    why_not = ""
    for path, part in model.named_modules():
        if any(path.startswith(f"{outer}." if outer else "") for outer in found):
            continue
        if not fitting.is_near(part) or isinstance(part.__dict__.get("forward"), Swapped):
            continue
        if why := fitting.misfit(part):
            why_not = why_not or f": {_label(path)} is the nearest, but {why}"
            continue
        found.append(path)
        yield path, part
    if not found:
        raise PatchError(f"no part of the model fits the kernel{why_not or ''}")


def _label(path: str) -> str:
    return f"`{path}`" if path else "the model itself"


def _made(
    subject: Subject, fitting: Fitting, part: torch.nn.Module, path: str, is_strict: bool
) -> Swapped:
    """What goes into a part, after the kernel was tried on copies of it.

    Raises:
        PatchError: it does not agree with the original.
    """
    maker = _Maker(subject, subject.task.program().init_inputs())
    _require_same_state(maker, fitting, path)
    modes: tuple[str, ...] = ("train", "eval")
    checks = tuple(
        _tried(_swapped(subject, fitting, maker, copy.deepcopy(part), modes), fitting, w, mode)
        for w in range(len(fitting.workloads))
        for mode in modes
    )
    try:
        modes = modes_served(checks, subject.task.options.mode)
    except ConfigError as error:
        trouble = next(check.trouble for check in checks if not check.is_well)
        raise PatchError(f"the kernel does not fit {_label(path)}: {trouble}") from error
    return _swapped(subject, fitting, maker, part, modes, is_strict)


def _require_same_state(maker: _Maker, fitting: Fitting, path: str) -> None:
    try:
        kernel = maker()()
    except BuildError as error:
        raise PatchError(f"the kernel for {_label(path)} cannot be built here: {error}") from error
    own = {name: tuple(tensor.shape) for name, tensor in kernel.state_dict().items()}
    wanted = {n: tuple(t.shape) for n, t in fitting.reference.state_dict().items()}
    if own != wanted:
        other = sorted(dict(own.items() ^ wanted.items()))
        raise PatchError(
            f"the kernel cannot take the place of {_label(path)}: its parameters have other names "
            f"or shapes than the reference's (`{'`, `'.join(other[:4])}`), so that it would not "
            "follow the model's weights"
        )


def _swapped(
    subject: Subject,
    fitting: Fitting,
    maker: _Maker,
    part: torch.nn.Module,
    modes: tuple[str, ...],
    is_strict: bool = False,
) -> Swapped:
    part_device = device_of(part)
    state = {name: attribute(part, name).detach() for name in fitting.reference.state_dict()}
    held = {name for name, _ in (*part.named_parameters(), *part.named_buffers())}
    domain = Domain(
        workloads={
            w.name: described(fitting.inputs(w, w.seed, part_device)) for w in fitting.workloads
        },
        state={name: described(tensor) for name, tensor in state.items() if name in held},
        constructor=([], {}),
        modes=modes,
        cast=CASTS.get(subject.task.options.precision),
    )
    guard = Guard(_like(part), domain, maker, is_strict)
    guard.bind(part, (), {})
    return Swapped(part, guard)


def _like(part: torch.nn.Module) -> Any:
    """The part's class for the guard: its `forward`, and a constructor without arguments."""

    def __init__(self: Any) -> None: ...

    return type("Live", (), {"__init__": __init__, "forward": type(part).forward})


def _tried(swapped: Swapped, fitting: Fitting, index: int, mode: str) -> Check:
    """The kernel in a copy of a part, against another copy without it."""
    workload = fitting.workloads[index]
    kernel = swapped._module.train(mode == "train")
    model = copy.deepcopy(kernel)
    swapped.put_in()
    device = device_of(model)
    found = contrasted(model, kernel, lambda turn: fitting.inputs(workload, turn, device), 0)
    return Check.model_validate({"workload": workload.name, "mode": mode, **found})
