"""Owns what a C++ source offers to Python: its `extern "C"` functions, read from the text.

Left out: functions that function-like macros or templates produce, and the second branch of any
`#if`; the compiler is not asked, because a worker that only loads libraries has none.
"""

import re
from collections.abc import Sequence

from evokernel.compilers.elements import BY_POINTER_ONLY, SCALARS, VECTORS
from evokernel.compilers.tokens import Token, closing, split_commas, tokenize, without_attributes
from evokernel.frozen import Frozen

KERNELS_ONLY = {"cpp": "", "cuda": "__global__"}
"""Specifier of the functions that Python can call, by backend."""

_INTEGER_WORDS = frozenset({"unsigned", "signed", "short", "long", "int", "char"})
_QUALIFIERS = frozenset(
    {"const", "volatile", "restrict", "__restrict", "__restrict__", "register", "std", "::"}
    | {"extern", "static", "inline", "constexpr", "__inline__", "__extension__", "typename"}
    | {"__global__", "__device__", "__host__", "__grid_constant__", "__forceinline__"}
)


class Parameter(Frozen):
    """One parameter of a C function."""

    name: str
    """Its name, or `arg<n>` (counted from 1) where the source gives none."""
    ctype: str
    """Element type as tensors name it: `float32`, `int64`, `bool`, ...; `void` behind a pointer."""
    pointer: bool
    """A pointer to elements, for which Python passes a tensor."""
    const: bool = False
    """The elements are only read."""
    alignment: int = 0
    """Bytes that the address must be a multiple of, for CUDA's vectors; 0 is the element's own."""

    def __str__(self) -> str:
        """C-like text: `const float32* x`."""
        return f"{'const ' * self.const}{self.ctype}{'*' * self.pointer} {self.name}"


class Signature(Frozen):
    """One function with C linkage."""

    name: str
    """Name of the function and of its symbol."""
    returns: str
    """Element type of the result; `void` is none, `int32` (a C `int`) is a status."""
    parameters: tuple[Parameter, ...]
    """In order."""
    line: int
    """One-based line of its name in the source."""
    is_defined: bool
    """The source holds the body, not only a declaration."""
    problem: str = ""
    """Why Python cannot call it: names the parameter or result at fault; empty when it can."""

    def __str__(self) -> str:
        """C-like text: `void scale(const float32* x, float32* out, int64 n)`."""
        return f"{self.returns} {self.name}({', '.join(map(str, self.parameters))})"


def signatures(source: str, marked: str = "") -> tuple[Signature, ...]:
    """Find the functions with C linkage in a C++ source, in order of their first appearance.

    Args:
        source: C++ text. It need not compile: what cannot be read is passed over.
        marked: Only functions with this specifier, e.g. `__global__`; empty is all.

    Returns:
        One per name; a definition replaces its own earlier declaration.
    """
    reader = _Reader(tokenize(source), marked)
    reader.read()
    return tuple(reader.found.values())


class _Reader:
    """Walks over the declarations of namespace scope and keeps those with C linkage."""

    def __init__(self, tokens: list[Token], marked: str) -> None:
        self.tokens = tokens
        self.marked = marked
        self.at = 0
        self.linkage = [False]
        self.aliases: dict[str, list[Token]] = {}
        self.found: dict[str, Signature] = {}

    def read(self) -> None:
        while self.at < len(self.tokens):
            self._read_one()

    def _read_one(self) -> None:
        text = self.tokens[self.at].text
        if text in {";", "}"}:
            if text == "}" and len(self.linkage) > 1:
                self.linkage.pop()
            self.at += 1
        elif text == "namespace" or self._texts(0, 2) == ["inline", "namespace"]:
            self._enter_namespace()
        elif text == "extern" and self._texts(1, 2)[:1] in (['"C"'], ['"C++"']):
            self._enter_linkage()
        else:
            self._declaration(self.linkage[-1])

    def _texts(self, start: int, stop: int) -> list[str]:
        return [token.text for token in self.tokens[self.at + start : self.at + stop]]

    def _enter_namespace(self) -> None:
        while self.at < len(self.tokens) and self.tokens[self.at].text not in {"{", ";"}:
            self.at += 1
        if self.at < len(self.tokens) and self.tokens[self.at].text == "{":
            self.linkage.append(self.linkage[-1])
        self.at += 1

    def _enter_linkage(self) -> None:
        is_c = self.tokens[self.at + 1].text == '"C"'
        self.at += 2
        if self._texts(0, 1) == ["{"]:
            self.linkage.append(is_c)
            self.at += 1
        else:
            self._declaration(is_c)

    def _declaration(self, is_c: bool) -> None:
        """Read up to the closing `;` or past the function's body."""
        head: list[Token] = []
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token.text in {"(", "[", "{"}:
                end = closing(self.tokens, self.at)
                if token.text != "{":
                    head += self.tokens[self.at : end + 1]
                self.at = end + 1
                if token.text == "{" and _is_function(head):
                    self._keep(head, is_c, is_defined=True)
                    return
            elif token.text in {";", "}"}:
                self.at += token.text == ";"
                self._finish(head, is_c)
                return
            else:
                head.append(token)
                self.at += 1

    def _finish(self, head: list[Token], is_c: bool) -> None:
        words = [token.text for token in head]
        if words[:1] == ["typedef"] and len(words) > 2:
            self.aliases[words[-1]] = head[1:-1]
        elif words[:1] == ["using"] and words[2:3] == ["="]:
            self.aliases[words[1]] = head[3:]
        elif _is_function(head):
            self._keep(head, is_c, is_defined=False)

    def _keep(self, head: list[Token], is_c: bool, is_defined: bool) -> None:
        words = [token.text for token in head]
        if not is_c or "template" in words or "static" in words:
            return
        if self.marked and self.marked not in words:
            return
        signature = _signature(without_attributes(head), self.aliases, is_defined)
        if signature and (is_defined or signature.name not in self.found):
            self.found[signature.name] = signature


