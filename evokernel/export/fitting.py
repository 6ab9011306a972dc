"""Owns whether a kernel fits a live module: the same program on the same shapes, or why not."""

import re
from typing import Any

import torch

from evokernel.errors import ModuleNotCaptured
from evokernel.nested import map_leaves
from evokernel.program import Program
from evokernel.program.captured import Recorded, recorded
from evokernel.task import Workload


class Fitting:
    """Compares live modules with the reference of a task.

    Args:
        program: The task's file, executed.
        workloads: Names of the workloads on which the kernel was verified.
    """

    def __init__(self, program: Program, workloads: tuple[str, ...]) -> None:
        self._program = program
        self.workloads = [w for w in program.workloads() if w.name in workloads]
        self.reference = program.build()
        self._state = {**self.reference.state_dict()}
        self._known = {w.name: self._record(self.reference, w) for w in self.workloads}

    def misfit(self, module: torch.nn.Module) -> str:
        """Why the kernel may not serve this module; empty where it may."""
        if why := self._other_kind(module) or self._other_state(module):
            return why
        is_training = module.training
        try:
            # The program depends on the mode; the one that was verified is asked for.
            module.train(self.reference.training)
            for workload in self.workloads:
                if why := _unlike(self._known[workload.name], self._record(module, workload)):
                    return why
        except ModuleNotCaptured as error:
            return str(error)
        finally:
            module.train(is_training)
        return ""

    def is_near(self, module: torch.nn.Module) -> bool:
        """Whether it may be meant at all, by its class and its state."""
        return not (self._other_kind(module) or self._other_state(module))

    def inputs(self, workload: Workload, seed: int, device: torch.device) -> list[Any]:
        """Arguments of `forward` for a workload, drawn anew."""
        made = self._program.make_inputs(workload, seed)

        def moved(leaf: Any) -> Any:
            return leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf

        return [map_leaves(moved, value) for value in made]

    def _record(self, module: torch.nn.Module, workload: Workload) -> Recorded:
        device = device_of(module)
        return recorded(module, tuple(self.inputs(workload, workload.seed, device)))

    def _other_kind(self, module: torch.nn.Module) -> str:
        origin = self._program.task.options.origin
        kind = f"{type(module).__module__}.{type(module).__qualname__}"
        if origin and kind != origin:
            return f"it is a `{kind}`, and the kernel was made for `{origin}`"
        return ""

    def _other_state(self, module: torch.nn.Module) -> str:
        for name, wanted in self._state.items():
            held = attribute(module, name)
            if not isinstance(held, torch.Tensor):
                return f"it has no parameter or buffer `{name}`"
            if (held.shape, held.dtype) != (wanted.shape, wanted.dtype):
                return (
                    f"`{name}` is {held.dtype} {tuple(held.shape)} instead of {wanted.dtype} "
                    f"{tuple(wanted.shape)}"
                )
        return ""


def attribute(module: Any, path: str) -> Any:
    """What lies at a dotted path below a module; None where nothing does."""
    for key in path.split("."):
        module = getattr(module, key, None)
    return module


def device_of(module: torch.nn.Module) -> torch.device:
    """Where a module's tensors are; the processor where it has none."""
    tensors = [*module.parameters(), *module.buffers()]
    return tensors[0].device if tensors else torch.device("cpu")


def _unlike(known: Recorded, found: Recorded) -> str:
    theirs, ours = _canonical(found), _canonical(known)
    for mine, its in zip(ours, theirs, strict=False):
        if mine != its:
            return f"it computes something else: `{its:.120}` instead of `{mine:.120}`"
    if len(ours) != len(theirs):
        return f"it takes {len(theirs)} operations instead of {len(ours)}"
    for name, value in known.constants.items():
        theirs_now = found.constants.get(name)
        if theirs_now is None or not torch.equal(theirs_now.cpu(), value.cpu()):
            return f"its constant `{name}` has other values"
    return ""


_ALIAS = re.compile(r"torch\.ops\.aten\.(?:alias|detach)\.default\((\w+)\)")


def _canonical(found: Recorded) -> list[str]:
    """The operations with values named in their order, however torch named them."""
    head, *lines = found.forward.strip().splitlines()
    arguments = re.findall(r"\w+", head.partition("(")[2])[1:]
    names = {argument: f"argument_{n}" for n, argument in enumerate(arguments)}
    kept: list[str] = []
    for line in lines:
        name, is_assignment, value = line.strip().partition(" = ")
        if not is_assignment or name.startswith("return"):
            kept.append(_renamed(line.strip(), names))
            continue
        value = _renamed(_ALIAS.sub(r"\1", value), names)
        if re.fullmatch(r"[\w.]+|self\..*|getattr\(self.*", value):
            names[name] = value
        else:
            names[name] = f"value_{len(kept)}"
            kept.append(value)
    return kept


def _renamed(text: str, names: dict[str, str]) -> str:
    """With names of values replaced; what follows a dot, or stands in quotes, is none."""
    return re.sub(r"(?<![\w.'\"])[A-Za-z_]\w*", lambda m: names.get(m[0], m[0]), text)
