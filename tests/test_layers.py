"""Who may import whom, where heavy packages may appear, and that builds and checkout agree."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parent.parent

ROWS = (
    ("confinement", "errors", "frozen", "nested", "skills", "tasks"),
    ("answers", "config", "task", "program", "opgraph", "evaluation", "profile", "attempt")
    + ("tuning", "wording"),
    ("compilers", "memory", "record", "zoo"),
    ("jit",),
    ("bench", "prompts"),
    ("proposers",),
    ("graphs",),
    ("testing",),
    ("export", "external"),
    ("optimize",),
    ("campaign",),
    ("doctor", "study", "report", "selftest", "serve", "training", "verify"),
    ("cli",),
    ("__main__",),
)
ROW = {part: row for row, parts in enumerate(ROWS) for part in parts}
SOCIABLE = 1  # the row whose parts may import each other

HOMES = {
    "chromadb": ("memory.index",),
    "cupy": ("jit",),
    "langgraph": ("graphs",),
    "litellm": ("proposers.llm",),
    "mcp": ("serve.server",),
    "pyarrow": ("training.parquet",),
    "matplotlib": ("report", "study"),
    "sqlalchemy": ("memory",),
    "torch": (
        "bench",
        "compilers.triton_calls",
        "doctor.probe",
        "export",
        "jit",
        "nested",
        "opgraph",
        "optimize",
        "program",
        "task",
        "tasks",
    ),
}
ON_LOAD = {
    ("torch", "bench"),
    ("torch", "export"),
    ("torch", "tasks"),
    ("langgraph", "graphs"),
    ("mcp", "serve"),
    ("sqlalchemy", "memory"),
}
"""Parts, imported lazily themselves, whose modules may import the heavy package at their top."""

LIGHT = [part for part in (*ROW, "") if ROW.get(part, 0) <= SOCIABLE and part != "tasks"]
LIGHT += ["jit", "compilers", "record", "bench", "cli"]


class Import(NamedTuple):
    """One import statement's target, and the module of ours that it stands in."""

    module: str
    line: int
    target: str
    on_load: bool

    @property
    def part(self) -> str:
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"evokernel.{self.module}:{self.line} imports {self.target}"


