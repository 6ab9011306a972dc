"""Runs Triton candidates of all built-in tasks on the GPU: a program of its own, started by tests.

    python tests/triton_on_gpu.py FOLDER [--build-s 45] [--total-s 110] [TASK ...]

First it writes candidates: of every task in three precisions, at odd sizes (the draft and one of
each structure), and at the task's sizes for GPUs (the draft, and all plans one move away from it).
Then it builds them in as many processes as there are cores, as far as the time goes, runs those of
odd sizes there and then, and times the others one after the other beside eager torch and a copy.
A candidate is right if it is as near to the reference in fp64 as torch's own result, within a
factor. Everything is written to `FOLDER/results.json`; a table comes last.
"""

import argparse
import json
import multiprocessing
import os
import random
import re
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from evokernel.opgraph import OpGraph, capture
from evokernel.proposers.templates.template import Template
from evokernel.task import Task

BEGAN = time.monotonic()
PRECISIONS = ("fp32", "bf16", "fp16")
ODD = {
    "TOKENS": 67, "ROWS": 67, "COLUMNS": 531, "WIDTH": 531, "BATCH": 3, "HEADS": 3, "LENGTH": 77,
    "HEAD_WIDTH": 40, "IMAGES": 3, "CHANNELS": 10, "GROUPS": 5, "SIDE": 23, "SAMPLES": 1003,
    "VOCABULARY": 1003, "PADDED": 5, "FILTERS": 14, "HIDDEN": 141, "INNER": 75, "OUTPUTS": 139,
    "CLASSES": 203, "QUERIES": 67, "DOCUMENTS": 131,
}  # fmt: skip
"""Sizes that are no multiples of anything, by the name that the tasks give them."""
FACTOR, FLOORS = 8, {"fp32": 2e-6, "bf16": 4e-3, "fp16": 5e-4}
"""How much more than torch's own result a candidate may err, and what it may err anyway."""
SLOW_S = 25
"""Seconds after which the building of a candidate is given up."""
DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
DTYPES |= {
    "i1": "bool",
    "i8": "int8",
    "u8": "uint8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
}

Entry = dict[str, Any]


def elapsed() -> float:
    return time.monotonic() - BEGAN


def task_of(name: str, precision: str, odd: bool) -> Task:
    task = Task.load(name, "cuda")
    options = task.options.model_copy(update={"precision": precision})
    task = task.model_copy(update={"options": options})
    found = [n for n in ODD if re.search(rf"^{n} = ", task.source, re.MULTILINE)]
    return task.resized(**{n: ODD[n] for n in found}) if odd else task


def written(key: tuple[str, str, bool]) -> list[Entry]:
    """Candidates of a task, or a note on why there are none."""
    name, precision, odd = key
    entry = {"task": name, "precision": precision, "odd": odd}
    try:
        task = task_of(*key)
        template = Template(task, graph_of(task), "triton")
        return [
            {**entry, "label": label, "source": template.source(plan)}
            for label, plan in plans(template, precision, odd)
        ]
    except Exception:
        return [{**entry, "label": "draft", "error": traceback.format_exc(limit=-3)}]


def graph_of(task: Task) -> OpGraph:
    try:
        with torch.device("meta"):  # shapes only
            return capture(task.program())
    except Exception:  # older tracers want values
        return capture(task.program())


def plans(template: Template, precision: str, odd: bool) -> Iterator[tuple[str, Any]]:
    space = template.space
    plain = space.plain()
    yield "draft", plain
    ways = [m for m in space.moves(plain) if m.choice.name in ("sweep", "kernels", "grid")]
    moves = ways if odd else [] if precision == "fp16" else list(space.moves(plain))
    for move in moves:
        yield f"{move.choice.name}={move.option.value}", move.on(space, plain)
    if odd:
        dice = random.Random(template.task.name)
        wish = {c.name: dice.choice(c.values) for c in space.choices}
        yield "random", space.settle(wish)


def loaded(entry: Entry) -> Any:
    path = Path(entry["path"])
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module


def built(entry: Entry) -> Entry:
    """Build a candidate as `LAUNCHES` says; run it if it is of odd sizes."""
    signal.signal(signal.SIGALRM, too_slow)
    signal.alarm(SLOW_S)
    began = time.monotonic()
    try:
        module = loaded(entry)
        entry["kernels"] = [kernel(module, *item) for item in module.LAUNCHES.items()]
        entry["build_s"] = round(time.monotonic() - began, 2)
        if entry["odd"]:
            entry |= checked(entry, Reference(entry), module)
    except BaseException as error:
        entry["error"] = f"{type(error).__name__}: {str(error)[-600:]}"
    finally:
        signal.alarm(0)
    return entry


def too_slow(*_: object) -> None:
    raise TimeoutError(f"not built within {SLOW_S} s")


