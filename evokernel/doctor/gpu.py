"""Owns the check of the graphics processor: device, driver, and what of its tools is there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from evokernel.bench.gpu.nvml import Listed, Nvml, opened, visible
from evokernel.compilers import architecture
from evokernel.doctor.finding import Facts, Finding, Settings
from evokernel.doctor.probe import ProbeFailed, TorchFacts, ask
from evokernel.doctor.software import installed
from evokernel.errors import DeviceMissing
from evokernel.frozen import Frozen

_NVCC = "/usr/local/cuda/bin/nvcc"
_NODES = ("nvidia[0-9]*", "dxg")
"""Device files of GPUs; the second one is that of Windows' Linux."""
_PACKAGES = {
    "nvrtc": ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12"),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "triton": ("triton",),
}
_EXTRA = "install the extra `cuda` (`pip install 'evokernel-agent[cuda]'`)"
_NONE_NEEDED = (
    "none is needed for kernels in C++ (`--backend cpp`), and `evokernel compile` builds others"
)


class Seen(Frozen):
    """What was found of GPUs and of what uses them."""

    listed: tuple[Listed, ...] = ()
    """GPUs that this process may use."""
    hidden: int = 0
    """GPUs that `CUDA_VISIBLE_DEVICES` hides."""
    driver: str | None = None
    driver_cuda: tuple[int, int] | None = None
    """CUDA version that the driver knows."""
    trouble: str = ""
    """Why NVML does not answer."""
    nodes: tuple[str, ...] = ()
    """Device files."""
    torch_cuda: str | None = None
    """CUDA version that torch was built for."""
    torch_archs: tuple[str, ...] = ()
    """Architectures that torch has kernels for."""
    tools: dict[str, str | None] = {}


def gpu(settings: Settings) -> Finding:
    """Which NVIDIA GPUs there are, with which driver, and what of their tools is missing."""
    seen = _look()
    if seen.listed:
        try:
            torch = ask("torch", TorchFacts)
            known = {"torch_cuda": torch.cuda, "torch_archs": torch.archs}
            seen = seen.model_copy(update=known)
        except ProbeFailed:
            seen = seen.model_copy(update={"torch_cuda": ""})  # the check `torch` says why
    return judged(seen)


def judged(seen: Seen) -> Finding:
    """What it comes to, and what to do."""
    facts: Facts = {
        "devices": tuple(map(_named, seen.listed)),
        "capabilities": tuple(_arch(each) or "unknown" for each in seen.listed),
        "driver": seen.driver,
        "driver_cuda": _version(seen.driver_cuda) if seen.driver_cuda else None,
        "nvml": not seen.trouble,
        "torch_cuda": seen.torch_cuda,
        **{tool: seen.tools.get(tool) for tool in ("nvcc", *_PACKAGES)},
    }
    if not seen.listed:
        found, advice = _absent(seen)
        return Finding(name="gpu", state="missing", found=found, advice=advice, facts=facts)
    troubles = [*_troubles(seen)]
    there = [f"{tool} {found}" for tool, found in seen.tools.items() if found]
    cuda = f" (CUDA {_version(seen.driver_cuda)})" if seen.driver_cuda else ""
    parts = [
        ", ".join(map(_named, seen.listed)),
        f"driver {seen.driver or 'unknown'}{cuda}",
        ", ".join(there) or "no tools",
        *(what for what, _ in troubles),
    ]
    return Finding(
        name="gpu",
        state="warning" if troubles else "ok",
        found="; ".join(parts),
        advice="; ".join(dict.fromkeys(advice for _, advice in troubles)),
        facts=facts,
    )


def _absent(seen: Seen) -> tuple[str, str]:
    if seen.hidden:
        return (
            f"`CUDA_VISIBLE_DEVICES` hides all {seen.hidden} GPUs",
            "unset it, or name one that `nvidia-smi -L` lists",
        )
    if seen.nodes:
        return (
            f"{', '.join(seen.nodes)} without a driver that answers: {seen.trouble}",
            "install the NVIDIA driver; in a container, start it with `--gpus all` and "
            "`NVIDIA_DRIVER_CAPABILITIES=compute,utility`",
        )
    return "no NVIDIA GPU", _NONE_NEEDED


