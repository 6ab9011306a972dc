"""Owns how single rows of the journal are written, and many found by their keys."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import Table

from evokernel.memory import statements, tables
from evokernel.memory.events import Addition, Verdict
from evokernel.memory.experience import Experience, gain_of
from evokernel.memory.likeness import shape_of, sketch_of
from evokernel.memory.texts import deflated, set_apart
from evokernel.memory.transaction import Reader, Transaction
from evokernel.opgraph import OpGraph

BATCH = 512
"""Ids per `IN (...)`: well below SQLite's limit of 999 values in old versions."""


def rows_of(
    journal: Reader, table: Table, key: str, columns: tuple[str, ...], ids: Sequence[str]
) -> list[Any]:
    """Columns of the rows whose `key` is one of `ids`, in any order."""
    rows: list[Any] = []
    for first in range(0, len(ids), BATCH):
        part = ids[first : first + BATCH]
        # Few different lengths, so that each statement is translated once.
        count = 1 << (len(part) - 1).bit_length()
        padded = [*part, *[part[-1]] * (count - len(part))]
        values = {f"id{place}": id for place, id in enumerate(padded)}
        rows += journal.rows(statements.of_ids(table, key, columns, count), values)
    return rows


def texts_of(journal: Reader, ids: Sequence[str]) -> dict[str, bytes]:
    """Deflated texts by their ids."""
    rows = rows_of(journal, tables.texts, "id", ("id", "content"), ids)
    return {row.id: row.content for row in rows}


def write_experience(journal: Transaction, addition: Addition, step: str, slot: str) -> str:
    """Append one experience unless its place in the step, or the very same one, is taken."""
    experience = addition.experience
    same = {"step": step, "slot": slot, "id": experience.id}
    if found := journal.scalar(statements.SAME_EXPERIENCE, same):
        return str(found)
    origin = experience.origin
    body = experience.model_dump_json(exclude={"features", "payload"})
    body, texts = set_apart(body, experience.payload)
    columns = {
        "run": origin.run,
        "task": origin.task,
        "candidate": origin.candidate,
        "kind": experience.kind,
        "stage": experience.stage.value,
        "backend": experience.backend,
        "family": experience.family,
        "fingerprint": experience.fingerprint,
        "content": addition.content,
        "body": body,
    }
    journal.append(tables.experiences, same | columns)
    for id, text in texts.items():
        if journal.scalar(statements.TEXT_KNOWN, {"id": id}) is None:
            journal.run(statements.INSERT[tables.texts], {"id": id, "content": deflated(text)})
    write_vector(journal, experience.id, addition.vector)
    write_traits(journal, experience)
    write_status(journal, Verdict(experience.id, addition.status, addition.reason), step)
    return experience.id


def write_traits(journal: Transaction, experience: Experience) -> None:
    """Keep what of an experience is needed without its body."""
    source = experience.payload.get("source", "")
    columns = {
        "experience": experience.id,
        "outcome": experience.outcome,
        "techniques": json.dumps(experience.techniques),
        "bottleneck": experience.bottleneck,
        "device": experience.measurement.device,
        "tools": experience.measurement.tools,
        "proposer": experience.origin.proposer,
        "parent": experience.origin.parents[0] if experience.origin.parents else "",
        "gain": gain_of(experience.measurement),
        "shape": shape_of(source),
        "sketch": sketch_of(source),
    }
    journal.run(statements.INSERT[tables.traits], columns)


def write_status(journal: Transaction, verdict: Verdict, step: str) -> None:
    """Append a change of status, once for each experience and step."""
    measured = verdict.measurement.model_dump_json() if verdict.measurement else None
    columns = {
        "experience": verdict.experience,
        "status": verdict.status.value,
        "reason": verdict.reason,
        "step": step,
        "measurement": measured,
    }
    journal.append_once(tables.statuses, columns)


def write_vector(journal: Transaction, id: str, vector: Sequence[float]) -> None:
    """Keep the embedding of an experience."""
    blob = np.asarray(vector, dtype=np.float32).tobytes()
    journal.run(statements.INSERT[tables.embeddings], {"experience": id, "vector": blob})


def write_graph(journal: Transaction, fingerprint: str, graph: OpGraph) -> None:
    """Keep the operator graph of a task, once."""
    key = {"fingerprint": fingerprint}
    if journal.scalar(statements.GRAPH_KNOWN, key) is None:
        body = graph.model_dump_json()
        journal.run(statements.INSERT[tables.graphs], key | {"body": body})


def write_note(journal: Transaction, name: str, value: str) -> None:
    """Replace a remark about the journal itself."""
    journal.run(statements.DROP_NOTE, {"name": name})
    journal.run(statements.INSERT[tables.meta], {"name": name, "value": value})
