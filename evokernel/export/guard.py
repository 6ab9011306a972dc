"""Owns the verified domain at run time: which calls go to the kernel, and which to the original.

Embedded in every exported file. Whatever was not verified runs the original module and is counted
with its reason, or raises where the file is strict.
"""

import contextlib
import inspect
import random
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from evokernel.export.building import BuildError
from evokernel.export.spec import Domain, described, unlike, unlike_tensor
from evokernel.nested import leaves
from evokernel.program.casting import convert

MOST_REASONS = 50
"""Different reasons that are told apart; later ones are counted as `other`."""


class OutsideVerifiedDomain(RuntimeError):
    """In a strict file: a call that the kernel was not verified for; the message names why."""


class Slot(NamedTuple):
    """Where a parameter or buffer of a module is kept."""

    part: Any
    """The module or a part of it."""
    store: str
    """`_parameters` or `_buffers`."""
    key: str
    name: str
    """Within the whole module."""


class Guard:
    """Decides for each call of one module, and counts.

    Args:
        original: Class of the original module.
        domain: What was verified.
        kernel_class: Gives the class of the kernel's module; builds it at the first call.
        is_strict: Raise instead of running the original.
    """

    def __init__(
        self,
        original: Any,
        domain: Domain,
        kernel_class: Callable[[], Any],
        is_strict: bool = False,
    ) -> None:
        self.domain = domain
        self.is_strict = is_strict
        self.calls = 0
        """Calls that the kernel served."""
        self.fallbacks = 0
        """Calls that the original served."""
        self.reasons: dict[str, int] = {}
        """Why, and how often."""
        self._original = original
        self._names = list(inspect.signature(original.forward).parameters)[1:]
        self._kernel_class = kernel_class
        self._kernel: Any = None
        self._why_no_kernel = ""
        self._random = _random_state()  # the kernel's constructor draws what the original's drew
        self._constructor: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self._why_never = ""
        self._parts: list[Any] = []
        self._slots: list[Slot] = []
        self._count = 0
        self._settings: list[tuple[Any, str, Any, Any]] = []
        self._shared: list[tuple[Slot, Slot]] = []

    def bind(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note how a module was made; to be called at the end of its constructor."""
        self._constructor = (args, kwargs)
        self._why_never = self._other_constructor(model, args, kwargs)
        self._parts = _walk(model)
        self._slots = list(_slots(model))
        self._count = _count(self._parts)
        self._settings = list(_settings(self._parts))

    def ready(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The kernel for this call, or None where the original has to serve it.

        Raises:
            OutsideVerifiedDomain: The latter, in a strict file.
        """
        why = self.outside(model, args, kwargs) or self._built(model)
        if not why:
            self.calls += 1
            self._share(model)
            return self._kernel
        if self.is_strict:
            raise OutsideVerifiedDomain(why)
        if why not in self.reasons and len(self.reasons) >= MOST_REASONS:
            why = "other"
        self.fallbacks += 1
        self.reasons[why] = self.reasons.get(why, 0) + 1
        return None

    def outside(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Why a call lies outside of what was verified; empty where it does not."""
        if self._why_never:
            return self._why_never
        if why := self._changed(model):
            return why
        state = {slot.name: getattr(slot.part, slot.store).get(slot.key) for slot in self._slots}
        values = self.ordered(args, kwargs)
        return (
            _surroundings((*values, *state.values()))
            or self._other_state(state)
            or self._other_inputs(values)
        )

    def ordered(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments of a call by position."""
        if not kwargs:
            return args
        return (*args, *(kwargs[name] for name in self._names[len(args) :] if name in kwargs))

    def __getstate__(self) -> dict[str, Any]:
        """A copied module makes a kernel of its own at its first call."""
        return {**self.__dict__, "_kernel": None, "_shared": []}

    def _share(self, model: Any) -> None:
        """Let the kernel compute with the module's own parameters and buffers, as they are now."""
        for own, its in self._shared:
            getattr(its.part, its.store)[its.key] = getattr(own.part, own.store)[own.key]
        if self._kernel.training is not model.training:
            self._kernel.train(model.training)

    def _other_constructor(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Why a module made with these arguments is not the one that was verified."""
        signature = inspect.signature(self._original.__init__)
        verified = signature.bind(model, *self.domain.constructor[0], **self.domain.constructor[1])
        given = signature.bind(model, *args, **kwargs)
        for bound in (verified, given):
            bound.apply_defaults()
        for name, value in list(verified.arguments.items())[1:]:
            if why := unlike(value, given.arguments.get(name), name):
                return f"constructor: {why}"
        return ""

    def _changed(self, model: Any) -> str:
        """Why the module is not as its constructor made it."""
        mode = "train" if model.training else "eval"
        if mode not in self.domain.modes:
            return f"{mode} mode"
        parts = _walk(model)
        if list(map(id, parts)) != list(map(id, self._parts)):
            return "a part of the module was replaced"
        if _count(parts) != self._count:
            return "the module has other parameters or buffers"
        for part in parts[1:]:
            if part.training is not model.training:
                return "parts of the module are in different modes"
            if part._forward_hooks or part._forward_pre_hooks:
                return "a part of the module has a hook"
        for part, name, value, known in self._settings:
            now = part.__dict__.get(name)
            if now is value and isinstance(value, _FIXED):
                continue
            if isinstance(value, torch.Tensor) or unlike(known, now, name):
                return f"`{name}` was changed after the module was made"
        return ""

    def _other_state(self, state: dict[str, Any]) -> str:
        for name, spec in self.domain.state.items():
            if why := unlike_tensor(spec, state.get(name), name):
                return why
        return ""

    def _other_inputs(self, values: tuple[Any, ...]) -> str:
        first = ""
        for expected in self.domain.workloads.values():
            why = self._misfit(expected, values)
            if not why:
                return ""
            first = first or why
        many = len(self.domain.workloads)
        return first if many == 1 else f"none of the {many} verified sets of inputs; {first}"

    def _misfit(self, expected: list[Any], values: tuple[Any, ...]) -> str:
        if len(values) != len(expected):
            return f"{len(values)} arguments instead of {len(expected)}"
        for number, (spec, value) in enumerate(zip(expected, values, strict=True)):
            name = self._names[number] if number < len(self._names) else str(number + 1)
            if why := unlike(spec, value, name):
                return why
        return ""

    def _built(self, model: Any) -> str:
        """Make the kernel at its first use; says why it cannot be made, and warns once.

        Threads that call first at once share one kernel: its slots belong to it alone.
        """
        if self._kernel is None and not self._why_no_kernel:
            with _BUILDING:
                if self._kernel is None and not self._why_no_kernel:
                    self._why_no_kernel = self._make(model)
        return self._why_no_kernel

    def _make(self, model: Any) -> str:
        """Make the kernel, and set it last: whoever sees it sees its slots as well."""
        try:
            made = self._kernel_class()
            with _as_random_as(self._random):
                kernel = made(*self._constructor[0], **self._constructor[1])
        except BuildError as error:
            text = f"`{type(model).__name__}` runs the original module: {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=7)  # past torch, at the caller
            return f"the kernel cannot be built: {str(error).splitlines()[0]}"
        if self.domain.cast:
            convert(kernel, getattr(torch, self.domain.cast))
        own = {slot.name: slot for slot in self._slots}
        self._shared = [(own[slot.name], slot) for slot in _slots(kernel) if slot.name in own]
        self._kernel = kernel
        return ""


_BUILDING = threading.RLock()
_FIXED = (bool, int, float, str, type(None), torch.Tensor)
"""What stays what it is as long as it is the same object; a tensor's values are its own affair."""


def _surroundings(values: tuple[Any, ...]) -> str:
    """Why nothing can be said about a call, whatever it is given."""
    if torch._C._get_tracing_state() is not None or torch.compiler.is_compiling():
        return "the call is being traced"
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        return "autocast is on"
    peek = getattr(torch._C._functorch, "peek_interpreter_stack", None)
    if peek is not None and peek() is not None:
        return "inside of a torch.func transform"
    if torch.is_grad_enabled() and any(_wants_gradient(leaf) for _, leaf in leaves(values)):
        return "a gradient is wanted (call it under `torch.no_grad()`)"
    return ""


def _wants_gradient(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def _settings(parts: list[Any]) -> Iterator[tuple[Any, str, Any, Any]]:
    """Plain attributes, as they are now: a kernel may have any of them compiled into it."""
    for part in parts:
        for name, value in part.__dict__.items():
            if name.startswith("_") or name == "training":
                continue
            if all(isinstance(leaf, _FIXED) for _, leaf in leaves(value)):
                yield part, name, value, described(value)


def _walk(model: Any) -> list[Any]:
    """The module and all its parts, in an order of their own; cheaper than `modules()`."""
    parts = [model]
    for part in parts:
        parts += [child for child in part._modules.values() if child is not None]
    return parts


def _count(parts: list[Any]) -> int:
    return sum(len(part._parameters) + len(part._buffers) for part in parts)


def _slots(model: Any) -> Iterator[Slot]:
    for path, part in model.named_modules():
        for store in ("_parameters", "_buffers"):
            for key, tensor in getattr(part, store).items():
                if tensor is not None:
                    yield Slot(part, store, key, f"{path}.{key}" if path else key)


def _random_state() -> tuple[Any, Any]:
    return torch.get_rng_state(), random.getstate()


@contextlib.contextmanager
def _as_random_as(state: tuple[Any, Any]) -> Iterator[None]:
    """Draw what the original's constructor drew, and leave the program's own draws alone."""
    before = _random_state()
    try:
        torch.set_rng_state(state[0])
        random.setstate(state[1])
        yield
    finally:
        torch.set_rng_state(before[0])
        random.setstate(before[1])
