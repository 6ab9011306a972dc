"""Owns the weights of credit: how much of a step's reward each experience shown in it is due.

The evidence gate for bundles: whoever was merely present gets little. What an author says that it
used counts, but only what its code confirms counts in full, because claiming costs nothing. All
constants here are ours.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from evokernel.attempt import Proposal
from evokernel.memory.experience import Experience

PRESENT = 0.2
"""Weight of an experience that was shown, and nothing more is known."""
CITED = 0.3
"""What the author's word for it adds."""
CONFIRMED = 0.5
"""What code that comes from it adds, at most."""
GRAM = 5
"""Tokens in a row that are compared: enough to hold an expression, too few for a whole loop."""
WHOLE = 0.2
"""Share of an experience's own code that has to be found again for full confirmation: who adapts
a kernel to other shapes and names keeps no more of it."""


def weights(
    shown: Sequence[Experience], proposal: Proposal, known: Iterable[str] = ()
) -> dict[str, float]:
    """How much of the step's reward each experience is due.

    Args:
        shown: What the author could look at.
        proposal: What it handed over, with the ids that it says it used.
        known: Sources that it had without these experiences: its start points, the task, the
            example of the backend's guide. Code that stands there proves nothing.

    Returns:
        A weight for each id, from `PRESENT` to 1.
    """
    before = frozenset[str]().union(*map(_grams, known))
    made = _grams(proposal.candidate.source) - before
    techniques = frozenset(proposal.changed or proposal.techniques)
    return {
        experience.id: round(
            PRESENT
            + CITED * (experience.id in proposal.used)
            + CONFIRMED * _confirmation(experience, made, before, techniques),
            4,
        )
        for experience in shown
    }


def _confirmation(
    experience: Experience,
    made: frozenset[str],
    before: frozenset[str],
    techniques: frozenset[str],
) -> float:
    """How far the candidate bears the experience out, 0..1."""
    own = _grams(_code(experience)) - before
    if own:
        return min(1.0, len(own & made) / len(own) / WHOLE)
    # A note has no code to find again; the technique that it speaks of is all that can be seen.
    is_note = experience.kind in {"technique", "api"}
    return float(is_note and not techniques.isdisjoint(experience.techniques))


def _code(experience: Experience) -> str:
    """The code that an author could take from it: what an edit added, or a whole kernel."""
    if diff := experience.payload.get("diff"):
        lines = diff.splitlines()
        return "\n".join(
            line[1:] for line in lines if line.startswith("+") and not line.startswith("+++")
        )
    return experience.payload.get("source", "") if experience.outcome == "success" else ""


@lru_cache(maxsize=256)
def _grams(code: str) -> frozenset[str]:
    """Every run of `GRAM` tokens, spaces and line ends aside."""
    tokens = _TOKEN.findall(code)
    return frozenset(" ".join(tokens[i : i + GRAM]) for i in range(len(tokens) - GRAM + 1))


_TOKEN = re.compile(r"[^\W\d]\w*|\d[\w.]*|[^\w\s]")
