"""Owns what is tried in a process of its own, because it is slow or may hang or crash.

The parent calls `ask`; the child imports this file anew, does one thing and prints one record.
"""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from evokernel.doctor.finding import in_one_line
from evokernel.errors import EvoKernelError
from evokernel.frozen import Frozen

if TYPE_CHECKING:
    from evokernel.bench.messages import Protections
    from evokernel.bench.sandbox import Cell, Report

LIMIT_S = 60.0
"""Far more than any probe takes; a compiler or an import that takes longer hangs."""

R = TypeVar("R", bound=Frozen)


class ProbeFailed(Exception):
    """The thing that was tried does not work; the message says why."""


class TorchFacts(Frozen):
    """What torch says of itself."""

    version: str
    threads: int
    """Threads that an operator uses."""
    vectors: str
    """Instruction set that its own kernels choose, e.g. `AVX512`."""
    cuda: str | None
    """CUDA version that it was built for; None is a build for processors only."""
    archs: tuple[str, ...] = ()
    """GPU architectures that it has kernels for."""


class CompilerFacts(Frozen):
    """What the host's compiler made of a small kernel."""

    identity: str
    """Command and version."""
    seconds: float
    """How long it took."""
    vector_bits: int
    """Width of the vectors that the processor and the compiler have in common."""
    threads: int
    """Threads that took part."""
    fenced: bool
    """It can read nothing but its own parts and the system's."""


class CudaFacts(Frozen):
    """What NVRTC made of a small kernel."""

    version: str
    """Its version, e.g. `NVRTC 13.0`."""
    seconds: float
    """How long it took."""


class ChromaFacts(Frozen):
    """That Chroma keeps vectors and finds them again."""

    version: str


class Fault(Frozen):
    """Why it does not work."""

    fault: str


def ask(name: str, answer: type[R]) -> R:
    """Have one probe carried out.

    Args:
        name: Which of `PROBES`.
        answer: The record that it returns.

    Raises:
        ProbeFailed: It raised, crashed, or did not end.
    """
    line = [sys.executable, "-P", "-c", _START.format(place=str(_PACKAGE.parent)), name]
    try:
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired as error:
        raise ProbeFailed(f"it did not end within {LIMIT_S:.0f} s") from error
    last = (done.stdout.strip().splitlines() or [""])[-1]
    if done.returncode:
        raise ProbeFailed(_ended(done.returncode, done.stderr))
    if last.startswith('{"fault":'):
        raise ProbeFailed(Fault.model_validate_json(last).fault)
    return answer.model_validate_json(last)


_PACKAGE = Path(__file__).resolve().parent.parent
# Not from the current folder, where a file of the user may be called like a module.
_START = "import sys; sys.path.append({place!r}); from evokernel.doctor.probe import main; main()"


def _ended(code: int, errors: str) -> str:
    said = in_one_line("".join(errors.strip().splitlines()[-1:]))
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return f"the process that tried it {how}{f': {said}' if said else ''}"


def main() -> None:
    """Carry out the probe that the first argument names, and print its record as one line."""
    try:
        answer: Frozen = PROBES[sys.argv[1]]()
    except (EvoKernelError, ProbeFailed) as error:
        answer = Fault(fault=in_one_line(str(error)))
    except Exception as error:  # whatever it is, it is the answer
        answer = Fault(fault=in_one_line(f"{type(error).__name__}: {error}"))
    print(answer.model_dump_json(), flush=True)


def _torch() -> TorchFacts:
    import torch

    torch.ones(64).add(1).sum()
    return TorchFacts(
        version=torch.__version__,
        threads=torch.get_num_threads(),
        vectors=torch.backends.cpu.get_cpu_capability(),
        cuda=torch.version.cuda,
        archs=_archs(),
    )


def _archs() -> tuple[str, ...]:
    """Asked of the build, not of a device."""
    import torch

    told: Callable[[], str | None] | None = getattr(torch._C, "_cuda_getArchFlags", None)
    return tuple((told() or "").split()) if told else ()


_KERNEL = """
#include <cstdint>
#include <omp.h>
typedef float lanes __attribute__((vector_size(32)));

extern "C" int32_t vector_bits() {
#if defined(__AVX512F__)
  return 512;
#elif defined(__AVX__)
  return 256;
#else
  return 128;
#endif
}

extern "C" float sum(const float* x, int64_t n, int32_t* threads) {
  double total = 0;
  #pragma omp parallel reduction(+ : total)
  {
    #pragma omp single
    *threads = omp_get_num_threads();
    #pragma omp for
    for (int64_t i = 0; i < n / 8; i++) {
      lanes part;
      __builtin_memcpy(&part, x + 8 * i, sizeof part);
      part *= part;
      #pragma omp simd reduction(+ : total)
      for (int j = 0; j < 8; j++) total += part[j];
    }
  }
  return float(total);
}
"""
_COUNT = 4096


