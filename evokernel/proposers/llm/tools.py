"""Owns `Toolbox`: the tools of one step, the check of their arguments, and what they answer.

An argument that is wrong is data for the model, as is everything that is wrong with a candidate.
What a tool has answered is kept by the run, so that a step that is gone through again hears the
same, measured times included.
"""

import json
import time
from collections.abc import Callable
from typing import Any

from pydantic import Field, ValidationError

from evokernel.attempt import Backend, Candidate, ToolUse
from evokernel.evaluation import Evaluation
from evokernel.frozen import Frozen
from evokernel.memory.experience import Experience
from evokernel.proposers.aids import Aids
from evokernel.proposers.llm.findings import experience_in_full, experience_in_short, told
from evokernel.proposers.llm.messages import Tool, ToolCall
from evokernel.proposers.llm.skills import Skills

Remember = Callable[[str, Callable[[], str]], str]
"""Gives the stored answer under a key, else makes and stores it: `Calls.once` of one step."""

MOST_FOUND = 6
"""Experiences that `recall` names (ours)."""
MOST_LETTERS = 8_000
"""Of one answer (ours): a turn sends all of them again with every reply."""


class Source(Frozen):
    """Arguments of `compile` and `evaluate`."""

    source: str = Field(min_length=1, description="The complete Python file with `ModelNew`.")


class Tried(Frozen):
    """Arguments of `profile`."""

    candidate: str = Field(
        min_length=1, max_length=64, description="Id that `evaluate` gave the candidate."
    )


class Words(Frozen):
    """Arguments of `recall`."""

    words: str = Field(
        min_length=1,
        max_length=400,
        description="Families of operators, techniques, what binds a kernel, kinds of experiences "
        "(kernel, edit, fix, lesson).",
    )


class Which(Frozen):
    """Arguments of `read_experience`."""

    id: str = Field(min_length=1, max_length=64, description="Id of an experience.")


class Named(Frozen):
    """Arguments of `read_skill`."""

    name: str = Field(min_length=1, max_length=200, description="Name of a skill.")


class Answer(Frozen):
    """What one call came to."""

    text: str
    """What the model reads."""
    outcome: str
    """A few words, for the record."""
    is_error: bool = False
    evaluation: Evaluation | None = None
    seconds: float = 0.0


class Trial(Frozen):
    """A candidate that was evaluated in this step."""

    candidate: Candidate
    evaluation: Evaluation

    @property
    def median_ms(self) -> float | None:
        """Its rough time, milliseconds; None where it did not pass."""
        timing = self.evaluation.timing
        return timing.median_ms if timing else None


