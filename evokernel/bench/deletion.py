"""Owns the deletion test: does the result change when a candidate's kernels do nothing?

The trusted parent hands a fresh worker copies of the built libraries in which functions return at
once, with 0. Output memory is poisoned before the call, so that what no kernel writes shows. The
candidate cannot forge a result that its kernels do not make; it can only refuse to give one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from evokernel.attempt import Candidate
from evokernel.bench import correctness
from evokernel.bench.evidence import Handed
from evokernel.bench.messages import Faulted, Outcome
from evokernel.bench.oracle import Case
from evokernel.bench.pool import Worker
from evokernel.bench.session import Session
from evokernel.compilers import Artefact, KernelSource
from evokernel.compilers.cache import ArtefactCache
from evokernel.compilers.elf import Code, Library

LIMIT_S = 2.0
"""Wall limit without kernels, beside three times what loading and a call take with them; what waits
for a kernel's work for ever depends on it."""
MOST_CASES = 4
"""Cases that have to be right without kernels: a clamp that changes no normal value is needed."""

# Return 0, as an integer and as a floating-point number, whatever the function's type is.
_NOTHING = {
    "x86_64": bytes.fromhex("31c0 0f57c0 c3"),  # xor eax, eax; xorps xmm0, xmm0; ret
    "aarch64": bytes.fromhex("000080d2 00e4002f c0035fd6"),  # mov x0, #0; movi d0, #0; ret
}
# Return the address of what follows: of a version of the function that is `_NOTHING`.
_NONE_OF_THEM = {
    "x86_64": bytes.fromhex("488d0501000000 c3"),  # lea rax, [rip + 1]; ret
    "aarch64": bytes.fromhex("40000010 c0035fd6"),  # adr x0, #8; ret
}
_ALIGNMENT = 16
"""Bytes to whose multiples compilers align functions; what lies between is padding."""
_INTERNAL = ("_Z", "_init", "_fini")
"""How names begin that Python does not call: those of C++, and the loader's."""


class Deletion:
    """Runs some cases of a candidate with kernels deleted.

    Args:
        session: The trusted side.
        candidate: Whose kernels.
        handed: What it was given when it was run as it is.
        cases: The inputs, those that it was run on before first.
        usual_s: Seconds that loading and a call took as it is.
    """

    def __init__(
        self,
        session: Session,
        candidate: Candidate,
        handed: tuple[Handed, ...],
        cases: tuple[Case, ...],
        usual_s: float,
    ) -> None:
        self._session = session
        self._candidate = candidate
        self._cases = cases[:MOST_CASES]
        self._limit_s = LIMIT_S + 3 * usual_s
        self._libraries = {one.artefact.key: one.library for one in handed}

    @property
    def functions(self) -> frozenset[str]:
        """What can be deleted."""
        return frozenset(
            code.name
            for library in self._libraries.values()
            if library is not None and library.machine in _NOTHING
            for code in callable_from_python(library)
        )

    def is_needed(self) -> bool:
        """Whether a result is wrong without any of the kernels."""
        judge = self._session.oracle.judge
        try:
            with self._worker(lambda _: True) as worker:
                return any(
                    judge(case, self._run(worker, case), briefly=True).fault for case in self._cases
                )
        except Faulted:
            return True

    def changes(self, function: str, before: Outcome) -> bool:
        """Whether any bit of the result changes without one function.

        Args:
            function: Its name.
            before: The result of the candidate as it is, on the first case.
        """
        try:
            with self._worker(lambda name: name == function) as worker:
                return _differ(before, self._run(worker, self._cases[0]))
        except Faulted:
            return True

    @contextmanager
    def _worker(self, is_deleted: Callable[[str], bool]) -> Iterator[Worker]:
        """A fresh worker whose kernels are without some functions."""
        # Inside the cache, which is what workers may read.
        with ArtefactCache(self._session.config.cache / "kernels").workspace() as folder:

            def hand(_: KernelSource, artefact: Artefact) -> Artefact:
                return self._without(artefact, folder, is_deleted)

            limit_s = self._limit_s
            worker, _ = self._session.fork(self._candidate, hand=hand, deadline_s=limit_s)
            with worker:
                yield worker

    def _run(self, worker: Worker, case: Case) -> Outcome:
        oracle = self._session.oracle
        sizes = oracle.expected(case).output_bytes
        worker.put(case.name, oracle.package(case), output_bytes=sizes)
        outcome = worker.run(case.name, deadline_s=self._limit_s)
        worker.drop(case.name)
        return outcome

    def _without(
        self, artefact: Artefact, folder: Path, is_deleted: Callable[[str], bool]
    ) -> Artefact:
        """A copy of a built library without some functions.

        What the worker builds only now, or cannot be read, is handed out as it is.
        """
        library = self._libraries.get(artefact.key)
        if library is None or library.machine not in _NOTHING:
            return artefact
        path = folder / f"{artefact.key}.so"
        deleted = [code for code in callable_from_python(library) if is_deleted(code.name)]
        path.write_bytes(without(Path(artefact.path).read_bytes(), deleted, library.machine))
        return artefact.model_copy(update={"path": str(path)})


def callable_from_python(library: Library) -> list[Code]:
    """The functions with C linkage that a library offers."""
    return [code for code in library.functions if not code.name.startswith(_INTERNAL)]


def without(data: bytes, functions: list[Code], machine: str) -> bytes:
    """A library's bytes with functions that do nothing; tiny ones that leave no room stay.

    Args:
        data: The file.
        functions: What is deleted.
        machine: Its processor.
    """
    changed = bytearray(data)
    # Resolvers last: compilers give the same place a second name, as of a plain function.
    for code in sorted(functions, key=lambda code: code.is_resolver):
        nothing = (_NONE_OF_THEM[machine] if code.is_resolver else b"") + _NOTHING[machine]
        room = -(-code.size // _ALIGNMENT) * _ALIGNMENT
        if room >= len(nothing):
            changed[code.offset : code.offset + len(nothing)] = nothing
    return bytes(changed)


def _differ(before: Outcome, after: Outcome) -> bool:
    if before.facts != after.facts:
        return True
    return correctness.same_bits(before.outputs, after.outputs) is not None
