"""Owns the arguments of a launch: their checks, and how they are laid out for the driver."""

import ctypes
import math
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

from evokernel.compilers.binding import (
    Converter,
    Strided,
    accepted_for,
    dtype_of,
    either,
    number_for,
)
from evokernel.compilers.signatures import Parameter, Signature

_CODES = {
    "float32": "f",
    "float64": "d",
    "bool": "?",
    **{f"{sign}int{bits}": code.upper() if sign else code
       for sign in ("", "u")
       for bits, code in ((8, "b"), (16, "h"), (32, "i"), (64, "q"))},
}  # fmt: skip
_SLOT = 8
"""Bytes kept for each argument; each lies at the beginning of its own."""
_LARGEST = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
"""Largest finite float32."""


class Arguments:
    """The parameters of one kernel: checks values, and keeps room for them in the driver's form.

    A launch copies its arguments, so that the room can be used again at once; the lock is held
    from the packing to the end of the launch.
    """

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.lock = threading.Lock()
        self._converters = tuple(
            _converter(signature.name, number, parameter)
            for number, parameter in enumerate(signature.parameters, start=1)
        )
        self._tensors = tuple(n for n, p in enumerate(signature.parameters) if p.pointer)
        count = len(signature.parameters)
        codes = ("Q" if p.pointer else _CODES[p.ctype] for p in signature.parameters)
        self._layout = struct.Struct("<" + "".join(map(_slot, codes)))
        self._room = ctypes.create_string_buffer(max(self._layout.size, 1))
        start = ctypes.addressof(self._room)
        self._places = (ctypes.c_void_p * max(count, 1))(*(start + _SLOT * n for n in range(count)))
        self.address = ctypes.addressof(self._places)
        """Of the table of addresses that the driver reads."""

    def converted(self, values: Sequence[Any]) -> list[Any]:
        """Values as the kernel takes them: addresses and numbers.

        Raises:
            TypeError: wrong number of arguments, or one that does not fit; the message names it.
            OverflowError: a number that does not fit the parameter's type.
        """
        converters = self._converters
        if len(values) != len(converters):
            plural = "" if len(converters) == 1 else "s"
            raise TypeError(
                f"`{self.signature.name}` takes {len(converters)} argument{plural}, "
                f"got {len(values)}: {self.signature}"
            )
        return [convert(value) for convert, value in zip(converters, values, strict=True)]

    def device(self, values: Sequence[Any]) -> int | None:
        """Number of the GPU on which all tensors lie; None where there are none.

        Raises:
            TypeError: they lie on several.
        """
        found: int | None = None
        for at in self._tensors:
            if values[at] is None:
                continue
            index = _tensor(values[at]).get_device()
            if found is not None and index != found:
                name = self.signature.parameters[at].name
                raise TypeError(
                    f"`{self.signature.name}`: argument {at + 1} `{name}` lies on cuda:{index}, "
                    f"those before it on cuda:{found}; all must lie on one GPU"
                )
            found = index
        return found

    def pack(self, converted: Sequence[Any]) -> None:
        """Lay converted values out at `address`; hold the lock."""
        self._layout.pack_into(self._room, 0, *converted)


def _slot(code: str) -> str:
    return f"{code}{_SLOT - struct.calcsize(code)}x"


def _tensor(value: Any) -> Any:
    return value.tensor if isinstance(value, Strided) else value


def _converter(function: str, number: int, parameter: Parameter) -> Converter:
    where = f"`{function}`: argument {number} `{parameter.name}` must be"
    if parameter.pointer:
        return _Pointer(where, parameter)
    convert = number_for(where, parameter.ctype)
    return _narrow(where, convert) if parameter.ctype == "float32" else convert


def _narrow(where: str, convert: Callable[[Any], Any]) -> Converter:
    """Refuse finite numbers that a float does not hold."""

    def narrow(value: Any) -> float:
        number = float(convert(value))
        if abs(number) > _LARGEST and math.isfinite(number):
            raise OverflowError(f"{where} within ±{_LARGEST:.4g} (float32), got {number}")
        return number

    return narrow


class _Pointer:
    """The check and conversion of a tensor to its address; None becomes a null pointer."""

    def __init__(self, where: str, parameter: Parameter) -> None:
        self._where = where
        self._name = parameter.name
        self._accepted = accepted_for(parameter.ctype)
        self._takes_all = parameter.ctype == "void"
        self._alignment = parameter.alignment
        self._fitting: set[Any] = set()  # dtypes already found to fit: no text is compared again

    def __call__(self, value: Any) -> int:
        if value is None:
            return 0
        try:
            fits = value.dtype in self._fitting and value.is_cuda and value.is_contiguous()
        except AttributeError:  # `Strided`, or no tensor at all
            fits = False
        if not fits:
            self._examine(value)
        address: int = _tensor(value).data_ptr()
        if self._alignment and address % self._alignment:
            raise TypeError(
                f"{self._where} at an address that is a multiple of {self._alignment} bytes, got "
                f"one {address % self._alignment} bytes beyond; pass `{self._name}.clone()`"
            )
        return address

    def _examine(self, value: Any) -> None:
        tensor = _tensor(value)
        if not hasattr(tensor, "data_ptr"):
            raise self._refusal(value)
        if not tensor.is_cuda:
            raise self._refusal(value, f"; pass `{self._name}.cuda()`")
        if not self._takes_all and dtype_of(tensor) not in self._accepted:
            raise self._refusal(value)
        self._fitting.add(tensor.dtype)
        if tensor is value and not tensor.is_contiguous():
            ways = f"`{self._name}.contiguous()`, or `jit.strided({self._name})` and its strides"
            strides = tuple(tensor.stride())
            raise self._refusal(value, f" with strides {strides}; pass {ways}")

    def _refusal(self, value: Any, hint: str = "") -> TypeError:
        layout = "" if isinstance(value, Strided) else "contiguous "
        wanted = "" if self._takes_all else f"{either(self._accepted)} "
        got = _described(value)
        return TypeError(f"{self._where} a {layout}{wanted}CUDA tensor, got {got}{hint}")


def _described(value: Any) -> str:
    tensor = _tensor(value)
    if not hasattr(tensor, "data_ptr"):
        return f"{type(value).__name__} {str(value)[:40]}"
    return f"{dtype_of(tensor)} of shape {tuple(tensor.shape)} on {tensor.device}"
