"""Owns `Board`: where a run stands, folded from its events. Every display shows what it says."""

from pathlib import Path
from statistics import median

from evokernel.attempt import Usage
from evokernel.cli.wording import counted
from evokernel.frozen import Frozen
from evokernel.opgraph import OpGraph
from evokernel.record import Event, RunRecord
from evokernel.record.spending import Spending, spending
from evokernel.tuning import written

RECENT = 5
"""Attempts whose time says how long the next ones may take."""


class Setting(Frozen):
    """What a run was asked to do, and where."""

    run: str
    path: str
    """Its folder, as the user would name it."""
    task: str
    title: str
    inputs: str
    """Dtypes and shapes; empty where the reference could not be captured."""
    backend: str
    device: str
    threads: int
    memory: str
    """Which memory, and by what policy it is asked."""
    attempts: int
    """Budget."""
    minutes: float | None
    """Budget; None is no limit."""
    tokens: int | None
    """Budget; None is no limit."""
    usd: float | None
    """Budget; None is no limit."""
    proposer: str
    """`templates`, or the model that writes the candidates."""
    done: int
    """Attempts that an earlier session finished."""


class Row(Frozen):
    """One finished attempt."""

    number: int
    stage: str
    change: str
    """Techniques or parameters that differ from its parent; a draft's techniques."""
    status: str
    reason: str = ""
    """Why it failed."""
    median_ms: float | None = None
    wall_ms: float | None = None
    """On a GPU, wall time beside the device time."""
    speedups: dict[str, float] = {}
    """By baseline."""
    is_best: bool = False
    repeats: int | None = None
    """The attempt that had proposed the same source."""


