"""Owns the texts that a model reads: the `.md` files of this folder, filled in for one step.

`system.md` and the file of the language make the system message; `draft.md`, `repair.md`,
`refine.md` or `recombine.md` the message of the step. Names with a `$` in them are filled in. A
folder of the user's own may replace any of them.
"""

from collections.abc import Iterable
from functools import cache

from evokernel.attempt import Backend
from evokernel.prompts.composition import Composition, Prompt, compose
from evokernel.prompts.fitting import ORDER, Fitted, fit
from evokernel.prompts.section import Item, Section, tokens
from evokernel.prompts.situation import Situation, TechniqueNote
from evokernel.prompts.texts import FILES, Texts, copy

__all__ = [
    "FILES",
    "ORDER",
    "Composition",
    "Fitted",
    "Item",
    "Prompt",
    "Section",
    "Situation",
    "TechniqueNote",
    "Texts",
    "backends",
    "compose",
    "copy",
    "fit",
    "guide",
    "render",
    "tokens",
]

_LANGUAGES = ("cpp", "cuda", "triton")


def backends() -> tuple[str, ...]:
    """The languages that there is a text for."""
    return _LANGUAGES


@cache
def guide(backend: Backend) -> str:
    """Our guide to a language, as every author reads it."""
    return Texts.load().plain(f"{backend}.md")


def render(
    situation: Situation,
    techniques: Iterable[TechniqueNote],
    texts: Texts | None = None,
    room: int | None = None,
) -> Prompt:
    """Write the prompt of one step: `compose` and `Composition.fit` in one."""
    return compose(situation, techniques, texts).fit(room)
