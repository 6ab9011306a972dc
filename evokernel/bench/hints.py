"""Owns the reading of a candidate's text for lines that are worth a look.

They decide nothing: the same lines stand in honest kernels, and none of them in a careful cheat.
Evidence of what ran is in `bench.evidence`.
"""

import ast
import re
from collections.abc import Iterator

from evokernel.evaluation import Diagnostic

MOST = 12
"""Lines that are shown."""
_FILE = "candidate.py"
_LINE = 1000
"""Characters of a line of C++ that are looked at."""
_MOST_PARTS = 8
"""Parts of a dotted name that is looked at."""
_BLOB = 400
"""Length of a text without spaces that may be a packed file."""

_IMPORTS = {
    **dict.fromkeys(("numpy", "scipy", "numba", "cupy", "jax", "tensorflow"), "another library"),
    **dict.fromkeys(("ctypes", "cffi", "mmap"), "reaches memory and libraries directly"),
    **dict.fromkeys(
        ("subprocess", "multiprocessing", "concurrent", "threading", "asyncio"),
        "work that a call may leave to others",
    ),
    **dict.fromkeys(("gc", "inspect", "sys", "importlib", "traceback"), "looks at the process"),
    **dict.fromkeys(("base64", "zlib", "lzma", "bz2", "marshal", "pickle"), "unpacks data"),
    **dict.fromkeys(("socket", "urllib", "http", "requests"), "the network"),
    **dict.fromkeys(("time", "resource", "signal"), "clocks and limits"),
}
_NAMES = {
    "torch.compile": "lets torch compile it",
    "torch.jit": "lets torch compile it",
    "torch._dynamo": "lets torch compile it",
    "torch._inductor": "lets torch compile it",
    "torch.ops": "names operators of the library directly",
    "torch._C": "reaches below torch's own checks",
    "torch.utils._python_dispatch": "reaches the log of operators",
    "torch.utils.cpp_extension": "builds with torch's headers, which takes a minute or two",
    "os.fork": "starts another process",
    "os.environ": "reads or changes the environment",
    "exec": "runs text as code",
    "eval": "runs text as code",
    "compile": "runs text as code",
    "__import__": "imports by name",
    "globals": "looks at the process",
}
_METHODS = {
    "data_ptr": "uses an address: results kept by address are not results",
    "as_subclass": "returns another kind of tensor",
    "numpy": "leaves torch",
    "__array__": "leaves torch",
}
_NATIVE = (
    (r"\bdl(open|sym)\b|\bdlmopen\b", "looks for functions of other libraries"),
    (r"\b(fork|vfork|exec[vl]\w*|posix_spawn|system|popen)\s*\(", "starts another process"),
    (r"\bmprotect\b|\bmmap\s*\(.*PROT_EXEC", "makes machine code"),
    (r"\bsyscall\s*\(|\b__?asm\b|\basm\s+volatile\b", "goes round the language"),
    (r"/proc/self|/dev/shm|\bfopen\s*\(|\bstd::[io]?fstream\b", "reads or writes files"),
    (r"\b(cblas|dnnl|mkl|openblas)_\w+|\bat::|\b[sd]gemm_?\b", "lets another library compute"),
    (r"\bstd::(thread|async)\b|\bpthread_create\b", "work that a call may leave to others"),
    (r"\bstatic\s+(std::)?(unordered_)?map\b", "keeps something between calls"),
    (r"\bclock_gettime\b|\bstd::chrono\b|\brdtsc\b", "looks at a clock"),
    (r"_mm_setcsr|_MM_SET_\w+|fesetround", "changes how the processor rounds"),
    (r"^\s*#\s*define\b.*##", "pastes names together"),
)
_Found = tuple[int, str]


def read(source: str) -> tuple[Diagnostic, ...]:
    """Lines that are worth a look, in order; empty for what is no Python.

    Args:
        source: The candidate's text.
    """
    tree = _tree(source)
    lines = source.splitlines()
    found = dict(sorted(_python(tree)) + sorted(_native(tree)))
    return tuple(
        Diagnostic(
            severity="note",
            message=message,
            file=_FILE,
            line=line,
            excerpt=lines[line - 1].strip()[:160] if line <= len(lines) else None,
        )
        for line, message in sorted(found.items())[:MOST]
    )


