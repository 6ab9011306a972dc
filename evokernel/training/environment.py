"""Owns `Environment`: episodes of a few turns on one task, for whoever trains an author.

    with Environment(EnvironmentConfig(turns=4)) as environment:
        observation = environment.reset("softmax")
        while not observation.done:
            observation = environment.step(reply_to(observation.messages))

Every episode is a run of its own, so that `evokernel env export`, `report` and `verify` work on it.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field

from evokernel.answers import Answer, answers
from evokernel.attempt import Attempt, Backend
from evokernel.bench import Evaluator, Say, silent
from evokernel.bench.gpu import choice
from evokernel.config import BenchConfig, Budget, MemoryConfig, RunConfig
from evokernel.errors import ConfigError
from evokernel.evaluation import Outcome, Status
from evokernel.external import OPTION, ExternalRun, Submission
from evokernel.frozen import Frozen
from evokernel.memory.harvest import failure_text
from evokernel.task import Task
from evokernel.training import rewards
from evokernel.training.returns import GAMMA, Form, returns

if TYPE_CHECKING:
    from evokernel.memory.store import Memory


class EnvironmentConfig(Frozen):
    """How episodes go."""

    turns: int = Field(default=4, ge=1)
    """Turns of an episode (Kevin trains with 4 and tests with 8)."""
    reward: str = "kevin"
    """Name of the reward."""
    form: Form = "sum"
    """How later turns count for earlier ones in `Observation.returns`."""
    gamma: float | None = None
    """Discount; None is Kevin's for the form."""
    edits: Literal["last", "best"] = "last"
    """Which attempt a turn is shown and asked to change: the last one, or the fastest right one."""
    backend: Backend = "cpp"
    contract: Literal["own_kernels_only", "library_allowed"] = "own_kernels_only"
    measurement: Literal["standard", "quick"] = "standard"
    compile: bool = False
    """Time torch.compile as well; `milestone` and `sigmoid` are made for it. Preparing it takes
    half a minute a task."""
    threads: int = Field(default=0, ge=0)
    runs: Path = Path("runs")
    """Folder that receives a run folder per episode."""
    memory: MemoryConfig = MemoryConfig(policy="none")
    """What memory shows. By default nothing: the author alone is to learn. What it keeps dies with
    the episode unless `path` names a folder."""
    force: bool = False
    """Accept tasks that fail their check."""
    evaluators: int = Field(default=2, ge=1)
    """Tasks that stay prepared; each holds some 600 MB."""


class Text(Frozen):
    """One message of a chat."""

    role: Literal["system", "user"]
    content: str


class Observation(Frozen):
    """Where an episode stands: after `reset`, or what became of a reply."""

    episode: str
    """Its id, and that of its run."""
    task: str
    turn: int
    """Replies judged so far."""
    done: bool
    """No more replies are taken."""
    messages: tuple[Text, ...]
    """What to answer next; none when done."""
    reward: float | None = None
    """Of the last reply; None after `reset`, and where the rule needs what was not measured."""
    returns: tuple[float, ...] = ()
    """When done: what each turn and those after it earned, discounted."""
    feedback: str = ""
    """What became of the last reply, in words."""
    status: Status | None = None
    outcome: Outcome | None = None
    answers: tuple[Answer, ...] = ()
    """Compiles, right, contract, faster, coverage: for rewards of your own."""
    median_ms: float | None = None
    """Of one call, milliseconds."""
    speedups: dict[str, float] = {}
    """Over `eager` and, where it was timed, `compile`."""
    best: float | None = None
    """Largest speedup over eager of the episode so far."""


Judges = Callable[[Task], Evaluator]
"""Makes the evaluator of a task."""


