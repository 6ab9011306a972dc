"""Owns the search that people do: by words over what the experiences say of themselves."""

import re
from collections.abc import Iterable

from evokernel.frozen import Frozen
from evokernel.memory.experience import Entry

WEIGHTS = {
    "family": 3.0,
    "techniques": 3.0,
    "task": 2.0,
    "kind": 1.0,
    "bottleneck": 1.0,
    "summary": 1.0,
}
"""What a word is worth where it occurs (ours)."""


class Hit(Frozen):
    """One experience that was found."""

    entry: Entry
    score: float
    """By words: the sum of the weights. By situation: the cosine similarity."""


def search(entries: Iterable[Entry], words: str, limit: int) -> tuple[Hit, ...]:
    """Experiences in which words of `words` occur, best first; newer ones first among equals."""
    wanted = _split(words)
    hits = [Hit(entry=entry, score=_score(entry, wanted)) for entry in entries]
    found = [hit for hit in hits if hit.score > 0]
    return tuple(sorted(found, key=lambda hit: (-hit.score, -hit.entry.version)))[:limit]


def _score(entry: Entry, wanted: set[str]) -> float:
    experience = entry.experience
    fields = {
        "family": experience.family,
        "techniques": " ".join(experience.techniques),
        "task": experience.origin.task,
        "kind": experience.kind,
        "bottleneck": experience.bottleneck,
        "summary": experience.summary,
    }
    return sum(WEIGHTS[name] * _share(wanted, _split(text)) for name, text in fields.items())


def _share(wanted: set[str], present: set[str]) -> float:
    """Words found, a beginning of at least three letters counting half."""
    exact = wanted & present
    begun = {
        word
        for word in wanted - exact
        if len(word) >= 3 and any(other.startswith(word) for other in present)
    }
    return len(exact) + len(begun) / 2


def _split(text: str) -> set[str]:
    """Words in lower case; `layer_norm` and `vectorized-loads` are found whole and in parts."""
    whole = set(re.findall(r"[\w-]+", text.lower()))
    return whole | {part for word in whole for part in re.split(r"[-_]", word) if part}
