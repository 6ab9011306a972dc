"""Owns the tables of a run's page."""

from collections import Counter
from collections.abc import Sequence

from evokernel.answers import BASELINES
from evokernel.evaluation import Interval
from evokernel.memory.standing import summaries
from evokernel.report.gains import TechniqueGains
from evokernel.report.html.table import Cell, Column, Table, row, table
from evokernel.report.html.table import Row as Line
from evokernel.report.marks import LETTERS, place, status_mark
from evokernel.report.story import Row, Story
from evokernel.wording import call_time, counted, milliseconds, times, with_interval


def claim(story: Story) -> Table:
    """The best kernel against each baseline."""
    rows = []
    for name, known in BASELINES.items():
        first, ratio = story.outcome.speedup(name), story.outcome.ratio(name)
        if first is None or ratio is None:
            continue
        look = story.outcome.second_look(name)
        again = look if look is not None and look.ratio is not None else None
        processes = f"{again.processes} fresh processes" if again else "one process"
        verdict = story.outcome.verdict(ratio).removesuffix(" than")
        was = with_interval(first.ratio) if again else ""
        opponent = call_time(first.opponent_ms, first.opponent_wall_ms)
        rows.append(row(known, _ratio(ratio), verdict, processes, was, opponent))
    heads = ("against", "times as fast", "so it is", "measured in", "first measurement", "it takes")
    return table(heads, rows)


def history(story: Story) -> Table:
    """From the first draft to the best kernel."""
    rows = []
    for attempt, parent in story.outcome.descent():
        told, gain = story.row(attempt.number), ""
        if parent is not None:
            measured = story.outcome.measured_gain(attempt, parent)
            estimated = story.outcome.estimated_gain(attempt, parent)
            about = f"about {times(estimated)} (by way of eager)" if estimated else ""
            gain = with_interval(measured) if measured else about
        origin = _link(parent.number) if parent else Cell(text="nothing", mark="faint")
        rows.append(row(_link(told.number), origin, told.change, *_times(story, told), gain))
    times_as_fast = "times as fast as that"
    return table(("attempt", "made from", "change", *_time_heads(story), times_as_fast), rows)


def attempts(story: Story) -> Table:
    """All of them, to be sorted and filtered."""
    columns = (
        Column(title="attempt", is_number=True),
        Column(title="stage", is_choice=True),
        Column(title="from"),
        Column(title="change"),
        Column(title="status", is_choice=True),
        *(Column(title=title, is_number=True) for title in _time_heads(story)),
        Column(title="over eager", is_number=True, hint="times as fast, 95 % interval"),
        Column(title="over compile", is_number=True, hint="over torch.compile, in one process"),
        Column(title="answers", hint="compiles, right, contract, faster, coverage"),
        Column(title="reward", is_number=True, hint="what memory learned from the step"),
    )
    return table(columns, [_attempt(story, told) for told in story.rows], is_searched=True)


def _attempt(story: Story, told: Row) -> Line:
    change = f"as attempt {told.repeats}" if told.repeats else told.change
    status = "not confirmed" if told.is_refuted else told.status.value
    return row(
        _link(told.number),
        told.stage,
        ", ".join(map(str, told.parents)),
        change,
        Cell(text=status, mark="failed" if told.is_refuted else status_mark(told.status)),
        *_times(story, told),
        _ratio(told.ratio, told.processes),
        _ratio(told.compile),
        Cell(
            text=" ".join(LETTERS[a.verdict] for a in told.answers),
            mark="code",
            hint="; ".join(f"{a.name}: {a.verdict}" for a in told.answers),
        ),
        None if told.reward is None else Cell(text=f"{told.reward:+.2f}", value=told.reward),
        mark="best" if told.is_best else "",
    )


def techniques(found: Sequence[TechniqueGains]) -> Table:
    """What each gained."""
    columns = (
        "technique or parameter",
        Column(title="changed in"),
        Column(title="right", is_number=True),
        Column(title="mean gain", is_number=True, hint="geometric mean"),
        Column(title="best gain", is_number=True),
        Column(title="worst gain", is_number=True),
    )
    rows = []
    for each in found:
        ratios = [gain.ratio for gain in each.gains]
        rows.append(
            row(
                each.name,
                ", ".join(map(str, each.attempts)),
                Cell(text=f"{each.right} of {len(each.attempts)}", value=each.right),
                _times_cell(each.mean),
                _times_cell(max(ratios, default=None)),
                _times_cell(min(ratios, default=None)),
            )
        )
    return table(columns, rows, is_searched=len(rows) > 8, is_long=True)


def memory(story: Story) -> Table:
    """What it showed, and what became of the steps."""
    about = summaries(story.record.memory, [shown.id for shown in story.shown])
    columns = (
        Column(title="experience"),
        Column(title="about"),
        Column(title="shown to"),
        Column(title="used by"),
        Column(title="reward with it", is_number=True, hint="mean of the steps that were shown it"),
        Column(title="without it", is_number=True, hint="mean of the others of the same stages"),
    )
    rows = [
        row(
            Cell(text=shown.id, mark="code"),
            about.get(shown.id, ""),
            ", ".join(map(str, shown.attempts)),
            ", ".join(map(str, shown.used)),
            _signed(shown.reward),
            _signed(shown.others),
        )
        for shown in story.shown
    ]
    return table(columns, rows, is_searched=len(rows) > 6, is_long=True)


def memory_effect(story: Story) -> str:
    """How the steps that were shown something fared against those that were not."""
    with_it = [r.reward for r in story.rows if r.reward is not None and r.shown]
    without = [r.reward for r in story.rows if r.reward is not None and not r.shown]
    if not with_it or not without:
        return ""
    means = [sum(rewards) / len(rewards) for rewards in (with_it, without)]
    return (
        f"{counted(len(with_it), 'step')} that were shown something earned {means[0]:+.2f} on "
        f"average, {len(without)} that were not {means[1]:+.2f}; the first steps of a run are "
        "among the latter, so that this is no proof either way."
    )


def failures(story: Story) -> Table:
    """By status, the most frequent first."""
    failed = [told for told in story.rows if not told.status.is_feasible]
    rows = []
    for status, count in Counter(told.status for told in failed).most_common():
        first = next(told for told in failed if told.status is status)
        mark = status_mark(status)
        rows.append(
            row(Cell(text=status.value, mark=mark), str(count), _link(first.number), first.reason)
        )
    return table(("status", "how often", "the first", "why"), rows, is_long=True)


def _link(number: int) -> Cell:
    return Cell(text=str(number), value=number, link=place(number))


def _time_heads(story: Story) -> tuple[str, ...]:
    return ("device time", "wall time") if story.is_gpu else ("time",)


def _times(story: Story, told: Row) -> tuple[Cell, ...]:
    both = (told.median_ms, told.wall_ms)
    return tuple(
        Cell(text="" if ms is None else milliseconds(ms), value=ms)
        for ms in (both if story.is_gpu else both[:1])
    )


def _ratio(ratio: Interval | None, processes: int = 2) -> Cell:
    """With a small sign where it was measured in one process only."""
    if ratio is None:
        return Cell(text="")
    hint = f"{processes} fresh processes" if processes > 1 else "one process only"
    text = with_interval(ratio) + ("" if processes > 1 else " ¹")
    return Cell(text=text, value=ratio.value, hint=hint if processes != 2 else "")


def _times_cell(value: float | None) -> Cell:
    return Cell(text="") if value is None else Cell(text=times(value), value=value)


def _signed(value: float | None) -> Cell:
    return Cell(text="") if value is None else Cell(text=f"{value:+.2f}", value=value)