def _troubles(seen: Seen) -> list[tuple[str, str]]:
    """What is wrong, each with what to do."""
    found: list[tuple[str, str]] = []
    if seen.torch_cuda is None:
        found.append(
            (
                "torch is built for processors only",
                "install a build of torch for CUDA (`pip install torch` from PyPI)",
            )
        )
    elif _is_too_old(seen.driver_cuda, seen.torch_cuda):
        known = _version(seen.driver_cuda) if seen.driver_cuda else ""
        found.append(
            (
                f"the driver knows CUDA {known}, torch needs {seen.torch_cuda}",
                f"install a newer driver, or a torch for CUDA {known} (see pytorch.org)",
            )
        )
    found += [
        (
            f"torch has no kernels for {arch} ({each.name})",
            "install a torch that has: an older one for an older GPU, a newer one for a newer",
        )
        for each in seen.listed
        if (arch := _arch(each)) and not _has_kernels(each, seen.torch_archs)
    ]
    found += [
        (
            f"{each.name} is in compute mode {each.compute_mode}",
            "candidates and their judge need a context each: `nvidia-smi -c DEFAULT` permits that",
        )
        for each in seen.listed
        if each.compute_mode not in {None, "default"}
    ]
    gone = [tool for tool in _PACKAGES if not seen.tools.get(tool)]
    if gone:
        found.append((f"without {', '.join(gone)}", _EXTRA))
    if seen.trouble:
        found.append((seen.trouble, "clocks and other processes are not watched meanwhile"))
    return found


def _is_too_old(driver: tuple[int, int] | None, torch: str) -> bool:
    """Whether the driver is of an earlier generation of CUDA.

    Within a generation any driver runs what was built for any version (CUDA Compatibility, "Minor
    Version Compatibility").
    """
    wanted = re.match(r"(\d+)", torch)
    return driver is not None and wanted is not None and driver[0] < int(wanted[1])


def _has_kernels(device: Listed, archs: tuple[str, ...]) -> bool:
    """Machine code runs on later devices of its generation, intermediate code on all later ones."""
    if not archs or device.capability is None:
        return True  # not told
    for arch in archs:
        match = re.fullmatch(r"(sm|compute)_(\d{1,2})(\d)[af]?", arch)
        if match is None:
            continue
        built = int(match[2]), int(match[3])
        if built <= device.capability and (
            match[1] == "compute" or built[0] == device.capability[0]
        ):
            return True
    return False


def _look() -> Seen:
    tools = {
        "nvcc": shutil.which("nvcc") or (_NVCC if Path(_NVCC).is_file() else None),
        **{tool: _first(*known) for tool, known in _PACKAGES.items()},
    }
    nodes = tuple(str(node) for pattern in _NODES for node in sorted(Path("/dev").glob(pattern)))
    try:
        return _told(opened(), nodes, tools)
    except DeviceMissing as error:  # no library, or one that lost its GPU
        return Seen(trouble=str(error), nodes=nodes, tools=tools, driver=_driver())


def _told(nvml: Nvml, nodes: tuple[str, ...], tools: dict[str, str | None]) -> Seen:
    every = nvml.devices()
    listed = visible(every)
    return Seen(
        listed=listed,
        hidden=len(every) - len(listed),
        driver=nvml.driver,
        driver_cuda=nvml.cuda,
        nodes=nodes,
        tools=tools,
    )


def _driver() -> str | None:
    """The driver's version as the kernel tells it."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    version = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", text)
    return version[1] if version else "of unknown version"


def _named(device: Listed) -> str:
    size = f"{device.memory_bytes / 2**30:.0f} GiB" if device.memory_bytes else "memory unknown"
    return f"{device.name} ({', '.join(part for part in (_arch(device), size) if part)})"


def _arch(device: Listed) -> str | None:
    return architecture.of(device.capability) if device.capability else None


def _version(number: tuple[int, int]) -> str:
    return f"{number[0]}.{number[1]}"


def _first(*names: str) -> str | None:
    return next((found for name in names if (found := installed(name))), None)
