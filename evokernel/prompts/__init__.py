"""Owns the texts that a model reads: the `.md` files of this folder, filled in for one step.

`contract.md` and the file of the backend make the system message; `draft.md`, `repair.md`,
`refine.md` or `recombine.md` the message of the step. Names with a `$` in them are filled in.
"""

from collections.abc import Iterable
from importlib.resources import files
from string import Template

from evokernel.attempt import Stage
from evokernel.frozen import Frozen
from evokernel.prompts import sections
from evokernel.prompts.limits import Limits
from evokernel.prompts.situation import Situation, TechniqueNote

__all__ = ["Limits", "Prompt", "Situation", "TechniqueNote", "backends", "render"]

_LANGUAGES = {"cpp": "cpp.md"}


class Prompt(Frozen):
    """The two messages of one step."""

    system: str
    """What holds for every step: the contract, the backend, how to answer."""
    user: str
    """The task, the step, and what is known."""

    @property
    def text(self) -> str:
        """Both, one after the other, for the record."""
        return f"{self.system}\n\n---\n\n{self.user}"


def backends() -> tuple[str, ...]:
    """The languages that there is a text for."""
    return tuple(_LANGUAGES)


def render(
    situation: Situation, techniques: Iterable[TechniqueNote], limits: Limits | None = None
) -> Prompt:
    """Write the prompt of one step.

    Args:
        situation: What the step is about: a `Request` to a proposer.
        techniques: Those worth naming for this task and language.
        limits: How much of each thing is shown.

    Raises:
        KeyError: there is no text for the backend.
    """
    limits = limits or Limits()
    parents = situation.parents
    is_refined = situation.stage is Stage.REFINE and bool(parents)
    parts = {
        "task": sections.task(situation, limits),
        "machine": sections.machine(situation),
        "techniques": sections.techniques(techniques, parents),
        "experiences": sections.experiences(situation, limits),
        "drafts": sections.drafts(situation, limits),
        "children": sections.children(situation, limits),
        "candidate": sections.candidate(parents[0], limits) if parents else "",
        "verdict": sections.verdict(parents[0].evaluation, limits) if parents else "",
        "second": sections.second(parents[1], limits) if len(parents) > 1 else "",
    }
    contract = _text(f"{situation.contract}.md").strip()
    special = _SPECIAL if situation.task.options.special_values == "follow" else _IGNORED
    system = Template(_text("contract.md")).substitute(contract=contract, special=special)
    return Prompt(
        system=f"{system}\n{_text(_LANGUAGES[situation.backend])}".strip(),
        user=_filled(_text(_step(is_refined, len(parents))), parts),
    )


_SPECIAL = (
    "NaN and infinities must come out where the reference has them, so comparisons, maxima and\n"
    "   clamps have to let a NaN through as PyTorch does."
)
_IGNORED = "NaN, infinities and denormals need not come out as in the reference for this task."


def _step(is_refined: bool, parents: int) -> str:
    if is_refined:
        return "recombine.md" if parents > 1 else "refine.md"
    return "repair.md" if parents else "draft.md"


def _text(name: str) -> str:
    return (files("evokernel.prompts") / name).read_text(encoding="utf-8")


def _filled(text: str, parts: dict[str, str]) -> str:
    """A step's text; the line of a part that there is nothing to say in is left out."""
    empty = {f"${name}" for name, part in parts.items() if not part}
    lines = (line for line in text.splitlines(keepends=True) if line.strip() not in empty)
    return Template("".join(lines)).substitute(parts)
