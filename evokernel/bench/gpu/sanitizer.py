"""Owns compute-sanitizer: what it says of a candidate's kernels, before one is promoted.

`memcheck` finds accesses beyond what was allocated and misaligned ones, `racecheck` hazards between
threads of a block in shared memory. They are told apart from what they say of the program around
the kernels, which is nobody's fault here. Forms of the messages: Compute Sanitizer documentation,
"Understanding Memcheck Errors" and "Understanding Racecheck Reports".
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from evokernel.bench import Say, silent
from evokernel.bench.gpu import tools
from evokernel.bench.gpu.player import Job
from evokernel.bench.gpu.replay import Lock, Replay, ReplayFailed
from evokernel.frozen import Frozen
from evokernel.wording import plain

Check = Literal["memcheck", "racecheck"]

NAME = "compute-sanitizer"
LIMIT_S = 60.0
"""Seconds for the calls under one check; instrumented kernels are 10 to 1000 times slower."""
MOST_BYTES = 64 << 20
"""Inputs beyond that are not tried unless there are no smaller ones."""
LOG_CHARS = 4000

_LOG = "sanitizer.txt"
_MARK = "========="
_FAULT = re.compile(
    r"(?:Error: )?((?:Invalid|Misaligned|Race reported|Potential \w+ hazard|Barrier error|"
    r"Stack overflow|Out-of-range|Illegal)\b.*)"
)
_USELESS = re.compile(
    r"Error: (Device not supported.*|No attachable process.*|Failed to initialize.*)|"
    r"(Target application terminated before first instrumented API call)"
)
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: ")
# Every tensor is an allocation of its own, else the neighbour's memory could be used unseen.
_SETTINGS = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


class Checked(Frozen):
    """What came of the checks of one candidate."""

    errors: tuple[str, ...] = ()
    """What its kernels do, a sentence each."""
    log: str = ""
    """What was printed of them, capped."""
    notes: tuple[str, ...] = ()
    """What was not checked, and why."""

    @property
    def reason(self) -> str:
        """Why it must not be promoted, in one sentence; empty where nothing was found."""
        if not self.errors:
            return ""
        more = f" and {len(self.errors) - 1} more" if len(self.errors) > 1 else ""
        return f"compute-sanitizer: {self.errors[0]}{more}"


def check(
    job: Job,
    lock: Lock,
    kernels: Sequence[str] = (),
    uses_shared: bool = False,
    say: Say = silent,
    limit_s: float = LIMIT_S,
) -> Checked:
    """Check the kernels of a candidate on small inputs.

    Args:
        job: What is called; see `MOST_BYTES`.
        lock: Holds the device.
        kernels: Names of its own functions; what is said of others is not its fault. None of them
            stands for all.
        uses_shared: Some have shared memory of their own making, where threads may race.
        say: Told once where the tool is missing or does not work.
        limit_s: Wall limit of each check.
    """
    program = tools.found(NAME)
    if not program:
        return _without("it is not installed", say)
    wanted: tuple[Check, ...] = ("memcheck", "racecheck") if uses_shared else ("memcheck",)
    found = Checked()
    for name in wanted:
        one, refusal = _run(program, name, job, lock, kernels, limit_s)
        if refusal:
            return _without(refusal, say)  # of this candidate only, who may have written it
        found = _joined(found, one)
    return found


def command(program: str, name: Check) -> list[str]:
    """The words before the program that is checked."""
    words = [program, "--tool", name, "--log-file", f"{{folder}}/{_LOG}", "--print-limit", "20"]
    words += ["--show-backtrace", "no", "--target-processes", "all", "--launch-timeout", "60"]
    if name == "memcheck":
        return [*words, "--report-api-errors", "no", "--padding", "256"]
    return [*words, "--racecheck-report", "analysis"]


def read(text: str, kernels: Sequence[str] = ()) -> tuple[tuple[str, ...], str]:
    """Faults of kernels in a log, a sentence each, and the paragraphs that are about them.

    Args:
        text: What the tool printed.
        kernels: Names of functions; none of them stands for all.
    """
    names = re.compile(rf"\b(?:{'|'.join(map(re.escape, kernels))})\b" if kernels else "")
    faults, paragraphs = [], []
    for paragraph in _paragraphs(text):
        told = _FAULT.match(paragraph[0])
        if told and names.search(" ".join(paragraph)):
            places = [line for line in paragraph[1:] if line.startswith("at ")]
            faults.append(" ".join([told[1], *places[:1]]))
            paragraphs.append("\n".join(paragraph))
    return tuple(dict.fromkeys(faults)), "\n\n".join(paragraphs)


def _run(
    program: str, name: Check, job: Job, lock: Lock, kernels: Sequence[str], limit_s: float
) -> tuple[Checked, str]:
    """What one check found, and why the tool does not work here."""
    note = ""
    with Replay("each", command(program, name), _SETTINGS) as replay:
        try:
            replay.load(job)
            with lock():
                replay.play(limit_s)
            replay.finish()
        except ReplayFailed as error:
            note = f"{name} did not finish: {error}"
        text = plain(replay.text(_LOG) or replay.said)
    if refusal := _USELESS.search(text):
        return Checked(), (refusal[1] or refusal[2]).strip()
    if not note and not _SUMMARY.search(text):
        note = f"{name} gave no summary"
    errors, log = read(text, kernels)
    notes = (note,) if note else ()
    return Checked(errors=errors, log=log[:LOG_CHARS], notes=notes), ""


def _paragraphs(text: str) -> Iterator[list[str]]:
    """The lines of each message, without the tool's mark."""
    paragraph: list[str] = []
    for line in text.splitlines():
        said = line.removeprefix(_MARK).strip() if line.startswith(_MARK) else ""
        is_new = bool(_FAULT.match(said)) or bool(_SUMMARY.match(said))
        if paragraph and (not said or is_new):
            yield paragraph
            paragraph = []
        if said:
            paragraph.append(said)
    if paragraph:
        yield paragraph


def _joined(first: Checked, second: Checked) -> Checked:
    return Checked(
        errors=(*first.errors, *second.errors),
        log="\n\n".join(filter(None, (first.log, second.log)))[:LOG_CHARS],
        notes=(*first.notes, *second.notes),
    )


def _without(refusal: str, say: Say) -> Checked:
    text = f"kernels were not checked by compute-sanitizer: {refusal}"
    say(text)
    return Checked(notes=(text,))
