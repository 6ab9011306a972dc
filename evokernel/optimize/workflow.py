"""Owns `build_workflow`: the workflow as a LangGraph graph, alone or as a node of a larger one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from evokernel.bench import Evaluator
from evokernel.config import MemoryConfig, RunConfig, home
from evokernel.errors import ConfigError
from evokernel.optimize.opening import Brought, created, reopened
from evokernel.optimize.subject import task_of
from evokernel.proposers import EXTERNAL, Proposer
from evokernel.record import RunRecord
from evokernel.task import Task

if TYPE_CHECKING:
    from evokernel.graphs.state import Services
    from evokernel.graphs.subgraph import Checkpointer, Hosted


def build_workflow(
    config: RunConfig | None = None,
    *,
    approve: bool = False,
    checkpointer: "Checkpointer" = None,
    evaluator: Callable[[Task], Evaluator] | None = None,
    proposer: Callable[[], Proposer] | None = None,
) -> "Hosted":
    """Make the workflow as a LangGraph graph: `task` goes in, `kernel` and what is known come out.

    It takes `task` (a name, a path or a text) and, if given, `settings` (fields of a `RunConfig`),
    and returns `run`, `reason`, `kernel`, `source`, `median_ms`, `speedups` and `approved`. As a
    node of a larger graph it shares these keys of the state, and that graph's checkpointer. What
    happens is streamed with `stream_mode="custom"`.

    With `config.proposer` `external` the graph interrupts for every candidate; resume it with the
    source, with a dictionary (`source`, `techniques`, `rationale`, `used`, ...), or with
    `{"source": None}` where there is nothing new.

    Args:
        config: How runs are made; None is the default, with the user's own memory.
        approve: Interrupt at the end with the best kernel; resume with True or False.
        checkpointer: As `StateGraph.compile` takes it; None inherits that of the graph around it.
        evaluator: Makes who judges; None measures on this machine.
        proposer: Makes who writes candidates; None is what `config.proposer` names.
    """
    from evokernel.graphs.hosting import House
    from evokernel.graphs.subgraph import hosted_graph

    config = config or RunConfig(memory=MemoryConfig(path=home() / "memory"))
    house = House(_Host(config, evaluator, proposer))
    return hosted_graph(house, approve).compile(checkpointer, name="evokernel")


class _Host:
    """Opens runs for a workflow."""

    def __init__(
        self,
        config: RunConfig,
        evaluator: Callable[[Task], Evaluator] | None,
        proposer: Callable[[], Proposer] | None,
    ) -> None:
        self._config = config
        self._evaluator = evaluator
        self._proposer = proposer

    @contextmanager
    def created(self, given: dict[str, Any]) -> "Iterator[Services]":
        """Begin a run.

        Raises:
            UsageError: something has to change before a run can begin.
        """
        config = _with(self._config, given["settings"])
        task = task_of(given["task"], None, config)
        config = config.model_copy(update={"task": task.path or task.name})
        brought = self._brought(task, config, on_event=given["listen"])
        with created(task, config, brought) as services:
            yield services

    @contextmanager
    def reopened(self, path: Path) -> "Iterator[Services]":
        """Go on with a run.

        Raises:
            RecordError: no run, or at work in another process.
        """
        record = RunRecord.resume(path)
        brought = self._brought(record.task(), record.config)
        with reopened(record, brought, is_checkpointed=False) as services:
            yield services

    def _brought(self, task: Task, config: RunConfig, **more: Any) -> Brought:
        from evokernel.graphs.external import ExternalProposer

        proposer = self._proposer() if self._proposer else None
        if proposer is None and config.proposer == EXTERNAL:
            proposer = ExternalProposer()
        judge = self._evaluator(task) if self._evaluator else None
        return Brought(evaluator=judge, proposer=proposer, **more)


def _with(config: RunConfig, settings: dict[str, Any]) -> RunConfig:
    """The config with some of its fields replaced, however deep.

    Raises:
        ConfigError: a field that is none, or a value that does not fit.
    """
    try:
        return RunConfig.model_validate(_merged(config.model_dump(), settings))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"`settings.{place}` cannot be used: {first['msg']}") from error


def _merged(known: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    inner = {
        key: _merged(known[key], value)
        for key, value in new.items()
        if isinstance(value, dict) and isinstance(known.get(key), dict)
    }
    return {**known, **new, **inner}
