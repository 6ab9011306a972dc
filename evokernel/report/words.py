"""Owns what every form of a report says in the same words: claim, end, roofline, commands."""

from typing import NamedTuple

from evokernel.answers import BASELINES
from evokernel.config import NO_MODEL
from evokernel.report.story import Story
from evokernel.wording import counted, duration, milliseconds


class Command(NamedTuple):
    """A command to see a result again, and what it is for."""

    line: str
    purpose: str = ""


AGAIN = (
    "The values of the inputs are secret and drawn anew, times differ a little, and memory has "
    "learned since: another run takes another way."
)
"""What to expect of the last command."""


def headline(story: Story) -> str:
    """The claim in one sentence."""
    if story.best is None:
        return "no kernel passed" if story.ending else "no kernel passed yet"
    ratios = [(name, story.outcome.ratio(name)) for name in BASELINES]
    said = [f"{story.outcome.verdict(r)} {BASELINES[name]}" for name, r in ratios if r]
    return "; ".join(said) or "right, but not timed"


def introduction(story: Story) -> str:
    """What was run when, on what, and how it ended."""
    header = story.record.header
    on = f" on {known}" if (known := shapes(story)) else ""
    spent = f"{counted(len(story.rows), 'attempt')} in {duration(story.outcome.seconds)}"
    return (
        f"Run {header.id} of {_date(header.created)}: task {story.task.name}{on}, "
        f"backend {header.config.backend}, kernels by {header.config.proposer}. "
        f"{spent}; {ending(story)}."
    )


def _date(created: str) -> str:
    return created.replace("T", " ").replace("+00:00", " UTC")


def ending(story: Story) -> str:
    """Why it ended, or that it did not."""
    endings = {"stopped": "it was interrupted and can be resumed", "failed": "it failed"}
    going = "it was still going on, or was killed, at this moment"
    return story.ending or endings.get(story.last, going)


def is_going(story: Story) -> bool:
    """It has not ended, and nobody said why."""
    return not story.ending and story.last not in {"stopped", "failed"}


def shapes(story: Story) -> str:
    """Of the inputs, e.g. `float32 [8 x 16]`."""
    return ", ".join(
        f"{spec.dtype} [{' x '.join(map(str, spec.shape))}]"
        for node in (story.graph.inputs if story.graph else ())
        for spec in node.outputs
    )


def roofline(story: Story) -> str:
    """What the best kernel reaches of what the machine can do; empty without a timed one."""
    best = story.outcome.best
    if best is None or best.evaluation.timing is None:
        return ""
    profile = best.evaluation.profile
    share = roofline_share(story)
    if share is None:
        return "unknown: the task's work and traffic are not known"
    bound = profile.bound_by if profile else "unknown"
    return f"{share:.0%} of what this machine can do; bound by {bound}"


def roofline_share(story: Story) -> float | None:
    """Of the best kernel, by its profile where there is one."""
    best = story.outcome.best
    if best is None:
        return None
    profile, timing = best.evaluation.profile, best.evaluation.timing
    share = profile.roofline_share if profile else None
    return share if share is not None or timing is None else timing.roofline_share


def commands(story: Story) -> list[Command]:
    """How to see it again."""
    path = story.record.path
    kernel = [
        Command(f"evokernel verify {path}", "does the result hold here and now?"),
        Command(f"evokernel export {path}", "the kernel as one file"),
    ]
    return [*(kernel if story.best else []), Command(_again(story))]


def _again(story: Story) -> str:
    config = story.record.config
    again = [f"evokernel run {config.task}", f"--attempts {config.budget.attempts}"]
    again += [f"--minutes {config.budget.minutes:g}"] if config.budget.minutes else []
    search = config.search
    again += [f"--width {search.width}", f"--seed {search.seed}"]
    again += [f"--depth {search.depth}"] if search.depth else []
    again += [f"--patience {search.patience}"] if search.patience else []
    again += [f"--roofline {search.roofline:g}"] if search.roofline else []
    again += [f"--start {start}" for start in search.start]
    again += [f"--policy {config.memory.policy}"] if config.memory.path else ["--memory none"]
    again += [f"--threads {config.bench.threads}"] if config.bench.threads else []
    again += [f"--model {config.proposer}"] if config.proposer not in NO_MODEL else []
    again += ["--agentic"] if config.agent else []
    again += ["--force"] if config.force else []
    again += ["--quick"] if config.bench.measurement == "quick" else []
    return " ".join(again)


def environment(story: Story) -> dict[str, str]:
    """Machine, versions, and the settings that a number depends on."""
    header = story.record.header
    facts = {name: text for name, text in header.environment.items() if name != "protections"}
    facts["EvoKernel"] = header.harness
    facts["measurement"] = header.config.bench.measurement
    facts["contract"] = story.task.options.contract or header.config.bench.contract
    facts["precision"] = story.task.options.precision
    for name, median in story.baselines.items():
        facts[f"baseline {BASELINES.get(name, name)}"] = milliseconds(median)
    return facts
