"""Owns the replies of a recording, given again in place of a model's: `replay:FILE`.

Which reply is given: of those not given yet, the one that was recorded for the same messages and
tools. Where none was (times and verdicts differ between machines, so do prompts): the first one in
the recording's order that belongs to the same stage, else the first of all. Once that happens it is
said. A reply's tokens are those of the recording; it costs nothing.
"""

from pathlib import Path

from evokernel.bench import Say, silent
from evokernel.errors import ConfigError, RecordingEnded
from evokernel.proposers.llm.book import Call, CallBook, Title, lines_of
from evokernel.proposers.llm.endpoint import Asked
from evokernel.proposers.llm.facts import FREE, ModelFacts
from evokernel.proposers.llm.faults import Failure
from evokernel.proposers.llm.messages import Reply, digest

PREFIX = "replay:"
SHIPPED = Path(__file__).parent / "recordings"
"""Recorded conversations that come with EvoKernel; they are named without folder and ending."""


class Recording:
    """A recorded conversation; implements `Endpoint`.

    Args:
        name: `replay:FILE`: a file of `--record`, a run folder, or a shipped recording's name.
        book: Of the run that gives them again: what it has given already is not given once more.
        say: Told when prompts differ.

    Raises:
        ConfigError: there is no such recording, or it holds no reply.
    """

    keeps_marked = False

    def __init__(self, name: str, book: CallBook | None = None, say: Say = silent) -> None:
        self.model = name
        self.path = located(name.removeprefix(PREFIX))
        lines = list(lines_of(self.path))
        self.title = next((line for line in lines if isinstance(line, Title)), None)
        self._calls = [line for line in lines if isinstance(line, Call)]
        self._book = book
        self._say = say
        self._given: set[int] = set()
        self._has_said = False
        if not self._calls:
            raise ConfigError(f"the recording `{self.path}` holds no reply; expected one at least")

    def __len__(self) -> int:
        return len(self._calls)

    def facts(self) -> ModelFacts:
        """It costs nothing, and takes prompts of any length."""
        return ModelFacts(price=FREE, is_own_price=True)

    def send(self, asked: Asked) -> Reply | Failure:
        """Give the next reply."""
        given = self._given | self._of_the_run()
        left = [call for call in self._calls if call.number not in given]
        if not left:
            return self._ended()
        request = digest(asked.messages, asked.tools)
        same = [call for call in left if call.request == request]
        alike = [call for call in left if call.stage == asked.stage]
        if not same and not self._has_said:
            self._has_said = True
            self._say(
                f"the prompt differs from the recorded ones in `{self.path}`; its replies are "
                "given in their order"
            )
        chosen = (same or alike or left)[0]
        self._given.add(chosen.number)
        usage = chosen.reply.usage.model_copy(update={"usd": 0.0})
        return chosen.reply.model_copy(update={"usage": usage, "recorded": chosen.number})

    def _of_the_run(self) -> set[int]:
        """Those that an earlier session of the same run was given."""
        known = self._book.calls() if self._book else ()
        return {call.reply.recorded for call in known if call.reply.recorded is not None}

    def _ended(self) -> Failure:
        count = f"{len(self._calls)} replies" if len(self._calls) > 1 else "one reply"
        return Failure(
            kind=RecordingEnded,
            brief="the recording has ended",
            message=f"the recording `{self.path}` has ended: its {count} are given. Replay it with "
            f"fewer `--attempts`, or go on with a model",
        )


def located(name: str) -> Path:
    """The file of a recording.

    Raises:
        ConfigError: there is none of this name.
    """
    path = Path(name)
    for candidate in (path, path / "calls.jsonl", SHIPPED / f"{name}.jsonl"):
        if name and candidate.is_file():
            return candidate
    known = ", ".join(f"`{PREFIX}{each}`" for each in shipped())
    raise ConfigError(
        f"`--model {PREFIX}{name}`: there is no such recording; expected a file that `--record` "
        f"made, a run folder in which a model was asked, or one that comes along: {known}"
    )


def shipped() -> tuple[str, ...]:
    """Names of the recordings that come along."""
    return tuple(sorted(file.stem for file in SHIPPED.glob("*.jsonl")))
