"""Owns the text of an exported file: how its parts are put together into one Python module."""

import ast
import textwrap
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

from evokernel.compilers import KernelSource
from evokernel.compilers.cpp import FLAGS, signatures
from evokernel.export.claims import Claims, file_name
from evokernel.export.kernels import Parameter, Signature, source_key
from evokernel.export.literals import literal, pretty, quoted
from evokernel.export.spec import Domain
from evokernel.task import Task

EMBEDDED = {
    "evokernel/nested.py": (),
    "evokernel.program/casting.py": (),
    "evokernel.compilers/loading.py": (),
    "evokernel.compilers/binding.py": ("bind", "faults"),
    "evokernel.export/building.py": (),
    "evokernel.export/kernels.py": (),
    "evokernel.export/spec.py": (),
    "evokernel.export/guard.py": (),
    "evokernel.export/checking.py": (),
}
"""Our own modules that every exported file contains as they are, without these functions."""


def assembled(
    task: Task,
    candidate: str,
    kernels: Iterable[KernelSource],
    domain: Domain,
    claims: Claims,
    is_strict: bool,
) -> str:
    """Write an exported file.

    Args:
        task: What the kernel is for; its text goes in unchanged.
        candidate: Text of the kernel's module; goes in unchanged.
        kernels: The C++ sources that it asks for.
        domain: What was verified.
        claims: What was measured, and where.
        is_strict: Whether calls outside of the domain raise.
    """
    parts = [_Part(place, left_out) for place, left_out in EMBEDDED.items()]
    _require_unique_names(parts)
    known = {source_key(kernel.source, kernel.flags): kernel for kernel in kernels}
    return _TEXT.format(
        title=_plain(task.title),
        about=_about(domain, claims, is_strict),
        imports=_imports(parts),
        record=pretty(
            {"format": claims.format, **claims.model_dump(mode="json", exclude_defaults=True)}
        ),
        reference=quoted(task.source),
        candidate=quoted(candidate),
        parts="\n\n".join(part.text for part in parts),
        flags="(\n" + "".join(f"    {flag!r},\n" for flag in FLAGS) + ")",
        kernels=_table({key: signatures_of(kernel) for key, kernel in known.items()}),
        domain=_domain(domain),
        strict=is_strict,
        sha=claims.candidate,
        task_sha=claims.task_sha,
        docstring=_plain(task.title),
    )


