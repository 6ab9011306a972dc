"""Owns what the page says of one attempt: how it came about, its verdict, its source."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from evokernel.answers import Answer
from evokernel.attempt import Attempt
from evokernel.evaluation import Diagnostic, Evaluation
from evokernel.profile import Profile
from evokernel.report.html.code import Changes, highlighted
from evokernel.report.html.table import Cell, Table, row, table
from evokernel.report.marks import ANSWER_MARKS, status_mark
from evokernel.report.story import Row, Story
from evokernel.wording import call_time, times, with_interval

if TYPE_CHECKING:
    from markupsafe import Markup

Facts = tuple[tuple[str, str], ...]

ROOM = 4_000_000
"""Letters of sources that are highlighted, which makes them longer; the others are plain."""
MOST_LOG = 20_000
"""Letters of a log that are shown: its end."""


class Card(NamedTuple):
    """One attempt."""

    row: Row
    title: str
    result: str
    mark: str
    facts: Facts
    answers: Table
    diagnostics: Table | None
    differences: tuple[str, ...]
    log: str
    profile: Facts
    advice: tuple[str, ...]
    parent: int | None
    """Number of the attempt that `diff` compares with."""
    diff: "Markup | None"
    diff_title: str
    source: "Markup | str | None"
    """None for a repetition, whose source stands elsewhere."""


def cards(story: Story) -> Iterator[Card]:
    """All attempts, in order."""
    room = ROOM
    for attempt in story.outcome.attempts:
        room -= len(attempt.proposal.candidate.source)
        yield _card(story, attempt, is_plain=room < 0)


def _card(story: Story, attempt: Attempt, is_plain: bool) -> Card:
    told, evaluation = story.row(attempt.number), attempt.evaluation
    changes, parent = _changes(story, attempt)
    source = attempt.proposal.candidate.source
    return Card(
        row=told,
        title=f"{told.number} {told.stage}: {told.change or 'no reason given'}",
        result=_result(told),
        mark=_color(told),
        facts=_known(_facts(story, attempt, told)),
        answers=answers_table(told.answers),
        diagnostics=_diagnostics(evaluation, told.number),
        differences=_differences(evaluation),
        log=evaluation.log[-MOST_LOG:].strip(),
        profile=_known(_figures(evaluation.profile)) if evaluation.profile else (),
        advice=evaluation.profile.notes if evaluation.profile else (),
        parent=parent,
        diff=changes.markup() if changes else None,
        diff_title=f"{changes.added} lines added, {changes.removed} removed" if changes else "",
        source=None if told.repeats else _source(source, told.number, is_plain),
    )


def _known(facts: Iterator[tuple[str, str]]) -> Facts:
    """Those that say something."""
    return tuple((name, text) for name, text in facts if text)


def _source(source: str, number: int, is_plain: bool) -> "Markup | str":
    return source if is_plain else highlighted(source, f"a{number}")


def _color(told: Row) -> str:
    if told.is_best:
        return "best"
    return "failed" if told.is_refuted else status_mark(told.status)


def _result(told: Row) -> str:
    if told.is_refuted:
        return "not confirmed"
    if told.ratio is not None:
        return f"{with_interval(told.ratio)} as fast as eager"
    return told.status.value


def _changes(story: Story, attempt: Attempt) -> tuple[Changes | None, int | None]:
    """Against the first parent, where it is an attempt of the run."""
    by_sha = story.outcome.by_sha()
    parents = attempt.proposal.parents
    parent = by_sha.get(parents[0]) if parents else None
    if parent is None or story.row(attempt.number).repeats:
        return None, None
    before, after = parent.proposal.candidate.source, attempt.proposal.candidate.source
    return Changes(before, after), parent.number


def _facts(story: Story, attempt: Attempt, told: Row) -> Iterator[tuple[str, str]]:
    proposal, evaluation, timing = attempt.proposal, attempt.evaluation, attempt.evaluation.timing
    if told.repeats:
        yield "source", f"the same as attempt {told.repeats}"
    yield "made from", ", ".join(f"attempt {n}" for n in told.parents) or "nothing"
    yield "techniques", ", ".join(proposal.techniques)
    yield "why", proposal.rationale
    yield "its author's analysis", proposal.analysis
    yield "expected", f"{times(proposal.predicted)}" if proposal.predicted else ""
    yield "tuned", proposal.tuning.in_words() if proposal.tuning else ""
    if timing is not None:
        yield "time", f"{call_time(timing.median_ms, timing.wall_ms)}, spread {timing.spread:.1%}"
        yield "repetitions", f"{timing.samples} clean, {timing.dropped} dropped as disturbed"
    yield "second look", _second_look(story, attempt)
    yield "reward", "" if told.reward is None else f"{told.reward:+.2f}"
    yield "shown by memory", ", ".join(attempt.shown)
    usage = proposal.usage
    if usage.tokens_in or usage.tokens_out:
        price = "price unknown" if usage.usd is None else f"${usage.usd:.4f}"
        yield "cost", f"{usage.tokens_in:,} tokens in, {usage.tokens_out:,} out, {price}"
    phases = ((name.replace("_", " "), s) for name, s in evaluation.seconds.items() if s >= 0.1)
    yield "took", ", ".join(f"{name} {seconds:.1f} s" for name, seconds in phases)
    yield "content", evaluation.candidate


def _second_look(story: Story, attempt: Attempt) -> str:
    look = story.outcome.second_look("eager", attempt)
    if look is None:
        return ""
    if look.ratio is None:
        return look.reason or "it holds"
    said = f"{with_interval(look.ratio)} as fast as eager in {look.processes} fresh processes"
    return said if look.holds else f"{said}: {look.reason or 'it does not hold'}"


def answers_table(found: tuple[Answer, ...]) -> Table:
    """The five answers with their evidence."""
    rows = (
        row(a.name, Cell(text=a.verdict, mark=ANSWER_MARKS[a.verdict]), a.evidence) for a in found
    )
    return table(("answer", "", "evidence"), rows, is_long=True)


def _diagnostics(evaluation: Evaluation, number: int) -> Table | None:
    hints = evaluation.contract.hints if evaluation.contract else ()
    found = (*evaluation.diagnostics, *hints)
    if not found:
        return None
    rows = (
        row(
            Cell(text=each.severity, mark="failed" if each.severity == "error" else ""),
            _place(each, number),
            each.message,
            Cell(text=(each.excerpt or "").strip(), mark="code"),
        )
        for each in found
    )
    return table(("", "where", "message", "line"), rows, is_long=True)


def _place(each: Diagnostic, number: int) -> Cell:
    if each.line is None:
        return Cell(text=each.file or "")
    is_own = each.file in (None, "candidate.py")
    where = f"{each.file or 'line'}:{each.line}" if each.file else f"line {each.line}"
    return Cell(text=where, link=f"#a{number}-{each.line}" if is_own else "")


def _differences(evaluation: Evaluation) -> tuple[str, ...]:
    found = evaluation.correctness.mismatches if evaluation.correctness else ()
    breaches = evaluation.contract.breaches if evaluation.contract else ()
    wrong = (f"{m.family} inputs of {m.workload}, output {m.output}: {m.detail}" for m in found)
    return (*wrong, *breaches)


def _figures(found: Profile) -> Iterator[tuple[str, str]]:
    yield "bound by", found.bound_by
    yield "of the roofline", _share(found.roofline_share)
    yield (
        "rate of least traffic",
        "" if found.gbytes_per_s is None else f"{found.gbytes_per_s:.3g} GB/s",
    )
    yield "arithmetic", "" if found.gflops is None else f"{found.gflops:.3g} GFLOP/s"
    yield "costs time", ", ".join(found.limits)
    yield "outside its kernels", _share(found.overhead_share)
    yield "one thread over all", _number(found.thread_scaling, "times as long")
    yield "busy cores", _number(found.busy_cores)
    yield "threads wait", _share(found.waiting_share)
    yield "vectors", "" if found.vector_bits is None else f"{found.vector_bits} bits"
    yield "spills", _number(found.spills)
    yield "launches a call", _number(found.launches)
    yield "registers a thread", _number(found.registers)
    yield "occupancy", _occupancy(found)
    yield "traffic over the least", _number(found.traffic_ratio, "times")
    yield "tensor cores", _share(found.tensor_share)
    yield "warps wait for", ", ".join(f"{s.reason} {s.share:.0%}" for s in found.stalls)


def _occupancy(found: Profile) -> str:
    reached, limit = _share(found.occupancy), _share(found.occupancy_limit)
    by = f" by {found.occupancy_limited_by}" if found.occupancy_limited_by else ""
    parts = [reached, f"limited to {limit}{by}" if limit else ""]
    return ", ".join(part for part in parts if part)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _number(value: float | None, unit: str = "") -> str:
    return "" if value is None else f"{value:.3g} {unit}".strip()