class Environment:
    """Episodes, several at a time where wanted; a context manager that leaves no process behind.

    All calls belong to one thread.

    Args:
        config: How episodes go.
        judges: Who judges; None measures on this machine.
        say: Told what takes time.

    Raises:
        ConfigError: no such reward.
    """

    def __init__(
        self, config: EnvironmentConfig, judges: Judges | None = None, say: Say = silent
    ) -> None:
        self.config = config
        self._rule = rewards.reward_of(config.reward)
        self._judges = judges or self._local
        self._is_local = judges is None
        self._say = say
        self._prepared: OrderedDict[str, tuple[Evaluator, ExitStack]] = OrderedDict()
        self._episodes: dict[str, _Episode] = {}
        self._last = ""

    def reset(self, task: Task | Path | str) -> Observation:
        """Begin an episode.

        Args:
            task: A task, the name of a built-in one, or the path of a task file.

        Raises:
            UsageError: the task or the set-up has to change first.
        """
        choice.require(self.config.backend)
        if not isinstance(task, Task):
            task = Task.load(task, choice.device_of(self.config.backend))
        stack = ExitStack()
        with stack:
            memory = stack.enter_context(_memory(self.config.memory))
            run = stack.enter_context(self._begun(task, memory))
            episode = _Episode(run, self.config, self._rule, stack.pop_all())
        self._episodes[episode.id] = episode
        self._last = episode.id
        return episode.first()

    def step(self, reply: str, episode: str | None = None) -> Observation:
        """Judge a reply.

        Args:
            reply: What the author answered, as it is: the last fenced block that defines
                `ModelNew` is the candidate.
            episode: Which one; None is that of the last `reset`.

        Raises:
            ConfigError: no such episode, or one that is done.
            WorkerError: the machine spoiled it; the same reply may be sent again.
        """
        going = self._going(episode)
        observation = going.step(reply)
        if observation.done:
            self._end(going)
        return observation

    def leave(self, episode: str | None = None) -> None:
        """End an episode before its last turn."""
        self._end(self._going(episode))

    def close(self) -> None:
        """End every episode and every process."""
        for episode in tuple(self._episodes.values()):
            self._end(episode)
        while self._prepared:
            self._prepared.popitem()[1][1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _going(self, episode: str | None) -> "_Episode":
        found = self._episodes.get(self._last if episode is None else episode)
        if found is None:
            raise ConfigError(
                f"episode `{episode or self._last}` is done, or there never was one; `reset` "
                "begins one"
            )
        return found

    def _end(self, episode: "_Episode") -> None:
        self._episodes.pop(episode.id, None)
        episode.close()

    def _begun(self, task: Task, memory: "Memory") -> ExternalRun:
        config = self._run_config(task)
        evaluator = self._evaluator(task)
        return ExternalRun.begin(
            task,
            config,
            evaluator=evaluator,
            memory=memory,
            is_examined=not self._is_local,
            say=self._say,
        )

    def _run_config(self, task: Task) -> RunConfig:
        config = self.config
        return RunConfig(
            task=task.path or task.name,
            backend=config.backend,
            proposer=OPTION,
            runs=config.runs,
            budget=Budget(attempts=config.turns),
            memory=config.memory,
            bench=self._bench(),
            force=config.force,
        )

    def _bench(self) -> BenchConfig:
        config = self.config
        return BenchConfig(
            contract=config.contract,
            measurement=config.measurement,
            baselines=("eager", "compile") if config.compile else ("eager",),
            threads=config.threads,
        )

    def _evaluator(self, task: Task) -> Evaluator:
        """That of the task, prepared once; the one unused longest makes room."""
        if task.sha not in self._prepared:
            in_use = {episode.task.sha for episode in self._episodes.values()}
            idle = [sha for sha in self._prepared if sha not in in_use]
            for sha in idle[: max(0, len(self._prepared) - self.config.evaluators + 1)]:
                self._prepared.pop(sha)[1].close()
            stack = ExitStack()
            self._prepared[task.sha] = stack.enter_context(self._judges(task)), stack
        self._prepared.move_to_end(task.sha)
        return self._prepared[task.sha][0]

    def _local(self, task: Task) -> Evaluator:
        from evokernel.bench.evaluator import LocalEvaluator

        return LocalEvaluator(task, self._bench(), self.config.backend, self._say)


class _Episode:
    """One run, its rewards so far, and what is to be answered next."""

    def __init__(
        self, run: ExternalRun, config: EnvironmentConfig, rule: rewards.Reward, stack: ExitStack
    ) -> None:
        self.id = run.record.id
        self.task = run.task
        self._run = run
        self._config = config
        self._rule = rule
        self._stack = stack
        self._rewards: list[float | None] = []
        self._best_ms: float | None = None
        self._best: float | None = None
        self._asked = ""

    def first(self) -> Observation:
        self._run.know_machine()
        return Observation(
            episode=self.id, task=self.task.name, turn=0, done=False, messages=self._messages()
        )

    def step(self, reply: str) -> Observation:
        submission = read(reply, self._parent(), self._asked)
        attempt = self._run.judge(submission).attempt
        reward = self._rule(rewards.facts(attempt, self._best_ms))
        self._rewards.append(reward)
        self._remember(attempt)
        done = len(self._rewards) == self._config.turns
        evaluation = attempt.evaluation
        speedups = {name: rewards.speedup(evaluation, name) for name in ("eager", "compile")}
        return Observation(
            episode=self.id,
            task=self.task.name,
            turn=len(self._rewards),
            done=done,
            messages=() if done else self._messages(),
            reward=reward,
            returns=self._returns() if done else (),
            feedback=feedback(attempt),
            status=evaluation.status,
            outcome=evaluation.outcome,
            answers=answers(evaluation),
            median_ms=attempt.median_ms,
            speedups={name: ratio for name, ratio in speedups.items() if ratio is not None},
            best=self._best,
        )

    def close(self) -> None:
        self._stack.close()

    def _parent(self) -> Attempt | None:
        attempts = self._run.attempts()
        best = self._run.record.best()
        if self._config.edits == "best" and best is not None:
            return best
        return attempts[-1] if attempts else None

    def _messages(self) -> tuple[Text, ...]:
        parent = self._parent()
        number = parent.number if parent else 0
        prompt = self._run.prompt(self._run.request(number, self._run.recall(number)))
        if prompt is None:
            raise ConfigError(
                f"there is no prompt for the backend `{self._config.backend}`; `cpp` has one"
            )
        self._asked = prompt.text
        return Text(role="system", content=prompt.system), Text(role="user", content=prompt.user)

    def _remember(self, attempt: Attempt) -> None:
        ms, eager = attempt.median_ms, rewards.speedup(attempt.evaluation, "eager")
        if ms is not None:
            self._best_ms = ms if self._best_ms is None else min(ms, self._best_ms)
        if eager is not None:
            self._best = eager if self._best is None else max(eager, self._best)

    def _returns(self) -> tuple[float, ...]:
        gamma = self._config.gamma
        gamma = GAMMA[self._config.form] if gamma is None else gamma
        return returns([reward or 0.0 for reward in self._rewards], gamma, self._config.form)


def read(reply: str, parent: Attempt | None, prompt: str = "") -> Submission:
    """A reply as a submission; one that holds no candidate is judged as such."""
    from evokernel.proposers.llm import reply as replies
    from evokernel.proposers.llm.claims import read_claims
    from evokernel.proposers.techniques import catalogue

    claims = read_claims(reply)
    before = (parent.proposal.candidate.source,) if parent else ()
    found = replies.read(reply, before=before)
    fault = found.fault
    digest = hashlib.sha256(reply.encode("utf-8", "replace")).hexdigest()[:12]
    return Submission(
        source=f"# {fault.reason}\n# reply {digest}\n" if fault else found.source,
        parent=parent.number if parent else 0,
        techniques=() if fault else tuple(n for n in claims.techniques if n in catalogue()),
        rationale=claims.plan,
        used=claims.used,
        prompt=prompt,
        reply=reply,
        fault=fault,
    )


def feedback(attempt: Attempt) -> str:
    """What became of an attempt, in words: by the stage that it reached."""
    evaluation = attempt.evaluation
    if not evaluation.status.is_feasible:
        return failure_text(evaluation)
    told = [f"{answer.name}: {answer.in_words()}" for answer in answers(evaluation)]
    return "\n".join([*told, *(evaluation.profile.notes if evaluation.profile else ())])


def _memory(config: MemoryConfig) -> "Memory":
    from evokernel.memory.store import Memory

    return Memory.open(config)
