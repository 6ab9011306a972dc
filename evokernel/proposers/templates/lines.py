"""Owns the layout of generated C++: statements, blocks and their indentation."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_STEP = "    "


class Lines:
    """Collects statements; what is written inside `with block(...)` stands in braces."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def add(self, *statements: str) -> None:
        """Write statements, each on a line of its own; preprocessor lines are not indented."""
        for statement in statements:
            is_directive = statement.startswith("#")
            self._lines.append(statement if is_directive else _STEP * self._depth + statement)

    def extend(self, statements: Iterable[str]) -> None:
        """Write many statements."""
        self.add(*statements)

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """Write `head {`, then what the body of the `with` statement writes, then `}`."""
        self.add(f"{head} {{".lstrip())
        self._depth += 1
        yield
        self._depth -= 1
        self.add("}")

    def text(self) -> str:
        """All lines, each ended."""
        return "".join(f"{line}\n" for line in self._lines)
