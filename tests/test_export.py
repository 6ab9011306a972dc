"""An exported file: needs torch alone, runs the kernel where it was verified, else the original."""

import ast
import contextlib
import copy
import importlib.util
import inspect
import io
import json
import pickle
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest
import torch

from evokernel import jit
from evokernel.attempt import Candidate
from evokernel.cli import main
from evokernel.compilers import KernelSource
from evokernel.compilers.cpp import FLAGS
from evokernel.errors import ConfigError
from evokernel.export.building import built
from evokernel.export.claims import claims_of_evaluation, file_name
from evokernel.export.domain import verified
from evokernel.export.door import Check, modes_served
from evokernel.export.kernels import Kernels, source_key
from evokernel.export.literals import quoted
from evokernel.export.reading import read_exported, unquoted
from evokernel.export.subject import of_run
from evokernel.export.survey import Survey
from evokernel.export.survey import main as survey
from evokernel.export.text import assembled, signatures_of
from evokernel.optimize import optimize
from evokernel.task import Task
from evokernel.testing import FakeEvaluator, ScriptedProposer, fake_evaluation, fake_graph
from tests.export_samples import CPP, KERNEL, TASK


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One folder of built kernels for this file's tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVOKERNEL_EXPORT_CACHE", str(tmp_path_factory.mktemp("exports")))
        yield


@pytest.fixture(scope="module")
def commanded(tmp_path_factory, cache, warm_cache):
    """A candidate that the command has judged and exported, and what it printed."""
    folder = tmp_path_factory.mktemp("exported")
    (folder / "cache").symlink_to(warm_cache)
    (folder / "affine_rows.py").write_text(TASK)
    (folder / "candidate.py").write_text(KERNEL)
    given = ["--task", str(folder / "affine_rows.py"), "--quick", "--json"]
    target = folder / "affine_kernel.py"
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.setenv("EVOKERNEL_HOME", str(folder))
        assert main(["export", str(folder / "candidate.py"), *given, "-o", str(target)]) == 0
    return target, json.loads(out.getvalue())


@pytest.fixture(scope="module")
def file(commanded):
    return commanded[0]


def written(task: str, kernel: str, is_strict: bool = False) -> str:
    """The text of an exported file, before anybody checked it."""
    made = Task.from_source(task, "affine-rows")
    candidate = Candidate(source=kernel, backend="cpp")
    claims = claims_of_evaluation(made, fake_evaluation(candidate, made))
    state = made.program().build().state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    domain = verified(made, ("default",), shapes)
    kernels = [KernelSource(backend="cpp", source=CPP)]
    return assembled(made, kernel, kernels, domain, claims, is_strict)


def checks(text: str, folder: Path) -> tuple[Check, ...]:
    """What such a file says of itself, in both modes."""
    (folder / "checked_kernel.py").write_text(text)
    module = loaded(folder / "checked_kernel.py")
    return tuple(
        Check.model_validate(
            module.compared(module.ModelNew, module.ORIGINAL, module.DOMAIN, "default", mode)
        )
        for mode in ("train", "eval")
    )


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def module(file):
    return loaded(file)


@pytest.fixture
def model(module):
    torch.manual_seed(0)
    return module.ModelNew(32)


@pytest.fixture
def original(module):
    torch.manual_seed(0)
    return module.ORIGINAL.Model(32)


X = torch.linspace(-2, 2, 64 * 32).view(64, 32)


def agree(model, original, *inputs, **named) -> None:
    assert torch.allclose(model(*inputs, **named), original(*inputs, **named), equal_nan=True)


def test_kernel_serves_every_verified_shape_hidden_ones_too(model, original):
    with torch.no_grad():
        agree(model, original, X, 1)
        agree(model, original, X[:3], 1)
        agree(model, original, offset=1, x=X)
    assert (model.evokernel.calls, model.evokernel.fallbacks) == (3, 0)


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ((X[:5], 1), "none of the 2 verified sets of inputs; `x` is float32 (5, 32) instead of"),
        ((torch.randn(32, 64).t(), 1), "`x` has strides (1, 64) instead of being float32"),
        ((X.bfloat16(), 1), "`x` is bfloat16 (64, 32) instead of float32 (64, 32)"),
        ((X.double(), 1), "`x` is float64 (64, 32)"),
        ((X, 2), "`offset` is 2 instead of 1"),
        ((X,), "1 arguments instead of 2"),
    ],
    ids=["batch", "transposed", "bf16", "fp64", "number", "missing"],
)
def test_original_serves_other_inputs_and_says_why(model, original, inputs, reason):
    with torch.no_grad():
        agree(model, original, *inputs)
    assert (model.evokernel.calls, model.evokernel.fallbacks) == (0, 1)
    assert reason in next(iter(model.evokernel.reasons))