def kernel(module: Any, name: str, declared: dict[str, Any]) -> tuple[str, int, int, int]:
    """Name, registers, spills and shared memory of a kernel."""
    from triton.runtime.jit import MockTensor

    arguments = {
        key: MockTensor(getattr(torch, DTYPES[value[1:]])) if str(value)[:1] == "*" else value
        for key, value in declared.items()
    }
    made = getattr(module, name).run(grid=(1,), warmup=True, **arguments)
    made._init_handles()
    return name, made.n_regs, made.n_spills, made.metadata.shared


class Reference:
    """A task's module, inputs, and what they give in its own precision and in fp64."""

    def __init__(self, entry: Entry) -> None:
        task = task_of(entry["task"], entry["precision"], entry["odd"])
        self.program = task.program()
        with torch.device("cuda"), torch.no_grad():
            self.inputs = [on_gpu(x) for x in self.program.make_inputs(seed=3)]
            self.module = self.program.build(seed=1).cuda()
            wide = self.program.build(seed=1, dtype=torch.float64).cuda()
            self.own = listed(self.module(*self.inputs))
            self.exact = listed(wide(*[widened(x) for x in self.inputs]))
        self.error = self.error_of(self.own)

    def candidate(self, module: Any) -> Any:
        args, kwargs = self.program.init_inputs(seed=1)
        with torch.device("cuda"):
            found = module.ModelNew(*args, **kwargs).cuda()
        for mine, theirs in zip(tensors(found), tensors(self.module), strict=True):
            mine.data = theirs.data
        return found.train(self.module.training)

    def error_of(self, results: list[torch.Tensor]) -> float:
        """The largest error of a result, relative to its norm; numbers that are none must agree."""
        found = []
        for got, exact in zip(results, self.exact, strict=True):
            if not torch.equal(got.isnan(), exact.isnan()):
                return float("inf")
            got, exact = got.double().nan_to_num(), exact.double().nan_to_num()
            found.append(float((got - exact).norm() / exact.norm().clamp_min(1e-30)))
        return max(found)

    @property
    def bytes(self) -> int:
        """What has to be read and written at least."""
        inputs = [x for x in self.inputs if isinstance(x, torch.Tensor)]
        return sum(t.nbytes for t in (*inputs, *self.own, *tensors(self.module)))


def on_gpu(value: Any) -> Any:
    return value.cuda() if isinstance(value, torch.Tensor) else value


def widened(value: Any) -> Any:
    is_real = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if is_real else value


