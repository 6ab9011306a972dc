"""Compares the policies of a memory on recorded tasks, with tables, plots and every outcome.

    python benchmarks/memory_ablation.py [--seeds 20] [--attempts 24] [--weak] [--out FOLDER]

As `evokernel memory ablate`, whose arms and settings docs/ablation.md explains; search rules were
frozen before the seeds from 2000 on were run. What the output file holds already is not run again,
so that it may be stopped and goes on. With `--weak` the proposer knows nothing of what
techniques are worth, and banks are those of a strong one: what does a bank made by good runs do for
a proposer that is weak?
"""

import argparse
import contextlib
import io
import time
from collections.abc import Sequence
from pathlib import Path

from evokernel.cli.memory_study import tell
from evokernel.study import plots, results
from evokernel.study.ablation import Design, Outcome, ablate, design, shops
from evokernel.study.recording import Recording, recorded

PAUSE_S = 20.0
"""Seconds after which what there is gets written."""
FIRST_SEED = 2000
"""Seeds below were used while the simulator and the rules were written; none of these was."""


def completed(plan: Design, known: Sequence[Recording], path: Path) -> results.Results:
    """Run what the file does not hold yet of this design, seed by seed, by whatever seeds."""
    outcomes: tuple[Outcome, ...] = ()
    seconds = 0.0
    if path.exists():
        before = results.read(path)
        same = {"arms": plan.arms, "seeds": plan.seeds}
        if before.design.model_copy(update=same) == plan:
            wanted = {(arm, seed) for arm in plan.arms for seed in plan.seeds}
            outcomes = tuple(o for o in before.outcomes if (o.arm, o.seed) in wanted)
            seconds = before.seconds
    path.parent.mkdir(parents=True, exist_ok=True)
    where = shops(plan, known)
    done = {(outcome.arm, outcome.seed) for outcome in outcomes}
    began = written = time.monotonic()
    for seed, arm in ((seed, arm) for seed in plan.seeds for arm in plan.arms):
        if (arm, seed) not in done:
            one = plan.model_copy(update={"arms": (arm,), "seeds": (seed,)})
            outcomes += ablate(one, where, lambda text: print(text, flush=True))
        now = time.monotonic()
        if now - written > PAUSE_S:
            results.write(results.results(plan, known, outcomes, seconds + now - began), path)
            written = time.monotonic()
    return results.results(plan, known, outcomes, seconds + time.monotonic() - began)


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--attempts", type=int, default=24)
    parser.add_argument("--arms", nargs="*", default=())
    parser.add_argument("--weak", action="store_true")
    parser.add_argument("--recordings", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    known = recorded(options.recordings, (), "cpp")
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    plan = design(known, options.arms, seeds, options.attempts, is_weak=options.weak)
    name = "memory_ablation_weak" if options.weak else "memory_ablation"
    found = completed(plan, known, options.out / f"{name}.json")
    results.write(found, options.out / f"{name}.json")
    with contextlib.redirect_stdout(io.StringIO()) as told:
        tell(found)
    facts = "\n".join(
        f"{t.task:24}{t.family:15}{t.plans:4} plans, {t.within_target:2} within the target, "
        f"headroom {t.headroom:5.2f}x, fixed configuration {t.fixed:.2f}, {t.least_times} times"
        for t in found.tasks
    )
    command = f"memory_ablation.py --seeds {options.seeds} --first-seed {options.first_seed} "
    command += f"--attempts {options.attempts}"
    command += " --weak" if options.weak else ""
    head = f"{command}\nrecorded {found.recorded} on {found.device}\n\n{facts}\n\n"
    head += f"fixed configuration: {plan.fixed}\n\n"
    (options.out / f"{name}.txt").write_text(head + told.getvalue())
    for plot in plots.draw(found, options.out):
        plot.rename(plot.with_name(plot.name.replace("ablation", name)))
    print(head + told.getvalue())


if __name__ == "__main__":
    main()
