"""The measuring processes as their parent sees them: calls, faults, deaths, what remains."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from evokernel.bench.contract import computing
from evokernel.bench.descendants import descendants
from evokernel.bench.messages import (
    Fault,
    Faulted,
    Foreign,
    Outcome,
    TimePlan,
    Variant,
    WorkerSpec,
)
from evokernel.bench.pool import Worker, WorkerPool
from evokernel.bench.servers import WarmServers
from evokernel.bench.tensors import pack, vary
from evokernel.compilers import Artefact, BuildFailure, KernelSource
from evokernel.compilers.cpp import CppCompiler
from evokernel.errors import WorkerError
from evokernel.evaluation import Status

GOOD = "        return 2 * x + 1"
X = torch.arange(12, dtype=torch.float32).reshape(3, 4)


@dataclass(frozen=True)
class Place:
    """A pool and the folders it works in."""

    pool: WorkerPool
    base: Path
    cache: Path
    isolation: str

    def build(self, kernel: KernelSource) -> Artefact | BuildFailure:
        return CppCompiler(self.cache, timeout_s=60, memory_bytes=2 << 30).build(kernel)

    def fork(self, source: str, **options: Any) -> Worker:
        spec = WorkerSpec(**{"role": "candidate", "source": source, "threads": 2, **options})
        return self.pool.fork(spec, self.build)

    def left_over(self) -> tuple[list[int], list[Path]]:
        """Processes below the servers, and scratch files."""
        below = [child for pid in self.pool.server_pids for child in descendants(pid)]
        # With namespaces, what was started only watches over the server proper.
        watched = self.pool.server_pids if self.isolation == "full" else ()
        return below[len(watched) :], list(self.base.rglob("worker-*"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, warm_cache: Path) -> Iterator[Place]:
    yield from _place(tmp_path_factory, warm_cache, "full")


@pytest.fixture(scope="module")
def basic(tmp_path_factory: pytest.TempPathFactory, warm_cache: Path) -> Iterator[Place]:
    """As in a container that permits no namespaces, nor Landlock."""
    yield from _place(tmp_path_factory, warm_cache, "bare")


def _place(factory: pytest.TempPathFactory, cache: Path, isolation: str) -> Iterator[Place]:
    base = factory.mktemp("scratch")
    with WorkerPool(cache=cache, isolation=isolation, base=base) as pool:
        yield Place(pool, base, cache, isolation)


def module(forward: str, init: str = "", top: str = "") -> str:
    """A candidate with these bodies."""
    parts = (
        "import torch, os, sys, time, ctypes, signal, threading",
        textwrap.dedent(top),
        "class ModelNew(torch.nn.Module):",
        "    def __init__(self, *args, **kwargs):",
        "        super().__init__()",
        init,
        "    def forward(self, x):",
        forward,
    )
    return "\n".join(part for part in parts if part)


def attempt(place: Place, source: str, **options: Any) -> Outcome:
    """What a judge does, shortened."""
    with place.fork(source, **options) as worker:
        worker.load([], {}, seed=7)
        worker.put("x", [X], output_bytes=[48])
        return worker.run("x")


def fault_of(place: Place, source: str, **options: Any) -> Fault:
    with pytest.raises(Faulted) as caught:
        attempt(place, source, **options)
    return caught.value.fault


HOSTILE = {
    "segfault": (module("        return ctypes.string_at(0)"), Status.CRASHED),
    "abort": (module("        os.abort()"), Status.CRASHED),
    "exit": (module("        os._exit(0)"), Status.CRASHED),
    "suicide": (module("        os.kill(os.getpid(), signal.SIGKILL)"), Status.CRASHED),
    "kills_all": (module("        os.kill(-1, signal.SIGKILL)"), Status.RUNTIME_ERROR),
    "stops_itself": (module("        os.kill(os.getpid(), signal.SIGSTOP)"), Status.TIMEOUT),
    "loop": (module("        while True: pass"), Status.TIMEOUT),
    "loop_on_import": (module(GOOD, top="while True: pass"), Status.TIMEOUT),
    "ignores_signals": (
        module("        time.sleep(60)", top="signal.signal(signal.SIGTERM, signal.SIG_IGN)"),
        Status.TIMEOUT,
    ),
    "daemon": (
        module(
            GOOD,
            top="""
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    time.sleep(600)
                os._exit(0)
            """,
        ),
        Status.PASSED,
    ),
    "output_flood": (module("        while True: print('x' * 10000)"), Status.OUTPUT_LIMIT),
    "memory": (
        module("        return torch.empty(1 << 30)"),
        Status.OUT_OF_MEMORY,
    ),
    "python_memory": (module("        return bytearray(1 << 33)"), Status.OUT_OF_MEMORY),
    "fork_bomb": (module("        while True:\n            os.fork()"), Status.TIMEOUT),
    "file_flood": (
        module(
            """
        with open("big", "wb") as file:
            while True: file.write(b"x" * 1000000)
            """
        ),
        Status.OUTPUT_LIMIT,
    ),
    "hidden_file_flood": (
        module(
            """
        with open("big", "wb", buffering=0) as file:
            while True:
                try: file.write(b"x" * 1000000)
                except OSError: time.sleep(0.01)
            """
        ),
        Status.OUTPUT_LIMIT,
    ),
    "many_small_ones": (
        module(
            """
        for _ in range(6):
            if os.fork() == 0:
                kept = bytearray(os.urandom(1)) * (300 << 20)
                time.sleep(60)
        time.sleep(60)
            """
        ),
        Status.OUT_OF_MEMORY,
    ),
    "memory_in_files": (
        module(
            """
        for _ in range(30):
            file = os.memfd_create("x")
            os.write(file, bytes(100 << 20))
        time.sleep(60)
            """
        ),
        Status.OUT_OF_MEMORY,
    ),
    "zombies": (
        module("        [os.fork() or os._exit(0) for _ in range(40)]\n" + GOOD),
        Status.PASSED,
    ),
    "stops_all": (
        module(
            """
        try: os.kill(os.getppid(), signal.SIGSTOP)
        except OSError: print("refused")
        os.kill(0, signal.SIGSTOP)
            """
        ),
        Status.TIMEOUT,
    ),
    "syntax": ("def broken(:\n", Status.INVALID_SOURCE),
    "no_class": ("import torch\n", Status.INVALID_SOURCE),
    "import_raises": (module(GOOD, top="1 / 0"), Status.RUNTIME_ERROR),
    "constructor_raises": (module(GOOD, init="        raise KeyError('a')"), Status.RUNTIME_ERROR),
    "forward_raises": (module("        raise ValueError('no')"), Status.RUNTIME_ERROR),
    "system_exit": (module("        sys.exit(0)"), Status.RUNTIME_ERROR),
    "recursion": (module("        return self.forward(x)"), Status.RUNTIME_ERROR),
    "deletes_scratch": (module("        os.system('rm -rf $HOME')\n" + GOOD), Status.PASSED),
    "locks_scratch": (
        module(
            "        os.mkdir('a'); open('a/b', 'w'); os.chmod('a', 0); os.chmod('.', 0)\n" + GOOD
        ),
        Status.PASSED,
    ),
    "closes_files": (module("        os.closerange(0, 1000)\n" + GOOD), Status.CRASHED),
    "garbage": (
        module("        [os.write(fd, b'garbage!' * 99) for fd in (3, 4) if fd < 4]\n" + GOOD),
        Status.CRASHED,
    ),
    "forged_reply": (
        module(
            '        body = b\'{"id": 3, "package": {}}\'\n'
            "        os.write(3, len(body).to_bytes(4, 'big') + body)\n"
            "        time.sleep(60)"
        ),
        Status.CRASHED,
    ),
    "huge_frame": (
        module("        os.write(3, b'\\xff\\xff\\xff\\xff')\n        time.sleep(60)"),
        Status.CRASHED,
    ),
    "deep_structure": (
        module("        y = x\n        for _ in range(500): y = [y]\n        return y"),
        Status.WRONG_STRUCTURE,
    ),
}


def limits_for(expected: Status) -> dict[str, Any]:
    """Short where the limit is to be reached, long where a busy machine must not reach it."""
    run_s = 1.0 if expected is Status.TIMEOUT else 30.0
    return {"run_s": run_s, "memory_bytes": 1 << 30, "scratch_bytes": 32 << 20}


@pytest.mark.parametrize("name", HOSTILE)
def test_good_candidates_pass_between_hostile_ones(place: Place, name: str) -> None:
    source, expected = HOSTILE[name]
    limits = limits_for(expected)
    if expected is Status.PASSED:
        attempt(place, source, **limits)
    else:
        fault = fault_of(place, source, **limits)
        assert fault.status is expected, fault
        assert fault.reason
    assert torch.equal(attempt(place, module(GOOD)).outputs, 2 * X + 1)
    assert place.left_over() == ([], [])


@pytest.mark.parametrize(
    "name",
    ["daemon", "fork_bomb", "file_flood", "locks_scratch", "exit", "many_small_ones", "stops_all"],
)
def test_nothing_remains_without_namespaces_either(basic: Place, name: str) -> None:
    source, expected = HOSTILE[name]
    limits = limits_for(expected)
    if name == "fork_bomb":  # nothing limits root's processes here, so let it be a small one
        source = module("        [os.fork() for _ in range(4)]\n        time.sleep(60)")
    if expected is Status.PASSED:
        attempt(basic, source, **limits)
    else:
        assert fault_of(basic, source, **limits).status is expected
    assert torch.equal(attempt(basic, module(GOOD)).outputs, 2 * X + 1)
    assert basic.left_over() == ([], [])


def test_a_fault_says_where_and_what(place: Place) -> None:
    source = module("        print('so far')\n        raise ValueError('no')")
    fault = fault_of(place, source)
    (found,) = fault.diagnostics
    assert (found.file, found.excerpt) == ("candidate.py", "raise ValueError('no')")
    assert source.splitlines()[found.line - 1].strip() == found.excerpt
    assert fault.phase == "run"
    assert "so far" in fault.log
    assert "evokernel/bench" not in fault.log


def test_a_crash_shows_the_line_in_the_log(place: Place) -> None:
    fault = fault_of(place, module("        return ctypes.string_at(0)"))
    assert "SIGSEGV" in fault.reason
    assert 'File "candidate.py", line 6 in forward' in fault.log


def test_a_worker_goes_on_after_an_exception(place: Place) -> None:
    source = module("        if x.sum() > 1e6: raise ValueError('large')\n" + GOOD)
    with place.fork(source) as worker:
        worker.load([], {}, seed=7)
        worker.put("large", [X + 1e6])
        worker.put("small", [X])
        with pytest.raises(Faulted):
            worker.run("large")
        assert torch.equal(worker.run("small").outputs, 2 * X + 1)
        worker.drop("large")
        with pytest.raises(WorkerError, match="`large`"):
            worker.run("large")


def test_a_dead_worker_is_not_asked_again(place: Place) -> None:
    with place.fork(module("        os.abort()")) as worker:
        worker.load([], {}, seed=7)
        worker.put("x", [X])
        with pytest.raises(Faulted):
            worker.run("x")
        assert not worker.is_alive
        with pytest.raises(WorkerError, match="has ended"):
            worker.run("x")


def test_the_memory_of_a_dead_worker_was_not_hidden(place: Place) -> None:
    with place.fork(module(GOOD)) as worker:
        worker.load([], {}, seed=7)
        worker.put("x", [X], slots=2)
        worker.ready("x", 0)
        os.kill(worker.pids[0], signal.SIGKILL)
        while worker.pids:
            time.sleep(0.01)
        with pytest.raises(Faulted) as caught:
            worker.write("x", 0, [X.flatten()])
    assert caught.value.fault.status is Status.CRASHED
    assert "Killed" in caught.value.fault.reason


def test_closed_streams_cost_the_parent_nothing(place: Place) -> None:
    closed = "        print('last'); os.close(1); os.close(2); time.sleep(1.5)\n" + GOOD
    with place.fork(module(closed)) as worker:
        worker.load([], {}, seed=7)
        worker.put("x", [X])
        before = time.process_time()
        assert torch.equal(worker.run("x").outputs, 2 * X + 1)
        # A poll that is ready for ever would have taken all of it.
        assert time.process_time() - before < 1.0
        assert worker.log == "last"


def test_loading_takes_over_a_matching_state(place: Place) -> None:
    source = module(
        "        return x @ self.weight",
        init="        self.weight = torch.nn.Parameter(torch.randn(4, args[0]))",
    )
    weight = torch.randn(4, 2)
    with place.fork(source) as worker:
        assert worker.load([2], {}, 7, {"weight": weight}).state == "loaded"
        worker.put("x", [X])
        assert torch.equal(worker.run("x").outputs, X @ weight)
    with place.fork(source) as worker:
        assert worker.load([3], {}, 7, {"weight": weight}).state == "seeded"
        worker.put("x", [X])
        torch.manual_seed(7)
        assert torch.equal(worker.run("x").outputs, X @ torch.randn(4, 3))


def test_a_constructor_with_other_arguments_is_invalid_source(place: Place) -> None:
    source = module(GOOD).replace("*args, **kwargs", "width, depth")
    with place.fork(source) as worker, pytest.raises(Faulted) as caught:
        worker.load([3], {}, seed=7)
    assert caught.value.fault.status is Status.INVALID_SOURCE
    assert "constructor" in caught.value.fault.reason


def test_nested_values_go_there_and_back(place: Place) -> None:
    source = module(
        "        self.seen = type(x); return [x, {'n': (x['t'].t(), 3, None)}, 1.5, {1}]"
    )
    value = {"t": X.t(), "e": X[:1].expand(5, 4), "s": "text", "b": True, "d": torch.float16}
    with place.fork(source) as worker:
        worker.load([], {}, seed=7)
        worker.put("x", [value])
        outcome = worker.run("x")
    echo, nested, number, other = outcome.outputs
    assert torch.equal(echo["e"], value["e"])
    assert (echo["s"], echo["b"], echo["d"]) == ("text", True, torch.float16)
    assert torch.equal(nested["n"][0], X)
    assert (nested["n"][1:], number, other) == ((3, None), 1.5, Foreign(type_name="set"))
    assert [facts.path for facts in outcome.facts] == ["0.t", "0.e", "1.n.0"]
    assert [facts.strides for facts in outcome.facts] == [(1, 4), (0, 1), (4, 1)]
    assert [facts.aliases for facts in outcome.facts] == [0, 1, 0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_every_dtype_keeps_its_bits(place: Place, dtype: torch.dtype) -> None:
    x = torch.randn(5).mul(3).to(dtype)
    with place.fork(module("        return x.clone()")) as worker:
        worker.load([], {}, seed=7)
        worker.put("x", [x])
        outcome = worker.run("x")
    assert torch.equal(outcome.outputs, x)
    assert outcome.facts[0].dtype == str(dtype).removeprefix("torch.")


def test_what_cannot_travel_is_named(place: Place) -> None:
    with place.fork(module(GOOD)) as worker:
        worker.load([], {}, seed=7)
        with pytest.raises(WorkerError, match="`object`"):
            worker.put("x", [object()])


@pytest.mark.parametrize("size", [3, 4_000, 1_000_000, 9_000_000])
def test_unwritten_output_shows(place: Place, size: int) -> None:
    source = module("        y = torch.empty_like(x); y[0] = 1; return y")
    with place.fork(source) as worker:
        worker.load([], {}, seed=7)
        worker.put("x", [torch.zeros(size)], output_bytes=[4 * size])
        for _ in range(2):
            y = worker.run("x").outputs
            assert (y.isnan() | (y > 3e38)).sum() >= 0.9 * (size - 1)


def test_spoiled_and_returned_inputs_show(place: Place) -> None:
    with place.fork(module("        x.add_(1); return x")) as worker:
        worker.load([], {}, seed=7)
        worker.put("x", [X])
        outcome = worker.run("x")
        assert outcome.changed_inputs == (0,)
        assert outcome.facts[0].aliases == 0
        assert torch.equal(outcome.outputs, X + 1)
        assert worker.run("x", overwrite_inputs=True).outputs.isnan().all()
        assert torch.equal(worker.run("x").outputs, X + 1)  # the pristine input was kept


def test_left_over_threads_are_counted(place: Place) -> None:
    source = module(
        "        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n" + GOOD
    )
    with place.fork(source) as worker:
        worker.load([], {}, seed=7)
        worker.put("x", [X])
        before = worker.usage()
        assert worker.run("x").threads_left == 1
        after = worker.usage()
        assert (after.threads, after.processes) == (before.threads + 1, 1)
        assert after.cpu_s >= before.cpu_s > 0
        assert worker.pids


OPERATOR = """
import torch
from torch import nn


