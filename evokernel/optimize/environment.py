"""Owns what is written down of the machine that a run's numbers were measured on."""

import os
import platform
from importlib.metadata import version

from evokernel.attempt import Backend
from evokernel.bench import processor
from evokernel.errors import DeviceMissing


def environment(backend: Backend = "cpp") -> dict[str, str]:
    """What a run's numbers depend on: machine, interpreter and the packages that compute."""
    return {
        **_gpu(backend),
        "system": platform.platform(),
        "processor": processor.name(),
        "cpus": str(len(os.sched_getaffinity(0))),
        "vectors": processor.vectors(),
        "caches": processor.caches(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": version("numpy"),
    }


def _gpu(backend: Backend) -> dict[str, str]:
    """The GPU that kernels of a backend run on, and its driver."""
    from evokernel.bench.gpu import choice
    from evokernel.bench.gpu.lock import physical
    from evokernel.bench.gpu.nvml import opened

    place = choice.device_of(backend)
    if place == "cpu":
        return {}
    try:
        return {"gpu": physical(0).name, "driver": opened().driver}
    except DeviceMissing:  # who brings an evaluator may run elsewhere
        return {}
