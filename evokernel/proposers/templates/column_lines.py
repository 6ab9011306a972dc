"""Owns the loops in which all threads share the lines of few columns."""

from evokernel.proposers.templates.addressing import pointers
from evokernel.proposers.templates.column_blocks import BlocksWriter
from evokernel.proposers.templates.folds import Fold
from evokernel.proposers.templates.styles import thread_count
from evokernel.proposers.templates.sweep import Work

_SHARE = 65536
"""Elements that a thread takes of shared lines at a time (ours)."""


class SharedWriter(BlocksWriter):
    """Writes a kernel in which every thread reduces some lines of all columns."""

    def _parallel(self) -> None:
        with self._text.block("for (int64_t r = 0; r < rows; ++r)"):
            self._row()

    def _row(self) -> None:
        self._text.add("const int64_t begin = 0;", f"const int64_t end = {self._block};")
        self._text.extend(pointers(self._program))
        for memory in self._memories.all:
            self._text.add(f"{memory.type}* {memory.name} = new {memory.type}[{self._width}];")
        self._at_rest((), self._program.before)
        for number, work in enumerate(self._works, start=1):
            self._text.add(f"// Sweep {number} of {len(self._works)}.")
            self._sweep(work)
            self._at_rest(work.reductions, work.after)
        self._text.extend(f"delete[] {memory.name};" for memory in self._memories.all)

    def _sweep(self, work: Work) -> None:
        lines, width = self._program.domain.lines, self._width
        share = max(_SHARE // self._block, 1)
        number = -(-lines // share)
        parts = [(self._memories.running(i), i) for i in work.reductions]
        for memory, _ in parts:
            text = f"{memory.type}* {memory.name}parts_ = new {memory.type}[{number * width}];"
            self._text.add(text)
        self._text.add(
            f"#pragma omp parallel for schedule(static) num_threads({thread_count(self._choices)})"
        )
        with self._text.block(f"for (int64_t chunk = 0; chunk < {number}; ++chunk)"):
            for memory, _ in parts:
                start = f"{memory.name}parts_ + chunk * {width}"
                self._text.add(f"{memory.type}* {memory.name} = {start};")
            self._begin(work)
            self._text.add(
                f"const int64_t last_ = {lines} - chunk * {share} < {share} ? {lines} "
                f": (chunk + 1) * {share};"
            )
            self._lines(work, f"chunk * {share}", "last_")
            if self._style.streaming and work.outputs:
                self._text.add("stream_fence();")
        self._begin(work)
        for memory, i in parts:
            step = Fold.of(self._program, i, "scalar").step(
                f"{memory.name}[c]", f"{memory.name}parts_[chunk * {width} + c]"
            )
            with self._text.block(f"for (int64_t chunk = 0; chunk < {number}; ++chunk)"):
                self._text.add(f"for (int64_t c = begin; c < end; ++c) {step}")
            self._text.add(f"delete[] {memory.name}parts_;")