class Toolbox:
    """The tools of one step.

    Args:
        aids: Who does the work.
        backend: The language of the kernels.
        skills: Texts that may be read.
        most: Calls that are answered.
        remember: Keeps answers.

    Attributes:
        used: Every call that was answered, in order.
        trials: What was evaluated, by hash.
        read: Experiences that were read in full.
    """

    def __init__(
        self, aids: Aids, backend: Backend, skills: Skills, most: int, remember: Remember
    ) -> None:
        self._aids = aids
        self._backend: Backend = backend
        self._skills = skills
        self._most = most
        self._remember = remember
        self.used: list[ToolUse] = []
        self.trials: dict[str, Trial] = {}
        self.read: dict[str, Experience] = {}

    @property
    def left(self) -> int:
        """Calls that will still be answered."""
        return max(0, self._most - len(self.used))

    def tools(self) -> tuple[Tool, ...]:
        """As a model is told of them."""
        offered = [name for name in _KINDS if name != "read_skill" or self._skills.listed]
        return tuple(
            Tool(name=name, description=_KINDS[name][1], parameters=_schema(_KINDS[name][0]))
            for name in offered
        )

    def answer(self, call: ToolCall, key: str) -> Answer:
        """Answer one call.

        Args:
            call: What the model wants.
            key: Tells the call from all others of the step.
        """
        if not self.left:
            text = "No calls are left. Hand in now: answer without a tool."
            return Answer(text=text, outcome="no calls were left", is_error=True)
        stored = self._remember(key, lambda: self._timed(call).model_dump_json())
        answer = Answer.model_validate_json(stored)
        self._note(call, answer)
        use = ToolUse(
            tool=call.name[:64],
            outcome=answer.outcome,
            seconds=answer.seconds,
            is_error=answer.is_error,
        )
        self.used.append(use)
        return answer

    def candidate(self, id: str) -> Candidate | None:
        """One that was evaluated."""
        return self.trials[id].candidate if id in self.trials else None

    def _timed(self, call: ToolCall) -> Answer:
        began = time.monotonic()
        answer = self._answer(call)
        seconds = time.monotonic() - began
        self._aids.tell(call.name[:64], answer.outcome, seconds)
        text = answer.text
        if len(text) > MOST_LETTERS:
            text = f"{text[:MOST_LETTERS]}\n[... {len(text) - MOST_LETTERS} letters left out]"
        return answer.model_copy(update={"text": text, "seconds": round(seconds, 3)})

    def _answer(self, call: ToolCall) -> Answer:
        if call.name not in _KINDS:
            known = ", ".join(f"`{tool.name}`" for tool in self.tools())
            return _refused(f"there is no tool `{call.name[:64]}`; expected one of {known}")
        given = call.values()
        if given is None:
            return _refused(
                f"the arguments of `{call.name}` are no JSON object; they may have been cut off: "
                "send the call again, whole"
            )
        try:
            arguments = _KINDS[call.name][0].model_validate(given)
        except ValidationError as error:
            return _refused(f"`{call.name}`: {_fault(error)}")
        answer: Answer = getattr(self, f"_{call.name}")(arguments)
        return answer

    def _note(self, call: ToolCall, answer: Answer) -> None:
        """What of an answer later calls need, whether it was made now or before a kill."""
        given = call.values() or {}
        if answer.evaluation is not None:
            known = self.trials.get(answer.evaluation.candidate)
            source = given.get("source")
            candidate = self._made(source) if isinstance(source, str) else known and known.candidate
            if candidate:
                trial = Trial(candidate=candidate, evaluation=answer.evaluation)
                self.trials[candidate.sha] = trial
        if call.name == "read_experience" and not answer.is_error:
            experience = self._aids.read(str(given.get("id")))
            self.read |= {experience.id: experience} if experience else {}

    def _made(self, source: str) -> Candidate:
        return Candidate(source=source.strip("\n") + "\n", backend=self._backend)

    # -- the tools ---------------------------------------------------------------------------------

    def _compile(self, given: Source) -> Answer:
        candidate = self._made(given.source)
        failed = self._aids.compile(candidate)
        if failed is None:
            return Answer(text="Every kernel was built.", outcome=f"{candidate.sha}: built")
        outcome = f"{candidate.sha}: {failed.status}"
        return Answer(text=told(failed), outcome=outcome)

    def _evaluate(self, given: Source) -> Answer:
        candidate = self._made(given.source)
        evaluation = self._aids.evaluate(candidate)
        timing = evaluation.timing
        came = f"{timing.median_ms:.4g} ms" if timing else str(evaluation.status)
        text = f"Candidate `{candidate.sha}`.\n{told(evaluation)}"
        return Answer(text=text, outcome=f"{candidate.sha}: {came}", evaluation=evaluation)

    def _profile(self, given: Tried) -> Answer:
        trial = self.trials.get(given.candidate.strip("` "))
        if trial is None:
            known = ", ".join(f"`{id}`" for id in self.trials) or "none so far"
            return _refused(f"`{given.candidate}` was not evaluated in this step; known: {known}")
        if trial.evaluation.timing is None:
            return _refused(f"`{trial.candidate.sha}` did not pass, so there is no time to explain")
        evaluation = self._aids.profile(trial.candidate, trial.evaluation)
        bound = evaluation.profile.bound_by if evaluation.profile else "unknown"
        outcome = f"{trial.candidate.sha}: bound by {bound}"
        return Answer(text=told(evaluation), outcome=outcome, evaluation=evaluation)

    def _recall(self, given: Words) -> Answer:
        found = self._aids.recall(given.words, MOST_FOUND)
        if not found:
            return Answer(text="Nothing was found.", outcome="nothing found")
        text = "\n".join(experience_in_short(experience) for experience in found)
        return Answer(text=text, outcome=f"{len(found)} found")

    def _read_experience(self, given: Which) -> Answer:
        experience = self._aids.read(given.id.strip("` "))
        if experience is None:
            return _refused(f"there is no experience `{given.id}`; `recall` names some")
        return Answer(text=experience_in_full(experience), outcome=experience.id)

    def _read_skill(self, given: Named) -> Answer:
        known = {skill.name: skill for skill in self._skills.listed}
        if given.name not in known:
            return _refused(f"there is no skill `{given.name}`; listed are {', '.join(known)}")
        return Answer(text=known[given.name].text, outcome=given.name)


_KINDS: dict[str, tuple[type[Frozen], str]] = {
    "compile": (Source, "Build every kernel of a whole candidate; shows what the compiler says."),
    "evaluate": (
        Source,
        "Compile a whole candidate, compare its results with the reference, and time it roughly "
        "against PyTorch eager.",
    ),
    "profile": (Tried, "Say what bounds a candidate that was evaluated and passed."),
    "recall": (Words, "Search earlier experiences by words."),
    "read_experience": (Which, "Read one experience in full."),
    "read_skill": (Named, "Read one of the listed skills."),
}
"""Arguments and description of each tool."""


def _schema(kind: type[Frozen]) -> dict[str, Any]:
    """The JSON schema of arguments, without the names of our classes."""
    schema = kind.model_json_schema()
    properties = {
        name: {key: value for key, value in field.items() if key != "title"}
        for name, field in schema["properties"].items()
    }
    return {
        "type": "object",
        "properties": properties,
        "required": schema.get("required", []),
        "additionalProperties": False,
    }


def _refused(reason: str) -> Answer:
    return Answer(text=f"Error: {reason}.", outcome=f"refused: {reason[:120]}", is_error=True)


def _fault(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or "the arguments"
    shown = json.dumps(first["input"], default=str)[:80]
    return f"`{place}` cannot be {shown}: {first['msg']}"
