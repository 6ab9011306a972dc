"""Owns `Environment`: episodes of a few turns on one task, for whoever trains an author.

    with Environment(EnvironmentConfig(turns=4)) as environment:
        observation = environment.reset("softmax")
        while not observation.done:
            observation = environment.step(reply_to(observation.messages))

Every episode is a run of its own, so that `evokernel env export`, `report` and `verify` work on it.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from evokernel.bench import Evaluator, Say, silent
from evokernel.bench.gpu import choice
from evokernel.config import BenchConfig, Budget, MemoryConfig, RunConfig
from evokernel.errors import ConfigError
from evokernel.external import OPTION, ExternalRun
from evokernel.task import Task
from evokernel.training import rewards
from evokernel.training.episode import Episode
from evokernel.training.observation import EnvironmentConfig, Observation

if TYPE_CHECKING:
    from evokernel.bench.servers import WarmServers
    from evokernel.memory.store import Memory

__all__ = ["Environment", "EnvironmentConfig", "Judges", "Observation"]

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
        self._servers: WarmServers | None = None
        self._prepared: OrderedDict[str, tuple[Evaluator, ExitStack]] = OrderedDict()
        self._episodes: dict[str, Episode] = {}
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
            episode = Episode(run, self.config, self._rule, stack.pop_all())
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
        if self._servers is not None:
            self._servers.close()
            self._servers = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _going(self, episode: str | None) -> "Episode":
        found = self._episodes.get(self._last if episode is None else episode)
        if found is None:
            raise ConfigError(
                f"episode `{episode or self._last}` is done, or there never was one; `reset` "
                "begins one"
            )
        return found

    def _end(self, episode: "Episode") -> None:
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
        from evokernel.bench.servers import WarmServers

        # Shared by all tasks: importing torch takes seconds.
        self._servers = self._servers or WarmServers()
        backend = self.config.backend
        return LocalEvaluator(task, self._bench(), backend, self._say, self._servers)


def _memory(config: MemoryConfig) -> "Memory":
    from evokernel.memory.store import Memory

    return Memory.open(config)
