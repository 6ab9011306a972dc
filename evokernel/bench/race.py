"""Owns the verdict on a candidate's time: valid or not, and against whom it is how much faster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evokernel.bench import statistics, timing
from evokernel.bench.doubts import wrong_batch, wrong_cores, wrong_kind, wrong_turns
from evokernel.bench.favour import favour
from evokernel.bench.gpu import wallclock as on_gpu
from evokernel.bench.messages import Outcome
from evokernel.bench.oracle import Case
from evokernel.bench.pace import Pace
from evokernel.bench.pool import Worker
from evokernel.bench.series import CANDIDATE, Series
from evokernel.bench.session import Session
from evokernel.bench.trials import Failure
from evokernel.bench.wallclock import check_clock, excess_cores, extra
from evokernel.evaluation import Interval, Speedup, Status, Timing

CLOSELY = 2
"""One block of so many is supplied from outside where a second look has to tell."""
FLOOR_LIMIT = 1.5
"""Faster than the roofline's floor by more than this is impossible; less is measured again."""
BETWEEN = 0.005
"""Standard deviation of the log ratio between fresh processes, taken for granted where only one
process was measured: where memory lies differs from process to process, and stays as it is.
Measured: 100 pairs of a kernel with itself spread by 0.0084, 0.0066 of it within the pairs
(`benchmarks/repeatability.py` on two cores of an AMD EPYC)."""


@dataclass(frozen=True)
class Raced:
    """What timing a candidate gave: a time or a failure, and outputs to check."""

    timing: Timing | None = None
    failure: Failure | None = None
    kept: tuple[tuple[Case, Outcome], ...] = ()


def race(session: Session, worker: Worker, opponents: Mapping[str, Worker]) -> Raced:
    """Time a candidate that is right against the baselines, and decide whether to believe it.

    Raises:
        Faulted: The candidate failed meanwhile.
        WorkerError: The device lock stayed taken.
    """
    with session.lock():
        first = _measure(session, worker, opponents)
        if failure := spoiled(first, session.pace):
            return Raced(failure=failure)
        second = None
        is_too_fast = _is_too_fast(session, first, 1.0 if session.pace.is_strict else FLOOR_LIMIT)
        if is_too_fast:
            _look_again(session)
        if is_too_fast or _is_doubtful(first, tuple(opponents)):
            second = _measure(session, worker, opponents, CLOSELY)
        series = second or first
        kept = series.kept()
        failure = spoiled(series, session.pace) or disbelieved(
            session, worker, series, tuple(opponents), is_second=second is not None
        )
        if failure:
            return Raced(failure=failure, kept=kept)
    found = summarise(session, [series], tuple(opponents), _notes(session, series, second))
    peak = worker.peak_bytes(session.oracle.timed_cases()[0].name)
    return Raced(timing=found.model_copy(update={"peak_bytes": peak}), kept=kept)


def spoiled(series: Series, pace: Pace, sides: Sequence[str] = ()) -> Failure | None:
    """Whether the machine was too busy for a number; never the candidate's doing.

    Args:
        series: What was measured.
        pace: How much calm is demanded.
        sides: Who must have been left alone in the same block; everybody by default.
    """
    clean = series.clean(sides)
    if clean >= pace.least or (not pace.is_strict and series.blocks):
        return None
    noise = series.noise.in_words() if series.noise else "nothing was measured"
    waited = f" after waiting {pace.quiet_s:.0f} s for a quiet moment" if series.restless else ""
    return Failure(
        Status.INFRASTRUCTURE,
        f"the machine was busy{waited}: only {clean} of {len(series.counted)} rounds were left "
        f"alone, {pace.least} are needed ({noise})",
    )


def summarise(
    session: Session, processes: Sequence[Series], opponents: Sequence[str], notes: tuple[str, ...]
) -> Timing:
    """Make one record of the clean times of one or more processes."""
    tolerant = is_tolerant(processes, session.pace)
    times = [t for series in processes for t in series.times(tolerant=tolerant)]
    floor_ms = _floor_ms(session)
    median_ms = 1e3 * statistics.median(times)
    return Timing(
        median_ms=median_ms,
        spread=statistics.spread(times),
        samples=len(times),
        dropped=0 if tolerant else sum(series.dropped() for series in processes),
        processes=len(processes),
        speedups=tuple(speedup(session, processes, name, tolerant) for name in opponents),
        wall_ms=_wall_ms(processes, CANDIDATE, tolerant),
        way=processes[0].way,
        roofline_share=floor_ms / median_ms if floor_ms is not None else None,
        cache_state="cold",
        threads=session.threads,
        notes=notes,
    )


def speedup(
    session: Session, processes: Sequence[Series], opponent: str, is_tolerant: bool = False
) -> Speedup:
    """The ratio against one opponent with its interval, and whether it is a win."""
    ratio = interval(processes, opponent, is_tolerant)
    times = [t for series in processes for t in series.times(opponent, is_tolerant)]
    margin = session.config.margin
    return Speedup(
        against=opponent,
        ratio=ratio,
        opponent_ms=1e3 * statistics.median(times),
        opponent_wall_ms=_wall_ms(processes, opponent, is_tolerant),
        is_faster=ratio.low > 1 + margin,
        is_slower=ratio.high < 1 - margin,
    )


def _wall_ms(processes: Sequence[Series], side: str, is_tolerant: bool) -> float | None:
    """Wall time of a call beside its device time; None where the other is wall time itself."""
    walls = [wall for series in processes for wall in series.walls(side, is_tolerant)]
    return 1e3 * statistics.median(walls) if walls else None