def test_strict_module_raises_instead(module, model):
    model.evokernel.is_strict = True
    with torch.no_grad():
        model(X, 1)
        with pytest.raises(module.OutsideVerifiedDomain, match=r"`x` is float32 \(5, 32\)"):
            model(X[:5], 1)
    assert (model.evokernel.calls, model.evokernel.fallbacks) == (1, 0)


def test_gradients_come_from_the_original(model, original):
    leaf = X.clone().requires_grad_()
    model(leaf, 1).sum().backward()
    assert torch.equal(leaf.grad, torch.full_like(X, 2.0))
    assert torch.equal(model.shift.grad, torch.full((32,), 64.0))
    assert "a gradient is wanted" in next(iter(model.evokernel.reasons))
    with torch.no_grad():
        agree(model, original, leaf, 1)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    model(X, 1)
    assert model.evokernel.calls == 2


def test_both_modes_are_served_where_they_give_the_same_bits(model, original):
    with torch.inference_mode():
        for mode in (True, False):
            agree(model.train(mode), original.train(mode), X, 1)
    assert model.evokernel.calls == 2


def test_trained_weights_are_loaded_and_used(model, module):
    trained = module.ORIGINAL.Model(32)
    torch.nn.init.normal_(trained.shift, std=3.0)
    with torch.no_grad():
        model(X, 1)  # the kernel exists before the weights come
        model.load_state_dict(trained.state_dict())
        agree(model, trained, X, 1)
        model.shift = torch.nn.Parameter(trained.shift * 2)
        trained.shift.mul_(2)
        agree(model, trained, X, 1)
    assert model.evokernel.calls == 3
    assert model.state_dict().keys() == trained.state_dict().keys()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m.double(), "`shift` is float64 (32,) instead of float32 (32,)"),
        (lambda m: setattr(m, "factor", 3.0), "`factor` was changed after the module was made"),
        (lambda m: m.register_buffer("more", torch.ones(1)), "other parameters or buffers"),
        (lambda m: m.add_module("more", torch.nn.Identity()), "a part of the module was replaced"),
    ],
    ids=["dtype", "attribute", "buffer", "part"],
)
def test_original_serves_a_module_that_was_changed(model, change, reason):
    change(model)
    with torch.no_grad():
        model(X, 1)
    assert model.evokernel.calls == 0
    assert reason in next(iter(model.evokernel.reasons))


def test_original_serves_a_module_whose_lists_were_changed(model):
    model.sizes, model.pair = [1, {"deep": 2}], (X, 1)
    model.evokernel.bind(model, (32,), {})
    with torch.no_grad():
        model(X, 1)
        assert model.evokernel.calls == 1
        model.sizes[1]["deep"] = 3
        model(X, 1)
        model.sizes[1]["deep"] = 2
        model.pair = (X + 1, 2)
        model(X, 1)
    assert model.evokernel.calls == 1
    assert set(model.evokernel.reasons) == {
        "`sizes` was changed after the module was made",
        "`pair` was changed after the module was made",
    }


def test_original_serves_other_constructor_arguments(module):
    with torch.no_grad():
        for other in (module.ModelNew(32, 3.0), module.ModelNew(width=16)):
            other(torch.randn(64, other.shift.numel()), 1)
            assert other.evokernel.calls == 0
            assert "constructor: " in next(iter(other.evokernel.reasons))
        same = module.ModelNew(width=32, factor=2.0)
        same(X, 1)
        assert same.evokernel.calls == 1


def test_autocast_tracing_and_transforms_are_outside(model):
    with torch.no_grad():
        with torch.autocast("cpu"):
            model(X, 1)
        model.requires_grad_(False)
        with warnings.catch_warnings(action="ignore"):
            torch.jit.trace(lambda x: model(x, 1), (X,), check_trace=False)
        torch.func.vmap(lambda x: model(x, 1))(X)
    assert model.evokernel.calls == 0
    assert {"autocast is on", "the call is being traced"} < model.evokernel.reasons.keys()


