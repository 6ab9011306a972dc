"""Owns how tensors travel between processes: raw bytes in sealed shared memory, never pickled."""

import ctypes
import fcntl
import math
import mmap
import os
from typing import Any, Self

import torch
from pydantic import Field, ValidationError
from torch import equal  # a name of this module's own, which stays what it is

from evokernel.bench import trees
from evokernel.bench.messages import Variant
from evokernel.bench.trees import BadTree
from evokernel.bench.wire import Message
from evokernel.errors import WorkerError
from evokernel.frozen import Frozen

ALIGNMENT = 64
"""Bytes at which every tensor starts, as with torch's own allocator."""
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_WORD = 8  # bytes
_CHUNK = 1 << 30  # bytes; one write moves at most 2 GiB
DTYPES = {
    name: dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and not (name := str(dtype)[6:]).startswith("q")
}
"""Every dtype with plain elements, by name; quantised ones are left out."""


class Layout(Frozen):
    """Where a tensor's elements lie in the shared memory, and how they are read."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = Field(ge=0)
    """Bytes from the start."""
    span: int = Field(ge=0)
    """Elements from the first to the last one, gaps included."""

    @property
    def bytes(self) -> int:
        """Bytes that the span takes."""
        return self.span * DTYPES[self.dtype].itemsize

    @property
    def unfolded_bytes(self) -> int:
        """Bytes of a contiguous copy: more than `bytes` where elements are shared."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    def fits(self, size: int) -> bool:
        """Whether it is well-formed and lies inside `size` bytes."""
        return (
            self.dtype in DTYPES
            and len(self.shape) == len(self.strides) <= 64
            and min(self.shape + self.strides, default=0) >= 0
            and self.span == span(self.shape, self.strides)
            and self.offset % ALIGNMENT == 0
            and self.offset + self.bytes <= size
        )


class Package:
    """A nested value in sealed shared memory, ready to be sent to any number of processes."""

    def __init__(self, tree: Any, layouts: tuple[Layout, ...], file: int | None, size: int) -> None:
        self.tree = tree
        """JSON form of the nested value, see `trees`."""
        self.layouts = layouts
        """One per tensor, in order of appearance."""
        self.bytes = size
        """Bytes of the shared memory."""
        self._file = file

    @property
    def files(self) -> tuple[int, ...]:
        """What to send beside `message`."""
        return () if self._file is None else (self._file,)

    @property
    def message(self) -> Message:
        """What to send; `receive` makes a package of it again."""
        layouts = [layout.model_dump() for layout in self.layouts]
        return {"tree": self.tree, "layouts": layouts, "bytes": self.bytes}

    @classmethod
    def receive(cls, message: Message, files: tuple[int, ...], limit: int) -> Self:
        """Take over a package that another process sent, trusting nothing in it.

        Raises:
            BadTree: It is malformed, larger than `limit` bytes, or not sealed shared memory; the
                files are closed.
        """
        try:
            return cls._received(message, files, limit)
        except BadTree:
            for file in files:
                os.close(file)
            raise

    @classmethod
    def _received(cls, message: Message, files: tuple[int, ...], limit: int) -> Self:
        tree, layouts, size = described(message, limit)
        if len(files) != (1 if size else 0):
            raise BadTree("tensors that lie outside their memory")
        if files:
            _check_sealed(files[0], size)
        return cls(tree, layouts, files[0] if files else None, size)

    def flats(self) -> list[torch.Tensor]:
        """The spans as 1-D tensors over a private mapping: writable, and nobody else sees it.

        Raises:
            BadTree: The memory cannot be mapped.
        """
        whole = torch.empty(0, dtype=torch.uint8)
        if self._file is not None:
            mapping = _mapped(self._file, self.bytes)
            whole = torch.frombuffer(mapping, dtype=torch.uint8)
        return [flat_of(whole, layout) for layout in self.layouts]

    def value(self, flats: list[torch.Tensor] | None = None) -> Any:
        """The nested value, its tensors being views of `flats` (by default a mapping of their own).

        Raises:
            BadTree: The tree is damaged.
        """
        pairs = zip(self.flats() if flats is None else flats, self.layouts, strict=True)
        return trees.decode(self.tree, [_strided(flat, layout) for flat, layout in pairs])

    def close(self) -> None:
        """Give up the memory; tensors already made of it stay valid. Idempotent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        """Enter a block at whose end the package is closed."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close it."""
        self.close()


def described(message: Message, limit: int) -> tuple[Any, tuple[Layout, ...], int]:
    """Tree, layouts and size of a package that another process describes, trusting nothing in it.

    Raises:
        BadTree: It is malformed, or larger than `limit` bytes.
    """
    try:
        layouts = tuple(Layout.model_validate(item) for item in message["layouts"])
        tree, size = message["tree"], message["bytes"]
    except (KeyError, TypeError, ValidationError) as error:
        raise BadTree("a damaged package of tensors") from error
    if not isinstance(size, int) or not 0 <= size <= limit:
        raise BadTree(f"tensors of more than {limit} bytes")
    if not all(layout.fits(size) for layout in layouts):
        raise BadTree("tensors that lie outside their memory")
    if any(layout.unfolded_bytes > limit for layout in layouts):
        raise BadTree(f"tensors that unfold to more than {limit} bytes")
    return tree, layouts, size


def pack(value: Any) -> Package:
    """Copy nested lists, tuples and dicts of tensors and plain values into shared memory.

    Strides survive, expanded dimensions too. Tensors that share memory are separate afterwards, and
    gradients are left behind.

    Raises:
        WorkerError: An object that cannot travel; it is named.
    """
    tensors: list[torch.Tensor] = []
    try:
        tree = trees.encode(value, lambda t: _number(t, tensors), foreign=False)
    except BadTree as error:
        message = f"an argument is {error}; workers take dense tensors and plain values"
        raise WorkerError(message) from error
    return ship(tree, tensors)


