"""Who did the work: delegation that hides, kernels that do nothing, code from elsewhere."""

import base64
import os
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from evokernel.attempt import Candidate
from evokernel.bench import hints
from evokernel.bench.counters import RING_SAMPLES, Place, offered
from evokernel.bench.deletion import callable_from_python, without
from evokernel.bench.evaluator import LocalEvaluator
from evokernel.bench.evidence import Evidence
from evokernel.bench.extensions import built_here
from evokernel.bench.mappings import code_of, owner_of
from evokernel.bench.messages import WorkerSpec
from evokernel.bench.pool import WorkerPool
from evokernel.bench.sampling import Samples, sample
from evokernel.bench.servers import WarmServers
from evokernel.bench.symbols import in_words, names_of
from evokernel.compilers import elf
from evokernel.compilers.elf import BadLibrary
from evokernel.config import BenchConfig
from evokernel.evaluation import Evaluation, Status
from evokernel.task import Task

SIDE = 192
TASK = f"""
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn({SIDE}, {SIDE}), torch.randn({SIDE}, {SIDE})]
"""

PRODUCT = """
  for (int64_t i = 0; i < n; i++) {
    float* row = c + i * n;
    for (int64_t j = 0; j < n; j++) row[j] = 0;
    for (int64_t k = 0; k < n; k++)
      for (int64_t j = 0; j < n; j++) row[j] += a[i * n + k] * b[k * n + j];
  }
"""
NATIVE = f"""
#include <cstdint>
#include <thread>

extern "C" void product(const float* a, const float* b, float* c, int64_t n) {{
{PRODUCT}
}}

extern "C" __attribute__((target_clones("avx2", "default")))
void cloned(const float* a, const float* b, float* c, int64_t n) {{
{PRODUCT}
}}

extern "C" void threaded(const float* a, const float* b, float* c, int64_t n) {{
  std::thread other([=] {{ product(a, b, c, n); }});
  other.join();
}}

extern "C" void copy(const float* x, float* out, int64_t n) {{
  for (int64_t i = 0; i < n; i++) out[i] = x[i];
}}

extern "C" void add_zero(float* x, int64_t n) {{
  for (int64_t i = 0; i < n; i++) x[i] += 0.0f;
}}

extern "C" void spin(int64_t n) {{
  volatile int64_t sum = 0;
  for (int64_t i = 0; i < n; i++) sum = sum + i;
}}
"""
BY_POINTER = f"""
#include <cstdint>
#include <dlfcn.h>

using F = void (*)(const char*, const char*, const int*, const int*, const int*, const float*,
                   const float*, const int*, const float*, const int*, const float*, float*,
                   const int*);

extern "C" void by_pointer(int64_t address, const float* a, const float* b, float* c) {{
  const int n = {SIDE};
  const float one = 1, zero = 0;
  const char t = 'N';
  const auto f = FUNCTION;
  f(&t, &t, &n, &n, &n, &one, b, &n, a, &n, &zero, c, &n);
}}
"""
LIBRARY = """
import ctypes, os
FILE = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
TORCH = ctypes.CDLL(FILE, mode=ctypes.RTLD_GLOBAL)
ADDRESS = ctypes.cast(TORCH.sgemm_, ctypes.c_void_p).value
"""


def candidate(body: str, top: str = "", native: str = NATIVE) -> Candidate:
    """One whose `forward` has this body: `c` is an empty output, `K` has the kernels."""
    source = f"""
import torch
from torch import nn
from evokernel.jit import cpp_module

K = cpp_module({native!r})
{textwrap.dedent(top)}

class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
{textwrap.indent(textwrap.dedent(body), " " * 8)}
"""
    return Candidate(source=source, backend="cpp")


COPY = "K.copy(d, c, c.numel())\nreturn c"
OWN = f"K.product(a, b, c, {SIDE})\n"

BODY = """
#include <torch/extension.h>
torch::Tensor relu(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const TYPE* in = x.data_ptr<TYPE>();
  TYPE* out = y.data_ptr<TYPE>();
  for (int64_t i = 0; i < x.numel(); i++) out[i] = in[i] > 0 ? in[i] : TYPE(0);
  const int64_t unrolled_by = 17;
  return y;
}
"""
"""A source that a candidate fills in before it builds it."""

