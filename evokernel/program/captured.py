"""Owns the capture of a live module: a task file with its operators, and its weights beside it.

`torch.export` records what `forward` does with the example inputs; that is written down as Python,
operator by operator, so that trusted processes run text and never unpickle an object. Weights lie
in a file of plain tensors that the task names by its hash. What depends on tensor values, on time
or on objects that are no tensors cannot be recorded, and is said so.
"""

import hashlib
import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evokernel.config import home
from evokernel.errors import ModuleNotCaptured
from evokernel.program.drawn import EXACT, alike, drawn, exactly
from evokernel.task import Task

if TYPE_CHECKING:
    import torch

_REDUCED = {"bfloat16": "bf16", "float16": "fp16"}
_ADVICE = "write it as a task file (docs/tasks.md), or capture a part of it"


class Recorded(NamedTuple):
    """What a module does with its example inputs."""

    forward: str
    """Text of the method."""
    state: dict[str, Any]
    """Parameters and persistent buffers, by their names in the module."""
    parameters: frozenset[str]
    """Which of them are parameters."""
    constants: dict[str, Any]
    """Other tensors that it uses, by the names of the attributes that hold them."""


def captured(
    module: "torch.nn.Module",
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    name: str = "",
    device: str = "cpu",
) -> Task:
    """Make a task of a live module.

    Inputs are drawn anew for every call: floating-point ones with the mean and spread of the
    examples (or their range, where none is negative), whole numbers within their range; booleans
    stay what they are. Shapes, dtypes and strides are the examples'.

    Args:
        module: In the mode (train or eval) in which it is to be made fast; it is left as it is.
        inputs: Example arguments of `forward`: tensors, plain values, and lists, tuples and
            dictionaries of them.
        kwargs: Arguments by name.
        name: Name of the task; the class's by default.
        device: Kind of device that it is to be judged on, `cpu` or `cuda`.

    Raises:
        ModuleNotCaptured: says what stands in the way.
    """
    module, args, named = _on_the_processor(module, tuple(inputs), dict(kwargs or {}))
    found = recorded(module, args, named)
    cast = _common_dtype(found, (args, named))
    weights = _stored(found.state)
    kind = type(module)
    options: dict[str, Any] = {
        "precision": _REDUCED.get(str(cast).removeprefix("torch."), "fp32"),
        "mode": "train" if module.training else "eval",
        "origin": f"{kind.__module__}.{kind.__qualname__}",
    }
    if weights:
        options["weights"] = {"file": str(weights[0]), "sha256": weights[1]}
    values = [*args, *(named[key] for key in _order(module, args, named)[len(args) :])]
    source = _assembled(found, [_written(value, cast) for value in values], options, kind, cast)
    return Task.from_source(source, name or _snake(kind.__name__), device)


