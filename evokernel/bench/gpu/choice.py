"""Owns the choice of a device: what a backend runs on, and what to say where that is missing."""

import re
from importlib.util import find_spec

from evokernel.attempt import Backend
from evokernel.errors import DeviceMissing
from evokernel.jit import device

GPU = "cuda:0"
"""The GPU that kernels are judged on: the first that `CUDA_VISIBLE_DEVICES` leaves."""


_TRITON = re.compile(r"\btriton\.jit\b")
_CUDA = re.compile(r"\bcuda_module\b|__global__")
_CPP = re.compile(r"\bcpp_module\b")


def device_of(backend: Backend) -> str:
    """Where kernels of a backend run: `cpu`, or a GPU as torch names it."""
    return "cpu" if backend == "cpp" else GPU


def missing(backend: Backend) -> str:
    """Why kernels of a backend cannot be run here, with what to do; empty where they can."""
    if backend == "cpp":
        return ""
    if why := device.missing():
        return why
    import torch

    if not torch.cuda.is_available():
        return (
            f"torch {torch.__version__} cannot use the GPU that is here; install a build of torch "
            "for CUDA (`pip install torch` from PyPI)"
        )
    if backend == "triton" and find_spec("triton") is None:
        return "Triton is not installed; install the extra `cuda` (`evokernel-agent[cuda]`)"
    return ""


def require(backend: Backend) -> None:
    """Go on only where kernels of a backend can be run.

    Raises:
        DeviceMissing: They cannot; the message says why and what to do.
    """
    if why := missing(backend):
        raise DeviceMissing(f"backend `{backend}`: {why}")


def of_source(source: str) -> Backend:
    """The backend of a candidate that nobody names, by what its text calls.

    On a machine without a GPU all candidates go to the processor, whose verdict says what is
    missing.
    """
    if find_spec("cupy") is None or missing("cuda"):
        return "cpp"
    if _TRITON.search(source):
        return "triton"
    if _CPP.search(source) and not _CUDA.search(source):
        return "cpp"
    return "cuda"


def picked() -> Backend:
    """The backend where none is named: `cuda` where a GPU can be used, else `cpp`."""
    if find_spec("cupy") is None:  # without importing torch, which takes seconds
        return "cpp"
    return "cpp" if missing("cuda") else "cuda"
