"""Owns the calls of Triton, in a process of its own: a candidate's kernels, compiled for a target.

This file is run as a program, by its text: it imports the candidate, which may do anything, and has
Triton compile each launch for a GPU that need not be here. Triton finds out for itself what of a
launch's arguments it specialises on: it is asked through its own front door, with a driver that
knows the target and nothing else. Which launches there are, the candidate says in `LAUNCHES`, or is
found out by running its `forward` on tensors without data.
Exit codes: 0 answered, 4 Triton cannot be used; whatever else a candidate may have chosen.
"""

import contextlib
import functools
import importlib.util
import io
import json
import sys
import traceback
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

UNUSABLE = 4
"""Exit code: it is Triton that does not work."""
ANSWER = "answer.json"
"""File with the answer, beside the candidate."""

_SOME = {"i1": True, "fp16": 0.5, "bf16": 0.5, "fp32": 0.5, "fp64": 0.5}
_SOME |= {f"{sign}{bits}": 7 for sign in "iu" for bits in (8, 16, 32)}
_SOME |= {"i64": 2**40 + 7, "u64": 2**63 + 7}
"""A number of each type that Triton does not specialise on."""
_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
_DTYPES |= {"i1": "bool", "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2"}
_DTYPES |= {f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}
_DTYPES |= {f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)}


class _Dtype:
    """Stands in for torch's, of which Triton reads the name; importing torch takes seconds."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __str__(self) -> str:
        return f"torch.{self._name}"


@functools.cache
def _dtype(name: str) -> _Dtype:
    """One for each name: Triton remembers what it read of a dtype by where it lies in memory."""
    return _Dtype(name)


class Session:
    """One candidate and what became of its kernels."""

    def __init__(self, job: Mapping[str, Any], archive: zipfile.ZipFile) -> None:
        self.job = job
        self.archive = archive
        self.kernels: list[dict[str, Any]] = []
        self.faults: list[dict[str, Any]] = []
        self.notes: list[str] = []

    def compile(self, kernel: Any, args: Sequence[Any], options: dict[str, Any]) -> None:
        """Compile one launch; what is wrong with it becomes a fault."""
        function, options = self._plain(kernel, args, dict(options))
        with io.StringIO() as text, contextlib.redirect_stdout(text):
            try:
                built = _jit_run(function)(function, *args, grid=(1,), warmup=True, **options)
            except (Exception, SystemExit) as error:
                self.faults.append(_fault(error, self.job["source"]))
                return
            log = text.getvalue()
        self._keep(function, built, log)

    def _keep(self, function: Any, built: Any, log: str) -> None:
        metadata = built.metadata
        name = function.__name__
        warps, stages = metadata.num_warps, metadata.num_stages
        found = {"name": name, "log": log, "shared": metadata.shared}
        found |= {"warps": warps, "stages": stages}
        if found in self.kernels:
            return
        number = sum(kernel["name"] == name for kernel in self.kernels)
        self.kernels.append(found)
        self.archive.writestr(f"{name}.{number}.cubin", built.asm["cubin"])
        self.archive.writestr(f"{name}.{number}.ptx", built.asm["ptx"])

    def _plain(
        self, kernel: Any, args: Sequence[Any], options: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """The function inside `@triton.autotune` and `@triton.heuristics`, and its options."""
        while hasattr(kernel, "fn") and not hasattr(kernel, "device_caches"):
            if hasattr(kernel, "configs"):
                options = {**kernel.configs[0].all_kwargs(), **options}
                self._note_autotune(kernel)
            for name, heuristic in (getattr(kernel, "values", None) or {}).items():
                given = dict(zip(kernel.arg_names, args, strict=False))
                options[name] = heuristic({**given, **options})
            kernel = kernel.fn
        return kernel, options

    def _note_autotune(self, kernel: Any) -> None:
        count = len(kernel.configs)
        note = (
            f"`{kernel.base_fn.__name__}` chooses among {count} configurations when it runs "
            "(`triton.autotune`); the first was compiled. `TUNE` lets EvoKernel search them"
        )
        if count > 1 and note not in self.notes:
            self.notes.append(note)


def answer(job: Mapping[str, Any]) -> int:
    """Compile every launch of the candidate, and write the answer and the archive."""
    sys.path += job["path"]
    try:
        _set_target(job["capability"])
    except Exception:  # whatever is wrong with it: the parent says so
        traceback.print_exc()
        return UNUSABLE
    with zipfile.ZipFile(job["archive"], "w", zipfile.ZIP_DEFLATED) as archive:
        session = Session(job, archive)
        try:
            module = _imported(job["source"])
            _launch_all(session, module)
        except (Exception, SystemExit) as error:
            session.faults.append(_fault(error, job["source"]))
    told = {"kernels": session.kernels, "faults": session.faults, "notes": session.notes}
    Path(ANSWER).write_text(json.dumps(told), encoding="utf-8")
    return 0


def _set_target(capability: int) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    class Named:
        """What Triton's compiler asks a driver."""

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", capability, 32)

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return 0

    driver.set_active(Named())