def test_copies_have_kernels_and_weights_of_their_own(model, original):
    with torch.no_grad():
        model(X, 1)
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            twin.shift.zero_()
            agree(model, original, X, 1)
            assert torch.allclose(twin(X, 1), X * 2 + 1)
            assert twin.evokernel.calls == 2
            assert twin.evokernel.fallbacks == 0


def test_a_compiler_with_an_open_quote_is_none(file, monkeypatch):
    monkeypatch.setenv("CXX", 'g++ "')
    model = loaded(file).ModelNew(32)
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="which cannot be run"):
        assert torch.equal(model(X, 1), X * 2 + model.shift + 1)


@pytest.mark.parametrize("task", ["19_ReLU", "add-one", "größe", ""])
def test_an_exported_file_can_be_imported_by_its_name(task):
    assert file_name(task).removesuffix(".py").isidentifier()
    assert file_name(task).isascii()


def test_threads_that_call_first_at_once_share_one_kernel(module, model, original):
    made, together = [], threading.Barrier(4)

    def kernel_class():
        time.sleep(0.05)  # so that all threads are there before the kernel is
        made.append(module.kernel_class())
        return made[-1]

    model.evokernel = module.Guard(module.ORIGINAL.Model, module.DOMAIN, kernel_class)
    model.evokernel.bind(model, (32,), {})

    def call(number):
        together.wait()
        with torch.no_grad():
            return model(X + number, 1)

    with ThreadPoolExecutor(4) as pool, torch.no_grad():
        for number, out in enumerate(pool.map(call, range(4))):
            assert torch.allclose(out, original(X + number, 1))
    assert len(made) == 1
    assert model.evokernel.reasons == {}


def test_signature_is_the_original_ones(module):
    assert list(inspect.signature(module.ModelNew).parameters) == ["width", "factor"]


ALONE = "import runpy, sys; sys.modules['evokernel'] = None; sys.argv = sys.argv[1:]; "
ALONE += "runpy.run_path(sys.argv[0], run_name='__main__')"


