"""Owns the calls of the CUDA driver that share device memory between processes by a file.

Memory that is made for it alone is mapped by page tables of its own: nothing else of the process
lies beside it, as it would with the older handles (`cudaIpcGetMemHandle`), which share whatever
the allocator put into the same block, and which do not cross the border of a PID namespace.
Source of the signatures: CUDA Driver API, "Virtual Memory Management".
"""

import ctypes
from functools import cache
from typing import Any

_PINNED, _DEVICE, _FILE, _READ_WRITE = 1, 1, 1, 3
"""CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE,
CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_ACCESS_FLAGS_PROT_READWRITE."""


class Refused(Exception):
    """The driver refuses, or there is none."""


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    """`CUmemAllocationProp`."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    """`CUmemAccessDesc`."""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


def granularity(index: int) -> int:
    """Bytes of which a block's size is a multiple.

    Raises:
        Refused: See the class.
    """
    size = ctypes.c_size_t()
    _call("cuMemGetAllocationGranularity", ctypes.byref(size), ctypes.byref(_wanted(index)), 0)
    return size.value


def create(index: int, size: int) -> int:
    """Device memory that can be given away; its handle.

    Raises:
        Refused: See the class.
    """
    handle = ctypes.c_ulonglong()
    wanted = ctypes.byref(_wanted(index))
    _call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), wanted, ctypes.c_ulonglong(0))
    return handle.value


def to_file(handle: int) -> int:
    """A file descriptor that stands for the memory; the caller owns it.

    Raises:
        Refused: See the class.
    """
    file = ctypes.c_int(-1)
    zero = ctypes.c_ulonglong(0)
    _call(
        "cuMemExportToShareableHandle", ctypes.byref(file), ctypes.c_ulonglong(handle), _FILE, zero
    )
    return file.value


def from_file(file: int) -> int:
    """The handle of memory that another process gave.

    Raises:
        Refused: See the class.
    """
    handle = ctypes.c_ulonglong()
    number = ctypes.c_void_p(file)
    _call("cuMemImportFromShareableHandle", ctypes.byref(handle), number, _FILE)
    return handle.value


def map_in(index: int, handle: int, size: int) -> int:
    """Map memory into this process, to be read and written; its address. The handle is let go.

    Raises:
        Refused: See the class.
    """
    address = ctypes.c_ulonglong()
    length, zero = ctypes.c_size_t(size), ctypes.c_ulonglong(0)
    try:
        _call("cuMemAddressReserve", ctypes.byref(address), length, ctypes.c_size_t(0), zero, zero)
        _call("cuMemMap", address, length, ctypes.c_size_t(0), ctypes.c_ulonglong(handle), zero)
    finally:
        _call("cuMemRelease", ctypes.c_ulonglong(handle))
    access = _Access(_Location(_DEVICE, index), _READ_WRITE)
    _call("cuMemSetAccess", address, length, ctypes.byref(access), ctypes.c_size_t(1))
    return address.value


def unmap(address: int, size: int) -> None:
    """Give up mapped memory; nothing may be at work on it.

    Raises:
        Refused: See the class.
    """
    length = ctypes.c_size_t(size)
    _call("cuMemUnmap", ctypes.c_ulonglong(address), length)
    _call("cuMemAddressFree", ctypes.c_ulonglong(address), length)


def _wanted(index: int) -> _Properties:
    return _Properties(_PINNED, _FILE, _Location(_DEVICE, index), None)


@cache
def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise Refused(f"there is no CUDA driver: {error}") from error


def _call(name: str, *arguments: Any) -> None:
    try:
        status = getattr(_driver(), name)(*arguments)
    except AttributeError as error:
        raise Refused(f"the driver has no `{name}`") from error
    if status:
        raise Refused(f"`{name}` failed with CUDA error {status}")