class _Part:
    """One embedded module: its imports, and the rest of its text."""

    def __init__(self, place: str, left_out: tuple[str, ...]) -> None:
        package, _, file = place.partition("/")
        source = resources.files(package).joinpath(file).read_text(encoding="utf-8")
        tree = ast.parse(source)
        self.imports = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
        kept = [n for n in tree.body[1:] if n not in self.imports and _name(n) not in left_out]
        self.names = [name for name in map(_name, kept) if name]
        gone = [n for n in tree.body if n not in kept]
        lines = source.splitlines()
        for node in gone:
            for number in range(_first_line(node), (node.end_lineno or node.lineno) + 1):
                lines[number - 1] = "\0"
        rest = "\n".join(line for line in lines if line != "\0").strip("\n")
        title = f"# From {package}.{file.removesuffix('.py')}: "
        about = str(ast.get_docstring(tree)).partition("\n\n")[0].removeprefix("Owns ")
        head = textwrap.fill(title + about, 100, subsequent_indent="# ")
        while "\n\n\n\n" in rest:
            rest = rest.replace("\n\n\n\n", "\n\n\n")
        self.text = f"{head}\n\n\n{rest}\n"


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _name(node: ast.stmt) -> str:
    """What a statement of the top level defines; empty for an expression."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return getattr(node, "name", "")


def _require_unique_names(parts: list[_Part]) -> None:
    names = [name for part in parts for name in part.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RuntimeError(f"embedded modules define the same names: {', '.join(twice)}")


def _imports(parts: list[_Part]) -> str:
    plain: set[str] = {"functools", "sys"}
    chosen: dict[str, set[str]] = {}
    for node in (node for part in parts for node in part.imports):
        if isinstance(node, ast.Import):
            plain |= {alias.name for alias in node.names}
        elif not str(node.module).startswith("evokernel"):
            chosen.setdefault(str(node.module), set()).update(a.name for a in node.names)
    lines = [f"import {name}" for name in sorted(plain - {"torch"})]
    lines += [f"from {name} import {', '.join(sorted(chosen[name]))}" for name in sorted(chosen)]
    return "\n".join([*lines, "", "import torch"])


def signatures_of(kernel: KernelSource) -> tuple[Signature, ...]:
    """The functions of a source that Python can call, as an exported file writes them down."""
    return tuple(
        Signature(
            name=found.name,
            returns=found.returns,
            parameters=tuple(
                Parameter(p.name, p.ctype, p.pointer, p.const) for p in found.parameters
            ),
        )
        for found in signatures(kernel.source)
        if not found.problem
    )


def _table(kernels: Mapping[str, tuple[Signature, ...]]) -> str:
    lines = ["{"]
    for key, functions in kernels.items():
        lines.append(f'    "{key}": (')
        for function in functions:
            lines.append(f'        Signature("{function.name}", "{function.returns}", (')
            lines += [f"            Parameter{tuple(p)!r}," for p in function.parameters]
            lines.append("        )),")
        lines.append("    ),")
    return "\n".join([*lines, "}"])


def _domain(domain: Domain) -> str:
    lines = ["Domain("]
    for name in ("workloads", "state"):
        lines.append(f"    {name}={{")
        lines += [f"        {k!r}: {literal(v)}," for k, v in getattr(domain, name).items()]
        lines.append("    },")
    for name in ("constructor", "modes", "cast"):
        lines.append(f"    {name}={literal(getattr(domain, name))},")
    return "\n".join([*lines, ")"])


def _about(domain: Domain, claims: Claims, is_strict: bool) -> str:
    shapes = "; ".join(
        f"{name}: {', '.join(map(_shown, arguments))}"
        for name, arguments in domain.workloads.items()
    )
    outside = (
        "raises `OutsideVerifiedDomain`, which names what was outside"
        if is_strict
        else "runs the original module, which is embedded, and is counted: `model.evokernel.calls`,"
        " `model.evokernel.fallbacks` and `model.evokernel.reasons` tell how often and why"
    )
    paragraphs = [
        f"{claims.sentence()}",
        "It needs Python 3.11, torch and a C++17 compiler with OpenMP; EvoKernel it does not need. "
        "`ModelNew`, at the end, takes the place of `Model`: the same constructor, the same "
        "`forward`, the same `state_dict`. The kernel is compiled at its first call, into a folder "
        "of your own cache (`EVOKERNEL_EXPORT_CACHE` names another one).",
        f"Verified domain: {shapes}; on the processor; contiguous; {' and '.join(domain.modes)} "
        "mode; without gradients, autocast and tracing; the module as its constructor made it. A "
        f"call outside of that {outside}.",
        f"`python {file_name(claims.task)}` compares kernel and original on fresh values.",
    ]
    return "\n\n".join(textwrap.fill(_plain(text), 98) for text in paragraphs)


def _shown(value: Any) -> str:
    return str(value) if hasattr(value, "_fields") else repr(value)[:40]


def _plain(text: str) -> str:
    return text.replace("\\", "/").replace('"""', "'''")


_TEXT = '''"""{title}: `ModelNew` with a kernel, exported by EvoKernel.

{about}
"""

from __future__ import annotations

{imports}

# -- What was measured when this file was made -----------------------------------------------------

RECORD = {record}

# -- The original module, unchanged ----------------------------------------------------------------

REFERENCE = {reference}

# -- The kernel's module, unchanged; `evokernel.jit` is what follows below -------------------------

CANDIDATE = {candidate}

# -- Building, loading and calling kernels; the verified domain; the check -------------------------

{parts}

# -- What was verified -----------------------------------------------------------------------------

DOMAIN = {domain}

FLAGS = {flags}

KERNELS = Kernels({kernels}, FLAGS)

STRICT = {strict}
"""Raise `OutsideVerifiedDomain` instead of running the original; `model.evokernel.is_strict` says
the same of one module."""

# -- The module ------------------------------------------------------------------------------------

ORIGINAL = executed("evokernel_original_{task_sha}", REFERENCE)


@functools.cache
def kernel_class():
    """The kernel's `ModelNew`; its C++ is built here."""
    return executed("evokernel_kernel_{sha}", CANDIDATE, KERNELS.package()).ModelNew


class ModelNew(ORIGINAL.Model):
    """{docstring}: the kernel where it was verified, the original elsewhere."""

    def __init__(self, *args, **kwargs):
        guard = Guard(ORIGINAL.Model, DOMAIN, kernel_class, STRICT)
        super().__init__(*args, **kwargs)
        self.evokernel = guard
        guard.bind(self, args, kwargs)

    def forward(self, *args, **kwargs):
        kernel = self.evokernel.ready(self, args, kwargs)
        if kernel is None:
            return super().forward(*args, **kwargs)
        return kernel(*self.evokernel.ordered(args, kwargs))


functools.update_wrapper(ModelNew.__init__, ORIGINAL.Model.__init__)
functools.update_wrapper(ModelNew.forward, ORIGINAL.Model.forward)

if __name__ == "__main__":
    sys.exit(main(ModelNew, ORIGINAL, DOMAIN, "--json" in sys.argv[1:]))
'''
