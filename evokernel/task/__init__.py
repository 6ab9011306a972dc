"""Owns `Task`: a reference file in the KernelBench format, checked without running it.

Nothing here imports torch; `evokernel.program.Program` executes what a `Task` describes.
"""

import ast
import hashlib
import tokenize
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError, field_validator

from evokernel.errors import TaskError
from evokernel.frozen import Frozen
from evokernel.task.constants import assignments, bound_names, nearest, with_constants

if TYPE_CHECKING:
    from evokernel.program import Program

BUILT_IN = Path(__file__).parent.with_name("tasks")
"""Folder of the built-in suite."""

Device = Literal["cpu", "cuda"]
Precision = Literal["fp32", "tf32", "fp16", "bf16"]

_FORMAT = (
    "a task file defines a class `Model` (a `torch.nn.Module`), `get_inputs()` that returns the "
    "list of forward's arguments and, where the constructor takes any, `get_init_inputs()`"
)


class Tolerance(Frozen):
    """How far a candidate may be from the fp64 reference."""

    factor: float = Field(default=10.0, gt=0)
    """Allowed error as a multiple of the reference's own error against fp64. Dimensionless."""
    rtol: float | None = Field(default=None, ge=0)
    """Relative tolerance that replaces the factor rule; needs no `atol`."""
    atol: float | None = Field(default=None, ge=0)
    """Absolute tolerance that replaces the factor rule; needs no `rtol`."""


class Weights(Frozen):
    """Values of the reference's parameters and buffers, kept beside the file."""

    file: str
    """Path of a file of plain tensors by name, as `torch.save` writes it."""
    sha256: str
    """Of its bytes."""


class TaskOptions(Frozen):
    """What a file may say about itself in `EVOKERNEL = {...}`; every key has a default."""

    title: str = ""
    """A few words for listings."""
    level: int | None = Field(default=None, ge=1, le=4)
    """KernelBench's level: 1 one operator, 2 fused, 3 a network, 4 a published model."""
    precision: Precision = "fp32"
    """`fp32` forbids reduced precision, `tf32` allows it; the others cast inputs and parameters."""
    tolerance: Tolerance = Tolerance()
    """A number stands for its `factor`."""
    contract: Literal["own_kernels_only", "library_allowed"] | None = None
    """What a candidate may call; None leaves it to the command."""
    memory_bytes: int | None = Field(default=None, gt=0)
    """Most memory that evaluating this task may take, bytes; None is what the machine has free."""
    direction: Literal["forward"] = "forward"
    """Which pass is made fast."""
    special_values: Literal["follow", "ignore"] = "follow"
    """Whether NaN, infinities and denormals must come out as the reference gives them."""
    mode: Literal["train", "eval"] = "train"
    """Mode of the module when it is called; KernelBench leaves it as constructed: `train`."""
    weights: Weights | None = None
    """What the constructor's weights are replaced by; None leaves them."""
    origin: str = ""
    """Class of the live module that the task was captured from."""
    sizes: dict[Device, dict[str, int | float | str | tuple[int, ...]]] = {}
    """Per kind of device: values that replace module-level constants of the file."""

    @field_validator("tolerance", mode="before")
    @classmethod
    def _factor_alone(cls, value: Any) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return {"factor": value} if is_number else value


class Workload(Frozen):
    """Which inputs of a task: shapes, dtypes and values, made by `Program.make_inputs`."""

    name: str
    """Unique within the task; `default` is what `get_inputs` gives."""
    index: int
    """0 is `get_inputs`; n is entry n - 1 of `get_workloads`."""
    seed: int = 0
    """Seed used where the caller names none."""
    hidden: bool = False
    """Never shown to whoever writes candidates."""


class Task(Frozen):
    """One operator or small program to make fast."""

    name: str
    """File stem."""
    source: str
    """The file's text, with the constants of `options.sizes` for `device` put in; stands alone."""
    device: str = "cpu"
    """Device that the sizes were chosen for, e.g. `cpu` or `cuda:0`."""
    path: str | None = None
    """Where the file lies; None if it was given as text."""
    options: TaskOptions = TaskOptions()
    """What its `EVOKERNEL` says."""
    title: str = ""
    """A few words for listings: the option, else the docstring's first line, else the name."""
    level: int | None = None
    """KernelBench's level, or None if the file does not say."""

    @classmethod
    def load(cls, where: str | Path, device: str = "cpu") -> "Task":
        """Read a built-in task by name, or any file in the KernelBench format by path.

        The file is parsed, not executed, and torch is not imported.

        Raises:
            TaskError: no such task or file, not Python, or a part of the format is missing.
        """
        path = _locate(where)
        return cls.from_source(_read(path), name=path.stem, device=device, path=path)

    @classmethod
    def from_source(
        cls,
        source: str,
        name: str = "task",
        device: str = "cpu",
        path: Path | None = None,
        **constants: Any,
    ) -> "Task":
        """Make a task from text; `constants` replace module-level ones, after the file's sizes.

        Raises:
            TaskError: as for `load`.
        """
        label = f"`{path or name}`"
        tree = _parse(source, label)
        _require_parts(tree, label)
        options = _options(tree, label)
        values = {**options.sizes.get(_device_kind(device), {}), **constants}
        doc = (ast.get_docstring(tree) or "").partition("\n")[0]
        return cls(
            name=name,
            source=with_constants(source, tree, values, label),
            device=device,
            path=None if path is None else str(path),
            options=options,
            title=options.title or doc or name,
            level=options.level,
        )

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names of the built-in tasks, sorted."""
        return tuple(sorted(path.stem for path in BUILT_IN.glob("[!_]*.py")))

    @classmethod
    def suite(cls, device: str = "cpu") -> "tuple[Task, ...]":
        """Every built-in task, by level and name."""
        tasks = (cls.load(BUILT_IN / f"{name}.py", device) for name in cls.names())
        return tuple(sorted(tasks, key=lambda task: (task.level or 9, task.name)))

    @cached_property
    def sha(self) -> str:
        """First 16 hex digits of the SHA-256 of the source."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]

    @property
    def description(self) -> str:
        """The file's docstring, or an empty text."""
        return ast.get_docstring(ast.parse(self.source)) or ""

    def resized(self, **constants: Any) -> "Task":
        """The same task with other values for module-level constants, e.g. `resized(ROWS=64)`.

        Raises:
            TaskError: the file has no such constant.
        """
        label = f"`{self.path or self.name}`"
        source = with_constants(self.source, _parse(self.source, label), constants, label)
        return self._with(source=source)

    def in_precision(self, precision: Precision) -> "Task":
        """The same task in another precision: the option is put into its text.

        Raises:
            TaskError: `EVOKERNEL` is assigned more than once.
        """
        label = f"`{self.path or self.name}`"
        tree = _parse(self.source, label)
        value = {**_raw_options(tree, label), "precision": precision}
        if not assignments(tree).get("EVOKERNEL"):
            source = f"{self.source.rstrip()}\n\nEVOKERNEL = {value!r}\n"
        else:
            source = with_constants(self.source, tree, {"EVOKERNEL": value}, label)
        options = self.options.model_copy(update={"precision": precision})
        return self._with(source=source, options=options)

    def _with(self, **changes: Any) -> "Task":
        """A changed copy; `model_copy` would take the old text's hash along."""
        return Task(**{name: getattr(self, name) for name in Task.model_fields} | changes)

    def program(self) -> "Program":
        """Execute the file once; this imports torch.

        Raises:
            TaskError: the file raises.
        """
        from evokernel.program import Program

        return Program(self)