def statements(node: ast.AST, on_load: bool = True) -> Iterator[tuple[ast.stmt, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, on_load
        lazy = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")
        )
        yield from statements(child, on_load and not lazy)


def targets(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.ImportFrom):
        if statement.module == "evokernel":
            return [f"evokernel.{alias.name}" for alias in statement.names]
        return [statement.module or "."]
    assert isinstance(statement, ast.Import)
    return [alias.name for alias in statement.names]


def imports(root: Path) -> Iterator[Import]:
    for top, prefix in (("evokernel", ()), ("memory", ("memory",)), ("graphs", ("graphs",))):
        for file in sorted((root / top).rglob("*.py")):  # follows no links
            inside = file.relative_to(root / top).with_suffix("")
            module = ".".join((*prefix, *inside.parts)).removesuffix("__init__").rstrip(".")
            for statement, on_load in statements(ast.parse(file.read_text(), str(file))):
                for target in targets(statement):
                    yield Import(module, statement.lineno, target, on_load)


def misplaced(root: Path) -> list[str]:
    """Say which imports break the rules, and how."""
    return [f"{found}: {why}" for found in imports(root) if (why := fault(found))]


def fault(found: Import) -> str | None:
    top, _, rest = found.target.partition(".")
    if top == "evokernel":
        return wrong_order(found.part, rest.partition(".")[0])
    if top not in HOMES:
        return None
    if not any(f"{found.module}.".startswith(f"{home}.") for home in HOMES[top]):
        return f"`{top}` belongs to {' '.join(HOMES[top])}"
    if found.on_load and (top, found.part) not in ON_LOAD:
        return f"import `{top}` inside the function that needs it"
    return None


def wrong_order(part: str, target: str) -> str | None:
    if target == "__version__":
        return None
    for name in (part, target):
        if name not in ROW:
            return f"`{name}` stands in no row"
    if part == target or ROW[target] < ROW[part] or ROW[part] == ROW[target] == SOCIABLE:
        return None
    return f"`{part}` may not use `{target}`, which does not stand in a lower row"


def build_map(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]


def misbuilt(root: Path) -> list[str]:
    """Say where the build map and the folders disagree."""
    folders = {"evokernel.memory", "evokernel.graphs"} | {
        ".".join(file.parent.relative_to(root).parts)
        for file in (root / "evokernel").rglob("__init__.py")
    }
    listed = set(build_map(root)["packages"])
    return [
        *(f"`{name}` is not in `packages`" for name in sorted(folders - listed)),
        *(f"`{name}` has no folder" for name in sorted(listed - folders)),
        *(
            f"`{folder}` must be flat and hold an __init__.py"
            for folder in ("memory", "graphs")
            if [file.parent for file in (root / folder).rglob("__init__.py")] != [root / folder]
        ),
    ]


def heavy_after(code: str) -> set[str]:
    """Name the heavy packages that a fresh interpreter has loaded after running this."""
    code = f"{code}\nimport sys\nprint('heavy:', *sorted({set(HOMES)} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(done.stdout.rpartition("heavy:")[2].split())


def test_imports_go_down():
    assert misplaced(ROOT) == []


def test_packages_are_the_folders():
    assert misbuilt(ROOT) == []
    mapped = build_map(ROOT)["package-dir"]
    assert mapped == {"evokernel.memory": "memory", "evokernel.graphs": "graphs"}


@pytest.mark.parametrize("folder", ["memory", "graphs"])
def test_links_are_relative(folder):
    assert (ROOT / "evokernel" / folder).readlink() == Path("..", folder)


def test_light_parts_load_nothing_heavy():
    present = [
        f"evokernel.{part}".rstrip(".")
        for part in LIGHT
        if (ROOT / "evokernel" / part).is_dir() or (ROOT / f"evokernel/{part}.py").is_file()
    ]
    assert heavy_after(f"import {', '.join(present)}") == set()


def test_help_loads_nothing_heavy():
    code = """
import contextlib, runpy, sys
sys.argv = ["evokernel", "--help"]
with contextlib.suppress(SystemExit):
    runpy.run_module("evokernel", run_name="__main__", alter_sys=True)
"""
    assert heavy_after(code) == set()


def test_completion_loads_nothing_heavy():
    code = """
import contextlib, os, runpy, sys
os.environ |= {"COMP_WORDS": "evokernel run sof", "COMP_CWORD": "2"}
os.environ["_EVOKERNEL_COMPLETE"] = "complete_bash"
sys.argv = ["evokernel"]
with contextlib.suppress(SystemExit):
    runpy.run_module("evokernel", run_name="__main__", alter_sys=True)
"""
    assert heavy_after(code) == set()


@pytest.fixture
def planted(tmp_path):
    """Return a function that makes a small checkout with one more file in it."""

    def plant(name: str = "evokernel/errors.py", text: str = "") -> Path:
        packages = ["evokernel", "evokernel.bench", "evokernel.memory", "evokernel.graphs"]
        folders = ["evokernel", "evokernel/bench", "memory", "graphs"]
        files = {f"{folder}/__init__.py": "" for folder in folders}
        files["pyproject.toml"] = f"[tool.setuptools]\npackages = {packages}\n"
        files[name] = text
        for path, content in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(content)
        return tmp_path

    return plant


@pytest.mark.parametrize(
    ("file", "text", "word"),
    [
        (
            "evokernel/task.py",
            "from evokernel.bench.timing import paired",
            "`task` may not use `bench`",
        ),
        (
            "memory/values.py",
            "def f():\n    import evokernel.graphs",
            "`memory` may not use `graphs`",
        ),
        ("memory/values.py", "import evokernel.record", "`memory` may not use `record`"),
        ("evokernel/bench/worker.py", "from evokernel import Task", "`Task` stands in no row"),
        ("evokernel/novelty.py", "from evokernel.task import Task", "`novelty` stands in no row"),
        ("evokernel/opgraph.py", "import torch", "inside the function"),
        ("memory/values.py", "def f():\n    import torch.nn", "`torch` belongs to"),
        ("memory/values.py", "def f():\n    from chromadb import Client", "`chromadb` belongs to"),
    ],
)
def test_misplaced_import_is_caught(planted, file, text, word):
    (found,) = misplaced(planted(file, text))
    assert word in found


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("evokernel/task.py", "from evokernel.evaluation import Status"),
        ("evokernel/bench/worker.py", "import torch\nfrom evokernel.bench.timing import paired"),
        ("evokernel/opgraph.py", "if TYPE_CHECKING:\n    import torch"),
        ("memory/index.py", "def f():\n    import chromadb"),
        ("graphs/workflow.py", "from langgraph.graph import StateGraph"),
    ],
)
def test_honest_import_passes(planted, file, text):
    assert misplaced(planted(file, text)) == []


def test_unlisted_package_is_caught(planted):
    assert misbuilt(planted()) == []
    assert misbuilt(planted("evokernel/serve/__init__.py")) == [
        "`evokernel.serve` is not in `packages`"
    ]


def test_nested_memory_is_caught(planted):
    (found,) = misbuilt(planted("memory/stores/__init__.py"))
    assert "`memory` must be flat" in found


LONGEST = 50
"""Lines of a function, its decorators left out and its docstring not."""


def functions() -> list[tuple[str, int]]:
    """Every function of ours, with its length in lines."""
    files = [
        file for part in ("evokernel", "memory", "graphs") for file in (ROOT / part).rglob("*.py")
    ]
    return [
        (f"{file.relative_to(ROOT)}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1)
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]


def test_no_function_is_longer_than_fifty_lines():
    known = functions()
    assert len(known) > 1000
    assert [(name, length) for name, length in known if length > LONGEST] == []
