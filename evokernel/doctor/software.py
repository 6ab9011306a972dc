"""Owns the checks of what is installed: Python, packages, compiler, torch, Chroma, extras, keys."""

import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterator

from evokernel import __version__
from evokernel.doctor.finding import Finding, Settings
from evokernel.doctor.probe import ChromaFacts, CompilerFacts, ProbeFailed, TorchFacts, ask

DISTRIBUTION = "evokernel-agent"
NEEDED = (
    *("torch", "numpy", "pydantic", "typer", "rich"),
    *("sqlalchemy", "langgraph", "langgraph-checkpoint-sqlite"),
)
"""What no run can do without, known also where EvoKernel was copied and not installed."""
_DEVELOPERS = "dev"
_INSTALL = "in the checkout, `.venv/bin/pip install -c constraints.txt -e '.{extra}'` installs {it}"


def python(settings: Settings) -> Finding:
    """Which Python and which EvoKernel this is."""
    return Finding(
        name="python",
        state="ok",
        found=f"evokernel {__version__}, Python {platform.python_version()} ({sys.executable})",
        facts={
            "evokernel": __version__,
            "python": platform.python_version(),
            "executable": sys.executable,
            "system": platform.platform(),
        },
    )


def packages(settings: Settings) -> Finding:
    """Whether the packages that EvoKernel asks for are installed."""
    others = {name for extra, name in _requirements() if not extra}
    known = {name: installed(name) for name in (*NEEDED, *sorted(others - set(NEEDED)))}
    gone = tuple(name for name, version in known.items() if version is None)
    there = tuple(f"{name} {version}" for name, version in known.items() if version)
    is_stopped = bool(set(gone) & set(NEEDED))
    return Finding(
        name="packages",
        state="missing" if is_stopped else "warning" if gone else "ok",
        found=f"missing: {', '.join(gone)}" if gone else f"all {len(known)} are installed",
        advice=_INSTALL.format(extra="", it="what is missing") if gone else "",
        facts={"installed": there, "missing": gone},
    )


def compiler(settings: Settings) -> Finding:
    """Whether a kernel with vectors and threads can be built, loaded and called."""
    names = tuple(CompilerFacts.model_fields)
    try:
        facts = ask("compiler", CompilerFacts)
    except ProbeFailed as error:
        found, _, advice = str(error).partition("; ")
        return Finding(
            name="compiler",
            state="missing",
            found=found,
            advice=advice
            or "install g++ or clang++ with its OpenMP, or set `$CXX` to one that has",
            facts=dict.fromkeys(names),
        )
    command, _, version = facts.identity.partition(" | ")
    return Finding(
        name="compiler",
        state="ok",
        found=f"{version or command}: an OpenMP kernel, built in {facts.seconds:.1f} s, runs on "
        f"{facts.threads} threads with vectors of {facts.vector_bits} bits"
        + ("" if facts.fenced else "; kernels may take in any file that you may read"),
        facts=facts.model_dump(),
    )


def torch(settings: Settings) -> Finding:
    """Whether torch can be imported and computes."""
    try:
        facts = ask("torch", TorchFacts)
    except ProbeFailed as error:
        return Finding(
            name="torch",
            state="missing",
            found=f"cannot be used: {error}",
            advice=_INSTALL.format(extra="", it="it"),
            facts=dict.fromkeys(TorchFacts.model_fields),
        )
    built = f"built for CUDA {facts.cuda}" if facts.cuda else "built for processors"
    return Finding(
        name="torch",
        state="ok",
        found=f"{facts.version} with {facts.threads} threads and {facts.vectors}, {built}",
        facts=facts.model_dump(),
    )


def chroma(settings: Settings) -> Finding:
    """Whether the vector index opens, keeps given vectors and finds them."""
    try:
        facts = ask("chroma", ChromaFacts)
    except ProbeFailed as error:
        return Finding(
            name="chroma",
            state="warning",
            found=f"cannot be used: {error}",
            advice="the memory works without, more slowly beyond 2000 experiences; "
            + _INSTALL.format(extra="", it="it"),
            facts=dict.fromkeys(ChromaFacts.model_fields),
        )
    return Finding(
        name="chroma",
        state="ok",
        found=f"{facts.version}: opens, writes, and finds given vectors again",
        facts=facts.model_dump(),
    )


def extras(settings: Settings) -> Finding:
    """Which optional parts are installed."""
    wanted: dict[str, list[str]] = {}
    for extra, name in _requirements():
        if extra not in {"", _DEVELOPERS}:
            wanted.setdefault(extra, []).append(name)
    gone = {extra: [n for n in names if not installed(n)] for extra, names in wanted.items()}
    there = [extra for extra, missing in gone.items() if not missing]
    told = [f"{extra} lacks {', '.join(missing)}" for extra, missing in gone.items() if missing]
    return Finding(
        name="extras",
        state="missing" if told else "ok",
        found="; ".join([*(f"{extra} installed" for extra in there), *told])
        or "not known: not installed",
        advice=f"only where you want them: {_INSTALL.format(extra='[NAME]', it='one')}"
        if told
        else "",
        facts={"installed": tuple(there), "missing": tuple(e for e, m in gone.items() if m)},
    )


def keys(settings: Settings) -> Finding:
    """Which keys of model providers are in the environment, by name."""
    return Finding(
        name="keys",
        state="ok" if settings.keys else "missing",
        found=f"set: {', '.join(settings.keys)} (values are not shown)"
        if settings.keys
        else "none",
        advice=""
        if settings.keys
        else "set one, such as `OPENAI_API_KEY`, to have a model write kernels; the templates need "
        "none",
        facts={"names": settings.keys},
    )


def installed(name: str) -> str | None:
    """Version of an installed distribution, or None; nothing is imported."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _requirements() -> Iterator[tuple[str, str]]:
    """Extra (or nothing) and name of every distribution that ours asks for."""
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for line in lines:
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra\s*==\s*[\"']([\w-]+)", line)
        if name:
            yield extra[1] if extra else "", name[0]