def _device_kind(device: str) -> Device:
    match device.partition(":")[0]:
        case "cpu":
            return "cpu"
        case "cuda":
            return "cuda"
    raise TaskError(f"`{device}` is no device of tasks; expected `cpu` or `cuda`.")


def _locate(where: str | Path) -> Path:
    path = Path(where).expanduser()
    if isinstance(where, str) and where in Task.names():
        return BUILT_IN / f"{where}.py"
    if path.is_dir():
        raise TaskError(f"`{where}` is a folder; expected the path of a Python file.")
    if path.exists():
        return path
    if path.suffix == ".py" or len(path.parts) > 1:
        raise TaskError(
            f"`{where}` does not exist; expected the path of a task file or the name of a built-in "
            f"task (`evokernel task list`).{nearest(path.stem, Task.names())}"
        )
    raise TaskError(
        f"`{where}` is neither a built-in task nor a file.{nearest(str(where), Task.names())} "
        "`evokernel task list` shows the built-in tasks; a file of your own is given by its path."
    )


def _read(path: Path) -> str:
    try:
        with tokenize.open(path) as file:  # honours a coding cookie, as the interpreter does
            return file.read()
    except OSError as error:
        raise TaskError(f"`{path}` cannot be read: {error.strerror or error}.") from error
    except (UnicodeDecodeError, SyntaxError) as error:
        raise TaskError(f"`{path}` is not a Python file in a known encoding: {error}.") from error


def _parse(source: str, label: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        text = (error.text or "").strip()
        at = f"line {error.lineno}" + (f", `{text}`" if text else "")
        raise TaskError(f"{label} is not valid Python: {error.msg} ({at}).") from error
    except ValueError as error:  # null bytes
        raise TaskError(f"{label} is not valid Python: {error}.") from error


def _require_parts(tree: ast.Module, label: str) -> None:
    bound = bound_names(tree.body)
    if "*" in bound:  # a star import may bring anything; executing the file will tell
        return
    for part in ("Model", "get_inputs"):
        if part in bound:
            continue
        hint = ""
        if part == "Model" and "ModelNew" in bound:
            hint = " It defines `ModelNew`: is it a candidate, to be evaluated against a task?"
        raise TaskError(f"{label} has no `{part}`: {_FORMAT}.{hint}")


def _options(tree: ast.Module, label: str) -> TaskOptions:
    try:
        return TaskOptions.model_validate(_raw_options(tree, label))
    except ValidationError as error:
        raise TaskError(_first_fault(error, label)) from error


def _raw_options(tree: ast.Module, label: str) -> dict[str, Any]:
    """`EVOKERNEL` as the file has it; empty where it has none."""
    values = assignments(tree).get("EVOKERNEL")
    if not values:
        return {}
    try:
        raw = ast.literal_eval(values[-1])
    except ValueError as error:
        raise TaskError(
            f"`EVOKERNEL` of {label} (line {values[-1].lineno}) must be written as a literal "
            "dictionary: it is read without running the file, so it cannot hold names and calls."
        ) from error
    if not isinstance(raw, dict):
        raise TaskError(f"`EVOKERNEL` of {label} is a {type(raw).__name__}; expected a dictionary.")
    return raw


def _first_fault(error: ValidationError, label: str) -> str:
    fault = error.errors()[0]
    key = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        known = Tolerance.model_fields if key.startswith("tolerance.") else TaskOptions.model_fields
        suggestion = nearest(str(fault["loc"][-1]), known)
        return (
            f"`EVOKERNEL` of {label} has the unknown key `{key}`.{suggestion} "
            f"Known: {', '.join(known)}."
        )
    message = str(fault["msg"]).replace("Input should be", "expected")
    return f"`EVOKERNEL` of {label}: `{key}` is {fault['input']!r}; {message}."