@torch.library.custom_op("mine::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x).copy_(x).mul_(2)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.ops.mine.double(x)
"""


def test_what_an_operator_of_its_own_dispatches_is_logged(place: Place) -> None:
    with place.fork(OPERATOR) as worker:
        worker.load([], {}, seed=7)
        worker.put("x", [X])
        outcome = worker.run("x", instrument=True)
    assert torch.equal(outcome.outputs, 2 * X)
    assert outcome.operators["mine.double.default"] == 1
    assert computing(outcome.operators) == ("aten.mul_.Tensor",)


def test_inputs_have_their_values_from_the_beginning(place: Place) -> None:
    with place.fork(module("        return x + 0")) as worker:
        worker.load([], {}, seed=7)
        worker.put("x", [X], slots=2)
        for slot in (0, 1):
            worker.batch("x", calls=1, slot=slot)
            assert torch.equal(worker.kept().outputs, X)


def test_instruments_log_operators(place: Place) -> None:
    with place.fork(module("        return torch.relu(x) @ x.t()")) as worker:
        worker.load([], {}, seed=7)
        worker.put("x", [X])
        outcome = worker.run("x", instrument=True)
        assert outcome.operators["aten.relu.default"] == 1
        assert outcome.operators["aten.mm.default"] == 1
        assert worker.run("x").operators == {}


def test_timed_repetitions_use_the_variants_they_were_told(place: Place) -> None:
    x, n = torch.randn(1000, 50), torch.arange(50)
    plan = TimePlan(
        variants=(
            Variant(slot=1, sign=-1, scale=0.5, offset=0.25),
            Variant(slot=2, sign=-1, scale=3.0, offset=-1.0, nonnegative=(0,)),
        ),
        calls=2,
        warmups=1,
        flush_bytes=1 << 20,
    )
    source = module("        return 2 * x[0] + x[1]")
    with place.fork(source) as worker, pack([[x, n]]) as package:
        worker.load([], {}, seed=7)
        worker.put("x", package, slots=3)
        repetitions = worker.time("x", plan)
        kept = worker.kept()
    assert [r.calls for r in repetitions] == [2, 2]
    assert all(r.nanoseconds > 0 and r.seconds > 0 for r in repetitions)
    expected = torch.empty_like(x.flatten())
    vary(0, x.flatten(), expected, plan.variants[1])
    assert torch.equal(kept.outputs, 2 * expected.reshape(x.shape) + n)
    assert torch.equal(expected, x.flatten() * 3.0 + 1.0)


def test_each_slot_has_an_address_of_its_own(place: Place) -> None:
    source = module("        return torch.tensor(x.data_ptr())")
    seen = set()
    with place.fork(source) as worker:
        worker.load([], {}, seed=7)
        worker.put("x", [torch.randn(1000)], slots=3)
        for slot in range(3):
            worker.time("x", TimePlan(variants=(Variant(slot=slot),)))
            seen.add(int(worker.kept().outputs))
    assert len(seen) == 3
    assert all(address % 64 == 0 for address in seen)


def test_batches_are_timed_from_outside(place: Place) -> None:
    with place.fork(module("        time.sleep(0.01); return x")) as worker:
        worker.load([], {}, seed=7)
        worker.put("x", [X])
        worker.run("x")
        assert worker.batch("x", calls=5).wall_s >= 0.05
        assert worker.null_batch(calls=5).calls == 5
        assert torch.equal(worker.kept().outputs, X)


def test_large_outputs_cost_no_page_faults_once_warm(place: Place) -> None:
    with place.fork(module("        return x + 1"), memory_bytes=2 << 30) as worker:
        worker.load([], {}, seed=7)
        worker.put("x", [torch.zeros(4_000_000)], output_bytes=[16_000_000])
        worker.run("x")
        worker.time("x", TimePlan(warmups=5))
        faults = [r.faults for r in worker.time("x", TimePlan(variants=(Variant(),) * 5))]
    assert sorted(faults)[2] < 100, faults  # 3907 pages of 4 KiB if they came anew


def test_poison_costs_no_memory_with_every_call(place: Place) -> None:
    size = 4_000_000
    with place.fork(module("        return x + 1"), memory_bytes=1 << 30) as worker:
        worker.load([], {}, seed=7)
        worker.put("x", [torch.zeros(size // 4)], output_bytes=[size])
        for _ in range(4):
            worker.run("x")
        before = worker.usage().resident_bytes
        for _ in range(8):
            worker.run("x")
        assert worker.usage().resident_bytes - before < 3 * size


def test_the_peak_of_a_call_is_seen_from_outside(place: Place) -> None:
    source = module("        y = torch.ones(8_000_000); return y.sum() + x.sum()")
    with place.fork(source) as worker:
        worker.load([], {}, seed=7)
        worker.put("x", [X])
        worker.run("x")
        peak = worker.peak_bytes("x")
    assert peak is not None
    assert 30e6 < peak < 50e6


def test_the_parent_compiles_what_the_candidate_asks_for(place: Place) -> None:
    kernel = """
    #include <cstdint>
    extern "C" void twice(const float* x, float* y, int64_t n) {
        for (int64_t i = 0; i < n; ++i) y[i] = 2 * x[i];
    }
    """
    source = module(
        "        y = torch.empty_like(x); kernel.twice(x, y, x.numel()); return y",
        top=f"from evokernel.jit import cpp_module\nkernel = cpp_module({kernel!r})",
    )
    with place.fork(source) as worker:
        loaded = worker.load([], {}, seed=7)
        assert loaded.kernels == ("kernel_0.cpp",)
        assert loaded.build_s > 0
        worker.put("x", [X])
        outcome = worker.run("x", instrument=True)
        assert torch.equal(outcome.outputs, 2 * X)
        assert [launch.kernel for launch in outcome.launches] == ["twice"]
        assert outcome.operators.keys() <= {"aten.empty_like.default"}


def test_a_failed_build_is_reported_by_the_parent_whatever_the_candidate_says(
    place: Place,
) -> None:
    source = module(
        GOOD,
        top="""
        from evokernel.jit import cpp_module
        try:
            cpp_module("int broken(")
        except Exception:
            raise ValueError("something else")
        """,
    )
    fault = fault_of(place, source)
    assert fault.status is Status.COMPILE_ERROR
    assert fault.diagnostics[0].file == "kernel_0.cpp"


def test_threads_that_end_while_they_are_counted_are_nobodys_fault(place: Place) -> None:
    """Some of 30 looks at them meet one that is just ending."""
    churn = """
        def churn():
            while True:
                started = [threading.Thread(target=int) for _ in range(8)]
                for thread in started:
                    thread.start()
                for thread in started:
                    thread.join()
        threading.Thread(target=churn, daemon=True).start()
        """
    with place.fork(module(GOOD, top=churn)) as worker:
        worker.load([], {}, seed=7)
        worker.put("x", [X], output_bytes=[48])
        for _ in range(30):
            assert torch.equal(worker.run("x").outputs, 2 * X + 1)


def test_a_pool_leaves_the_servers_of_others_alone(tmp_path: Path) -> None:
    secrets = [tmp_path / name for name in ("one.py", "other.py")]
    for secret in secrets:
        secret.write_text("secret")
    top = """
        def read(path):
            try:
                return open(path).read()
            except OSError:
                return ""
        """
    reads = f"        return [read(path) == 'secret' for path in {list(map(str, secrets))!r}]"
    source = module(reads, top=top).replace("self, x", "self")
    spec = WorkerSpec(role="candidate", source=source)
    pids: set[int] = set()
    with WarmServers(tmp_path) as servers:
        for hidden in secrets:
            with WorkerPool(tmp_path, hidden=(hidden,), path=(tmp_path,), servers=servers) as pool:
                worker = pool.fork(spec, lambda kernel: pytest.fail("nothing to build"))
                worker.load([], {}, seed=7)
                worker.put("x", [])
                assert worker.run("x").outputs == [path != hidden for path in secrets]
                pids |= {*pool.server_pids}
            assert not worker.is_alive
        assert len(pids) == 1
        assert Path(f"/proc/{min(pids)}").exists()
    assert not Path(f"/proc/{min(pids)}").exists()
    assert list(tmp_path.rglob("worker-*")) == []


def test_a_compiled_baseline_runs_the_same_way(place: Place) -> None:
    source = module(GOOD).replace("ModelNew", "Model")
    with place.fork(source, role="compile", class_name="Model", run_s=120) as worker:
        worker.load([], {}, seed=7)
        worker.put("x", [X], output_bytes=[48])
        assert torch.equal(worker.run("x").outputs, 2 * X + 1)
        (repetition,) = worker.time("x", TimePlan())
        assert repetition.nanoseconds > 0
    assert any((place.cache / "inductor").iterdir())


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("computes", "import torch\ntorch.ones(3)\n", "ran the operator `aten.ones.default`"),
        (
            "starts_threads",
            "import threading, time\n"
            "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n",
            r"has 2 threads \(\S+, \S+\)",
        ),
    ],
)
def test_a_server_that_did_more_than_import_is_refused_not_hung(
    tmp_path: Path, name: str, text: str, why: str
) -> None:
    (tmp_path / f"{name}.py").write_text(text)
    with WorkerPool(cache=tmp_path, preload=(name,), path=(tmp_path,), base=tmp_path) as pool:
        spec = WorkerSpec(role="candidate", source=module(GOOD))
        with pytest.raises(WorkerError, match=why):
            pool.fork(spec, lambda kernel: pytest.fail("nothing to build"))


def test_torch_compile_works_where_its_modules_start_threads(tmp_path: Path) -> None:
    text = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n"
    (tmp_path / "starts_threads.py").write_text(text)
    modules = ("starts_threads",)
    with WorkerPool(tmp_path, compile_preload=modules, path=(tmp_path,), base=tmp_path) as pool:
        spec = WorkerSpec(role="compile", source=module(GOOD), class_name="ModelNew")
        with pool.fork(spec, lambda kernel: pytest.fail("nothing to build")) as worker:
            assert worker.is_alive


def test_torch_compile_may_use_a_compiler_that_lies_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "tools" / "bin" / "g++"
    compiler.parent.mkdir(parents=True)
    compiler.write_text('#!/bin/sh\necho "it runs"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{compiler.parent}:{os.environ['PATH']}")
    top = """
        import subprocess

        @torch.compiler.disable
        def longer(x):
            done = subprocess.run(["g++"], capture_output=True, text=True, check=True)
            return x + len(done.stdout)
    """
    base = tmp_path / "base"
    base.mkdir()
    with WorkerPool(tmp_path / "cache", compile_preload=(), base=base) as pool:
        spec = WorkerSpec(role="compile", source=module("        return longer(x)", top=top))
        with pool.fork(spec, lambda kernel: pytest.fail("nothing to build")) as worker:
            worker.load([], {}, seed=7)
            worker.put("x", [X], output_bytes=[48])
            assert torch.equal(worker.run("x").outputs, X + len("it runs\n"))


def test_a_server_finds_what_the_search_path_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "named_by_the_path.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with WorkerPool(tmp_path, preload=("named_by_the_path",), base=tmp_path) as pool:
        spec = WorkerSpec(role="candidate", source=module(GOOD))
        with pool.fork(spec, lambda kernel: pytest.fail("nothing to build")) as worker:
            assert worker.is_alive


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with WorkerPool(cache=tmp_path, preload=("no_such_module",), base=tmp_path) as pool:
        spec = WorkerSpec(role="candidate", source=module(GOOD))
        with pytest.raises(WorkerError, match="No module named 'no_such_module'"):
            pool.fork(spec, lambda kernel: pytest.fail("nothing to build"))


def test_a_killed_server_is_replaced(place: Place) -> None:
    attempt(place, module(GOOD))
    (pid, *_) = place.pool.server_pids
    worker = place.fork(module(GOOD))
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(Faulted):  # its worker died with it
        worker.load([], {}, seed=7)
    worker.kill()
    assert torch.equal(attempt(place, module(GOOD)).outputs, 2 * X + 1)


ORPHANS = """
import sys
from pathlib import Path
from evokernel.bench.messages import WorkerSpec
from evokernel.bench.pool import WorkerPool
source, base = Path(sys.argv[1]).read_text(), Path(sys.argv[2])
cache = base.parent / "cache"
pools = [WorkerPool(cache=cache, isolation=kind, base=base) for kind in ("full", "basic")]
for pool in pools:
    pool.warm(threads=1)
workers = [pool.fork(WorkerSpec(role="candidate", source=source), None) for pool in pools]
for worker in workers:
    worker.load([], {}, seed=7)
    worker.put("x", [])
pids = [pid for worker in workers for pid in worker.pids]
print("ready", *pids, *(pid for pool in pools for pid in pool.server_pids), flush=True)
workers[0].run("x")
"""


def test_what_a_pool_left_that_died_with_all_its_processes_is_removed_by_the_next(
    tmp_path: Path,
) -> None:
    code = (
        "import os, pathlib, sys\n"
        "from evokernel.bench.scratch import Quarters, Scratch\n"
        "scratch = Scratch(Quarters(pathlib.Path(sys.argv[1])).path, 1 << 20)\n"
        "(scratch.path / 'left').mkdir(mode=0)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    cache, base = tmp_path / "cache", tmp_path / "base"
    base.mkdir()
    with WorkerPool(cache=cache, base=base):
        subprocess.run([sys.executable, "-c", code, str(base)], check=False)
        assert len(list(base.rglob("left"))) == 1
        with WorkerPool(cache=cache, base=base):
            assert list(base.rglob("left")) == []
            assert len(list(base.iterdir())) == 2  # of the two pools that live


def test_everything_ends_with_a_killed_parent(tmp_path: Path) -> None:
    source = module(
        "        time.sleep(600)", top="if os.fork() == 0: os.setsid(); time.sleep(600)"
    ).replace("forward(self, x)", "forward(self)")
    (tmp_path / "candidate.txt").write_text(source)
    base = tmp_path / "base"
    base.mkdir()
    arguments = [str(tmp_path / "candidate.txt"), str(base)]
    with subprocess.Popen(
        [sys.executable, "-c", ORPHANS, *arguments], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        word, *pids = parent.stdout.readline().split()
        assert word == "ready"
        assert len(pids) == 6  # of both pools the worker, its child and the server
        parent.kill()
    end = time.monotonic() + 10
    while left := [pid for pid in pids if Path(f"/proc/{pid}").exists()] or list(base.iterdir()):
        assert time.monotonic() < end, left
        time.sleep(0.02)
