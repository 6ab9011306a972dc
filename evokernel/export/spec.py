"""Owns what a verified tensor and a verified domain are, and how a value differs from them.

Embedded in every exported file.
"""

from typing import Any, NamedTuple

import torch


class Spec(NamedTuple):
    """A tensor that was verified."""

    dtype: str
    """Name without the `torch.` prefix."""
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    """In elements; None is contiguous."""
    device: str = "cpu"
    """Kind of device."""

    def __str__(self) -> str:
        """For example `float32 (4096, 3072)`."""
        layout = "" if self.strides is None else f" with strides {self.strides}"
        return f"{self.dtype} {self.shape}{layout}"


class Domain(NamedTuple):
    """What was verified; everything else is outside."""

    workloads: dict[str, list[Any]]
    """Arguments of `forward` by workload: `Spec` for tensors, other values as they were."""
    state: dict[str, Spec]
    """Parameters and buffers."""
    constructor: tuple[list[Any], dict[str, Any]]
    """Arguments of the constructor, positional and by name."""
    modes: tuple[str, ...]
    """Of `train` and `eval`, those in which kernel and original agree."""
    cast: str | None
    """Floating-point dtype that module and inputs are converted to, where it is not float32."""


def described(tree: Any) -> Any:
    """Tensors as `Spec`, everything else as it is, nested as it was."""
    if isinstance(tree, torch.Tensor):
        strides = None if tree.is_contiguous() else tuple(tree.stride())
        dtype = str(tree.dtype).removeprefix("torch.")
        return Spec(dtype, tuple(tree.shape), strides, tree.device.type)
    if isinstance(tree, dict):
        return {key: described(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        values = [described(value) for value in tree]
        return values if isinstance(tree, list) else tuple(values)
    return tree


def unlike(expected: Any, value: Any, name: str) -> str:
    """Why a value is not what was verified; empty where it is."""
    if isinstance(expected, Spec):
        return unlike_tensor(expected, value, name)
    if isinstance(expected, dict):
        if not isinstance(value, dict) or value.keys() != expected.keys():
            return f"`{name}` has other keys"
        pairs = [(f"{name}.{key}", expected[key], value[key]) for key in expected]
    elif isinstance(expected, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(expected):
            return f"`{name}` is not {len(expected)} values"
        pairs = [(f"{name}.{n}", then, value[n]) for n, then in enumerate(expected)]
    else:
        same = type(value) is type(expected) and repr(value) == repr(expected)
        return "" if same else f"`{name}` is {value!r:.60} instead of {expected!r:.60}"
    found = (unlike(then, now, where) for where, then, now in pairs)
    return next(filter(None, found), "")


def unlike_tensor(spec: Spec, value: Any, name: str) -> str:
    """Why a value is not a tensor like the one that was verified; empty where it is."""
    if type(value) is not torch.Tensor and type(value) is not torch.nn.Parameter:
        return f"`{name}` is a {type(value).__name__} instead of a plain tensor"
    if value.device.type != spec.device or value.layout is not torch.strided:
        return f"`{name}` is on {value.device} ({value.layout}) instead of {spec.device}"
    if tuple(value.shape) != spec.shape or value.dtype is not getattr(torch, spec.dtype):
        got = f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
        return f"`{name}` is {got} instead of {spec}"
    is_laid_out = (
        value.is_contiguous() if spec.strides is None else tuple(value.stride()) == spec.strides
    )
    if not is_laid_out or value.is_neg() or value.is_conj():
        return f"`{name}` has strides {tuple(value.stride())} instead of being {spec}"
    return ""
