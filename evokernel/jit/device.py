"""Owns this process's view of GPUs: which can be used, through CuPy, and why none can."""

from functools import cache
from pathlib import Path

from evokernel.compilers import architecture
from evokernel.errors import DeviceMissing
from evokernel.frozen import Frozen

NO_DEVICE = 100  # cudaErrorNoDevice
OLD_DRIVER = 35  # cudaErrorInsufficientDriver: also what is reported where no driver is installed
_CPP = "kernels in C++ need none (`--backend cpp`), and `evokernel compile` builds without one"


class Gpu(Frozen):
    """One GPU."""

    index: int
    """As torch numbers it."""
    name: str
    """What it calls itself."""
    capability: architecture.Capability
    """Compute capability, e.g. (9, 0)."""
    shared_bytes: int
    """Most shared memory that a block can ask for."""

    @property
    def arch(self) -> str:
        """The fullest architecture that it runs, e.g. `sm_90a`."""
        return architecture.of(self.capability)

    def __str__(self) -> str:
        """For messages: `device 0 (NVIDIA H200, sm_90a)`."""
        return f"device {self.index} ({self.name}, {self.arch})"


def missing() -> str:
    """Why no GPU can be used in this process, with what to do; empty where one can."""
    try:
        import cupy
    except ImportError as error:
        if not any(Path("/dev").glob("nvidia[0-9]*")) and not Path("/dev/dxg").exists():
            return f"no GPU is here; {_CPP}"
        return (
            f"CuPy, which loads CUDA kernels, cannot be imported ({error}); install the extra "
            "`cuda` (`pip install 'evokernel-agent[cuda]'`)"
        )
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        runtime = cupy.cuda.runtime
        return refusal(error.status, runtime.driverGetVersion(), runtime.runtimeGetVersion())
    return "" if count else f"no GPU is here; {_CPP}"


def require() -> None:
    """Go on only where a GPU can be used.

    Raises:
        DeviceMissing: none can; the message says why and what to do.
    """
    if why := missing():
        raise DeviceMissing(why)


@cache
def gpu(index: int) -> Gpu:
    """What is known of one GPU; no context is made for it.

    Raises:
        DeviceMissing: none can be used.
    """
    require()
    from cupy.cuda import runtime

    known = runtime.getDeviceProperties(index)
    return Gpu(
        index=index,
        name=known["name"].decode(),
        capability=(known["major"], known["minor"]),
        shared_bytes=known["sharedMemPerBlockOptin"],
    )


def current() -> Gpu:
    """The GPU that torch uses now.

    Raises:
        DeviceMissing: none can be used, or torch was not built for one.
    """
    require()
    import torch

    if not torch.cuda.is_available():
        raise DeviceMissing(
            f"torch {torch.__version__} cannot use the GPU that is here; install a build of torch "
            "for CUDA (`pip install torch` from PyPI)"
        )
    return gpu(torch.cuda.current_device())


def loaded(cubin: bytes, name: str, arch: str, index: int) -> int:
    """Load machine code into a GPU; the driver's handle of the module.

    Raises:
        DeviceMissing: it was built for another architecture, or by a newer CUDA than the driver
            knows.
    """
    device = gpu(index)
    if not architecture.runs_on(arch, device.capability):
        raise DeviceMissing(
            f"`{name}` was built for `{arch}` and cannot run on {device}; build it with "
            f"`--arch {device.arch}`, or leave the architecture to EvoKernel"
        )
    from cupy.cuda import driver, runtime

    runtime.setDevice(index)
    try:
        return int(driver.moduleLoadData(cubin))
    except driver.CUDADriverError as error:
        knows = runtime.driverGetVersion()
        raise DeviceMissing(
            f"`{name}` (`{arch}`) cannot be loaded into {device}: {error}. The driver knows CUDA "
            f"{knows // 1000}.{knows % 1000 // 10}; where the kernel was compiled by a later "
            "generation of CUDA, install a newer driver, or an NVRTC of the driver's generation"
        ) from error


def function(module: int, name: str) -> int:
    """The driver's handle of a function of a loaded module."""
    from cupy.cuda import driver

    return int(driver.moduleGetFunction(module, name))


def refusal(status: int, knows: int, needs: int) -> str:
    """What an error of CUDA's runtime means before any GPU could be used, and what to do.

    Args:
        status: Its number.
        knows: CUDA version that the driver knows, e.g. 12080; 0 where there is no driver.
        needs: CUDA version that CuPy was built for.
    """
    if status == OLD_DRIVER and knows:
        return (
            f"the NVIDIA driver knows CUDA {knows // 1000}.{knows % 1000 // 10}, and CuPy needs "
            f"{needs // 1000}.{needs % 1000 // 10}; install a newer driver, or the CuPy for the "
            f"driver's generation (`cupy-cuda{knows // 1000}x`)"
        )
    if status in {NO_DEVICE, OLD_DRIVER}:
        return f"no GPU is here; {_CPP}"
    return f"the GPU cannot be used: CUDA error {status}; `nvidia-smi` shows its state"
