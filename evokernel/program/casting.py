"""Owns the conversion of a module and its inputs to another dtype, as the precision of a task asks.

Embedded in every exported file.
"""

from typing import TYPE_CHECKING, Any

from evokernel.nested import leaves, map_leaves

if TYPE_CHECKING:
    import torch

CASTS = {"fp16": "float16", "bf16": "bfloat16"}
"""Precisions of a task to which module and inputs are converted, and torch's names of them."""


def to_dtype(tree: Any, dtype: "torch.dtype") -> Any:
    """The same nesting with floating-point tensors converted; other leaves as they are."""
    return map_leaves(lambda leaf: leaf.to(dtype) if _is_real(leaf) else leaf, tree)


def convert(module: "torch.nn.Module", dtype: "torch.dtype") -> None:
    """Convert parameters, buffers, and tensors kept as plain attributes, which `.to` skips."""
    module.to(dtype)
    for part in module.modules():
        for name, value in list(vars(part).items()):
            if not name.startswith("_") and any(_is_real(leaf) for _, leaf in leaves(value)):
                part.__dict__[name] = to_dtype(value, dtype)


def _is_real(leaf: Any) -> bool:
    import torch

    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
