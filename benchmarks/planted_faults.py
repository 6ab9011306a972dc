"""Plants faults into the templates' kernels and counts how many the evaluation finds.

Every fault is one change of a right kernel (`mutations.py`). The evaluation is that of `evokernel
evaluate --quick`, on small sizes with an odd hidden workload; next to it stands the check that is
usual elsewhere: five normal inputs, `allclose` with 1e-2 and with 1e-4. What the evaluation lets
through is compared with the right kernel on 10,000 random inputs (`random_inputs.py`): a fault that
differs by more than is allowed was missed; one that stays within the limits is listed as such; one
that gives the same bits is no fault. What does not compile or run is left out.

    python benchmarks/planted_faults.py [--task NAME ...] [--each 15] [--limit N] [--seconds S]

Answers are kept in `--folder` as they come, so that a run that was cut short goes on where it was;
after a change of the package or the sizes everything is judged anew. On many cores several may
share the folder, each with `--part K/N`; the same command without it then makes the table.
The table goes to `results/planted_faults.{txt,json}`. About ten minutes on a quiet machine.
"""

import argparse
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fault import CLASSES
from fault_bench import Bench
from fault_report import report
from fault_subjects import HERE, SEED, Planted, Subject, sources

from evokernel.config import home
from evokernel.task import Task


def chosen(subjects: Sequence[Subject], each: int, limit: int | None) -> list[Planted]:
    """As many faults of each class, spread over tasks and forms by a fixed draw."""
    waiting: dict[str, dict[str, list[Planted]]] = defaultdict(lambda: defaultdict(list))
    for subject in subjects:
        for planted in subject.planted():
            waiting[planted.fault.kind][planted.task].append(planted)
    found: list[Planted] = []
    for kind in CLASSES:
        found += _spread(waiting[kind], each, random.Random(f"{SEED}/{kind}"))
    if limit is not None and limit < len(found):
        found = random.Random(SEED).sample(found, limit)
    return sorted(found, key=lambda planted: planted.task)


def _spread(by_task: dict[str, list[Planted]], count: int, dice: random.Random) -> list[Planted]:
    """One of each task in turn, until there are enough."""
    for choices in by_task.values():
        dice.shuffle(choices)
    found: list[Planted] = []
    while len(found) < count and any(by_task.values()):
        tasks = [task for task, choices in by_task.items() if choices]
        dice.shuffle(tasks)
        found += [by_task[task].pop() for task in tasks[: count - len(found)]]
    return found


def judged(
    wanted: list[Planted], subjects: dict[str, Subject], file: Path, deadline: float
) -> bool:
    """Judge what has no answer yet and write it down; False if time was up before the end."""
    known = kept(file)
    for name, crowded in dict.fromkeys((p.task, p.is_race) for p in wanted):
        todo = [p for p in wanted if (p.task, p.is_race) == (name, crowded)]
        todo = [p for p in todo if p.key not in known]
        if not todo:
            continue
        with Bench(subjects[name], crowded) as bench:
            for planted in todo:
                if time.monotonic() > deadline:
                    return False
                answer = bench.judge(planted) | {"key": planted.key}
                with file.open("a") as out:
                    out.write(json.dumps(answer) + "\n")
                if answer["outcome"] not in {"found", "not planted", "passed"}:
                    print(
                        f"{name}: {answer['kind']}: {answer['outcome']}: {answer['what']}",
                        flush=True,
                    )
        print(f"{name}: {len(todo)} judged", flush=True)
    return True


def kept(file: Path) -> dict[str, dict[str, Any]]:
    """What was found so far, by key."""
    if not file.is_file():
        return {}
    lines = [json.loads(line) for line in file.read_text().splitlines() if line]
    return {line["key"]: line for line in lines}


def _part(text: str) -> tuple[int, int]:
    part, parts = map(int, text.split("/"))
    if not 1 <= part <= parts:
        raise ValueError
    return part, parts


def main() -> None:
    """Plant, judge and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--task", action="append", help="built-in task, may be repeated; all by default"
    )
    parser.add_argument("--each", type=int, default=15, help="faults of each class")
    parser.add_argument("--limit", type=int, help="at most so many faults, drawn at random")
    parser.add_argument("--part", type=_part, default=(1, 1), help="e.g. 2/8: judge every 8th task")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so many seconds")
    parser.add_argument(
        "--folder", type=Path, default=home() / "planted-faults", help="where answers are kept"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results", help="where the table goes")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    options.folder.mkdir(parents=True, exist_ok=True)
    subjects = {name: Subject(name) for name in options.task or Task.names()}
    wanted = [right for subject in subjects.values() for right in subject.right()]
    wanted += chosen(list(subjects.values()), options.each, options.limit)
    file = options.folder / "answers.jsonl"
    part, parts = options.part
    mine = set(list(subjects)[part - 1 :: parts])
    is_complete = judged([p for p in wanted if p.task in mine], subjects, file, deadline)
    if parts > 1:
        return
    known = kept(file)
    found = [known[planted.key] for planted in wanted if planted.key in known]
    command = " ".join(["python benchmarks/planted_faults.py", *sys.argv[1:]])
    if not is_complete:
        command += f"\ncut short: {len(found)} of {len(wanted)} kernels; the same command goes on"
    text = report(found, command, sources())
    print(text)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "planted_faults.txt").write_text(text)
    (options.out / "planted_faults.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
