"""Owns what is concluded from the outside look at a worker: whose code ran there, and how long.

Nothing here rests on what the worker says of itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from evokernel.bench.mappings import SHARED_MEMORY, Mapping, Owner, code_of, owner_of
from evokernel.bench.messages import Traced
from evokernel.bench.sampling import LEAST_SAMPLES, Samples, name_of
from evokernel.bench.symbols import in_words
from evokernel.compilers import Artefact, KernelSource, elf
from evokernel.compilers.elf import BadLibrary
from evokernel.compilers.signatures import KERNELS_ONLY, signatures
from evokernel.evaluation import Diagnostic

LIBRARY_SHARE = 0.10
"""Share of a thread's samples that other libraries may have under `own_kernels_only`, and"""
LIBRARY_S, OPERATOR_S = 25e-6, 5e-6
"""seconds a call that they may take at any share, and as much again for each operator that
allocates or makes a view: measured, `torch.empty` and a view take 1-3 us each."""
MOST_OPERATORS = 20
"""Of these; the worker's own log counts them."""
MADE_SHARE = 0.02
"""Share of the samples in machine code of unknown origin, or in other processes."""
CLOSURE_BYTES = 64 << 10
"""Executable memory that callbacks of `ctypes` may take: libffi writes some bytes for each."""

_MOVES = re.compile(r"copy|fill|memset|memcpy|clone|contiguous|convert|transpose|permute")
_HANDLES = re.compile(
    r"_ops\d|RecordFunction|RecordScope|StepCallbacks|TensorMaker|TensorImpl|StorageImpl|Dispatch"
    r"|empty_|as_view|autograd|ADInplaceOrView"
)
"""Functions that make, find and pass on tensors."""
_COMPUTES_TOO = re.compile(
    r"(?<!copy_)(?<!fill_)(?<!transpose_)kernel(?!_functor)|copysign|copy_if|index_|masked_"
    r"|(?<!fb)gemm|conv_|convolution|mkl_|dnnl|norm|softmax|reduc(?!ed_float)|sum_|scatter"
)
_REACHES_OUT = re.compile(
    r"dl(open|mopen|sym|vsym)|v?fork|clone3?|f?exec(v|l|ve|le|vp|lp|vpe|veat)|posix_spawnp?|system"
    r"|popen|ptrace|process_vm_(readv|writev)|(pkey_)?mprotect|memfd_create|shm_open|socket|connect"
)
_COMPUTES = re.compile(
    r"_ZNK?(2at|3c10|5torch|4dnnl)\w*|(cblas|dnnl|mkl|openblas|LAPACKE|aoti_torch)_\w+|Py[A-Z_]\w+"
    r"|[sdcz](gemm|gemv|axpy|dot|ger|trsm|syrk)_?|vm[sd]\w+|v[sd](Exp|Ln|Tanh|Erf|Add|Mul|Div)"
)


@dataclass(frozen=True)
class Handed:
    """A kernel that the parent built for a candidate."""

    kernel: KernelSource
    artefact: Artefact

    @cached_property
    def library(self) -> elf.Library | None:
        """What it offers and imports; None where it cannot be read."""
        try:
            return elf.read(Path(self.artefact.path))
        except BadLibrary:
            return None


