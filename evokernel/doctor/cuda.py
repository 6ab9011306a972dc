"""Owns the checks of what builds kernels for GPUs, here or elsewhere: NVRTC, headers, Triton."""

from evokernel.compilers.toolkit import HEADERS, Toolkit
from evokernel.doctor.finding import Facts, Finding, Settings
from evokernel.doctor.probe import CudaFacts, ProbeFailed, ask
from evokernel.doctor.software import installed

_EXTRA = "in the checkout, `.venv/bin/pip install -c constraints.txt -e '.[{extra}]'` installs {it}"
_LOADERS = ("cupy-cuda13x", "cupy-cuda12x", "cupy")


def cuda(settings: Settings) -> Finding:
    """Whether NVRTC builds a kernel, where each group of headers comes from, and what loads it."""
    toolkit = Toolkit.found()
    places = {name: toolkit.header(header.proof) for name, header in HEADERS.items()}
    gone = [name for name, place in places.items() if place is None]
    loader = next((found for name in _LOADERS if (found := installed(name))), None)
    facts: Facts = {
        "nvrtc": toolkit.library,
        "version": None,
        "seconds": None,
        "cupy": loader,
        "headers": tuple(f"{name}: {place.folder}" for name, place in places.items() if place),
        "missing": tuple(gone),
    }
    if toolkit.library is None:
        return Finding(
            name="cuda",
            state="missing",
            found="no NVRTC in the wheels, in `$CUDA_HOME` or in nvcc's tree",
            advice="only for kernels in CUDA: " + _EXTRA.format(extra="cuda", it="it"),
            facts=facts,
        )
    try:
        built = ask("cuda", CudaFacts)
    except ProbeFailed as error:
        return Finding(
            name="cuda",
            state="missing",
            found=f"NVRTC ({toolkit.origin}) cannot be used: {error}",
            advice=_EXTRA.format(extra="cuda", it="one that works"),
            facts=facts,
        )
    origins = dict.fromkeys(place.origin for place in places.values() if place)
    told = f"{built.version} ({toolkit.origin}) builds a kernel in {built.seconds:.2f} s; headers "
    told += f"from {', '.join(origins)}" if origins else "none"
    told += f", without {', '.join(gone)}" if gone else ""
    told += f"; CuPy {loader}" if loader else "; no CuPy, which loads kernels"
    wheels = dict.fromkeys(HEADERS[name].wheel for name in gone)
    advice = f"`pip install {' '.join(wheels)}` brings the headers, " if gone else ""
    return Finding(
        name="cuda",
        state="warning" if gone or not loader else "ok",
        found=told,
        advice=advice + _EXTRA.format(extra="cuda", it="everything") if gone or not loader else "",
        facts=facts | built.model_dump(),
    )


def triton(settings: Settings) -> Finding:
    """Whether Triton is installed; it is not imported, which takes a second."""
    version = installed("triton")
    return Finding(
        name="triton",
        state="ok" if version else "missing",
        found=f"{version}: builds for named architectures without a GPU" if version else "none",
        advice=""
        if version
        else "only for kernels in Triton: " + _EXTRA.format(extra="triton", it="it"),
        facts={"version": version},
    )
