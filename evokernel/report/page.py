"""Owns the page of a report: Markdown that says what was reached, how, and where it is weak."""

from collections import Counter
from collections.abc import Iterable, Iterator

from evokernel.answers import BASELINES, answers, memory_in_words
from evokernel.evaluation import Interval, Timing
from evokernel.record.spending import spending
from evokernel.report.population import tables
from evokernel.report.story import Row, Story
from evokernel.report.weak import weaknesses
from evokernel.report.words import (
    AGAIN,
    commands,
    ending,
    environment,
    headline,
    is_going,
    roofline,
    shapes,
)
from evokernel.wording import call_time, counted, duration, milliseconds, times, with_interval


def page(story: Story, plots: tuple[str, ...]) -> str:
    """Write the page.

    Args:
        story: What it tells.
        plots: File names of the two plots, beside the page; empty where there are none.
    """
    speed, lineage = plots if plots else ("", "")
    parts = [
        f"# {story.task.title.rstrip('.')}: {headline(story)}",
        _introduction(story),
        *([f"**Its best kernel is {story.standing}.**"] if story.is_fallen else []),
        *([f"**{label[:1].upper()}{label[1:]}.**"] if (label := story.record.header.label) else []),
        *_result(story),
        *_answers(story),
        *([f"![Speed of each attempt over eager]({speed})"] if speed else []),
        *_history(story),
        *([f"![Which attempt was made from which]({lineage})"] if lineage else []),
        *_attempts(story),
        *_population(story),
        *_memory(story),
        *_failures(story),
        "## Where the numbers are weak",
        _list(weaknesses(story)),
        "## How to see it again",
        _commands(story),
        "## Machine and settings",
        _table(("what", "value"), environment(story).items()),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _population(story: Story) -> Iterator[str]:
    for title, head, rows in tables(story):
        yield f"## {title}"
        yield _table(head, rows)


def _introduction(story: Story) -> str:
    header, outcome = story.record.header, story.outcome
    spent = f"{counted(len(story.rows), 'attempt')} in {duration(outcome.seconds)}"
    end = f"**{ending(story)}**" if is_going(story) else ending(story)
    cost = spending(story.record)
    return (
        f"Run `{header.id}` of {header.created.replace('T', ' ')}: task `{story.task.name}`"
        f"{f' on {on}' if (on := shapes(story)) else ''}, "
        f"backend `{header.config.backend}`, kernels by `{header.config.proposer}`. {spent}; {end}."
        f"{f' Cost: {cost.in_words()}.' if cost.calls else ''}"
    )


def _result(story: Story) -> list[str]:
    best = story.outcome.best
    if best is None or best.evaluation.timing is None:
        return []
    timing, evaluation = best.evaluation.timing, best.evaluation
    rows = []
    for name, known in BASELINES.items():
        first, ratio = story.outcome.speedup(name), story.outcome.ratio(name)
        if first is None or ratio is None:
            continue
        look = story.outcome.second_look(name)
        again = look is not None and look.ratio is not None
        processes = f"{look.processes} fresh processes" if look and again else "one process"
        was = times(first.ratio.value) if again else ""
        opponent = call_time(first.opponent_ms, first.opponent_wall_ms)
        verdict = story.outcome.verdict(ratio).removesuffix(" than")
        rows.append((known, with_interval(ratio), verdict, processes, was, opponent))
    head = ("against", "times as fast", "so it is", "measured in", "first measurement", "takes")
    facts = [
        ("time", f"{_call(timing)} a call, {_samples(timing.samples)}"),
        ("roofline", roofline(story)),
        *_memory_of_a_call(story),
        *_tuned(story),
        ("kernel", f"`{story.record.path}/best/kernel.py` (attempt {best.number})"),
        ("content", f"`{evaluation.candidate}`, {best.proposal.rationale or 'no reason given'}"),
    ]
    intro = "In brackets: 95 % interval of alternating measurements."
    return ["## Result", _table(head, rows), intro, _list(f"**{n}**: {text}" for n, text in facts)]


def _memory_of_a_call(story: Story) -> Iterator[tuple[str, str]]:
    best = story.outcome.best
    timing = best.evaluation.timing if best else None
    if timing is not None and (text := memory_in_words(timing)):
        yield "memory", text


def _answers(story: Story) -> list[str]:
    """The five answers about the best kernel, or about the last attempt where none passed."""
    attempts = story.outcome.attempts
    about = story.outcome.best or (attempts[-1] if attempts else None)
    if about is None:
        return []
    rows = ((a.name, a.verdict, a.evidence) for a in answers(about.evaluation))
    which = "the best" if about is story.outcome.best else "the last; none passed"
    table = _table(("answer", "", "evidence"), rows, most=_MOST_EVIDENCE)
    return [f"## Five answers about attempt {about.number} ({which})", table]


def _tuned(story: Story) -> Iterator[tuple[str, str]]:
    best = story.outcome.best
    if best is not None and (tuning := best.proposal.tuning):
        yield "tuned", tuning.in_words()


def _history(story: Story) -> list[str]:
    rows = []
    is_gpu = story.is_gpu
    for attempt, parent in story.outcome.descent():
        row = story.row(attempt.number)
        gain = ""
        if parent is not None:
            measured = story.outcome.measured_gain(attempt, parent)
            estimated = story.outcome.estimated_gain(attempt, parent)
            about = f"about {times(estimated)} (by way of eager)" if estimated else ""
            gain = with_interval(measured) if measured else about
        origin = str(parent.number) if parent else "nothing"
        cells = (str(row.number), origin, row.change, *_times(row, is_gpu), gain)
        rows.append((*cells, ", ".join(attempt.proposal.techniques)))
    head = ("attempt", "made from", "change", *_time_heads(is_gpu), "times as fast as that")
    head = (*head, "techniques")
    return ["## How the best came about", _table(head, rows)] if rows else []


def _attempts(story: Story) -> list[str]:
    is_gpu = story.is_gpu
    rows = [
        (
            f"**{row.number}**" if row.is_best else str(row.number),
            row.stage,
            ", ".join(map(str, row.parents)) or "-",
            f"as attempt {row.repeats}" if row.repeats else row.change,
            "not confirmed" if row.is_refuted else row.status.value,
            *_times(row, is_gpu),
            _ratio(row.ratio, row.processes),
            _ratio(row.compile, 1) if row.compile else "",
            " ".join(_MARKS[a.verdict] for a in row.answers),
            "" if row.reward is None else f"{row.reward:+.2f}",
        )
        for row in story.rows
    ]
    head = ("attempt", "stage", "from", "change", "status", *_time_heads(is_gpu))
    head = (*head, "over eager", "over compile")
    if not rows:
        return ["## Attempts", "None is finished yet."]
    legend = (
        "`¹`: measured in one process only; the others in fresh processes. The best is in bold; "
        "answers: compiles, right, contract, faster, coverage (y yes, n no, ? unknown, - not "
        "asked); reward is what memory learned from a step."
    )
    return ["## Attempts", _table((*head, "answers", "reward"), rows), legend]


_MARKS = {"yes": "y", "no": "n", "unknown": "?", "not asked": "-"}


def _ratio(ratio: Interval | None, processes: int) -> str:
    if ratio is None:
        return ""
    return with_interval(ratio) + ("" if processes > 1 else " ¹")


def _memory(story: Story) -> list[str]:
    config = story.record.config.memory
    asked = f"Policy `{config.policy}`, memory `{config.path or 'of this run alone'}`."
    if not story.shown:
        return ["## What memory showed", f"{asked} It showed nothing."]
    rows = [
        (
            f"`{shown.id}`",
            ", ".join(map(str, shown.attempts)),
            ", ".join(map(str, shown.used)) or "-",
            _signed(shown.reward),
            _signed(shown.others),
        )
        for shown in story.shown
    ]
    head = ("experience", "shown to", "used by", "mean reward with it", "without it")
    note = (
        "Rewards of the same stages of this run, with and without the experience: too few to say "
        "what it is worth; `evokernel memory show ID` says what all runs have taught."
    )
    return ["## What memory showed", asked, _table(head, rows), note]


def _failures(story: Story) -> list[str]:
    failed = [row for row in story.rows if not row.status.is_feasible]
    if not failed:
        return []
    counts = Counter(row.status for row in failed)
    rows = []
    for status, count in counts.most_common():
        first = next(row for row in failed if row.status is status)
        rows.append((status.value, str(count), f"{first.number}: {first.reason}"))
    return ["## Failures", _table(("status", "how often", "the first, and why"), rows)]


def _commands(story: Story) -> str:
    lines = [line if not why else f"{line}     # {why}" for line, why in commands(story)]
    return "\n".join(["```", *lines, "```"]) + f"\n\n{AGAIN}"


def _time_heads(is_gpu: bool) -> tuple[str, ...]:
    return ("device time", "wall time") if is_gpu else ("time",)


def _times(row: Row, is_gpu: bool) -> tuple[str, ...]:
    return (_time(row.median_ms), _time(row.wall_ms)) if is_gpu else (_time(row.median_ms),)


def _call(timing: Timing) -> str:
    return call_time(timing.median_ms, timing.wall_ms)


def _time(median_ms: float | None) -> str:
    return "" if median_ms is None else milliseconds(median_ms)


def _samples(number: int) -> str:
    return f"median of {counted(number, 'clean repetition')}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f}"


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_flat(line)}" for line in lines)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]], most: int = 160) -> str:
    lines = [head, ("---",) * len(head), *rows]
    cells = ([_cell(text, most) for text in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str, most: int) -> str:
    """One line that cannot end its cell; long ones are cut, for the run folder has all of it."""
    flat = _flat(text)
    cut = flat if len(flat) <= most else f"{flat[: most - 1]}…"
    return cut.replace("|", "\\|").replace("<", "&lt;")


_MOST_EVIDENCE = 400
"""Letters of the evidence of an answer; other cells have fewer."""
