"""Owns the call from Python into a built function: argument checks, conversion, the launch log."""

import ctypes
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NamedTuple

from evokernel.compilers import KernelSource
from evokernel.compilers.signatures import KERNELS_ONLY, Parameter, Signature, signatures
from evokernel.evaluation import Diagnostic

Converter = Callable[[Any], Any]

_CTYPES: dict[str, Any] = {
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
    "bool": ctypes.c_bool,
    **{
        f"{sign}int{bits}": getattr(ctypes, f"c_{sign}int{bits}")
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
}
_ALSO = {"uint16": ("float16", "bfloat16"), "uint8": ("bool",)}
"""Dtypes that a pointer of another element type takes too: 16-bit floats travel as their bits."""


class Launch(NamedTuple):
    """One call of a kernel."""

    kernel: str
    """Name of the function."""
    seconds: float
    """Wall seconds of the call, argument checks excluded."""


class Strided:
    """A tensor whose layout the kernel handles itself, through strides passed as numbers."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


_log: list[Launch] | None = None


@contextmanager
def launches() -> Iterator[list[Launch]]:
    """Log every kernel call of this process; the list grows while the block runs. Not nested."""
    global _log
    log: list[Launch] = []
    _log = log
    try:
        yield log
    finally:
        _log = None


def kept_log() -> list[Launch] | None:
    """The log of kernel calls that is being kept in this process; None where none is."""
    return _log


def macros(defines: Mapping[str, bool | int | float | str] | None) -> tuple[str, ...]:
    """The compiler flags that define macros: True and False as 1 and 0, all else as it is."""
    return tuple(
        f"-D{name}={int(value) if isinstance(value, bool) else value}"
        for name, value in (defines or {}).items()
    )


def faults(kernel: KernelSource) -> tuple[Diagnostic, ...]:
    """Say what keeps Python from calling a C++ or CUDA kernel that compiles; empty: nothing."""
    marked = KERNELS_ONLY[kernel.backend]
    found = signatures(kernel.source, marked)
    if not found:
        message = f'no extern "C" {marked or "function"} for Python to call'
        return (Diagnostic(severity="error", message=message, file=kernel.name),)
    lines = kernel.source.split("\n")
    return tuple(
        Diagnostic(
            severity="error",
            message=f"`{signature.name}`: {signature.problem}",
            file=kernel.name,
            line=signature.line,
            excerpt=lines[signature.line - 1].strip(),
        )
        for signature in found
        if signature.problem and signature.is_defined
    )


class Function:
    """A built C function; calling it checks each argument against the parameter it is for."""

    def __init__(self, signature: Signature, symbol: Any) -> None:
        self.signature = signature
        self._name = signature.name
        self._symbol = symbol
        self._converters = tuple(
            _converter(signature.name, number, parameter)
            for number, parameter in enumerate(signature.parameters, start=1)
        )
        self._returns_status = signature.returns == "int32"
        symbol.argtypes = [_foreign(parameter) for parameter in signature.parameters]
        symbol.restype = _CTYPES.get(signature.returns)

    def __call__(self, *arguments: Any) -> Any:
        """Call the kernel; the interpreter lock is released meanwhile.

        Raises:
            TypeError: wrong number of arguments, or one that does not fit; the message names it.
            OverflowError: an integer that does not fit the parameter's type.
            RuntimeError: the kernel returned a status other than 0.
        """
        converters = self._converters
        if len(arguments) != len(converters):
            raise TypeError(self._miscounted(len(arguments)))
        values = [convert(value) for convert, value in zip(converters, arguments, strict=True)]
        log = _log
        if log is None:
            result = self._symbol(*values)
        else:
            began = perf_counter()
            result = self._symbol(*values)
            log.append(Launch(self._name, perf_counter() - began))
        if self._returns_status:
            if result:
                raise RuntimeError(f"`{self._name}` failed: it returned {result} instead of 0")
            return None
        return result

    def __repr__(self) -> str:
        """Its signature in C-like text."""
        return f"<kernel {self.signature}>"

    def _miscounted(self, count: int) -> str:
        expected = len(self._converters)
        plural = "" if expected == 1 else "s"
        return f"`{self._name}` takes {expected} argument{plural}, got {count}: {self.signature}"


def bind(library: ctypes.CDLL, kernel: KernelSource) -> dict[str, Function]:
    """Make every function of a loaded kernel callable; declared but missing ones are left out."""
    return {
        signature.name: Function(signature, symbol)
        for signature in signatures(kernel.source)
        if not signature.problem and (symbol := getattr(library, signature.name, None))
    }


def _foreign(parameter: Parameter) -> Any:
    return ctypes.c_void_p if parameter.pointer else _CTYPES[parameter.ctype]


def _converter(function: str, number: int, parameter: Parameter) -> Converter:
    where = f"`{function}`: argument {number} `{parameter.name}` must be"
    return _pointer(where, parameter) if parameter.pointer else number_for(where, parameter.ctype)


def number_for(where: str, ctype: str) -> Converter:
    """The check and conversion of a number for a parameter that takes it by value.

    Args:
        where: Begins its messages: names function and argument, and ends in `must be`.
        ctype: Element type of the parameter.
    """
    if ctype == "bool":
        return _truth(where)
    return _real(where) if ctype in {"float32", "float64"} else _integer(where, ctype)


def _pointer(where: str, parameter: Parameter) -> Converter:
    """Make the check and conversion of a tensor to its address; None becomes a null pointer."""
    accepted = accepted_for(parameter.ctype)
    anything = parameter.ctype == "void"
    wanted = "" if anything else f"{either(accepted)} "
    fitting: set[Any] = set()  # dtype objects already found to fit: no text is compared again

    def refuse(value: Any, hint: str = "") -> TypeError:
        layout = "" if isinstance(value, Strided) else "contiguous "
        got = _described(value.tensor if isinstance(value, Strided) else value)
        return TypeError(f"{where} a {layout}{wanted}CPU tensor, got {got}{hint}")

    def examine(value: Any) -> int | None:
        if value is None:
            return None
        tensor = value.tensor if isinstance(value, Strided) else value
        if not hasattr(tensor, "data_ptr") or not tensor.is_cpu:
            raise refuse(value)
        if not anything and dtype_of(tensor) not in accepted:
            raise refuse(value)
        fitting.add(tensor.dtype)
        if tensor is value and not tensor.is_contiguous():
            name = parameter.name
            hint = f"; pass `{name}.contiguous()`, or `jit.strided({name})` and its strides"
            raise refuse(value, f" with strides {tuple(tensor.stride())}{hint}")
        return int(tensor.data_ptr())

    def convert(value: Any) -> int | None:
        try:
            fits = value.dtype in fitting and value.is_cpu and value.is_contiguous()
        except AttributeError:  # None, `Strided`, or no tensor at all
            fits = False
        return value.data_ptr() if fits else examine(value)

    return convert


def accepted_for(ctype: str) -> tuple[str, ...]:
    """Dtypes that a pointer to elements of a type takes."""
    return (*_ALSO.get(ctype, ()), ctype)


def _integer(where: str, ctype: str) -> Converter:
    bits = int(ctype.lstrip("uint"))
    low, high = (0, 2**bits - 1) if ctype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    def convert(value: Any) -> int:
        if type(value) is not int:
            value = _index(value, f"{where} an integer ({ctype})")
        if not low <= value <= high:
            raise OverflowError(f"{where} within {low}..{high} ({ctype}), got {value}")
        return value  # type: ignore[no-any-return]

    return convert


def _index(value: Any, where: str) -> int:
    if hasattr(value, "data_ptr"):
        raise TypeError(f"{where}, got {_described(value)}; pass a number, e.g. `.item()`")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{where}, got {_described(value)}") from None


def _real(where: str) -> Converter:
    def convert(value: Any) -> float:
        if type(value) is float or type(value) is int:
            return value
        if hasattr(value, "data_ptr"):
            raise TypeError(f"{where} a number, got {_described(value)}; pass `.item()`")
        if not hasattr(value, "__float__"):
            raise TypeError(f"{where} a number, got {_described(value)}")
        return float(value)

    return convert


def _truth(where: str) -> Converter:
    def convert(value: Any) -> bool:
        if value is True or value is False:
            return bool(value)
        if hasattr(value, "data_ptr") or value not in (0, 1):
            raise TypeError(f"{where} True or False, got {_described(value)}")
        return bool(value)

    return convert


def dtype_of(tensor: Any) -> str:
    """Name of a tensor's dtype, e.g. `float32`."""
    return str(tensor.dtype).rpartition(".")[2]


def either(names: tuple[str, ...]) -> str:
    """Names for people: `float16, bfloat16 or uint16`."""
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _described(value: Any) -> str:
    if not hasattr(value, "data_ptr"):
        return f"{type(value).__name__} {str(value)[:40]}" if value is not None else "None"
    device = "" if value.is_cpu else f" on {value.device}"
    return f"{dtype_of(value)} of shape {tuple(value.shape)}{device}"
