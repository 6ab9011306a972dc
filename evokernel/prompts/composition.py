"""Owns `Composition`: everything that could be said in one step, and the prompt that fits."""

from collections.abc import Iterable
from functools import cached_property

from evokernel.attempt import Stage
from evokernel.frozen import Frozen
from evokernel.prompts import attempts, exemplars, knowledge, subject, verdict
from evokernel.prompts.exemplars import Variant
from evokernel.prompts.fitting import Fitted, fit, in_words
from evokernel.prompts.section import Section, tokens
from evokernel.prompts.situation import Situation, TechniqueNote
from evokernel.prompts.texts import FILES, Texts


class Prompt(Frozen):
    """The two messages of one step."""

    system: str
    """What holds for every step of a run: the contract, the language, how to answer."""
    user: str
    """The task, the step, and what is known."""
    stable: str = ""
    """The beginning of `user` that every step of a run has in common."""
    step: str = ""
    """`draft`, `repair`, `refine` or `recombine`."""
    digest: str = ""
    """Of the texts that it was made from."""
    sections: dict[str, int] = {}
    """Tokens of each section, estimated."""
    left_out: tuple[str, ...] = ()
    """What there was no room for, in a few words each."""

    @property
    def text(self) -> str:
        """Both messages, one after the other, for the record."""
        return f"{self.system}\n\n---\n\n{self.user}"

    @property
    def tokens(self) -> int:
        """Estimated size of both messages."""
        return tokens(self.system) + tokens(self.user)


class Composition(Frozen):
    """What could be said in one step; `fit` makes the prompt, as often as need be."""

    step: str
    """`draft`, `repair`, `refine` or `recombine`."""
    system: str
    sections: tuple[Section, ...]
    advice: str
    texts: Texts

    def fit(self, room: int | None = None) -> Prompt:
        """The prompt in at most `room` tokens, as estimated.

        Args:
            room: For both messages; None leaves every section its own budget. What is shortened
                first says `fitting.ORDER`; the texts themselves are never shortened.

        Returns:
            A prompt with a line at its end on what is missing. It is larger than `room` only where
            the texts and the least of task, verdict and candidate are.
        """
        if room is None:
            return self._written(fit(self.sections))
        return self._written(fit(self.sections, max(0, room - self._frame)))

    @cached_property
    def _frame(self) -> int:
        """Tokens of what is never shortened, and of the line on what is missing."""
        bare = self._written(Fitted(sections={}))
        return bare.tokens + _LINE

    def _written(self, fitted: Fitted) -> Prompt:
        parts = {name: cut.text for name, cut in fitted.sections.items()}
        name = f"{self.step}.md"
        used = [p for p in parts if f"${p}" in self.texts.contents[name]]
        missing = [fitted.sections[p].left_out for p in used if fitted.sections[p].left_out]
        user = self.texts.filled(name, {**parts, "advice": self.advice})
        note = in_words(missing)
        return Prompt(
            system=self.system,
            user=f"{user}\n\n{note}" if note else user,
            stable=_stable(user, parts),
            step=self.step,
            digest=self.texts.digest,
            sections={p: fitted.sections[p].tokens for p in used if parts[p]},
            left_out=tuple(missing),
        )


_LINE = 150
"""Tokens kept for the line on what is missing."""


def compose(
    situation: Situation, techniques: Iterable[TechniqueNote], texts: Texts | None = None
) -> Composition:
    """Collect what could be said in one step.

    Args:
        situation: What the step is about: a `Request` to a proposer.
        techniques: Those worth naming for this task and language.
        texts: The files that prompts are made of; None is ours.

    Raises:
        KeyError: there is no text for the backend.
    """
    texts = texts or Texts.load()
    parents = situation.parents
    variants = exemplars.exemplars(situation)
    named = [v.attempt for v in variants if v.attempt is not None]
    ids = [v.experience.id for v in variants if v.experience is not None]
    found = [
        subject.task(situation),
        subject.operators(situation),
        subject.machine(situation),
        attempts.exemplars(situation, variants),
        attempts.drafts(situation),
        attempts.best(situation, named),
        knowledge.experiences(
            situation, ids, _whole(situation, variants), _places(situation, variants)
        ),
        knowledge.techniques(techniques, parents),
    ]
    if parents:
        found += [
            attempts.candidate(situation),
            verdict.verdict(situation),
            verdict.log(situation),
            attempts.children(situation),
        ]
    if len(parents) > 1:
        found.append(attempts.second(situation))
    step = _step(situation)
    return Composition(
        step=step,
        system=_system(situation, texts),
        sections=tuple(s for s in found if f"${s.name}" in texts.contents[f"{step}.md"]),
        advice=texts.section("advice.md", verdict.advice(parents[0])) if parents else "",
        texts=texts,
    )


def _whole(situation: Situation, variants: tuple[Variant, ...]) -> tuple[str, str]:
    """A kernel that the prompt shows whole, and what it is called there."""
    parents = situation.parents[:1]
    if parents and parents[0].proposal.fault is None:
        return parents[0].proposal.candidate.source, "the candidate"
    return (variants[0].source, variants[0].name) if variants else ("", "")


def _places(situation: Situation, variants: tuple[Variant, ...]) -> dict[str, str]:
    """Where the code of candidates stands, by their hashes."""
    names = ("the candidate", "the second candidate")
    found = [(a, name) for a, name in zip(situation.parents, names, strict=False)]
    found += [(v.attempt, v.name) for v in variants if v.attempt is not None]
    return {a.proposal.candidate.sha: name for a, name in found}


def _system(situation: Situation, texts: Texts) -> str:
    options = situation.task.options
    return texts.filled(
        "system.md",
        {
            "contract": texts.plain(f"{situation.contract}.md"),
            "special": texts.section("special_values.md", options.special_values),
            "precision": texts.section("precision.md", options.precision),
            "language": texts.plain(f"{situation.backend}.md"),
        },
    )


def _step(situation: Situation) -> str:
    count = len(situation.parents)
    if situation.stage is Stage.REFINE and count:
        return "recombine" if count > 1 else "refine"
    return "repair" if count else "draft"


def _stable(user: str, parts: dict[str, str]) -> str:
    """The beginning of a message up to the last section that says the same at every step."""
    end = 0
    for name in ("task", "operators", "machine"):
        text = parts.get(name, "").strip()
        if text and user.startswith(text, end):
            end += len(text)
            end += len(user[end:]) - len(user[end:].lstrip())
    return user[:end]


__all__ = ["FILES", "Composition", "Prompt", "compose"]
