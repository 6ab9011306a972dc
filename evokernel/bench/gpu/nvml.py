"""Owns what the driver's management library (NVML) tells of GPUs, by `ctypes`.

The library comes with the driver, so that nothing has to be installed; it opens no CUDA context and
leaves processes that will be forked alone. What a GPU or a virtual machine does not tell is None.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p
from functools import cache
from typing import Any

from evokernel.errors import DeviceMissing
from evokernel.frozen import Frozen

LIBRARY = "libnvidia-ml.so.1"
_SM, _MEMORY = 1, 2
"""NVML_CLOCK_SM, NVML_CLOCK_MEM."""
_TEXT_BYTES = 96
_MOST_PROCESSES = 256
_OLD_DRIVER, _NO_DRIVER, _NOTHING = 18, 9, 6
"""NVML_ERROR_LIB_RM_VERSION_MISMATCH, NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_NOT_FOUND."""
COMPUTE_MODES = ("default", "exclusive thread", "prohibited", "exclusive process")


class NvmlError(DeviceMissing):
    """NVML does not answer a question, as for a GPU that is lost; `code` is its number."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Listed(Frozen):
    """One GPU of this machine as NVML lists it."""

    index: int
    """Its number here, in PCI order, as `nvidia-smi` shows it."""
    uuid: str
    """Its own name, the same in every process, e.g. `GPU-8f3a...`."""
    name: str
    capability: tuple[int, int] | None
    memory_bytes: int | None
    compute_mode: str | None
    """One of `COMPUTE_MODES`."""


class State(Frozen):
    """A GPU at one moment."""

    sm_mhz: int | None
    """Clock of the multiprocessors."""
    memory_mhz: int | None
    temperature_c: int | None
    reasons: int | None
    """Why clocks are not at their highest: bits, see `monitor`."""
    pids: tuple[int, ...] | None
    """Processes with a compute context, as NVML numbers them."""


class Use(Frozen):
    """How much of a GPU a process used within a sampling period of the driver."""

    pid: int
    stamp_us: int
    """When, by the driver's clock, microseconds."""
    sm_percent: int


class _Process(ctypes.Structure):
    """`nvmlProcessInfo_v2_t`."""

    _fields_ = (
        ("pid", c_uint),
        ("bytes", c_ulonglong),
        ("instance", c_uint),
        ("compute", c_uint),
    )


class _Sample(ctypes.Structure):
    """`nvmlProcessUtilizationSample_t`."""

    _fields_ = (
        ("pid", c_uint),
        ("stamp", c_ulonglong),
        ("sm", c_uint),
        ("memory", c_uint),
        ("encoder", c_uint),
        ("decoder", c_uint),
    )