def recorded(
    module: "torch.nn.Module", args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> Recorded:
    """Record what a module on the processor does with these arguments.

    Raises:
        ModuleNotCaptured: says what stands in the way.
    """
    import torch

    kwargs = dict(kwargs or {})
    label = f"`{type(module).__name__}`"
    try:
        with torch.no_grad():
            program = torch.export.export(module, args, kwargs)
    except Exception as error:  # whatever torch finds in a stranger's module
        said = " ".join(str(error).split()) or type(error).__name__
        raise ModuleNotCaptured(
            f"{label} cannot be captured: torch.export says `{said:.300}`; {_ADVICE}"
        ) from error
    return _read(program, module, args, kwargs, label)


def _read(
    program: Any,
    module: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    label: str,
) -> Recorded:
    import torch
    from torch.export.graph_signature import OutputKind

    outputs = program.graph_signature.output_specs
    if any(spec.kind is not OutputKind.USER_OUTPUT for spec in outputs):
        raise ModuleNotCaptured(f"{label} cannot be captured: it changes its inputs; {_ADVICE}")
    order = _order(module, args, kwargs)
    leaves = _leaves((*args, *(kwargs[key] for key in order[len(args) :])), order)
    held = _held(program, leaves, label)
    lines = _body(program.graph_module, held.heads, label)
    results = [
        getattr(node, "name", repr(node))
        for node in program.graph_module.graph.output_node().args[0]
    ]
    returned = _rendered(torch.utils._pytree.tree_unflatten(results, program.call_spec.out_spec))
    if returned is None:
        raise ModuleNotCaptured(
            f"{label} cannot be captured: it returns something else than tensors in lists, tuples "
            f"and dictionaries; {_ADVICE}"
        )
    lines.append(f"return {returned}")
    text = "\n".join(f"        {line}" for line in lines)
    forward = f"    def forward({', '.join(('self', *order))}):\n{text}\n"
    return Recorded(forward, held.state, frozenset(held.parameters), held.constants)


class _Held(NamedTuple):
    """What a recorded program reads."""

    heads: list[str]
    """An expression for each, in its order."""
    state: dict[str, Any]
    parameters: set[str]
    constants: dict[str, Any]


def _held(program: Any, leaves: list[str], label: str) -> _Held:
    """Where the program finds each of its inputs: among the arguments, or in the module."""
    from torch.export.graph_signature import InputKind

    found = _Held([], {}, set(), {})
    for spec in program.graph_signature.input_specs:
        name = spec.target
        if spec.kind is InputKind.USER_INPUT:
            found.heads.append(leaves.pop(0))
            continue
        if spec.kind is InputKind.PARAMETER:
            found.state[name] = program.state_dict[name].detach()
            found.parameters.add(name)
        elif spec.kind is InputKind.BUFFER and spec.persistent:
            found.state[name] = program.state_dict[name].detach()
        elif spec.kind in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            place = found.constants if exactly(program.constants[name]) else found.state
            place[name] = program.constants[name].detach()
        else:
            what = spec.kind.name.lower().replace("_", " ")
            raise ModuleNotCaptured(f"{label} cannot be captured: it uses a {what}; {_ADVICE}")
        found.heads.append(_attribute(name))
    return found


def _order(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    """Names of the given arguments, in the order of forward's own signature."""
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise ModuleNotCaptured(
            f"the example inputs do not fit `{type(module).__name__}.forward`: {error}"
        ) from error
    kinds = {p.kind for n, p in bound.signature.parameters.items() if n in bound.arguments}
    if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        return [*(f"input_{n}" for n in range(1, len(args) + 1)), *kwargs]
    return list(bound.arguments)


def _leaves(values: tuple[Any, ...], names: list[str]) -> list[str]:
    """An expression for every leaf of the arguments, in the order in which torch flattens them."""
    from torch.utils import _pytree

    return [
        f"{name}{_pytree.keystr(path)}"
        for name, value in zip(names, values, strict=True)
        for path, _ in _pytree.tree_flatten_with_path(value)[0]
    ]


def _body(graph_module: Any, heads: list[str], label: str) -> list[str]:
    """The statements of forward, one for each operator."""
    nodes = list(graph_module.graph.nodes)
    if other := [n for n in nodes if n.op not in ("placeholder", "call_function", "output")]:
        raise ModuleNotCaptured(
            f"{label} cannot be captured: it branches or loops on tensors (`{other[0].target}`); "
            f"{_ADVICE}"
        )
    names = [node.name for node in nodes if node.op == "placeholder"]
    lines = [f"{n} = {head}" for n, head in zip(names, heads, strict=True) if n != head]
    _, _, text = graph_module.code.partition("):\n")
    for line in text.splitlines():
        statement = re.sub(r";  (\w+ = )+None$", "", line.split("  # ")[0].strip())
        if statement and not statement.startswith("return "):
            lines.append(re.sub(r"\bdevice\(", "torch.device(", statement))
    return lines


def _rendered(tree: Any) -> str | None:
    """The expression of what forward returns; None for a container of another kind."""
    if isinstance(tree, str):
        return tree
    if type(tree) is dict:
        inner = [(repr(key), _rendered(value)) for key, value in tree.items()]
        return None if any(v is None for _, v in inner) else _braced("{", inner)
    if type(tree) in (list, tuple):
        parts = [_rendered(value) for value in tree]
        if None in parts:
            return None
        joined = ", ".join(map(str, parts))
        comma = "," if len(parts) == 1 else ""
        return f"[{joined}]" if isinstance(tree, list) else f"({joined}{comma})"
    return None


def _braced(opening: str, pairs: list[tuple[str, str | None]]) -> str:
    return opening + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"


def _on_the_processor(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A copy there, if it is elsewhere: tasks are made on the processor."""
    import copy

    import torch

    from evokernel.nested import map_leaves

    def moved(leaf: Any) -> Any:
        return leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else leaf

    tensors = [*module.parameters(), *module.buffers()]
    if any(tensor.device.type == "meta" for tensor in tensors):
        raise ModuleNotCaptured(
            f"`{type(module).__name__}` has no weights yet (they are on `meta`); load them first"
        )
    if any(tensor.device.type != "cpu" for tensor in tensors):
        module = copy.deepcopy(module).cpu()
    return module, map_leaves(moved, args), map_leaves(moved, kwargs)


def _common_dtype(found: Recorded, arguments: Any) -> Any:
    """The reduced dtype that all floating-point tensors share; None for any other mixture."""
    import torch

    from evokernel.nested import leaves

    given = [leaf for _, leaf in leaves(arguments) if isinstance(leaf, torch.Tensor)]
    tensors = [*given, *found.state.values()]
    kinds = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    return kinds.pop() if len(kinds) == 1 and kinds <= {torch.bfloat16, torch.float16} else None


def _stored(state: dict[str, Any]) -> tuple[Path, str] | None:
    """Write the weights into a file under the hash of what they are, unless it is there."""
    import io

    import torch

    if not state:
        return None
    content = io.BytesIO()
    torch.save({key: value.contiguous().clone() for key, value in state.items()}, content)
    sha = hashlib.sha256(content.getbuffer()).hexdigest()
    file = home() / "captured" / f"{sha[:16]}.pt"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        half = file.with_suffix(".part")
        half.write_bytes(content.getbuffer())
        half.replace(file)
    return file.absolute(), sha


def _written(value: Any, cast: Any) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        return drawn(value.cpu(), cast)
    if type(value) is dict:
        return _braced("{", [(repr(key), _written(inner, cast)) for key, inner in value.items()])
    if type(value) in (list, tuple):
        inner = ", ".join(_written(each, cast) for each in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    raise ModuleNotCaptured(
        f"an example input is a {type(value).__name__}; expected tensors, numbers, texts, None, "
        "and lists, tuples and dictionaries of them"
    )


def _assembled(
    found: Recorded, inputs: list[str], options: dict[str, Any], kind: type, cast: Any
) -> str:
    lines = [f"        {line}" for line in _containers((*found.state, *found.constants))]
    for name, tensor in found.state.items():
        path, _, key = name.rpartition(".")
        holder, text = _attribute(path), alike(tensor, cast)
        if name in found.parameters:
            lines.append(f"        {_attribute(name)} = nn.Parameter({text})")
        else:
            lines.append(f'        {holder}.register_buffer("{key}", {text})')
    for name, tensor in found.constants.items():
        path, _, key = name.rpartition(".")
        held = f'{_attribute(path)}.register_buffer("{key}", {exactly(tensor)}, persistent=False)'
        lines.append(f"        {held}")
    body = "".join(f"{line}\n" for line in lines)
    made = "".join(f"        {text},\n" for text in inputs)
    helper = EXACT + "\n" if "exact(" in body + made else ""
    prologue = "import base64\nimport zlib\n" if helper else ""
    words = set(re.findall(r"\b(?:inf|nan)\b", found.forward))
    numbers = f"from math import {', '.join(sorted(words))}\n" if words else ""
    return (
        f'"""{kind.__name__}, captured from a live module."""\n\n{prologue}{numbers}\n'
        f"import torch\nfrom torch import nn\n\nEVOKERNEL = {options!r}\n\n{helper}\n"
        f"class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n{body}\n"
        f"{found.forward}\n\ndef get_inputs():\n    return [\n{made}    ]\n"
    )


def _containers(names: Sequence[str]) -> list[str]:
    """Empty parts that hold the tensors under their own names."""
    paths = {name.rpartition(".")[0] for name in names}
    all_paths = {path[: m.start()] for path in paths for m in re.finditer(r"\.|$", path) if path}
    holders = []
    for path in sorted(all_paths, key=lambda path: (path.count("."), path)):
        parent, _, key = path.rpartition(".")
        holders.append(f'{_attribute(parent)}.add_module("{key}", nn.Module())')
    return holders


def _attribute(path: str) -> str:
    """The expression of a module's part or tensor; those of a `Sequential` are numbered."""
    found = "self"
    for key in filter(None, path.split(".")):
        found = f"{found}.{key}" if key.isidentifier() else f'getattr({found}, "{key}")'
    return found


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