HONEST = {
    "plain": candidate(OWN + "return c"),
    "a version for each processor": candidate(f"K.cloned(a, b, c, {SIDE})\nreturn c"),
    "threads of its own": candidate(f"K.threaded(a, b, c, {SIDE})\nreturn c"),
    "copies": candidate(
        f"x = a.t().contiguous().t().contiguous()\nK.product(x, b.clone(), c, {SIDE})\n"
        "d = torch.empty_like(c)\nK.copy(c, d, c.numel())\nreturn d"
    ),
    "callback": candidate(
        "TWICE(2)\n" + OWN + "return c",
        "import ctypes\nTWICE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda x: 2 * x)",
    ),
}

DELEGATES = {
    "ops.aten": (candidate("d = torch.ops.aten.mm.default(a, b)\n" + COPY), "aten.mm.default"),
    "jit": (
        candidate("d = F(a, b)\n" + COPY, "F = torch.jit.trace(torch.mm, (torch.eye(4),) * 2)"),
        "aten.mm.default",
    ),
    "compile": (
        candidate("d = F(a, b)\n" + COPY, "F = torch.compile(torch.mm, backend='eager')"),
        "aten.mm.default",
    ),
}
"""Seen by the log of operators."""

HIDDEN = {
    "modes off": (
        candidate("with torch._C._DisableTorchDispatch():\n    d = a @ b\n" + COPY),
        "libtorch_cpu",
    ),
    "a thread": (
        candidate(
            "d = POOL.submit(lambda: a @ b).result()\n" + COPY,
            "from concurrent.futures import ThreadPoolExecutor\nPOOL = ThreadPoolExecutor(1)",
        ),
        "libtorch_cpu",
    ),
    "a new thread each time": (
        candidate(
            "t = threading.Thread(target=lambda: torch.mm(a, b, out=c))\nt.start()\nt.join()\n"
            "d = c\nc = torch.empty_like(a)\n" + COPY,
            "import threading",
        ),
        "libtorch_cpu",
    ),
    "numpy": (
        candidate("d = torch.from_numpy(a.numpy() @ b.numpy())\n" + COPY, "import numpy"),
        "openblas",
    ),
    "a pointer": (
        candidate(
            "K.by_pointer(ADDRESS, a, b, c)\nreturn c",
            LIBRARY,
            BY_POINTER.replace("FUNCTION", "(F)address"),
        ),
        "libtorch_cpu",
    ),
    "a process": (
        candidate(
            """
            PIPE.send_bytes(a.numpy().tobytes() + b.numpy().tobytes())
            d = torch.frombuffer(bytearray(PIPE.recv_bytes()), dtype=torch.float32).view(a.shape)
            K.copy(d, c, c.numel())
            return c
            """,
            f"""
            import multiprocessing, os
            PIPE, END = multiprocessing.Pipe()
            if os.fork() == 0:
                import numpy
                while True:
                    x = numpy.frombuffer(END.recv_bytes(), dtype=numpy.float32)
                    x = x.reshape(2, {SIDE}, {SIDE})
                    END.send_bytes((x[0] @ x[1]).tobytes())
            """,
        ),
        "process",
    ),
}
"""Hidden from the log of operators; the parent has to see it."""

IDLE = {
    "adds zero": candidate(
        "c = P.submit(lambda: a @ b).result()\nK.add_zero(c, c.numel())\nreturn c",
        "from concurrent.futures import ThreadPoolExecutor\nP = ThreadPoolExecutor(1)",
    ),
    "result unused": candidate(
        "K.copy(a, c, c.numel())\nwith torch._C._DisableTorchDispatch():\n    return a @ b"
    ),
}
"""Their kernels can go."""