def _is_function(head: Sequence[Token]) -> bool:
    words = [token.text for token in head]
    return "(" in words and "=" not in words[: words.index("(")]


def _signature(
    head: list[Token], aliases: dict[str, list[Token]], is_defined: bool
) -> Signature | None:
    opening = next((i for i, token in enumerate(head) if token.text == "("), 0)
    if opening < 2 or not head[opening - 1].is_name:
        return None
    name = head[opening - 1]
    end = closing(head, opening)
    result = head[: opening - 1]
    if [token.text for token in head[end + 1 : end + 2]] == ["->"]:
        result = head[end + 2 :]
    returns, problem = _result(result, aliases)
    parameters: list[Parameter] = []
    for number, tokens in enumerate(split_commas(head[opening + 1 : end]), start=1):
        if [token.text for token in tokens] == ["void"]:
            continue
        parameter, fault = _parameter(tokens, number, aliases)
        parameters.append(parameter)
        problem = problem or fault
    return Signature(
        name=name.text,
        returns=returns,
        parameters=tuple(parameters),
        line=name.line,
        is_defined=is_defined,
        problem=problem,
    )


def _result(tokens: list[Token], aliases: dict[str, list[Token]]) -> tuple[str, str]:
    ctype, stars = _type(tokens, aliases)
    if stars or not ctype or ctype in BY_POINTER_ONLY:
        return "void", f"result: cannot return `{_text(tokens)}`, only void, int or a number"
    return ctype, ""


def _parameter(
    tokens: list[Token], number: int, aliases: dict[str, list[Token]]
) -> tuple[Parameter, str]:
    """Read one parameter; the second value says what is wrong with it."""
    words = [token.text for token in tokens]
    if "=" in words:
        tokens = tokens[: words.index("=")]
    declared, name, is_array = _split_name(tokens)
    ctype, stars = _type(declared, aliases)
    stars += is_array
    label = name or f"arg{number}"
    alignment = next((VECTORS[word][1] for word in words if word in VECTORS), 0)
    parameter = Parameter(
        name=label,
        ctype=ctype or "void",
        pointer=stars > 0,
        const="const" in words[: words.index("*") if "*" in words else None],
        alignment=alignment,
    )
    return parameter, _fault(
        f"parameter {number} `{label}`", _text(tokens), ctype, stars, alignment > 0
    )


def _fault(who: str, text: str, ctype: str, stars: int, is_vector: bool) -> str:
    allowed = "use a pointer to numbers, or an integer, float, double or bool by value"
    if "&" in text:
        return f"{who}: `{text}` is a reference; {allowed}"
    if not ctype or stars > 1 or ((ctype == "void" or is_vector) and not stars):
        return f"{who}: type `{text}` is not supported; {allowed}"
    if ctype in BY_POINTER_ONLY and not stars:
        return f"{who}: a {ctype} cannot be passed by value; use float"
    return ""


def _split_name(tokens: list[Token]) -> tuple[list[Token], str, bool]:
    """Part a parameter into its type, its name (may be empty) and whether it is an array."""
    words = [token.text for token in tokens]
    is_array = "[" in words
    if is_array:
        tokens = tokens[: words.index("[")]
    kept = [token for token in tokens if token.text not in _QUALIFIERS]
    if len(kept) < 2 or not kept[-1].is_name or kept[-1].text in _INTEGER_WORDS | set(SCALARS):
        return kept, "", is_array
    return kept[:-1], kept[-1].text, is_array


def _type(
    tokens: Sequence[Token], aliases: dict[str, list[Token]], depth: int = 0
) -> tuple[str, int]:
    """Element type (empty where unknown) and number of pointer levels."""
    words = [token.text for token in tokens if token.text not in _QUALIFIERS]
    stars = words.count("*")
    base = [word for word in words if word != "*"]
    if len(base) == 1 and base[0] in aliases and depth < 8:
        ctype, more = _type(aliases[base[0]], aliases, depth + 1)
        return ctype, stars + more
    if len(base) == 1 and base[0] in SCALARS:
        return SCALARS[base[0]], stars
    if len(base) == 1 and base[0] in VECTORS:
        return VECTORS[base[0]][0], stars
    if base and set(base) <= _INTEGER_WORDS:
        return _integer(base), stars
    return "", stars


def _integer(words: list[str]) -> str:
    bits = 32
    if "char" in words:
        bits = 8
    elif "short" in words:
        bits = 16
    elif "long" in words:
        bits = 64
    return f"{'u' * ('unsigned' in words)}int{bits}"


def _text(tokens: Sequence[Token]) -> str:
    text = " ".join(token.text for token in tokens)
    return re.sub(r"\s+(?=[*&>,\[\])])|\s*(::|[<\[(])\s*", r"\1", text)
