"""Owns `Bank`: what one memory hands to another, as lines of JSON that need no database to read.

The first line says what the file is. Then follow operator graphs, experiences with their status,
and the events of the steps in which they were shown (what was asked, chosen and earned), one a
line, in the order in which they happened. Embeddings and values are left out: both are computed.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evokernel.errors import StoreError
from evokernel.frozen import Frozen
from evokernel.memory.experience import Experience, ExperienceStatus

FORMAT = "evokernel-memory"
VERSION = 1
EVENTS = ("retrievals", "queries", "decisions", "rewards")
"""Tables whose rows go along; each has one row per step."""
RANKS = {
    status: rank
    for rank, status in enumerate(("quarantine", "retired", "active", "suspect", "tombstone"))
}
"""Of two statuses the higher one holds after a merge: what was withdrawn anywhere stays so."""

Row = dict[str, Any]


class BankHeader(Frozen):
    """The first line of a bank's file."""

    format: str = FORMAT
    version: int = VERSION
    made: str
    """Day and time, UTC, ISO 8601."""
    by: str
    """Version of EvoKernel."""
    sources: tuple[str, ...]
    """Names of the memories that it comes from."""
    holdout: tuple[str, ...] = ()
    """Fingerprints of the tasks that were left out."""


class Held(Frozen):
    """One experience of a bank."""

    experience: Experience
    """As it stood: with what people changed, and with the measurement of its promotion."""
    step: str
    """The step that left it behind."""
    slot: str
    """Its place among what that step left behind."""
    status: ExperienceStatus
    reason: str


@dataclass
class Bank:
    """Experiences, the graphs of their tasks, and the events that gave them their values."""

    header: BankHeader
    graphs: dict[str, str] = field(default_factory=dict)
    """JSON of each operator graph, by fingerprint."""
    held: dict[str, Held] = field(default_factory=dict)
    """Experiences by id, oldest first."""
    events: dict[tuple[str, str], Row] = field(default_factory=dict)
    """Rows by table and step, oldest first."""

    @property
    def rewards(self) -> int:
        """How many steps were rewarded."""
        return sum(table == "rewards" for table, _ in self.events)

    def lines(self) -> Iterator[str]:
        """The bank as lines of JSON."""
        yield self.header.model_dump_json()
        for fingerprint, body in self.graphs.items():
            yield json.dumps({"graph": fingerprint, "body": json.loads(body)})
        for held in self.held.values():
            yield json.dumps({"held": held.model_dump(mode="json", exclude_defaults=True)})
        for (table, _), row in self.events.items():
            yield json.dumps({"event": table, "row": row})


def write(bank: Bank, path: Path) -> None:
    """Write a bank's file; a reader never sees half of one.

    Raises:
        StoreError: it cannot be written there.
    """
    is_special = path.exists() and not path.is_file()  # a pipe or a device is not replaced
    half = path if is_special else path.with_name(f".{path.name}.part")
    try:
        with half.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in bank.lines())
        if not is_special:
            half.rename(path)
    except OSError as error:
        raise StoreError(
            f"`{path}` cannot be written: {error.strerror or error}; name another file"
        ) from error


def read(path: Path) -> Bank:
    """Read a bank's file. Nothing in it is executed.

    Raises:
        StoreError: it is none, of another version, or a line of it is damaged.
    """
    try:
        with path.open(encoding="utf-8") as file:
            return parse(file, str(path))
    except (OSError, UnicodeDecodeError) as error:
        text = f"`{path}` cannot be read: {error}; expected a file of `memory export`"
        raise StoreError(text) from error


def parse(lines: Iterable[str], label: str) -> Bank:
    """Read a bank from its lines.

    Raises:
        StoreError: as `read`.
    """
    bank: Bank | None = None
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            if bank is None:
                bank = Bank(_header(entry, label))
            else:
                _take_in(bank, entry)
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            first = str(error).partition("\n")[0]
            raise StoreError(
                f"line {number} of `{label}` is not a line of `memory export`: {first}; nothing "
                "was taken from it"
            ) from error
    if bank is None:
        raise StoreError(f"`{label}` is empty; expected a file of `memory export`")
    return bank


