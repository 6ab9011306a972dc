"""Owns `evokernel selftest`: are cheats caught and honest kernels believed on this machine?"""

import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, get_args

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evokernel.cli import completion, options
from evokernel.cli.choices import one_of
from evokernel.cli.listing import show
from evokernel.cli.waiting import Waiting, waiting
from evokernel.cli.wording import counted, duration, folded

if TYPE_CHECKING:
    from evokernel.selftest import Finding, Outcome, Summary
    from evokernel.zoo import Exhibit

_COLUMNS = (5, 30, 20, 17, 7)
"""Of code, name, expected, got and time: 79 together, the longest of everything fits."""


def _labels() -> list[str]:
    from evokernel.zoo import exhibits

    return sorted({label for exhibit in exhibits() for label in exhibit.labels})


def selftest(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            autocompletion=completion.among(_labels),
            help="Only these exhibits: names, codes (A1..H8), kinds or backends.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Every mechanism, in about a minute.")
    ] = False,
    source: Annotated[
        bool, typer.Option("--source", help="Print the candidates instead of judging them.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Judge a zoo of cheating, broken and honest candidates, as any candidate is judged.

    Every cheat has to be caught for what it does, or to gain nothing by it, and every honest kernel
    has to pass, among them those that look suspicious. Takes up to five minutes; docs/hacks.md
    explains the codes.

    Exit code 1: a cheat was accepted, an honest kernel refused, or the two were confused.

    Example: evokernel selftest --quick
    """
    from evokernel.selftest import Summary, builder, judge, quick_config
    from evokernel.zoo.choice import chosen

    for name in names or ():
        one_of("NAME", _labels())(name)
    wanted = chosen(names or (), quick)
    if source:
        _print_sources(wanted, as_json)
        return
    began = time.monotonic()
    config = quick_config()
    with waiting("loading PyTorch", f"selftest {'quick' if quick else 'whole'}") as shown:
        found = _counted(
            judge(wanted, config, build=builder(config), is_hasty=quick), wanted, shown
        )
        findings = tuple(found if as_json else _shown(found, shown))
    summary = Summary(findings=findings, seconds=round(time.monotonic() - began, 1))
    if as_json:
        typer.echo(summary.model_dump_json(indent=2))
    else:
        _conclude(summary)
    if not summary.is_green:
        raise typer.Exit(1)


def _print_sources(wanted: "Iterable[Exhibit]", as_json: bool) -> None:
    sources = {exhibit.name: exhibit.candidate().source for exhibit in wanted}
    if as_json:
        typer.echo(json.dumps(sources, indent=2))
    else:
        typer.echo("\n\n".join(f"# {name}\n{text.strip()}" for name, text in sources.items()))


def _counted(
    found: "Iterable[Finding]", wanted: "Sequence[Exhibit]", shown: Waiting
) -> "Iterator[Finding]":
    """Say how far it is."""
    for number, finding in enumerate(found, start=1):
        shown.say("judging")
        shown.reach(number, len(wanted))
        yield finding


def _shown(found: "Iterable[Finding]", shown: Waiting) -> "Iterator[Finding]":
    """Print each as soon as it is there."""
    from evokernel.selftest import GOOD

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    console = Console(highlight=False, markup=False, soft_wrap=True)
    is_narrow = width is not None and width < sum(_COLUMNS)
    console.print(_row(is_narrow, "code", "name", "expected", "got", "took"), style="bold")
    for finding in found:
        with shown.aside():
            console.print(_line(finding, is_narrow))
            if finding.outcome not in GOOD:
                said = f"{finding.outcome}: {finding.reason or finding.mechanism}"
                console.print(folded(said, width, _COLUMNS[0] + 2), style=_style(finding.outcome))
        yield finding


def _line(finding: "Finding", is_narrow: bool) -> Text:
    expected = finding.expected[0].value
    got = finding.status.value if finding.status else finding.outcome
    got = "harmless" if finding.outcome == "harmless" else got
    wanted = f"{expected} +{len(finding.expected) - 1}" if finding.expected[1:] else expected
    took = f"{finding.seconds:.1f} s"
    text = Text(_row(is_narrow, finding.code, finding.name, wanted, got, took))
    start = sum(_COLUMNS[:2]) if is_narrow else sum(_COLUMNS[:3])
    text.stylize(_style(finding.outcome), start, start + len(got))
    return text


def _row(is_narrow: bool, *cells: str) -> str:
    """One line; on a narrow terminal without what was expected: the colour says enough."""
    shown = [f"{cell:<{width}}" for cell, width in zip(cells[:-1], _COLUMNS[:-1], strict=True)]
    if is_narrow:
        del shown[2]
    return "".join(shown) + cells[-1].rjust(_COLUMNS[-1])


def _style(outcome: "Outcome") -> str:
    from evokernel.selftest import FAILURES, GOOD

    if outcome in FAILURES:
        return "bold red"
    return "green" if outcome in GOOD else "yellow"


def _conclude(summary: "Summary") -> None:
    from evokernel.selftest import Outcome

    outcomes = get_args(Outcome)
    print()
    table = Table("code", *outcomes, box=None)
    rows: dict[str, Counter[str]] = {}
    for finding in summary.findings:
        rows.setdefault(finding.code or "honest", Counter())[finding.outcome] += 1
    for code, counts in sorted(rows.items(), key=lambda item: (item[0] == "honest", item[0])):
        table.add_row(code, *(str(counts[name] or "") for name in outcomes))
    show(table)
    print()
    for finding in summary.failed:
        print(f"{finding.outcome}: {finding.code or 'honest'} {finding.name}: {finding.mechanism}")
    counts = Counter(finding.outcome for finding in summary.findings)
    told = (f"{counts[name]} {name}" for name in outcomes if counts[name])
    verdict = _trouble(summary) or ("nothing failed" if counts["not judged"] else "all is well")
    print(f"{', '.join(told)}; {duration(summary.seconds)}: {verdict}")


def _trouble(summary: "Summary") -> str:
    if summary.failed:
        return counted(len(summary.failed), "failure")
    return "" if summary.is_green else "nothing was judged"