def tensors(module: torch.nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def listed(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def checked(entry: Entry, reference: Reference, module: Any) -> Entry:
    """Run a candidate twice, and compare."""
    model = reference.candidate(module)
    with torch.no_grad():
        results = listed(model(*reference.inputs))
        again = listed(model(*reference.inputs))
    torch.cuda.synchronize()
    error = reference.error_of(results)
    alike = all(
        a.dtype == b.dtype and a.shape == b.shape
        for a, b in zip(results, reference.own, strict=True)
    )
    limit = FACTOR * reference.error + FLOORS[entry["precision"]]
    return {
        "error_of": error,
        "own_error": reference.error,
        "is_right": alike and error <= limit,
        "is_steady": all(torch.equal(a, b) for a, b in zip(results, again, strict=True)),
    }


def milliseconds(call: Callable[[], object], most_s: float = 0.1) -> float:
    """Median device time of a call, between events."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    pair[0].record()
    call()
    pair[1].record()
    torch.cuda.synchronize()
    once = max(pair[0].elapsed_time(pair[1]), 0.01)
    count = int(max(5, min(25, 1e3 * most_s / once)))
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    for before, after in events:
        before.record()
        call()
        after.record()
    torch.cuda.synchronize()
    return sorted(before.elapsed_time(after) for before, after in events)[count // 2]


def copy_rate() -> float:
    """Bytes per second that a copy of 1 GiB reads and writes."""
    source = torch.randn(2**28, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / milliseconds(lambda: target.copy_(source)) * 1e3


def timed(entries: list[Entry], until: float) -> None:
    """Check and time the candidates of one task in one precision, the draft first."""
    reference = Reference(entries[0])
    with torch.no_grad():
        eager = milliseconds(lambda: reference.module(*reference.inputs), 0.05)
    for entry in entries:
        if elapsed() > until and entry["label"] != "draft":
            break
        entry |= {"eager_ms": eager, "bytes": reference.bytes}
        try:
            module = loaded(entry)
            entry |= checked(entry, reference, module)
            model = reference.candidate(module)
            with torch.no_grad():
                entry["ms"] = milliseconds(lambda m=model: m(*reference.inputs))
        except Exception as error:
            entry["error"] = f"{type(error).__name__}: {str(error)[-600:]}"
            if "CUDA error" in str(error):
                raise


def in_turn(entries: list[Entry]) -> list[Entry]:
    """Drafts of all tasks, those of odd sizes, then one variant after the other of each."""
    seen: dict[Any, int] = {}
    for entry in entries:
        key = entry["task"], entry["precision"], entry["odd"]
        seen[key] = entry["turn"] = seen.get(key, -1) + 1
    return sorted(entries, key=lambda e: (e["turn"], e["precision"] == "fp16", e["odd"]))


def all_written(tasks: list[str], folder: Path) -> list[Entry]:
    keys = [(n, p, odd) for odd in (True, False) for p in PRECISIONS for n in tasks]
    # Nothing is traced here: that begins with CUDA, which no process may have before it is forked.
    with multiprocessing.get_context("fork").Pool(processes()) as pool:
        entries = [entry for found in pool.imap(written, keys) for entry in found]
    for number, entry in enumerate(entries):
        entry["path"] = str(folder / f"candidate_{number}.py")
        Path(entry["path"]).write_text(entry.pop("source", ""))
    return entries


def processes() -> int:
    return max(2, len(os.sched_getaffinity(0)) - 1)


def all_built(entries: list[Entry], limit_s: float) -> list[Entry]:
    """Those that were built in time; a process may hang, and then all of them are left alone."""
    done: list[Entry] = []
    method = "spawn" if torch.cuda.is_initialized() else "fork"
    with multiprocessing.get_context(method).Pool(processes()) as pool:
        results = pool.imap_unordered(built, entries)
        while len(done) < len(entries) and elapsed() < limit_s:
            try:
                done.append(results.next(timeout=max(0.1, limit_s - elapsed())))
            except multiprocessing.TimeoutError:
                break
        pool.terminate()
    return done


def table(entries: list[Entry], copied: float) -> Iterator[str]:
    """A line per task and precision."""

    def share(entry: Entry, ms: float) -> str:
        return f"{100 * entry['bytes'] / ms * 1e3 / copied:3.0f}%"

    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        if not entry["odd"] and "ms" in entry:
            groups.setdefault((entry["precision"], entry["task"]), []).append(entry)
    yield "task, precision | MB | eager ms, share | draft ms, share, x eager, error/own | best"
    for (precision, name), found in sorted(groups.items()):
        one = found[0]
        right = [e for e in found if e["is_right"]] or found
        best = min(right, key=lambda e: e["ms"])
        state = "" if one["is_right"] and one["is_steady"] else " WRONG"
        yield (
            f"{name[:21]:21} {precision} {one['bytes'] / 1e6:5.0f} | {one['eager_ms']:6.3f} "
            f"{share(one, one['eager_ms'])} | {one['ms']:6.3f} {share(one, one['ms'])} "
            f"{one['eager_ms'] / one['ms']:4.2f}x {one['error_of']:.0e}/{one['own_error']:.0e}"
            f"{state} | {best['ms']:6.3f} {share(best, best['ms'])} {best['label']} ({len(found)})"
        )


def faults(entries: list[Entry]) -> Iterator[str]:
    for e in entries:
        name = f"{e['task']} {e['precision']} {'odd' if e['odd'] else ''} {e['label']}"
        if "error" in e:
            yield f"FAILED {name}: {' '.join(e['error'].split())[-230:]}"
        elif not e.get("is_right", True) or not e.get("is_steady", True):
            yield f"WRONG {name}: {e['error_of']:.1e}, torch {e['own_error']:.1e}"
        elif any(spills for _, _, spills, _ in e.get("kernels", ())) and e["label"] == "draft":
            yield f"SPILLS {name}: {e['kernels']}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build-s", type=float, default=45)
    parser.add_argument("--total-s", type=float, default=110)
    parser.add_argument("tasks", nargs="*")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    os.environ["TRITON_CACHE_DIR"] = str(given.folder / "cache")
    torch.set_num_threads(1)
    entries = in_turn(all_written(given.tasks or list(Task.names()), given.folder))
    print(f"{len(entries)} candidates written, {elapsed():.0f} s", flush=True)
    unwritten = [e for e in entries if "error" in e]
    done = all_built([e for e in entries if "error" not in e], given.build_s)
    print(f"{len(done)} built, {elapsed():.0f} s", flush=True)
    copied = copy_rate()
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {copied / 1e9:.0f} GB/s"
    )
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in in_turn([e for e in done if "error" not in e and not e["odd"]]):
        groups.setdefault((entry["task"], entry["precision"]), []).append(entry)
    order = sorted(groups, key=lambda key: (PRECISIONS.index(key[1]), key[0]))
    for number, key in enumerate(order):
        until = elapsed() + (given.total_s - elapsed()) / (len(order) - number)
        if elapsed() < given.total_s:
            timed(groups[key], until)
            torch.cuda.empty_cache()
    found = [*unwritten, *done]
    told = {"copy": copied, "device": torch.cuda.get_device_name(), "candidates": found}
    (given.folder / "results.json").write_text(json.dumps(told))
    lines = list(table(done, copied))
    print("\n".join([*list(faults(found))[:40], *lines]))
    odd = [e for e in done if e["odd"]]
    print(f"odd sizes: {sum(e.get('is_right', False) for e in odd)} of {len(odd)} right; "
          f"{elapsed():.0f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