def alone(file: Path, cache: Path, **environment: str) -> subprocess.Popen[str]:
    """Start an exported file's own check where EvoKernel cannot be imported."""
    return subprocess.Popen(
        [sys.executable, "-I", "-c", ALONE, str(file)],
        env={"PATH": "/usr/bin:/bin", "EVOKERNEL_EXPORT_CACHE": str(cache), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_processes_build_at_once_beside_what_a_killed_build_left(file, tmp_path, module):
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    whole = built(CPP, (), FLAGS)
    (cache / whole.name).write_bytes(whole.read_bytes()[:1000])  # torn by a power cut
    (cache / "build-dead").mkdir()
    both = [alone(file, cache) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert out.count("right, served by the kernel") == 4
    assert [path.stat().st_mode & 0o777 for path in (cache,)] == [0o700]
    assert {path.name for path in cache.glob("build-*")} == {"build-dead"}


def test_file_without_a_compiler_runs_the_original_and_says_so(file, tmp_path, monkeypatch):
    monkeypatch.setenv("EVOKERNEL_EXPORT_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", "/nowhere/g++")
    model = loaded(file).ModelNew(32)
    with torch.no_grad():
        missing = r"no C\+\+ compiler \(`\$CXX` is `/nowhere/g\+\+`"
        with pytest.warns(RuntimeWarning, match=missing) as warned:
            out = model(X, 1)
        assert warned[0].filename == __file__
        assert torch.equal(out, X * 2 + model.shift + 1)
        model(X, 1)
    assert model.evokernel.fallbacks == 2
    model.evokernel.is_strict = True
    with torch.no_grad(), pytest.raises(RuntimeError, match="the kernel cannot be built: no C"):
        model(X, 1)


def test_cache_that_others_could_write_to_is_refused(file, tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("EVOKERNEL_EXPORT_CACHE", str(shared))
    model = loaded(file).ModelNew(32)
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="writable by you and by nobody"):
        model(X, 1)


def test_mode_that_does_something_else_is_left_to_the_original(tmp_path, cache):
    task = TASK.replace("+ offset", "+ offset + self.training")
    kernel = KERNEL.replace("float(offset)", "float(offset + self.training)")
    found = checks(written(task, kernel), tmp_path)
    assert all(check.is_well for check in found)
    assert modes_served(found, "train") == ("train",)
    assert modes_served(found, "eval") == ("eval",)
    assert modes_served(checks(written(TASK, KERNEL), tmp_path), "eval") == ("train", "eval")


HALF = (
    TASK.replace("import torch\n", 'import torch\n\nEVOKERNEL = {"precision": "bf16"}\n', 1)
    .replace(
        "        self.shift",
        "        self.pair = [torch.full((width,), 1 / 3), torch.randn(width)]\n        self.shift",
    )
    .replace("+ offset", "+ offset + self.pair[0] * self.pair[1]")
)
HALF_KERNEL = """
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width, factor=2.0):
        super().__init__()
        self.factor = factor
        self.pair = [torch.full((width,), 1 / 3), torch.randn(width)]
        self._mask = torch.ones(width)
        self.shift = torch.nn.Parameter(torch.randn(width))

    def forward(self, x, offset=1):
        assert self._mask.dtype is torch.float32
        assert {tensor.dtype for tensor in self.pair} == {torch.bfloat16}
        more = self.pair[0] * self.pair[1] * self._mask.to(x.dtype)
        return x * self.factor + self.shift + offset + more
"""


def test_conversion_is_that_of_the_run(tmp_path, cache):
    found = checks(written(HALF, HALF_KERNEL), tmp_path)
    assert [(check.is_right, check.reasons) for check in found] == [(True, {}), (True, {})]
    made = loaded(tmp_path / "checked_kernel.py").ModelNew(32).to(torch.bfloat16)
    with torch.no_grad():
        assert made(X.bfloat16(), 1).dtype is torch.bfloat16
    assert (made.evokernel.calls, made.evokernel.reasons) == (1, {})


COUNTED = '        self.register_buffer("seen", torch.zeros(()))\n'
PACKED = "        self.packed = self.shift.detach() * 1\n"


@pytest.mark.parametrize(
    ("task", "kernel", "reason"),
    [
        (
            TASK.replace("\n    def fo", f"{COUNTED}\n    def fo").replace(
                "        return x", "        self.seen += 1\n        return x"
            ),
            KERNEL.replace("        self.kernels", f"{COUNTED}        self.kernels", 1),
            "the original changes its buffers in `forward`, and the kernel does not",
        ),
        (
            TASK,
            KERNEL.replace("        self.kernels", f"{PACKED}        self.kernels", 1).replace(
                "x, self.shift", "x, self.packed"
            ),
            "its error of",
        ),
        (TASK, KERNEL.replace("CPP)", 'CPP + " ")'), "a C.. source that was not verified"),
    ],
    ids=["buffers", "stale weights", "other source"],
)
@pytest.mark.filterwarnings("ignore:.*runs the original module:RuntimeWarning")
def test_what_would_not_serve_is_refused(cache, tmp_path, task, kernel, reason):
    with pytest.raises(ConfigError, match=reason):
        modes_served(checks(written(task, kernel), tmp_path), "train")


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (("", ""), {"fault": "", "shapes": {"shift": (32,)}}),
        (("self.shift", "self.bias"), {"fault": "", "shapes": {"bias": (32,)}}),
        (("kernels.affine(", "kernels.missing("), {"shapes": {}}),
    ],
)
def test_survey_sees_sources_and_parameters(change, seen, tmp_path):
    files = [tmp_path / name for name in ("task.json", "candidate.py", "answer.json")]
    task = Task.from_source(TASK, "affine-rows")
    files[0].write_text(task.model_dump_json())
    files[1].write_text(KERNEL.replace(*change) if change[0] else KERNEL)
    try:
        survey(*files)
    finally:
        jit.use_broker(None)
    found = Survey.model_validate_json(files[2].read_text())
    assert [kernel.source for kernel in found.kernels] == [CPP]
    assert {name: getattr(found, name) for name in seen} == seen
    if found.fault:
        assert 'no extern "C" function `missing`' in found.fault
    elif "bias" in found.shapes:
        with pytest.raises(ConfigError, match="no trained module could be loaded"):
            verified(task, ("default",), found.shapes)


def test_exported_file_is_read_without_running_it(file):
    found = read_exported(file, file.read_text())
    assert found.candidate.source == KERNEL
    assert found.task.source == TASK
    assert set(found.claims.speedups) == {"eager"}
    with pytest.raises(ConfigError, match="changed since"):
        read_exported(file, file.read_text().replace("#pragma omp parallel for", ""))
    assert read_exported(file, KERNEL) is None


@pytest.mark.parametrize(
    "text", ["", "a\n", "'''\"\"\"\n", "back\\", "cr\r\n", "é \x0c\n", '"""x"', "'''", "tab\t\n\\n"]
)
def test_texts_come_back_as_they_were(text):
    assert unquoted(ast.parse(quoted(text), mode="eval").body) == text


BAD = r"""
#include <cstdint>
extern "C" int fail(int code, const float* x, int8_t small, bool flag, double real) { return code; }
"""
CALLS = [
    (),
    (0, torch.ones(2).double(), 1, True, 1.0),
    (0, torch.ones(2, 2).t(), 1, True, 1.0),
    (0, "text", 1, True, 1.0),
    (0, torch.ones(2), 200, True, 1.0),
    (0, torch.ones(2), 1.5, True, 1.0),
    (0, torch.ones(2), torch.ones(1), True, 1.0),
    (0, torch.ones(2), 1, 7, 1.0),
    (0, torch.ones(2), 1, True, "text"),
    (3, None, 1, True, 1.0),
]


def test_calls_are_checked_as_in_the_run(cache):
    kernel = KernelSource(backend="cpp", source=BAD)
    known = {source_key(BAD, ()): signatures_of(kernel)}
    modules = (jit.cpp_module(BAD), Kernels(known, FLAGS).cpp_module(BAD))
    for arguments in CALLS:
        said = []
        for module in modules:
            with pytest.raises((TypeError, OverflowError, RuntimeError)) as error:
                module.fail(*arguments)
            said.append((error.type, str(error.value)))
        assert said[0] == said[1]
    with pytest.raises(AttributeError, match=r'no extern "C" function `other`; it has `fail`'):
        modules[1].other  # noqa: B018


@pytest.fixture
def run(tmp_path) -> Path:
    """The folder of a run whose best kernel is real, though nobody measured it."""
    from evokernel.config import RunConfig

    task = Task.from_source(TASK, "affine-rows")
    config = RunConfig(
        task="affine-rows",
        runs=tmp_path / "runs",
        budget={"attempts": 1},
        memory={"policy": "none"},
    )
    proposer = ScriptedProposer(lambda request: KERNEL)
    done = optimize(
        task, config, evaluator=FakeEvaluator(task), proposer=proposer, graph=fake_graph()
    )
    return done.path


def test_best_of_a_run_brings_its_claims(run, tmp_path):
    subject = of_run(run)
    assert subject.candidate.source == KERNEL
    assert subject.workloads == ("default",)
    assert {n: c.processes for n, c in subject.claims.speedups.items()} == {
        "eager": 3,
        "compile": 1,
    }
    assert "attempt 1 of run" in subject.claims.sentence()


def test_strict_file_makes_strict_modules(tmp_path, cache):
    (tmp_path / "strict_kernel.py").write_text(written(TASK, KERNEL, is_strict=True))
    module = loaded(tmp_path / "strict_kernel.py")
    with pytest.raises(module.OutsideVerifiedDomain, match="a gradient is wanted"):
        module.ModelNew(32)(X, 1)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["nothing-there"], "there is no run `nothing-there`"),
        (["missing.py"], "cannot read `missing.py`"),
        (["{kernel}"], "name its task with `--task TASK`"),
        (["{kernel}", "--task", "sofmax"], "Did you mean `softmax`"),
        (["{empty}"], "is not a run folder"),
        (["{run}", "-o", "{kernel}"], "exists and is no exported file"),
    ],
)
def test_command_says_what_is_wrong(arguments, word, run, tmp_path, capsys):
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "empty").mkdir()
    places = {"kernel": tmp_path / "kernel.py", "empty": tmp_path / "empty", "run": run}
    assert main(["export", *(word.format(**places) for word in arguments)]) == 2
    assert word in capsys.readouterr().err


def test_command_judges_a_candidate_first(commanded, tmp_path, capsys, monkeypatch):
    target, report = commanded
    monkeypatch.setenv("EVOKERNEL_HOME", str(target.parent))  # which knows the device
    assert report["workloads"] == ["default", "small"]
    assert report["modes"] == ["train", "eval"]
    assert loaded(target).RECORD["measurement"] == "quick"
    wrong = tmp_path / "wrong.py"
    wrong.write_text(KERNEL.replace("* factor", "* factor * 1.5f"))
    given = ["--task", str(target.parent / "affine_rows.py"), "-o", str(tmp_path / "fast.py")]
    assert main(["export", str(wrong), *given, "--quick"]) == 1
    assert "wrong_values" in capsys.readouterr().err
    assert not (tmp_path / "fast.py").exists()
