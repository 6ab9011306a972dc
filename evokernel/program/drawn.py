"""Owns how a live tensor is written into a task file: values drawn like it, or its very values."""

import base64
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

LONGEST = 16384
"""Bytes of an exact tensor in a file's text, packed (ours): a causal mask of 2048 tokens takes
6,000."""

EXACT = '''
def exact(packed, dtype, shape):
    """A tensor whose very values matter: a mask, a table of indices."""
    raw = bytearray(zlib.decompress(base64.b64decode(packed)))
    return torch.frombuffer(raw, dtype=dtype).reshape(shape)
'''
"""What a file needs that holds one."""


def alike(tensor: "torch.Tensor", cast: "torch.dtype | None" = None) -> str:
    """An expression for a tensor of the same kind: shape, dtype, range or mean and spread.

    Args:
        tensor: On the processor; integers and booleans are written exactly where that is short.
        cast: Dtype that the task's precision gives to all floating tensors, and the text need not.
    """
    import torch

    if tensor.numel() == 0:
        return f"torch.empty({tuple(tensor.shape)}, dtype={tensor.dtype})"
    if not tensor.is_floating_point():
        return exactly(tensor) or _whole_numbers(tensor)
    text = _floats(tensor.detach().float())
    is_plain = tensor.dtype in (torch.float32, cast)
    return _laid_out(tensor, text if is_plain else f"({text}).to({tensor.dtype})")


def exactly(tensor: "torch.Tensor") -> str | None:
    """An expression for these very values; None where it would be too long."""
    import torch

    flat = tensor.detach().contiguous()
    if flat.numel() and bool((flat == flat.flatten()[0]).all()):
        value = flat.flatten()[0].item()
        return f"torch.full({tuple(flat.shape)}, {value!r}, dtype={flat.dtype})"
    if flat.numel() <= 16 and not flat.is_complex():
        return f"torch.tensor({flat.tolist()!r}, dtype={flat.dtype})"
    raw = flat.flatten().view(torch.uint8).numpy().tobytes()
    packed = base64.b64encode(zlib.compress(raw, 9)).decode()
    if len(packed) > LONGEST:
        return None
    lines = [packed[at : at + 88] for at in range(0, len(packed), 88)]
    inner = "\n".join(f'            "{line}"' for line in lines)
    return (
        f"exact(\n{inner},\n            {flat.dtype},\n            {tuple(flat.shape)},\n        )"
    )


def _floats(values: "torch.Tensor") -> str:
    shape = tuple(values.shape)
    finite = values[values.isfinite()]
    if not finite.numel():
        return f"torch.randn{_sizes(shape)}"
    low, high = float(finite.min()), float(finite.max())
    if low == high:
        return f"torch.full({shape}, {low!r})"
    if low >= 0:  # variances, probabilities, what comes out of a ReLU
        return f"torch.rand{_sizes(shape)} * {high - low:.6g} + {low:.6g}"
    mean, spread = float(finite.mean()), float(finite.std()) if finite.numel() > 1 else 1.0
    scaled = f"torch.randn{_sizes(shape)} * {spread:.6g}"
    return scaled if abs(mean) < 1e-3 * spread else f"{scaled} + {mean:.6g}"


def _sizes(shape: tuple[int, ...]) -> str:
    return str(shape) if shape else "(())"


def _whole_numbers(tensor: "torch.Tensor") -> str:
    import torch

    shape = tuple(tensor.shape)
    if tensor.dtype is torch.bool:
        return f"torch.rand{_sizes(shape)} < {float(tensor.float().mean()):.6g}"
    low, high = int(tensor.min()), int(tensor.max())
    return f"torch.randint({low}, {high + 1}, {shape}, dtype={tensor.dtype})"


def drawn(tensor: "torch.Tensor", cast: "torch.dtype | None" = None) -> str:
    """The same for an argument of `forward`: whole numbers are drawn from their range, too."""
    import torch

    if tensor.numel() and not tensor.is_floating_point() and tensor.dtype is not torch.bool:
        return _laid_out(tensor, _whole_numbers(tensor))
    return alike(tensor, cast)


def _laid_out(tensor: "torch.Tensor", text: str) -> str:
    if tensor.is_contiguous():
        return text
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return f"torch.empty_strided({shape}, {strides}, dtype={tensor.dtype}).copy_({text})"