def merged(banks: Iterable[Bank], header: BankHeader) -> Bank:
    """All that any of the banks holds, each thing once.

    The order of the banks decides nothing but the order of what is new; merging the same bank twice
    changes nothing. Of two statuses the higher one holds (`RANKS`).
    """
    whole = Bank(header)
    for bank in banks:
        whole.graphs = {**bank.graphs, **whole.graphs}
        whole.events = {**bank.events, **whole.events}
        for id, held in bank.held.items():
            known = whole.held.get(id)
            if known is None or _rank(held) > _rank(known):
                whole.held[id] = held
    return whole


def without(bank: Bank, fingerprints: Mapping[str, str]) -> Bank:
    """The bank without what comes from some tasks: its experiences, and what their steps earned.

    Args:
        bank: Any bank.
        fingerprints: Of the tasks, to their names.
    """
    kept = {i: h for i, h in bank.held.items() if h.experience.fingerprint not in fingerprints}
    steps = {
        step
        for (table, step), row in bank.events.items()
        if table == "queries" and json.loads(row["body"]).get("fingerprint") in fingerprints
    }
    steps |= {h.step for id, h in bank.held.items() if id not in kept}
    events = {key: row for key, row in bank.events.items() if key[1] not in steps}
    held_out = tuple(sorted({*bank.header.holdout, *fingerprints}))
    header = bank.header.model_copy(update={"holdout": held_out})
    graphs = {name: body for name, body in bank.graphs.items() if name not in fingerprints}
    return Bank(header, graphs, kept, {key: _known_only(row, kept) for key, row in events.items()})


def leaks(bank: Bank, fingerprints: Iterable[str]) -> tuple[str, ...]:
    """Ids of the experiences of a bank that come from one of these tasks, or were made beside one.

    Made beside: an experience of such a task was shown when it was written.
    """
    wanted = set(fingerprints)
    own = {i for i, h in bank.held.items() if h.experience.fingerprint in wanted}
    beside = {i for i, h in bank.held.items() if own & set(h.experience.origin.context)}
    return tuple(id for id in bank.held if id in own | beside)


def _known_only(row: Row, held: Mapping[str, Held]) -> Row:
    """An event without the ids of what is not there."""
    if "shown" in row:
        return {**row, "shown": json.dumps([i for i in json.loads(row["shown"]) if i in held])}
    if "chosen" in row:
        lists = {name: json.loads(row[name]) for name in ("pool", "chosen")}
        kept = {name: [i for i in items if i["id"] in held] for name, items in lists.items()}
        return {**row, **{name: json.dumps(items) for name, items in kept.items()}}
    return row


def _header(entry: Row, label: str) -> BankHeader:
    if entry.get("format") != FORMAT:
        raise StoreError(f"`{label}` is no bank; expected a file of `memory export`")
    if entry.get("version") != VERSION:
        raise StoreError(
            f"`{label}` is a bank of version {entry.get('version')}, this EvoKernel reads version "
            f"{VERSION}: export it anew with this one"
        )
    return BankHeader.model_validate(entry)


def _take_in(bank: Bank, entry: Row) -> None:
    if "held" in entry:
        held = Held.model_validate(entry["held"])
        bank.held[held.experience.id] = held
    elif "graph" in entry:
        bank.graphs[str(entry["graph"])] = json.dumps(entry["body"], separators=(",", ":"))
    elif entry["event"] in EVENTS:
        bank.events[entry["event"], str(entry["row"]["step"])] = entry["row"]
    else:
        raise ValueError(f"no events of kind `{entry['event']}`")


def _rank(held: Held) -> int:
    return RANKS[held.status.value]