class Board:
    """Takes one event after the other.

    Attributes:
        phase: What is under way, in words.
        phase_began: Since when, in seconds of the run.
        elapsed: Seconds of the run at the last event.
        setting: None until the run folder exists.
        baselines: Times to beat by name, milliseconds.
        walls: On a GPU, wall times beside them.
        row: The attempt under way, or the one finished last.
        best: The best attempt so far.
        charged: Attempts that count against the budget.
        spent: What the replies of a model cost so far.
        tries: Combinations of declared values that were tried for the attempt under way.
        best_values: The best of them, in words.
        paces: Seconds that each attempt of this session took.
    """

    def __init__(self) -> None:
        self.phase = LOADING
        self.phase_began = 0.0
        self.elapsed = 0.0
        self.setting: Setting | None = None
        self.baselines: dict[str, float] = {}
        self.walls: dict[str, float] = {}
        self.row: Row | None = None
        self.best: Row | None = None
        self.charged = 0
        self.spent = Spending()
        self.tries = 0
        self.best_values = ""
        self.paces: list[float] = []
        self._step_began = 0.0

    def take(self, event: Event) -> None:
        """Fold one event in; kinds that are unknown here only move the time."""
        self.elapsed = event["elapsed"]
        before = self.phase
        fold = getattr(self, f"_{event['kind']}", None)
        if fold:
            fold(event)
        if self.phase != before:
            self.phase_began = self.elapsed

    @property
    def attempts_left(self) -> int:
        """Attempts that the budget still has."""
        return max(0, self.setting.attempts - self.charged) if self.setting else 0

    @property
    def left_s(self) -> float | None:
        """Seconds that the attempts left may take, at the pace of the last ones."""
        if not self.paces or not self.attempts_left:
            return None
        left = self.attempts_left * median(self.paces[-RECENT:])
        minutes = self.setting.minutes if self.setting else None
        return left if minutes is None else min(left, max(0.0, 60 * minutes - self.elapsed))

    @property
    def minutes_spent(self) -> float:
        """Minutes of the run at the last event."""
        return self.elapsed / 60

    def _began(self, event: Event) -> None:
        self._enter(event)
        self.phase = PREPARING

    def _resumed(self, event: Event) -> None:
        self._enter(event)
        self.phase = "going on where the run stopped"

    def _enter(self, event: Event) -> None:
        record = RunRecord.open(Path(event["path"]))
        self.setting = setting(record)
        self.baselines = record.baselines() or {}
        attempts = record.attempts()
        self.charged = sum(a.evaluation.status.is_charged for a in attempts)
        self.spent = spending(record)
        best = record.best()
        for attempt in attempts:
            if best is not None and attempt.number == best.number:
                timing = attempt.evaluation.timing
                speedups = {s.against: s.ratio.value for s in timing.speedups} if timing else {}
                self.best = Row(
                    number=attempt.number,
                    stage=attempt.proposal.stage,
                    change=change_of(attempt.proposal.changed, attempt.proposal.techniques, ""),
                    status=attempt.evaluation.status,
                    median_ms=attempt.median_ms,
                    wall_ms=timing.wall_ms if timing else None,
                    speedups=speedups,
                    is_best=True,
                )

    def _phase(self, event: Event) -> None:
        self.phase = str(event["text"])

    def _baselines(self, event: Event) -> None:
        self.baselines = dict(event["median_ms"])
        self.walls = dict(event.get("wall_ms", {}))
        self.phase = "choosing the first step"

    def _step(self, event: Event) -> None:
        self.row = Row(number=event["number"], stage=event["stage"], change="", status="")
        self._step_began = self.elapsed
        self.phase = "writing a kernel"

    def _skipped(self, event: Event) -> None:
        self.phase = "choosing another step"

    def _tool(self, event: Event) -> None:
        self.phase = f"writing a kernel, with tools: {event['tool']}"

    def _proposed(self, event: Event) -> None:
        change = change_of(event["changed"], event["techniques"], event["rationale"])
        self._update(change=change)
        self.spent = self.spent.plus(Usage.model_validate(event["usage"]))
        self.tries, self.best_values = 0, ""
        self.phase = "compiling"

    def _try(self, event: Event) -> None:
        self.tries += 1
        if event["is_best"]:
            self.best_values = written(event["values"])
        best = f", the best so far {self.best_values}" if self.best_values else ""
        self.phase = f"tuning: {counted(self.tries, 'combination')} tried{best}"

    def _tuned(self, event: Event) -> None:
        self.phase = "compiling"

    def _repeats(self, event: Event) -> None:
        self._update(repeats=event["of"])

    def _compiled(self, event: Event) -> None:
        self.phase = "checking and measuring"

    def _disturbed(self, event: Event) -> None:
        self.phase = f"measuring again, time {event['attempt'] + 1}: the machine is busy"

    def _evaluated(self, event: Event) -> None:
        names = ("status", "reason", "median_ms", "speedups")
        told = {name: event[name] for name in names}
        self._update(**told, wall_ms=event.get("wall_ms"))  # older records have none
        self.phase = "learning from it"

    def _attempt(self, event: Event) -> None:
        self._update(is_best=event["is_best"])
        self.charged += 1
        self.paces.append(self.elapsed - self._step_began)
        if self.row is not None and self.row.is_best:
            self.best = self.row
        self.phase = "choosing the next step"

    def _promoting(self, event: Event) -> None:
        claims = counted(event["claims"], "result")
        self.phase = f"measuring {claims} again in fresh processes"

    def _promoted(self, event: Event) -> None:
        self.phase = "choosing the next step"

    def _stopped(self, event: Event) -> None:
        self.row = None
        self.phase = "stopping: ending the measuring processes"

    def _failed(self, event: Event) -> None:
        self._stopped(event)

    def _ended(self, event: Event) -> None:
        self.row = None
        self.phase = "saving what was learned"

    def _update(self, **changes: object) -> None:
        if self.row is not None:
            self.row = Row.model_validate({**dict(self.row), **changes})


LOADING = "loading PyTorch, reading and checking the task"
PREPARING = "preparing: measuring the device, then eager and torch.compile"


def setting(record: RunRecord) -> Setting:
    """Read a run's setting from its folder."""
    config, task = record.config, record.task()
    facts = record.header.environment
    return Setting(
        run=record.id,
        path=str(record.path),
        task=task.name,
        title=task.title,
        inputs=_inputs(record.graph()),
        backend=config.backend,
        device=facts.get("gpu") or facts.get("processor", "this machine"),
        threads=config.bench.threads or int(facts.get("cpus", 1)),
        memory=f"{config.memory.path or 'its own'}, policy {config.memory.policy}",
        attempts=config.budget.attempts,
        minutes=config.budget.minutes,
        tokens=config.budget.tokens,
        usd=config.budget.usd,
        proposer=config.proposer,
        done=len(record.attempts()),
    )


def _inputs(graph: OpGraph | None) -> str:
    specs = [spec for node in graph.inputs for spec in node.outputs] if graph else []
    return ", ".join(f"{spec.dtype} [{' x '.join(map(str, spec.shape))}]" for spec in specs)


def change_of(
    changed: tuple[str, ...] | list[str], techniques: tuple[str, ...] | list[str], rationale: str
) -> str:
    """What a candidate brings: the change to its parent, else its techniques, else the reason."""
    return ", ".join(changed or techniques) or rationale.rstrip(".")