class _Memory(ctypes.Structure):
    """`nvmlMemory_t`."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class Nvml:
    """The library, opened; `opened` gives the one of this process.

    Raises:
        DeviceMissing: It is not here, or finds no driver.
    """

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise DeviceMissing(
                f"no NVIDIA driver is here (`{LIBRARY}` cannot be loaded: {error})"
            ) from error
        self._library.nvmlErrorString.restype = c_char_p
        try:
            self._ask("nvmlInit_v2")
        except NvmlError as error:
            raise DeviceMissing(_why(error)) from error

    @property
    def driver(self) -> str:
        """The driver's version, e.g. `580.65.06`."""
        return self._text("nvmlSystemGetDriverVersion")

    @property
    def cuda(self) -> tuple[int, int] | None:
        """The CUDA version that the driver knows, e.g. (13, 0)."""
        found = self._number("nvmlSystemGetCudaDriverVersion_v2", c_int)
        return None if found is None else (found // 1000, found % 1000 // 10)

    def devices(self) -> tuple[Listed, ...]:
        """Every GPU of this machine, whatever `CUDA_VISIBLE_DEVICES` says."""
        count = self._number("nvmlDeviceGetCount_v2", c_uint) or 0
        return tuple(self._listed(index, self._at(index)) for index in range(count))

    def state(self, uuid: str) -> State:
        """Clocks, temperature, reasons and processes now; about a millisecond.

        Raises:
            NvmlError: There is no such GPU.
        """
        device = self._named(uuid)
        reasons = self._number("nvmlDeviceGetCurrentClocksEventReasons", c_ulonglong, device)
        if reasons is None:  # its name before driver 535
            reasons = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", c_ulonglong, device)
        return State(
            sm_mhz=self._number("nvmlDeviceGetClockInfo", c_uint, device, _SM),
            memory_mhz=self._number("nvmlDeviceGetClockInfo", c_uint, device, _MEMORY),
            temperature_c=self._number("nvmlDeviceGetTemperature", c_uint, device, 0),
            reasons=reasons,
            pids=self._pids(device),
        )

    def most_mhz(self, uuid: str) -> tuple[int | None, int | None]:
        """Highest clocks of multiprocessors and memory."""
        device = self._named(uuid)
        return (
            self._number("nvmlDeviceGetMaxClockInfo", c_uint, device, _SM),
            self._number("nvmlDeviceGetMaxClockInfo", c_uint, device, _MEMORY),
        )

    def uses(self, uuid: str, since_us: int) -> tuple[Use, ...] | None:
        """Who used a GPU after a moment of the driver's clock; None where it does not tell.

        The driver samples a few times a second.
        """
        samples = (_Sample * _MOST_PROCESSES)()
        count = c_uint(_MOST_PROCESSES)
        try:
            self._ask(
                "nvmlDeviceGetProcessUtilization",
                self._named(uuid),
                samples,
                byref(count),
                c_ulonglong(since_us),
            )
        except NvmlError as error:
            return () if error.code == _NOTHING else None  # nothing was sampled
        return tuple(
            Use(pid=each.pid, stamp_us=each.stamp, sm_percent=each.sm)
            for each in samples[: count.value]
            if each.stamp > since_us
        )

    def _listed(self, index: int, device: c_void_p) -> Listed:
        memory = _Memory()
        mode = self._number("nvmlDeviceGetComputeMode", c_uint, device)
        is_known = self._tried("nvmlDeviceGetMemoryInfo", device, byref(memory))
        return Listed(
            index=index,
            uuid=self._text("nvmlDeviceGetUUID", device),
            name=self._text("nvmlDeviceGetName", device),
            capability=self._capability(device),
            memory_bytes=memory.total if is_known else None,
            compute_mode=None if mode is None else COMPUTE_MODES[mode % len(COMPUTE_MODES)],
        )

    def _capability(self, device: c_void_p) -> tuple[int, int] | None:
        major, minor = c_int(), c_int()
        name = "nvmlDeviceGetCudaComputeCapability"
        if not self._tried(name, device, byref(major), byref(minor)):
            return None
        return major.value, minor.value

    def _pids(self, device: c_void_p) -> tuple[int, ...] | None:
        processes = (_Process * _MOST_PROCESSES)()
        count = c_uint(_MOST_PROCESSES)
        name = "nvmlDeviceGetComputeRunningProcesses_v3"
        if not self._tried(name, device, byref(count), processes):
            return None
        return tuple(each.pid for each in processes[: count.value])

    def _at(self, index: int) -> c_void_p:
        device = c_void_p()
        self._ask("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(device))
        return device

    def _named(self, uuid: str) -> c_void_p:
        device = c_void_p()
        self._ask("nvmlDeviceGetHandleByUUID", c_char_p(uuid.encode()), byref(device))
        return device

    def _text(self, name: str, *arguments: Any) -> str:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        self._ask(name, *arguments, text, c_uint(_TEXT_BYTES))
        return text.value.decode()

    def _number(self, name: str, kind: Any, *arguments: Any) -> int | None:
        found = kind()
        given = [c_uint(each) if isinstance(each, int) else each for each in arguments]
        return int(found.value) if self._tried(name, *given, byref(found)) else None

    def _tried(self, name: str, *arguments: Any) -> bool:
        try:
            self._ask(name, *arguments)
        except NvmlError:
            return False  # not told of this GPU, or not on this system
        return True

    def _ask(self, name: str, *arguments: Any) -> None:
        function = getattr(self._library, name, None)
        if function is None:
            raise NvmlError(-1, f"`{name}` is not in this driver's `{LIBRARY}`")
        code = function(*arguments)
        if code:
            said: bytes = self._library.nvmlErrorString(code) or b"unknown error"
            raise NvmlError(code, f"`{name}` answers: {said.decode()}")


@cache
def opened() -> Nvml:
    """The library, opened once in this process.

    Raises:
        DeviceMissing: It is not here, or finds no driver.
    """
    return Nvml()


def visible(devices: Sequence[Listed], named: str | None = None) -> tuple[Listed, ...]:
    """The GPUs that CUDA shows to this process, in its order.

    Numbers in `CUDA_VISIBLE_DEVICES` are taken in PCI order; CUDA ends its list at the first entry
    that names nothing (CUDA C++ Programming Guide, "CUDA Environment Variables").

    Args:
        devices: All of the machine.
        named: The variable's value; None is the environment's, which may be unset.
    """
    told = os.environ.get("CUDA_VISIBLE_DEVICES") if named is None else named
    if told is None:
        return tuple(devices)
    found: list[Listed] = []
    for entry in told.split(","):
        match = _entry(devices, entry.strip())
        if match is None:
            break
        found.append(match)
    return tuple(found)


def _entry(devices: Sequence[Listed], entry: str) -> Listed | None:
    if entry.isdecimal():
        return next((device for device in devices if device.index == int(entry)), None)
    if not entry.startswith("GPU-"):
        return None
    found = [device for device in devices if device.uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None


def _why(error: NvmlError) -> str:
    if error.code == _OLD_DRIVER:
        return (
            "the NVIDIA driver was replaced while its kernel module stayed the old one "
            f"({error}); restart the machine"
        )
    if error.code == _NO_DRIVER:
        return f"the NVIDIA driver is installed but not loaded ({error}); load its kernel module"
    return f"the NVIDIA driver does not answer ({error}); `nvidia-smi` shows its state"