def class_note(source: str) -> Iterator[str]:
    """Say that a candidate's class has the reference's name."""
    names = {name for node in ast.walk(_tree(source)) for name in _given(node)}
    if "Model" in names and "ModelNew" not in names:
        yield "it has no class `ModelNew`; its class `Model` was taken"


def _tree(source: str) -> ast.Module:
    """What the text says as Python; nothing where it is none, or nested too deeply."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def _given(node: ast.AST) -> Iterator[str]:
    """Names that a part of the text gives to something, or may give: it stands there as text."""
    match node:
        case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.alias(name=name, asname=other):
            yield other or name
        case ast.Constant(value=str(name)):
            yield name


def _python(tree: ast.Module) -> Iterator[_Found]:
    modules = frozenset(_module_names(tree))
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from _imported(node.lineno, [name.name for name in names])
            case ast.ImportFrom(module=str(module)):
                yield from _imported(node.lineno, [module])
            case ast.Attribute() | ast.Name():
                yield from _named(node)
            case ast.ClassDef(bases=bases):
                yield from _based(node.lineno, [_dotted(base) for base in bases])
            case ast.Assign(targets=targets):
                yield from _assigned(modules, node.lineno, targets)
            case ast.ExceptHandler():
                yield node.lineno, "falls back to something else when it fails"
            case ast.Constant(value=str(text)) if _is_packed(text):
                yield node.lineno, "a long text that may be a packed file"


def _imported(line: int, names: list[str]) -> Iterator[_Found]:
    for name in names:
        if name.startswith("evokernel") and name not in ("evokernel", "evokernel.jit"):
            yield line, f"imports `{name}`: the harness, or a reference"
        why = _IMPORTS.get(name.partition(".")[0]) or _NAMES.get(name)
        if why:
            yield line, f"imports `{name}`: {why}"


def _named(node: ast.Attribute | ast.Name) -> Iterator[_Found]:
    name = _dotted(node)
    if name in _NAMES:
        yield node.lineno, f"`{name}`: {_NAMES[name]}"
    elif isinstance(node, ast.Attribute) and node.attr in _METHODS:
        yield node.lineno, f"`.{node.attr}`: {_METHODS[node.attr]}"


def _based(line: int, bases: list[str]) -> Iterator[_Found]:
    for base in bases:
        if base in ("torch.Tensor", "Tensor"):
            yield line, "another kind of tensor: it may compute when it is looked at"
        elif base.rpartition(".")[2] == "Model":
            yield line, f"derives from `{base}`, as the reference is called"


def _assigned(modules: frozenset[str], line: int, targets: list[ast.expr]) -> Iterator[_Found]:
    for target in targets:
        name = _dotted(target)
        if "." in name and name.partition(".")[0] in modules:
            yield line, f"replaces `{name}`"


def _module_names(tree: ast.Module) -> Iterator[str]:
    """What imported modules are called in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.asname or name.name.partition(".")[0]


def _dotted(node: ast.expr) -> str:
    """`torch.ops.aten` as it is written; empty for other expressions, and for longer ones."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < _MOST_PARTS:
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else ""


def _is_packed(text: str) -> bool:
    return len(text) >= _BLOB and not re.search(r"\s", text.strip())


def _native(tree: ast.Module) -> Iterator[_Found]:
    """Lines of C++ in the file's texts."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            continue
        if "#include" not in node.value and 'extern "C"' not in node.value:
            continue
        spans = (node.end_lineno or node.lineno) - node.lineno
        is_literal = spans == node.value.count("\n")
        for offset, line in enumerate(node.value.split("\n")):
            for pattern, why in _NATIVE:
                if re.search(pattern, line[:_LINE].partition("//")[0]):
                    yield node.lineno + (offset if is_literal else 0), why