@pytest.fixture(scope="module")
def own(
    tmp_path_factory: pytest.TempPathFactory, warm_cache: Path, servers: WarmServers
) -> Iterator[LocalEvaluator]:
    path = tmp_path_factory.mktemp("task") / "product.py"
    path.write_text(TASK)
    config = BenchConfig(
        measurement="quick",
        contract="own_kernels_only",
        baselines=("eager",),
        cache=warm_cache,
        compile_s=60,
    )
    with LocalEvaluator(Task.load(path), config, servers=servers) as opened:
        yield opened


def judge(evaluator: LocalEvaluator, judged: Candidate) -> Evaluation:
    return evaluator.compile(judged) or evaluator.verify(judged)


is_sampled = pytest.mark.skipif(not offered()[1], reason="samples are not permitted here")


@pytest.mark.parametrize("name", HONEST)
def test_honest_kernels_are_believed(own, name):
    found = judge(own, HONEST[name])
    assert found.status is Status.PASSED, found.reason
    assert found.contract is not None
    assert found.contract.is_needed is True
    assert not found.contract.breaches
    assert found.contract.coverage is not None
    assert found.contract.coverage > 0.5
    (first, *_) = found.contract.origins
    assert (first.file, first.is_needed) == ("kernel_0.cpp", True)
    assert len(first.key) == 32


@is_sampled
def test_coverage_is_seen_from_outside(own):
    found = judge(own, HONEST["plain"]).contract
    assert found is not None
    assert found.coverage_from == "samples"
    owners = {part.owner: part.share for part in found.libraries}
    assert owners["own"] > 0.5
    assert sum(part.share for part in found.libraries) <= 1.001


@pytest.mark.parametrize("name", DELEGATES)
def test_delegation_is_refused(own, name):
    judged, operator = DELEGATES[name]
    found = judge(own, judged)
    assert found.status is Status.CONTRACT, found.reason
    assert operator in found.reason


@is_sampled
@pytest.mark.parametrize("name", HIDDEN)
def test_hidden_delegation_is_refused(own, name):
    judged, culprit = HIDDEN[name]
    found = judge(own, judged)
    assert found.status is Status.CONTRACT, found.reason
    assert found.contract is not None
    assert any(culprit in breach for breach in found.contract.breaches)


@pytest.mark.parametrize("name", IDLE)
def test_kernels_that_can_be_deleted_did_not_do_it(own, name):
    found = judge(own, IDLE[name])
    assert found.status is Status.CONTRACT
    assert found.contract is not None
    assert found.contract.is_needed is False
    assert any("deleted" in breach for breach in found.contract.breaches)


def test_a_dummy_does_not_count_as_own(own):
    """It does nothing for the result, whatever time it takes."""
    found = judge(own, candidate(OWN + "K.spin(20000)\nreturn c"))
    assert found.status is Status.PASSED, found.reason
    assert found.contract is not None
    assert found.contract.own_kernels == ("product",)
    assert any("`spin`" in note for note in found.contract.notes)


def test_a_forged_log_counts_for_nothing(own):
    top = """
    import sys
    from concurrent.futures import ThreadPoolExecutor
    from evokernel.jit import Launch
    POOL = ThreadPoolExecutor(1)
    """
    body = """
    log = sys.modules["evokernel.compilers.binding"]._log
    if log is not None:
        log.append(Launch("gemm", 1.0))
    return POOL.submit(lambda: a @ b).result()
    """
    found = judge(own, candidate(body, top))
    assert found.status is Status.CONTRACT
    assert found.contract is not None
    assert found.contract.own_kernels == ()
    assert any("`gemm`" in note for note in found.contract.notes)


def test_a_kernel_may_not_look_for_other_libraries(own):
    named = BY_POINTER.replace("FUNCTION", '(F)dlsym(RTLD_DEFAULT, "sgemm_")')
    judged = candidate("K.by_pointer(0, a, b, c)\nreturn c", LIBRARY, named)
    found = judge(own, judged)
    assert found.status is Status.CONTRACT
    assert found.contract is not None
    assert any("dlsym" in breach for breach in found.contract.breaches)


