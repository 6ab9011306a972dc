"""Tells what became of each attempt of runs with a model, as tables in Markdown.

python benchmarks/conversations.py RUN...
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from evokernel.attempt import Attempt
from evokernel.record import RunRecord

COLUMNS = ("attempt", "step", "from", "status", "eager", "torch.compile", "tools", "techniques")
HEAD = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"


def ratio(attempt: Attempt, opponent: str) -> str:
    """A first measurement with its interval, or nothing."""
    timing = attempt.evaluation.timing
    against = timing.against(opponent) if timing else None
    if against is None:
        return ""
    found = against.ratio
    return f"{found.value:.2f}x [{found.low:.2f}, {found.high:.2f}]"


def rows(record: RunRecord) -> Iterator[str]:
    """A row for each attempt."""
    attempts = record.attempts()
    numbers = {a.proposal.candidate.sha: str(a.number) for a in attempts}
    for attempt in attempts:
        proposal, evaluation = attempt.proposal, attempt.evaluation
        cells = (
            attempt.number,
            proposal.stage.value,
            ", ".join(numbers.get(parent, "?") for parent in proposal.parents),
            evaluation.status.value,
            ratio(attempt, "eager"),
            ratio(attempt, "compile"),
            len(proposal.tools) or "",
            ", ".join(proposal.techniques),
        )
        yield f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print a section for each run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+")
    for path in parser.parse_args().runs:
        record = RunRecord.open(path)
        config = record.header.config
        how = "with tools" if config.agent else "plain"
        print(f"### {config.task.rpartition('/')[2]}, {how}, `{config.bench.measurement}`\n")
        print("\n".join([HEAD, *rows(record)]), end="\n\n")


if __name__ == "__main__":
    main()