def ship(tree: Any, tensors: list[torch.Tensor]) -> Package:
    """Copy dense CPU tensors into sealed shared memory, beside the tree that refers to them."""
    layouts, size = laid_out(tensors)
    if not size:
        return Package(tree, layouts, None, 0)
    file = os.memfd_create("evokernel-tensors", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(file, size)
        for tensor, layout in zip(tensors, layouts, strict=True):
            _write(file, layout.offset, tensor.data_ptr(), layout.bytes)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(file)
        raise
    return Package(tree, layouts, file, size)


def laid_out(tensors: list[torch.Tensor]) -> tuple[tuple[Layout, ...], int]:
    """Where dense tensors lie one after the other, and the bytes that they take together."""
    layouts: list[Layout] = []
    size = 0
    for tensor in tensors:
        layouts.append(_layout(tensor, size))
        size += -(-layouts[-1].bytes // ALIGNMENT) * ALIGNMENT
    return tuple(layouts), size


def vary(index: int, flat: torch.Tensor, out: torch.Tensor, variant: Variant) -> None:
    """Write the variant of tensor `index` into `out` (both 1-D, same dtype and length).

    Floating and complex tensors become ``flat * (sign * scale) + offset``, rounded to their dtype
    after each of the two steps, and rolled; what `Bounds` says is kept to. All others, and floats
    of one byte, are copied.
    """
    length = flat.numel()
    if index in variant.moved and length:
        start = (2 * index + 1) * variant.roll % length
        out[start:].copy_(flat[: length - start])
        out[:start].copy_(flat[length - start :])
        return
    if index in variant.fixed or not _is_varied(flat.dtype):
        out.copy_(flat)
        return
    factor, offset, row = _change(index, variant)
    start = variant.roll * row % length if length else 0
    torch.mul(flat[: length - start], factor, out=out[start:])
    torch.mul(flat[length - start :], factor, out=out[:start])
    if offset:
        out.add_(offset)


def same_bytes(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two 1-D tensors of the same dtype and length hold the same bits."""
    a, b = one.view(torch.uint8), two.view(torch.uint8)
    if any(whole.storage_offset() % _WORD for whole in (a, b)):
        return equal(a, b)
    rest = a.numel() // _WORD * _WORD
    # Word by word: by the byte it would take as long for each of them.
    words = (whole[:rest].view(torch.int64) for whole in (a, b))
    return equal(*words) and equal(a[rest:], b[rest:])


def _change(index: int, variant: Variant) -> tuple[float, float, int]:
    """Factor and offset of a floating tensor, and the elements that keep together."""
    if row := dict(variant.mixed).get(index):
        share = 0.5 * variant.scale
        level = 1 / row if row > 1 else min(8 * abs(variant.offset), 1.0)
        return share, (1 - share) * level, row
    if index in variant.nonnegative:
        return variant.scale, abs(variant.offset), 1
    return variant.sign * variant.scale, variant.offset, 1


def span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to the last one of a strided tensor; 0 for an empty one."""
    if 0 in shape:
        return 0
    return 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements are plain numbers in memory that can be read."""
    name = str(tensor.dtype).removeprefix("torch.")
    return tensor.layout is torch.strided and tensor.device.type != "meta" and name in DTYPES


def _is_varied(dtype: torch.dtype) -> bool:
    """Float types with arithmetic; those of one byte have none."""
    return (dtype.is_floating_point or dtype.is_complex) and dtype.itemsize > 1


def _number(tensor: torch.Tensor, tensors: list[torch.Tensor]) -> int | None:
    if not is_dense(tensor):
        return None
    tensors.append(tensor.detach().cpu().resolve_conj().resolve_neg())
    return len(tensors) - 1


def _layout(tensor: torch.Tensor, offset: int) -> Layout:
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return Layout(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=shape,
        strides=strides,
        offset=offset,
        span=span(shape, strides),
    )


def _write(file: int, offset: int, address: int, count: int) -> None:
    """Write from memory; a mapping instead would have to be gone before the file can be sealed."""
    done = 0
    while done < count:
        size = min(_CHUNK, count - done)
        block = (ctypes.c_char * size).from_address(address + done)
        done += os.pwrite(file, block, offset + done)


def flat_of(whole: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The span of one tensor within the bytes of all, as a 1-D tensor."""
    part = whole[layout.offset : layout.offset + layout.bytes]
    return part.view(DTYPES[layout.dtype])


def _strided(flat: torch.Tensor, layout: Layout) -> torch.Tensor:
    """A tensor of its own on the memory of `flat`; torch would know `as_strided` for a view."""
    plain = torch.empty(0, dtype=flat.dtype, device=flat.device)
    storage, start = flat.untyped_storage(), flat.storage_offset()
    return plain.set_(storage, start, layout.shape, layout.strides)


def _mapped(file: int, size: int) -> mmap.mmap:
    try:
        return mmap.mmap(file, size, access=mmap.ACCESS_COPY)
    except OSError as error:  # huge pages that do not exist, or too much
        raise BadTree(f"memory that cannot be mapped: {error.strerror}") from error


def _check_sealed(file: int, size: int) -> None:
    try:
        seals = fcntl.fcntl(file, fcntl.F_GET_SEALS)
    except OSError as error:
        raise BadTree("a file that is no shared memory") from error
    if seals & _SEALS != _SEALS or os.fstat(file).st_size != size:
        raise BadTree("shared memory that could still change")