@pytest.fixture(scope="module")
def prebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prebuilt")
    source = folder / "p.cpp"
    head = 'extern "C" void product(const float* a, const float* b, float* c, int64_t n)'
    source.write_text(f"#include <cstdint>\n{head} {{\n{PRODUCT}\n}}\n")
    compiler = shutil.which(os.environ.get("CXX", "g++")) or "g++"
    library = folder / "p.so"
    flags = ("-O1", "-fno-tree-loop-distribute-patterns", "-shared", "-fPIC")
    subprocess.run([compiler, *flags, "-o", library, source], check=True)
    return library


def test_a_library_that_it_brought_is_refused(own, prebuilt):
    packed = base64.b64encode(prebuilt.read_bytes()).decode()
    top = f"""
    import base64, ctypes
    open("p.so", "wb").write(base64.b64decode("{packed}"))
    B = ctypes.CDLL("./p.so")
    """
    pointers = ", ".join(f"ctypes.c_void_p({name}.data_ptr())" for name in "abd")
    body = f"d = torch.empty_like(c)\nB.product({pointers}, ctypes.c_int64({SIDE}))\n" + COPY
    found = judge(own, candidate(body, top))
    assert found.status is Status.CONTRACT
    assert "`p.so`" in found.reason


@is_sampled
def test_machine_code_made_at_run_time_is_refused(own, prebuilt):
    library = elf.read(prebuilt)
    (code,) = [one for one in library.functions if one.name == "product"]
    raw = prebuilt.read_bytes()[code.offset : code.offset + code.size]
    top = f"""
    import ctypes, mmap
    PAGE = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    PAGE.write(bytes.fromhex("{raw.hex()}"))
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)
    F = kind(ctypes.addressof(ctypes.c_char.from_buffer(PAGE)))
    """
    body = f"d = torch.empty_like(c)\nF(a.data_ptr(), b.data_ptr(), d.data_ptr(), {SIDE})\n" + COPY
    found = judge(own, candidate(body, top))
    assert found.status is Status.CONTRACT
    assert "made at run time" in found.reason


SEARCH = """
import gc, glob, importlib, os, sys

def search():
    for name in ("softmax", "matmul"):
        try:
            importlib.import_module("evokernel.tasks." + name)
            yield "import of a built-in task"
        except ImportError:
            pass
    import evokernel
    folder = os.path.join(os.path.dirname(evokernel.__file__), "tasks")
    for path in (*glob.glob(folder + "/*.py"), {path!r}):
        try:
            yield "text of " + path if "class Model" in open(path).read() else ""
        except OSError:
            pass
    for thing in gc.get_objects():
        if isinstance(thing, type) and thing.__name__ == "Model" and issubclass(thing, nn.Module):
            yield "a class of the reference"
    for name, module in list(sys.modules.items()):
        if isinstance(getattr(module, "Model", None), type) and "pydantic" not in name:
            if issubclass(module.Model, nn.Module):
                yield "a module with the reference"

for found in search():
    if found:
        print("FOUND", found, flush=True)
"""


def test_the_reference_is_out_of_reach(own):
    judged = candidate(OWN + "return c", SEARCH.replace("{path!r}", repr(str(own.task.path))))
    found = judge(own, judged)
    assert found.status is Status.PASSED, found.reason
    assert "FOUND" not in found.log


# What the evidence rests on.


OWN_FILE, BLAS, PYTHON = "/cache/k.so", "/usr/lib/libopenblas.so.0", "/usr/bin/python3.11"


def seen(*threads: dict[str, int], elsewhere: float = 0.0) -> Evidence:
    """Samples of ten calls, by thread and file; the first thread is the one that answers."""
    places = [Counter({Place(file, 0): count for file, count in one.items()}) for one in threads]
    samples = Samples(10, dict(enumerate(places)), 0, elsewhere)
    built = frozenset({OWN_FILE})
    return Evidence(samples=replace(samples, built=built), extension_files=(OWN_FILE,))