def interval(
    processes: Sequence[Series], opponent: str, is_tolerant: bool = False, side: str = CANDIDATE
) -> Interval:
    """The opponent's time over the candidate's."""
    pairs = [series.pairs(opponent, side, is_tolerant) for series in processes]
    return statistics.ratio_interval(pairs, between=_between(processes, side, is_tolerant))


def _between(processes: Sequence[Series], side: str, is_tolerant: bool) -> float:
    """What differs between fresh processes, where one alone cannot show it."""
    if len(processes) > 1:
        return 0.0
    (series,) = processes
    if series.way is None:
        return BETWEEN
    return on_gpu.between(statistics.median(series.times(side, is_tolerant)), series.way)


def _measure(
    session: Session,
    worker: Worker,
    opponents: Mapping[str, Worker],
    watched: int | None = None,
) -> Series:
    pace = session.pace
    return timing.measure(
        {CANDIDATE: worker, **opponents},
        session.oracle,
        replace(pace, watched=min(pace.watched, watched or pace.watched)),
        session.stage(),
        session.rng,
    )


def is_tolerant(processes: Sequence[Series], pace: Pace, sides: Sequence[str] = ()) -> bool:
    """Whether disturbed rounds have to be used, which only the quick profile permits."""
    return not pace.is_strict and any(series.clean(sides) < pace.least for series in processes)


def _median(series: Series, side: str = CANDIDATE) -> float:
    return statistics.median(series.times(side) or series.times(side, tolerant=True))


def _is_too_fast(session: Session, series: Series, limit: float, side: str = CANDIDATE) -> bool:
    """Whether the time is below the memory floor by more than a factor.

    Arithmetic sets no such floor: a reference may compute more than its result needs.
    """
    if not session.min_bytes:
        return False
    floor_s = 1e-3 * session.device.memory_floor_ms(session.min_bytes)
    return _median(series, side) * limit < floor_s


def _is_doubtful(series: Series, opponents: Sequence[str]) -> bool:
    """Whether clocks, or the two kinds of blocks, disagree by more than is allowed."""
    seconds = _median(series)
    if series.way is not None:
        return on_gpu.late(series, seconds).is_too_much
    found = favour(series, seconds, opponents)
    return extra(series, seconds).is_too_much or (found is not None and found.is_too_much)


def _look_again(session: Session) -> None:
    """Measure the peaks again, once a session: they may have been taken at a bad moment."""
    if not session.has_looked_again:
        session.has_looked_again = True
        session.measure_again()


def _impossible(session: Session, seconds: float) -> Failure:
    floor_ms = session.device.memory_floor_ms(session.min_bytes or 0)
    return Failure(
        Status.CONTRACT,
        f"its time of {1e3 * seconds:.4g} ms is impossible: moving the task's "
        f"{session.min_bytes} bytes takes {floor_ms:.4g} ms at the best rate measured here, so "
        "that it cannot have done the work",
    )


def disbelieved(
    session: Session,
    worker: Worker,
    series: Series,
    opponents: Sequence[str],
    side: str = CANDIDATE,
    is_second: bool = False,
    is_part: bool = False,
) -> Failure | None:
    """Why a time is not believed: impossible, clocks that disagree, or an edited harness.

    Args:
        session: Whose device and pace.
        worker: The side's worker, as it is after it was timed.
        series: What was measured, enough of it left alone.
        opponents: Whom it is compared with.
        side: Whose time.
        is_second: The first look at it gave a reason to look again; clocks that disagree accuse
            only then.
        is_part: One of several short looks, too short for `contradicted`, which is asked about all
            of them together.

    Raises:
        Faulted: It keeps us from looking.
    """
    seconds, pace = _median(series, side), session.pace
    if session.device.quiet and _is_too_fast(session, series, FLOOR_LIMIT, side):
        return _impossible(session, seconds)
    case = session.oracle.timed_cases()[0]
    if series.way is not None:
        failure = on_gpu.disbelieved(worker, case, series, side, is_second, pace)
    else:
        failure = None if is_part else contradicted(series, opponents, side, is_second, pace)
        failure = (
            failure
            or wrong_cores(excess_cores(series, session.threads, side), session.threads)
            or wrong_batch(check_clock(worker, case, seconds), seconds, pace)
        )
    return failure or (edited(worker) if series.is_outside else None)


def contradicted(
    series: Series, opponents: Sequence[str], side: str, is_second: bool, pace: Pace
) -> Failure | None:
    """Whether the clocks, or the two kinds of blocks, disagree; `disbelieved` has the arguments."""
    seconds = _median(series, side)
    return wrong_turns(extra(series, seconds, side), seconds, is_second, pace) or wrong_kind(
        favour(series, seconds, opponents, side), is_second, pace
    )


def edited(worker: Worker) -> Failure | None:
    """Whether the functions that take the time are still those of the harness.

    Raises:
        Faulted: It keeps us from looking.
    """
    names = worker.edited()
    if not names:
        return None
    listed = ", ".join(f"`{name}`" for name in names[:3])
    text = f"it changed {len(names)} functions of the harness in its process: {listed}"
    return Failure(Status.CONTRACT, text)


def _floor_ms(session: Session) -> float | None:
    if session.graph is None:
        return None
    return session.device.floor_ms(session.graph.min_bytes, session.graph.flops)


def _notes(session: Session, series: Series, second: Series | None) -> tuple[str, ...]:
    notes = []
    if second is not None and _is_too_fast(session, series, 1.0):
        notes.append(
            "faster than the roofline's floor at the measured peaks, within a factor of "
            f"{FLOOR_LIMIT}; measured twice"
        )
    if CANDIDATE in series.on_walls:
        notes.append(on_gpu.ON_WALLS)
    if is_tolerant([series], session.pace):
        notes.append("the machine was busy: disturbed repetitions were used")
    return tuple(notes)
