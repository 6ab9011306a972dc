"""Owns the start of a confined program: limits and rights are given up, then it is executed.

Run as a process of its own, because what happens between a fork and an exec is not safe in a
process with threads. What the system does not permit is left out: a compiler without a fence is
better than none, and `confines` tells.
"""

import os
import resource
import sys

from evokernel.confinement import calls, files, kernel

EXIT_FAULT = 126
"""Exit code where the program cannot be executed, as of a shell."""
_SIGKILL = 9
_END = "--"


class Terms:
    """What a program is started with.

    Args:
        readable: Files and folders that it may read, beside the system's.
        writable: Folders that it may write.
        hidden: What it may not read, wherever that lies.
        limits: Numbers of resources and their values; each is lowered to what is allowed to us.
        is_fenced: Whether more than the limits is put up.
    """

    def __init__(
        self,
        readable: tuple[str, ...] = (),
        writable: tuple[str, ...] = (),
        hidden: tuple[str, ...] = (),
        limits: dict[int, int] | None = None,
        is_fenced: bool = True,
    ) -> None:
        self.readable = readable
        self.writable = writable
        self.hidden = hidden
        self.limits = limits or {}
        self.is_fenced = is_fenced


def line(terms: Terms, command: list[str]) -> list[str]:
    """The command that starts `command` under these terms."""
    words = [word for path in terms.readable for word in ("read", path)]
    words += [word for path in terms.writable for word in ("write", path)]
    words += [word for path in terms.hidden for word in ("hide", path)]
    words += [word for pair in terms.limits.items() for word in map(str, pair)]
    words += ["fence", str(int(terms.is_fenced))]
    return [sys.executable, "-I", "-S", "-c", _START, *words, _END, *command]


def main() -> None:
    """Confine this process and become the program; comes back only by an exception."""
    _follow_parent()
    terms, command = _parse(sys.argv[1:])
    for which, value in terms.limits.items():
        _lower(which, value)
    if terms.is_fenced:
        put_up(terms)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.exit(EXIT_FAULT)


def confines() -> bool:
    """Whether files can be kept from programs on this machine."""
    return kernel.landlock_version() > 0


def put_up(terms: Terms) -> None:
    """Confine this process for good, as far as the system permits; limits are left alone."""
    read = files.carve((*files.SYSTEM, *terms.readable), terms.hidden)
    steps = (
        kernel.forbid_new_privileges,
        lambda: files.restrict(read, terms.writable),
        calls.restrict,
        kernel.drop_capabilities,
    )
    for step in steps:
        try:
            step()
        except OSError:  # not offered here; whoever wants to know asks `confines`
            continue


def _parse(words: list[str]) -> tuple[Terms, list[str]]:
    end = words.index(_END)
    pairs = list(zip(words[:end:2], words[1:end:2], strict=True))
    paths = {kind: tuple(p for k, p in pairs if k == kind) for kind in ("read", "write", "hide")}
    limits = {int(kind): int(value) for kind, value in pairs if kind.isdigit()}
    is_fenced = ("fence", "1") in pairs
    terms = Terms(paths["read"], paths["write"], paths["hide"], limits, is_fenced)
    return terms, words[end + 1 :]


def _follow_parent() -> None:
    """Die with the parent, also if it died before we could ask for that."""
    parent = os.getppid()
    kernel.set_death_signal(_SIGKILL)
    if os.getppid() != parent:
        sys.exit(EXIT_FAULT)


def _lower(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
# The package's own front page stays out: with what it imports, the start would take twice as long.
_START = (
    "import sys\n"
    "package = type(sys)('evokernel')\n"
    f"package.__path__ = [{_PACKAGE!r}]\n"
    "sys.modules['evokernel'] = package\n"
    "from evokernel.confinement.launch import main\n"
    "main()\n"
)
