"""Owns `evokernel memory explain` and `techniques`: why something was shown, what it is worth."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from evokernel.attempt import Stage
from evokernel.cli import completion, options
from evokernel.cli.choices import one_of
from evokernel.cli.listing import put, show
from evokernel.cli.memory_place import opened_at, print_json
from evokernel.cli.wording import counted, times, with_interval
from evokernel.errors import ConfigError
from evokernel.task.constants import nearest

if TYPE_CHECKING:
    from evokernel.memory.explanation import Considered, Explanation
    from evokernel.memory.technique_table import TechniqueUse

DIVISIONS = ("family", "bottleneck", "backend")
"""As `memory.accounts.DIVISIONS`, which is not imported for it."""


def explain(
    step: Annotated[
        str,
        typer.Argument(
            metavar="STEP",
            autocompletion=completion.steps,
            help="`RUN/NUMBER`, as `memory show` lists them.",
        ),
    ],
    experience: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            autocompletion=completion.experiences,
            help="Say of this one why it was shown, or was not.",
        ),
    ] = None,
    as_json: options.AsJson = False,
    memory: options.MemoryPath = None,
) -> None:
    """Say why a step was shown what it was shown, and why nothing else.

    Example: evokernel memory explain 20260101-120000-softmax-1a2b/7
    """
    with opened_at(memory) as opened:
        told = opened.explain(step)
        one = opened.get(experience).experience.id if experience else None
    if as_json:
        print_json(_plain(told, one))
        return
    if one is not None:
        put(f"`{one}` in step `{step}`: {_reason(told, one)}")
        return
    show(_facts(told))
    show(_pool(told))
    if not told.pool:
        put("the pool was empty: nothing was similar enough, and nothing was shown")
    for outside in told.outside:
        some = ", ".join(outside.examples) + (
            " ..." if outside.count > len(outside.examples) else ""
        )
        put(f"not in the pool: {outside.count} ({some}): {outside.reason}")


def techniques(
    by: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="One line for each family of tasks, bottleneck, backend, or all that are named "
            "(both: family and bottleneck).",
        ),
    ] = None,
    family: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only tasks of this family.")
    ] = None,
    bottleneck: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only start points that this bound: memory, compute ..."),
    ] = None,
    as_json: options.AsJson = False,
    memory: options.MemoryPath = None,
) -> None:
    """Say what each technique has been worth.

    Example: evokernel memory techniques --by family
    """
    from evokernel.proposers.techniques import catalogue

    division = _division(by)
    with opened_at(memory) as opened:
        uses = opened.techniques(tuple(catalogue()), division, family, bottleneck)
    if as_json:
        print_json([use.model_dump(mode="json") | {"share": use.share} for use in uses])
        return
    show(_uses(uses, division))
    put("gain: how many times as fast with it, over the edits that brought it in or took it out")


def _division(by: str | None) -> frozenset[str]:
    """What divides the table.

    Raises:
        ConfigError: another name; the nearest is suggested.
    """
    if not by:
        return frozenset()
    if by == "both":
        return frozenset({"family", "bottleneck"})
    check = one_of("--by", (*DIVISIONS, "both"))
    return frozenset(check(name.strip()) for name in by.split(","))


def require_techniques(names: tuple[str, ...], seen: set[str]) -> None:
    """Refuse names that neither the catalogue nor the memory knows.

    Raises:
        ConfigError: names the nearest one.
    """
    from evokernel.proposers.techniques import catalogue

    known = sorted({*catalogue(), *seen})
    for name in names:
        if name not in known:
            raise ConfigError(
                f"no technique `{name}` in the catalogue or this memory.{nearest(name, known)} "
                "`evokernel memory techniques` lists them"
            )


def _plain(told: "Explanation", one: str | None) -> dict[str, Any]:
    plain = told.model_dump(mode="json", exclude={"reasons"})
    if one is not None:
        plain["experience"] = {"id": one, "reason": _reason(told, one)}
    return plain


def _reason(told: "Explanation", id: str) -> str:
    for considered in told.pool:
        if considered.item.id == id:
            return _fate(considered)
    return told.reasons.get(id, "it was not there yet")


def _fate(considered: "Considered") -> str:
    if considered.slot is not None:
        return f"chosen for slot {considered.slot}, by a chance of {considered.propensity:.2f}"
    return considered.item.fate or "not chosen; an older version did not log why"


def _facts(told: "Explanation") -> Table:
    constants = ", ".join(f"{name} {value:g}" for name, value in told.parameters.items())
    rows = {
        "step": f"{told.step}, {told.stage} of {told.task}",
        "policy": f"{told.policy} ({constants})",
        "arm": _arm(told),
        "seed, last event": f"{told.seed}, {told.bank_version}",
        "reward": "none" if told.reward is None else f"{told.reward:+.3f}",
    }
    if (asked := told.asked) is not None:
        rows["asked for"] = (
            f"{asked.family}, bound by {asked.bottleneck}, "
            f"techniques {', '.join(asked.techniques) or 'none'}"
        )
    table = Table(box=None, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _arm(told: "Explanation") -> str:
    decision = told.decision
    arm = f"{decision.arm}, by a chance of {decision.arm_chance:.2f}"
    if decision.withheld:
        arm += f"; held back: {', '.join(decision.withheld)}"
    return arm


def _pool(told: "Explanation") -> Table:
    table = Table(box=None)
    for name in ("in the pool", "similar", "value", "score", "chance", "evidence"):
        table.add_column(name, no_wrap=True)
    table.add_column("what became of it", overflow="fold")
    for considered in told.pool:
        item = considered.item
        table.add_row(
            item.id + (" (pinned)" if item.is_pinned else ""),
            f"{item.similarity:.3f}",
            _value(considered),
            f"{item.score:.3f}",
            "" if item.chance is None else f"{item.chance:.3f}",
            _evidence(considered),
            _fate(considered),
        )
    return table


def _value(considered: "Considered") -> str:
    if considered.uncertainty is None:
        return "0, untried"
    return f"{considered.item.q:+.3f} ± {considered.uncertainty:.2f}"


def _evidence(considered: "Considered") -> str:
    if not considered.showings:
        return "never shown"
    rewards = considered.rewards
    mean = f", mean reward {sum(rewards) / len(rewards):+.2f} of {len(rewards)}" if rewards else ""
    return f"shown {counted(considered.showings, 'time')}{mean}"


def _uses(uses: "tuple[TechniqueUse, ...]", division: frozenset[str]) -> Table:
    table = Table(box=None)
    names = [name for name in DIVISIONS if name in division]
    for name in ("technique", *names, "tried", "feasible", "edits", "gain"):
        table.add_column(name, no_wrap=True)
    for stage in Stage:
        table.add_column(f"value, {stage}", no_wrap=True)
    for use in uses:
        table.add_row(
            use.technique,
            *(getattr(use, name) or "" for name in names),
            str(use.attempts),
            "" if use.share is None else f"{use.share:.0%}",
            str(use.edits),
            _gain(use),
            *(f"{use.q[stage]:+.2f}" if stage in use.q else "" for stage in Stage),
        )
    return table


def _gain(use: "TechniqueUse") -> str:
    if use.gain is None:
        return ""
    return with_interval(use.gain) if use.edits > 1 else times(use.gain.value)
