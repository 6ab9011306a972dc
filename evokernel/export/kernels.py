"""Owns what stands for `evokernel.jit` inside an exported file: kernels whose source is known.

Embedded in every exported file. Calls, with every argument check, are those of
`evokernel.compilers.binding`, which is embedded as it is. The functions of a source are not read
from its text here but were written down when the file was made, so that a source which nobody
verified is refused.
"""

import builtins
import hashlib
import importlib
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from evokernel.compilers.binding import Function, Launch, Strided, launches, macros
from evokernel.compilers.loading import FloatStateChanged, load
from evokernel.export.building import BuildError, built


class Parameter(NamedTuple):
    """One parameter of a C function."""

    name: str
    ctype: str
    """Element type as tensors name it; `void` only behind a pointer."""
    pointer: bool
    const: bool

    def __str__(self) -> str:
        """C-like text: `const float32* x`."""
        return f"{'const ' * self.const}{self.ctype}{'*' * self.pointer} {self.name}"


class Signature(NamedTuple):
    """One function that Python can call."""

    name: str
    returns: str
    parameters: tuple[Parameter, ...]

    def __str__(self) -> str:
        """C-like text: `void scale(const float32* x, float32* out, int64 n)`."""
        return f"{self.returns} {self.name}({', '.join(map(str, self.parameters))})"


class CppModule:
    """The functions of one built kernel file, each an attribute that can be called."""

    def __init__(self, name: str, functions: dict[str, Function]) -> None:
        self._name = name
        self._functions = functions
        self.__dict__.update(functions)

    def __getattr__(self, attribute: str) -> Function:
        """Reached only for what the kernel file does not have."""
        known = ", ".join(f"`{function}`" for function in self._functions)
        raise AttributeError(
            f'`{self._name}` has no extern "C" function `{attribute}`; it has {known}'
        )


class Kernels:
    """Builds and loads the kernels that an exported file was verified with.

    Args:
        known: Functions of each source, by `source_key`.
        ours: Compiler flags that every kernel is built with.
    """

    def __init__(self, known: Mapping[str, tuple[Signature, ...]], ours: Sequence[str]) -> None:
        self._known = known
        self._ours = ours
        self._modules: dict[str, CppModule] = {}

    def cpp_module(
        self,
        source: str,
        flags: Sequence[str] = (),
        name: str | None = None,
        defines: Mapping[str, bool | int | float | str] | None = None,
    ) -> CppModule:
        """Build a C++17/OpenMP source, or find what was built of it before, and load it.

        Raises:
            BuildError: It cannot be built or loaded here, or was not among what was verified.
        """
        flags = (*flags, *macros(defines))
        key = source_key(source, flags)
        if key not in self._modules:
            if key not in self._known:
                raise BuildError("the kernel asks for a C++ source that was not verified")
            name = name or f"kernel_{len(self._modules)}.cpp"
            self._modules[key] = self._loaded(source, flags, name, self._known[key])
        return self._modules[key]

    def package(self) -> ModuleType:
        """What `import evokernel` means to the kernel's text: `evokernel.jit` and nothing else."""
        package, jit = ModuleType("evokernel"), ModuleType("evokernel.jit")
        offered = {
            "BuildError": BuildError,
            "CppModule": CppModule,
            "Launch": Launch,
            "cpp_module": self.cpp_module,
            "launches": launches,
            "strided": Strided,
        }
        vars(jit).update(offered)
        vars(package).update(jit=jit)
        return package

    def _loaded(
        self, source: str, flags: Sequence[str], name: str, functions: tuple[Signature, ...]
    ) -> CppModule:
        path = built(source, flags, self._ours)
        try:
            library = load(str(path))
        except (OSError, FloatStateChanged) as error:
            raise BuildError(f"the built library `{path}` cannot be used: {error}") from error
        callable_: dict[str, Function] = {}
        for signature in functions:
            symbol = getattr(library, signature.name, None)
            if symbol is not None:
                spoken: Any = signature  # reads like the compiler package's own record
                callable_[signature.name] = Function(spoken, symbol)
        return CppModule(name, callable_)


def source_key(source: str, flags: Sequence[str]) -> str:
    """What a C++ source and its flags are known by."""
    return hashlib.sha256("\0".join([source, *flags]).encode()).hexdigest()[:16]


def executed(name: str, text: str, package: ModuleType | None = None) -> ModuleType:
    """Run the text of a module in a namespace of its own.

    Args:
        name: Name that the module gets.
        text: Python.
        package: What the text gets for `evokernel`; None leaves its imports alone.
    """
    module = ModuleType(name)
    module.__file__ = f"<{name}>"
    sys.modules[name] = module  # pickle and dataclasses look a class's module up by its name
    if package is not None:
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": _importer(package)}
    exec(compile(text, module.__file__, "exec"), vars(module))
    return module


def _importer(package: ModuleType) -> Any:
    """An `__import__` that finds `evokernel` in the file itself, installed or not."""

    def find(name: str, space: Any = None, local: Any = None, wanted: Any = (), up: int = 0) -> Any:
        if name.partition(".")[0] != "evokernel":
            return importlib.__import__(name, space, local, wanted or (), up)
        if name not in {"evokernel", "evokernel.jit"}:
            raise ImportError(f"an exported kernel has `evokernel.jit` only, not `{name}`")
        return package.jit if name == "evokernel.jit" and wanted else package

    return find