def _imported(source: str) -> Any:
    spec = importlib.util.spec_from_file_location("candidate", source)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    return module


def _launch_all(session: Session, module: Any) -> None:
    declared = getattr(module, "LAUNCHES", None)
    if declared is None:
        _run_forward(session, module)
        return
    if not isinstance(declared, dict):
        raise TypeError("`LAUNCHES` must be a dictionary from kernels' names to their arguments")
    for name, launches in declared.items():
        kernel = getattr(module, name, None)
        if kernel is None or not hasattr(kernel, "run"):
            raise TypeError(f"`LAUNCHES` names `{name}`, which is no Triton kernel of the module")
        for launch in [launches] if isinstance(launches, dict) else launches:
            session.compile(kernel, (), {n: _stand_in(v) for n, v in launch.items()})


def _stand_in(value: Any) -> Any:
    """What a declared argument means: `*fp32` a tensor, `i32` any number, else a value."""
    from triton.runtime.jit import MockTensor

    if isinstance(value, str) and value[:1] == "*" and value[1:] in _DTYPES:
        return MockTensor(_dtype(_DTYPES[value[1:]]))
    return _SOME.get(value, value) if isinstance(value, str) else value


def _run_forward(session: Session, module: Any) -> None:
    """Run the model on tensors without data; every launch is compiled instead of made."""
    if not session.job["task"]:
        raise LookupError(
            "it is not known how its kernels are launched; declare `LAUNCHES`, or name the task "
            "whose inputs they are for (`--task NAME`)"
        )
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    task: dict[str, Any] = {"__name__": "task"}
    with FakeTensorMode(allow_non_fake_inputs=True), _compiling(session):
        exec(compile(session.job["task"], "task.py", "exec"), task)
        inputs = [_on_gpu(value) for value in task["get_inputs"]()]
        model = module.ModelNew(*task.get("get_init_inputs", list)())
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.data = _on_gpu(tensor.data)
        with torch.no_grad():
            model(*inputs)


def _on_gpu(value: Any) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda:0")


@contextlib.contextmanager
def _compiling(session: Session) -> Iterator[None]:
    """Let every launch of the block be compiled, and none be made."""
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **options: Any) -> None:
        stood_in = {name: _without_data(value) for name, value in options.items()}
        session.compile(kernel, [_without_data(value) for value in args], stood_in)

    kinds = (JITFunction, Autotuner, Heuristics)
    kept = [kind.run for kind in kinds]
    _RUN[JITFunction] = JITFunction.run
    for kind in kinds:
        kind.run = run
    try:
        yield
    finally:
        for kind, method in zip(kinds, kept, strict=True):
            kind.run = method


_RUN: dict[Any, Any] = {}


def _jit_run(function: Any) -> Any:
    return _RUN.get(type(function), type(function).run)


def _without_data(value: Any) -> Any:
    import torch
    from triton.runtime.jit import MockTensor

    return MockTensor(value.dtype, list(value.shape)) if isinstance(value, torch.Tensor) else value


def _fault(error: BaseException, source: str) -> dict[str, Any]:
    """What went wrong, and in which line of the candidate."""
    chain = [error]
    while following := chain[-1].__cause__ or chain[-1].__context__:
        chain.append(following)
    told = [e for e in chain if getattr(e, "node", None) is not None and getattr(e, "src", None)]
    if told:
        inner: Any = told[-1]
        message = getattr(inner, "error_message", None) or str(chain[-1])
        line = _line(inner.src, inner.node.lineno, source)
        column = None if line is None else inner.node.col_offset + 1
        return {"message": f"{message}", "line": line, "column": column}
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith(source)]
    line = frames[-1].lineno if frames else getattr(error, "lineno", None)
    text = getattr(error, "msg", "") or str(error) or "no message"
    return {"message": f"{type(error).__name__}: {text}", "line": line, "column": None}


def _line(function: str, line: int, source: str) -> int | None:
    """The candidate's line that is a line of one of its functions' text."""
    text = Path(source).read_text(encoding="utf-8")
    at = text.find(function.strip("\n"))
    return text.count("\n", 0, at) + line if at >= 0 else None


if __name__ == "__main__":
    sys.exit(answer(json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))))