def _compiler() -> CompilerFacts:
    """Build a kernel with vectors and threads, load it, and let it compute."""
    from evokernel.compilers import BuildFailure, KernelSource
    from evokernel.compilers.cpp import CppCompiler
    from evokernel.compilers.loading import load
    from evokernel.confinement import launch

    with tempfile.TemporaryDirectory(prefix="evokernel-doctor-") as folder:
        compiler = CppCompiler(Path(folder), timeout_s=LIMIT_S / 2)
        built = compiler.build(KernelSource(backend="cpp", source=_KERNEL, name="probe.cpp"))
        if isinstance(built, BuildFailure):
            raise ProbeFailed(f"it cannot build a kernel: {built.diagnostics[0].message}")
        library = load(built.path)
    threads = ctypes.c_int32()
    library.sum.restype = ctypes.c_float
    values = (ctypes.c_float * _COUNT)(*([2.0] * _COUNT))
    total = library.sum(values, ctypes.c_int64(_COUNT), ctypes.byref(threads))
    if total != 4.0 * _COUNT:
        raise ProbeFailed(f"the kernel that it built computes {total} instead of {4.0 * _COUNT}")
    return CompilerFacts(
        identity=" | ".join(compiler.identity().split(" | ")[:2]),
        seconds=round(built.seconds, 2),
        vector_bits=library.vector_bits(),
        threads=threads.value,
        fenced=compiler.is_fenced and launch.confines(),
    )


def _cuda() -> CudaFacts:
    """Build a kernel for an architecture that every NVRTC of today knows; nothing runs."""
    from evokernel.compilers import BuildFailure, KernelSource
    from evokernel.compilers.cuda import CudaCompiler

    source = 'extern "C" __global__ void probe(float* x) { x[threadIdx.x] *= 2; }'
    with tempfile.TemporaryDirectory(prefix="evokernel-doctor-") as folder:
        compiler = CudaCompiler(Path(folder), timeout_s=LIMIT_S / 2, arch="sm_90")
        built = compiler.build(KernelSource(backend="cuda", source=source, name="probe.cu"))
    if isinstance(built, BuildFailure):
        raise ProbeFailed(f"it cannot build a kernel: {built.diagnostics[0].message}")
    version = compiler.identity().partition(" | ")[0]
    return CudaFacts(version=version, seconds=round(built.seconds, 2))


def _chroma() -> ChromaFacts:
    """Write two vectors into a fresh index, and find one of them in it after opening it again."""
    import numpy as np

    from evokernel.memory.index import Shift, VectorIndex

    a, b = np.eye(4, dtype=np.float32)[:2]
    with tempfile.TemporaryDirectory(prefix="evokernel-doctor-") as folder:
        index = VectorIndex(Path(folder), "doctor/1/4", 4)
        _open(index.open(), index.missing)
        index.write([Shift("a", "probe", a), Shift("b", "probe", b)], upto=1)
        index.close()
        _open(index.open(), index.missing)
        found = index.search(b, ["probe"], k=1)
        index.close()
    if [id for id, _ in found] != ["b"]:
        raise ProbeFailed(f"it was asked for the vector `b` that it keeps, and found {found}")
    return ChromaFacts(version=version("chromadb"))


def _open(is_open: bool, why: str) -> None:
    if not is_open:
        raise ProbeFailed(why or "its lock is taken")


def _protections() -> "Protections":
    """Go the way of a worker, without torch: the server's namespaces, the reaper's, its own."""
    from evokernel.bench import sandbox
    from evokernel.bench.messages import Protections
    from evokernel.confinement import files

    report = sandbox.Report()
    with tempfile.TemporaryDirectory(prefix="evokernel-doctor-") as scratch:
        cell = sandbox.Cell(
            scratch=scratch,
            scratch_bytes=1 << 20,
            memory_bytes=1 << 30,
            threads=1,
            cpu_s=60,
            readable=(*files.SYSTEM, *sandbox.readable_paths(_PACKAGE)),
            writable=(),
        )
        sandbox.enter(report)
        text = _in_child(lambda: _furnished(report, cell))
    return Protections.model_validate_json(text)


def _furnished(report: "Report", cell: "Cell") -> str:
    from evokernel.bench import sandbox

    sandbox.furnish(report, cell)
    return _in_child(lambda: _confined(report, cell))


def _confined(report: "Report", cell: "Cell") -> str:
    from evokernel.bench import sandbox

    sandbox.confine(report, cell)
    return report.protections.model_dump_json()


def _in_child(work: Callable[[], str]) -> str:
    """What `work` returns in a forked child; this process has one thread."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, work().encode())
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    if not text:
        raise ProbeFailed("a process that was shut in did not come to its end")
    return text


PROBES: dict[str, Callable[[], Frozen]] = {
    "torch": _torch,
    "compiler": _compiler,
    "cuda": _cuda,
    "chroma": _chroma,
    "protections": _protections,
}
"""By name."""