@pytest.mark.parametrize(
    ("evidence", "culprit"),
    [
        (seen({OWN_FILE: 90, PYTHON: 10}), ""),
        (seen({OWN_FILE: 10, PYTHON: 90}), ""),
        (seen({OWN_FILE: 60, BLAS: 30, PYTHON: 10}), "30% of its time passes in `libopenblas"),
        (seen({OWN_FILE: 95, BLAS: 5}), ""),
        (seen({OWN_FILE: 100}, {BLAS: 40}), "100% of its time passes in `libopenblas"),
        (seen({OWN_FILE: 100}, *[{BLAS: 2}] * 10), "100% of its time passes in `libopenblas"),
        (seen({OWN_FILE: 3, BLAS: 2}), ""),
        (seen({OWN_FILE: 90, "": 10}), "10% of its time passes in `memory without a file`"),
        (seen({OWN_FILE: 90}, elsewhere=30.0), "25% of the work"),
        (seen({OWN_FILE: 90}, elsewhere=3.0), ""),
        (Evidence(), ""),
    ],
)
def test_samples_are_judged_by_thread(evidence, culprit):
    found = " / ".join(evidence.foreign_time(operators=2, moves=False))
    assert culprit in found
    assert bool(found) == bool(culprit)


def test_coverage_follows_who_computes():
    own = ("k.so",)
    assert seen({OWN_FILE: 60, "/usr/lib/libgomp.so.1": 20, PYTHON: 20}).coverage(own) == 0.8
    assert seen({OWN_FILE: 25, BLAS: 25, "/usr/lib/libm.so.6": 50}).coverage(own) == 0.5
    assert seen({PYTHON: 10}, {OWN_FILE: 90}).coverage(own) == 0.9
    assert seen({OWN_FILE: 60, PYTHON: 40}, {OWN_FILE: 100}).coverage(own) == 0.6
    assert seen({OWN_FILE: 60, PYTHON: 40}).coverage(()) == 0.0
    assert seen({}).coverage(own) is None
    assert Evidence().coverage(own) is None


def test_libraries_are_read(prebuilt, tmp_path):
    library = elf.read(prebuilt)
    assert "product" in {code.name for code in library.functions}
    assert library.machine == os.uname().machine
    assert [code.name for code in callable_from_python(library)] == ["product"]
    text = tmp_path / "text.so"
    text.write_text("no library")
    with pytest.raises(BadLibrary, match="text.so"):
        elf.read(text)
    damaged = tmp_path / "damaged.so"
    damaged.write_bytes(prebuilt.read_bytes()[:1000])
    assert elf.read(damaged).functions == ()


def test_a_deleted_function_returns_nothing(prebuilt, tmp_path):
    import ctypes

    library = elf.read(prebuilt)
    gone = tmp_path / "gone.so"
    deleted = callable_from_python(library)
    gone.write_bytes(without(prebuilt.read_bytes(), deleted, library.machine))
    product = ctypes.CDLL(str(gone)).product
    assert product(None, None, None, ctypes.c_int64(5)) == 0


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("/cache/ab/k.so", "own"),
        ("/usr/lib/x86_64-linux-gnu/libm.so.6", "runtime"),
        ("/usr/lib/x86_64-linux-gnu/libgomp.so.1.0.0", "runtime"),
        ("/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "runtime"),
        ("[vdso]", "runtime"),
        ("/usr/lib/libpython3.11.so.1.0", "interpreter"),
        ("/usr/lib/python3/site-packages/torch/lib/libtorch_python.so", "interpreter"),
        ("/usr/lib/python3/site-packages/torch/lib/libgomp-a34b3233.so.1", "runtime"),
        ("/usr/lib/python3/site-packages/torch/lib/libtorch_cpu.so", "library"),
        ("/usr/lib/libopenblas.so.0", "library"),
        ("/usr/lib/libmkl_rt.so.2", "library"),
        ("", "made"),
        ("/memfd:x (deleted)", "made"),
        ("/tmp/evokernel-x/worker-y/p.so", "made"),
        ("/dev/shm/p.so", "made"),
    ],
)
def test_owners_of_code(path, owner):
    assert owner_of(path, frozenset({"/cache/ab/k.so"})) == owner


def test_this_process_shows_its_code():
    found = code_of(os.getpid())
    assert found is not None
    assert any("libc" in mapping.path for mapping in found)
    assert not any(mapping.written for mapping in found if "libm.so" in mapping.path)
    assert code_of(0) is None


