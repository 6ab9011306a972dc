"""Owns `CallBook`: what a run's model was asked and replied, line by line; paid calls live there.

The lines are JSON. The first says what they belong to; each of the others is a call, or the answer
of a tool. In a run folder they are `calls.jsonl`; the same lines in a file of their own are a
recording (`--record`), from which `replay:FILE` gives the replies again.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from evokernel.attempt import Backend, Stage
from evokernel.config import RunConfig
from evokernel.errors import ConfigError, RecordError
from evokernel.frozen import Frozen
from evokernel.proposers.llm.messages import Message, Reply
from evokernel.record import RunRecord
from evokernel.record.spending import Spending, spending

VERSION = 1
"""Of the lines; a reader refuses a later one."""


class Title(Frozen):
    """The first line."""

    kind: Literal["recording"]
    version: int
    run: str
    task: str
    backend: Backend
    model: str
    made: str
    """When the run began, UTC."""
    note: str = ""
    """Whatever its maker wants to say."""


class Call(Frozen):
    """One reply that was paid for."""

    kind: Literal["call"]
    number: int
    """Counted from 1."""
    step: str
    """Id of the run's step that it was for."""
    stage: Stage
    model: str
    request: str
    """Digest of all messages and tools."""
    after: int | None = None
    """Number of the call whose messages and reply come before `messages`."""
    messages: tuple[Message, ...]
    tools: tuple[str, ...] = ()
    """Names of the tools that were offered."""
    reply: Reply
    seconds: float = 0.0
    """From the first try to the reply, waits included."""
    tries: int = 1
    """How often it was asked until the reply came."""


class Done(Frozen):
    """What a tool answered within a step."""

    kind: Literal["tool"]
    step: str
    key: str
    text: str


_LINE: TypeAdapter[Title | Call | Done] = TypeAdapter(
    Annotated[Title | Call | Done, Field(discriminator="kind")]
)


class CallBook:
    """The calls of one run: kept in its folder once there is one, in memory until then.

    Args:
        recording: A further file for the same lines; made anew when the book is `attach`ed.
    """

    def __init__(self, recording: Path | None = None) -> None:
        self._recording = recording
        self._record: RunRecord | None = None
        self._title: Title | None = None
        self._calls: list[Call] = []
        self._known: defaultdict[tuple[str, str, str], list[Call]] = defaultdict(list)
        self._asked: Counter[tuple[str, str, str]] = Counter()
        self._done: dict[tuple[str, str], str] = {}
        self._talks: dict[str, tuple[int, tuple[Message, ...]]] = {}
        self._spent = Spending()
        self._lock = threading.Lock()

    @classmethod
    def of(cls, config: RunConfig, *, is_resumed: bool = False) -> "CallBook":
        """The book of a run that begins.

        Raises:
            ConfigError: the file of the recording is there already, or cannot be written.
        """
        if config.record and not is_resumed:
            _require_new(config.record)
        return cls(config.record)

    def attach(self, record: RunRecord) -> None:
        """Go on with what the run folder holds, and write there from now on.

        Raises:
            RecordError: the folder's lines are damaged, or the recording cannot be written.
        """
        self._record = record
        config = record.config
        title = Title(
            kind="recording",
            version=VERSION,
            run=record.id,
            task=record.task().name,
            backend=config.backend,
            model=config.proposer,
            made=record.header.created,
        )
        self._spent = spending(record)
        lines = list(record.calls())
        self._title = None if lines else title
        for number, line in enumerate(lines, start=1):
            self._read(parsed(line, f"{record.path / 'calls.jsonl'}:{number}"))
        if self._recording:
            _write(self._recording, "".join(f"{line}\n" for line in lines))

    def recall(self, step: str, request: str, model: str) -> Call | None:
        """The stored call of a step that is gone through again; each is given once."""
        key = (step, request, model)
        with self._lock:
            turn = self._asked[key]
            self._asked[key] += 1
            known = self._known[key]
            return known[turn] if turn < len(known) else None

    def add(self, call: Call, messages: tuple[Message, ...]) -> None:
        """Store a reply, before anything is made of it.

        Raises:
            RecordError: it cannot be written.
        """
        with self._lock:
            after, said = self._talks.get(call.step, (None, ()))
            goes_on = bool(said) and messages[: len(said)] == said
            call = call.model_copy(
                update={
                    "number": len(self._calls) + 1,
                    "after": after if goes_on else None,
                    "messages": messages[len(said) :] if goes_on else messages,
                }
            )
            self._talks[call.step] = (call.number, (*messages, call.reply.message))
            self._note(call)
            self._spent = self._spent.plus(call.reply.usage)
            self._append(call)

    def once(self, step: str, key: str, work: Callable[[], str]) -> str:
        """What a tool answered when this step came here before, else its answer now, stored."""
        if (step, key) not in self._done:
            text = work()
            with self._lock:
                self._done[step, key] = text
                self._append(Done(kind="tool", step=step, key=key, text=text))
        return self._done[step, key]

    def spending(self) -> Spending:
        """What the run has cost so far."""
        return self._spent

    def calls(self) -> tuple[Call, ...]:
        """Every call, in order."""
        return tuple(self._calls)

    def _read(self, line: Title | Call | Done) -> None:
        if isinstance(line, Call):
            self._note(line)
            self._known[line.step, line.request, line.model].append(line)
        elif isinstance(line, Done):
            self._done[line.step, line.key] = line.text

    def _note(self, call: Call) -> None:
        self._calls.append(call)

    def _append(self, line: Call | Done) -> None:
        if self._record is None:
            return
        lines = [self._title, line] if self._title else [line]
        self._title = None
        for each in lines:
            text = each.model_dump_json(exclude_defaults=True)
            self._record.add_call(text)
            if self._recording:
                _write(self._recording, f"{text}\n", is_more=True)


def lines_of(path: Path) -> Iterator[Title | Call | Done]:
    """The lines of a recording.

    Raises:
        ConfigError: it cannot be read, or a line is not understood.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            f"the recording `{path}` cannot be read: {reason}; expected a file that `--record` "
            "made, or `calls.jsonl` of a run folder"
        ) from error
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield parsed(line, f"{path}:{number}")


def parsed(line: str, place: str) -> Title | Call | Done:
    """One line.

    Raises:
        ConfigError: it is none of a recording that this version can read.
    """
    try:
        found = _LINE.validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "the line"
        raise ConfigError(
            f"`{place}` is no line of a recording: {name}: {first['msg']}; expected the lines that "
            "`--record` writes"
        ) from error
    if isinstance(found, Title) and found.version > VERSION:
        raise ConfigError(
            f"`{place}` is of version {found.version}; this EvoKernel reads up to {VERSION}: "
            "update it"
        )
    return found


def texts(lines: Iterable[Title | Call | Done]) -> str:
    """Lines as a file holds them."""
    return "".join(f"{line.model_dump_json(exclude_defaults=True)}\n" for line in lines)


def _require_new(path: Path) -> None:
    if path.exists():
        raise ConfigError(
            f"`--record {path}`: there is such a file already; expected a new name, or remove it"
        )
    if not path.absolute().parent.is_dir():
        raise ConfigError(
            f"`--record {path}`: there is no folder `{path.absolute().parent}`; make it first"
        )


def _write(path: Path, text: str, *, is_more: bool = False) -> None:
    try:
        with path.open("a" if is_more else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise RecordError(
            f"`{path}` cannot be written: {error.strerror}; make room, or record elsewhere. The "
            "calls are in the run folder, too (`calls.jsonl`)"
        ) from error