@dataclass(frozen=True)
class Evidence:
    """What the parent knows of how one candidate came to its results."""

    handed: tuple[Handed, ...] = ()
    """What it asked for and got."""
    code: tuple[Mapping, ...] | None = None
    """Its executable memory; None where it cannot be looked at."""
    samples: Samples | None = None
    """Where its time goes; None where that is not permitted."""
    extension_files: tuple[str, ...] = ()
    """Libraries that it built itself, from its own source."""
    is_needed: bool | None = None
    """Whether the result changes without any of its kernels."""
    needed: dict[str, bool] = field(default_factory=dict)
    """The same for single functions, as far as that was tried."""
    declared: tuple[str, ...] = ()
    """Functions of its text that Triton compiles, in its process."""
    trace: tuple[Traced, ...] | None = None
    """What its GPU did for one call; None where that is not known."""
    is_on_gpu: bool = False
    """Its kernels run on a GPU."""
    notes: tuple[str, ...] = ()
    hints: tuple[Diagnostic, ...] = ()

    @cached_property
    def offered(self) -> dict[str, Handed]:
        """Every function that the libraries built for it offer."""
        found = {
            function.name: handed
            for handed, library in self._libraries
            for function in library.functions
        }
        for handed in self.handed:
            if handed.kernel.backend == "cuda":
                offered = signatures(handed.kernel.source, KERNELS_ONLY["cuda"])
                found |= {signature.name: handed for signature in offered}
        return found

    @property
    def extensions(self) -> tuple[str, ...]:
        """Names of the extensions that it built, which count as own kernels."""
        return tuple(name_of(file) for file in self.extension_files)

    @property
    def tampering(self) -> Iterator[str]:
        """What no policy allows: code of others that was rewritten in memory."""
        written = {m.path: m.written for m in self.code or () if m.path and m.written}
        if written:
            # A library may relocate its code when it is loaded; then it does so here, too.
            usual = {mapping.path for mapping in code_of(os.getpid()) or () if mapping.written}
            for path in sorted(written.keys() - usual):
                if self._owner(path) != "made":
                    size = f"{written[path] >> 10} KiB of pages"
                    yield f"it rewrote code of `{name_of(path)}` in memory ({size})"

    @property
    def foreign_code(self) -> Iterator[str]:
        """Machine code in its process that nobody built from its source."""
        if self.code is None:
            return
        made = [m for m in self.code if self._owner(m.path) == "made"]
        for path in sorted({mapping.path for mapping in made if mapping.path}):
            if path.startswith(SHARED_MEMORY):
                yield "it runs machine code made at run time, in memory that no file backs"
            else:
                name = name_of(path)
                yield f"it loaded machine code that was not built from its source: `{name}`"
        loose = sum(mapping.size for mapping in made if not mapping.path)
        if loose > CLOSURE_BYTES:
            yield f"it runs {loose >> 10} KiB of machine code made at run time"

    def foreign_time(self, operators: int, moves: bool) -> Iterator[str]:
        """Computing of others, by the samples.

        Args:
            operators: Torch operators that a call dispatches.
            moves: Some of them move data.
        """
        samples = self.samples
        if samples is None:
            return
        allowed_s = LIBRARY_S + OPERATOR_S * min(operators, MOST_OPERATORS)
        for file in samples.files("made"):
            if (share := samples.share(file, samples.count(file))) > MADE_SHARE:
                yield f"{share:.0%} of its time passes in `{name_of(file)}`, made at run time"
        for file in samples.files("library"):
            yield from _by_library(samples, file, allowed_s, moves)
        others = samples.elsewhere
        if others >= LEAST_SAMPLES and others > MADE_SHARE * (samples.total + others):
            share = others / (samples.total + others)
            yield f"other processes that it started do {share:.0%} of the work"

    @property
    def foreign_imports(self) -> Iterator[str]:
        """Functions that its libraries take from others, and no kernel needs."""
        for handed, library in self._libraries:
            for name in library.imports:
                if _REACHES_OUT.fullmatch(name) or _COMPUTES.fullmatch(name):
                    shown = in_words(name)
                    yield f"`{handed.kernel.name}` calls `{shown}`, which leads out of the kernel"

    def coverage(self, own: tuple[str, ...]) -> float | None:
        """Share of the call in its own kernels; 0 where none of them counts as such."""
        if self.samples is None:
            return None
        idle = frozenset(name for name, is_needed in self.needed.items() if not is_needed)
        found = self.samples.coverage(idle)
        return found if found is None or own else 0.0

    def _owner(self, path: str) -> Owner:
        return owner_of(path, self._built)

    @cached_property
    def _built(self) -> frozenset[str]:
        return built_files(self.handed, self.extension_files)

    @property
    def _libraries(self) -> Iterator[tuple[Handed, elf.Library]]:
        """Each library that was built for it once, however often it was asked for."""
        for one in {one.artefact.key: one for one in self.handed}.values():
            if one.kernel.backend == "cpp" and one.library is not None:
                yield one, one.library


def _by_library(samples: Samples, file: str, allowed_s: float, moves: bool) -> Iterator[str]:
    """What is held against a candidate for its time in a library that is not its own."""
    counted = float(samples.count(file))
    name = ""
    if _is_too_much(samples, file, counted, allowed_s):
        functions = samples.functions(file)
        counted = sum(n for f, n in functions.items() if not _only_moves(f, moves))
        known = [f for f, _ in functions.most_common() if f and not _only_moves(f, moves)]
        name = f", most of it in `{_brief(known[0])}`" if known else ""
    if _is_too_much(samples, file, counted, allowed_s):
        yield (
            f"it let another library compute: {samples.share(file, counted):.0%} of its time "
            f"passes in `{name_of(file)}`{name}; the task allows own kernels only"
        )


def _is_too_much(samples: Samples, file: str, counted: float, allowed_s: float) -> bool:
    return samples.share(file, counted) > LIBRARY_SHARE and samples.seconds(counted) > allowed_s


def built_files(handed: tuple[Handed, ...], extensions: tuple[str, ...]) -> frozenset[str]:
    """Files whose code counts as the candidate's own."""
    paths = (Path(one.artefact.path).resolve() for one in handed)
    return frozenset((*map(str, paths), *extensions))


def _only_moves(function: str, moves: bool) -> bool:
    """Whether a function only handles, copies or fills; without a name, whether data were moved."""
    if not function:
        return moves
    return bool(_MOVES.search(function) or _HANDLES.search(function)) and not _COMPUTES_TOO.search(
        function
    )


def _brief(symbol: str) -> str:
    return "::".join(in_words(symbol).split("::")[:4])