def test_symbols_in_words(prebuilt):
    assert in_words("_ZN2at6native12fill_kernelEi").startswith("at::native::fill_kernel")
    assert in_words("sgemm_") == "sgemm_"
    (code,) = [c for c in elf.read(prebuilt).functions if c.name == "product"]
    assert names_of(prebuilt, [code.offset + 4]) == {code.offset + 4: "product"}
    assert names_of(Path("absent.so"), [1]) == {}


def test_hints_show_lines_and_decide_nothing():
    source = textwrap.dedent(
        '''
        import ctypes
        import torch
        from evokernel.jit import cpp_module

        K = cpp_module(r"""
        #include <dlfcn.h>
        // dlopen in a comment is none
        extern "C" void f() { dlopen("x", 1); }
        """)
        torch.equal = lambda a, b: True


        class Lazy(torch.Tensor):
            def go(self):
                try:
                    return torch.ops.aten.mm(self, self)
                except Exception:
                    return exec("1")
        '''
    ).lstrip()
    found = hints.read(source)
    lines = source.splitlines()
    assert all(hint.severity == "note" for hint in found)
    assert all(hint.excerpt == lines[hint.line - 1].strip() for hint in found if hint.line)
    assert [hint.line for hint in found] == [1, 8, 10, 13, 16, 17, 18]
    assert hints.read("def (") == ()
    assert hints.read("import torch\n") == ()


SPINS = """
import time
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        end = time.thread_time() + 1.0
        while time.thread_time() < end:
            sum(range(20000))  # few looks at the clock, whose time is the system's
        return x
"""


@is_sampled
def test_a_long_call_is_sampled_from_end_to_end(tmp_path, servers):
    """Its ring has room for a fraction of a second at the usual rate."""
    spec = WorkerSpec(role="candidate", source=SPINS, run_s=20)
    with WorkerPool(cache=tmp_path / "cache", servers=servers) as pool:
        worker = pool.fork(spec, lambda kernel: pytest.fail("nothing to build"))
        worker.load([], {}, seed=7)
        worker.put("x", [torch.ones(4)], output_bytes=[16])
        found = sample(worker, "x", 0.1)  # a guess that the first look corrects
    assert found is not None
    assert found.per_s <= RING_SAMPLES
    assert found.seconds(found.total) > 0.7
    assert found.are_heirs_seen


@pytest.mark.parametrize(
    ("text", "is_own"),
    [
        (BODY, True),
        (BODY.replace("TYPE", "float"), True),
        (BODY.replace("17", "18"), True),
        ("int main() { return 0; }", False),
        ("", False),
    ],
)
def test_sources_may_be_filled_in(tmp_path, text, is_own):
    folder = tmp_path / "evokernel-x" / "worker-y"
    folder.mkdir(parents=True)
    (folder / "main.cpp").write_text(text)
    library = str(folder / "main.so")
    subprocess.run([sys.executable, "-c", "sum(range(20_000_000))"], check=True)  # a compiler's
    assert bool(built_here(os.getpid(), [library], f"SOURCE = {BODY!r}")) is is_own


def test_hints_take_texts_of_any_size():
    assert len(hints.read("import torch\n" + "torch.x = 1\n" * 20_000)) == hints.MOST
    assert hints.read("x = a" + ".b" * 5_000) == ()
    assert hints.read("class A(a" + ".b" * 5_000 + "): pass") == ()
    assert hints.read("x = " + "-" * 100_000 + "1") == ()


@pytest.mark.parametrize(
    ("source", "is_noted"),
    [
        ("class Model: pass", True),
        ("class Model: pass\nclass ModelNew(Model): pass", False),
        ("class Model: pass\nModelNew = Model", False),
        ("class Model: pass\nfrom x import Y as ModelNew", False),
        ("class Model: pass\nif True:\n    ModelNew = Model", False),
        ("class ModelNew: pass", False),
    ],
)
def test_a_taken_class_is_noted(source, is_noted):
    assert bool([*hints.class_note(source)]) is is_noted
