"""Keeps tests away from the user's files, from paid models and from absent devices."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from evokernel.bench.servers import WarmServers
    from tests.document_commands import Walk

QUIET = {
    "ANONYMIZED_TELEMETRY": "False",  # chromadb
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # otherwise litellm fetches its price list on import
    # Several processes test at once: threads that wait for each other would spin beside them. What
    # is measured gets the threads of its own configuration.
    "OMP_NUM_THREADS": "1",
}

LONGEST = (
    *("examples", "command_line_runs", "campaign", "cli_run", "mcp", "processes", "evaluate"),
    *("profile", "templates_triton", "site", "document_commands", "study", "agentic", "search"),
    *("triton", "templates", "export", "outcomes", "journal", "contractions", "contract"),
    *("tuning", "sandbox", "retraction", "gpu_templates", "verify", "resume", "expressions"),
    *("task_doctor", "index", "selftest", "doctor", "planted_faults", "report", "cli_compile"),
    *("llm", "forgeries", "cuda", "gpu_zoo", "time_integrity", "timing", "correctness"),
)
"""Files that take longest; they come first, so that no core waits for the last of them."""


_HOMES = count()


def pytest_configure() -> None:
    """Switch off what calls home or crowds, before it is imported, and let interrupts be tested.

    Whoever starts the tests in the background may have them ignore Ctrl-C, and so their children.
    """
    os.environ.update(QUIET)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, and skip `gpu` tests without a device.

    The driver is not asked for one: that would spoil forked workers.
    """
    ranks = {f"test_{name}": rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.stem, len(ranks)))
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def pytest_collection_finish() -> None:
    """Let collections of garbage leave alone what was imported, a few hundred thousand objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test its own cache and memory, and no key that a model could be paid with."""
    # In a folder of their own: pytest looks at all that lies in its own to number the next.
    home = tmp_path_factory.getbasetemp() / "homes" / str(next(_HOMES))
    home.mkdir(parents=True)
    monkeypatch.setenv("EVOKERNEL_HOME", str(home))
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def warm_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the whole session and its processes: measured peaks, kernels, torch.compile's.

    All of it is addressed by what it was made from, so that tests do not see each other in it.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "warm-cache"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator["WarmServers"]:
    """Warm servers for all pools whose start is not the subject: each imports torch for seconds."""
    from evokernel.bench.servers import WarmServers

    with WarmServers(tmp_path_factory.mktemp("servers")) as started:
        yield started


@pytest.fixture
def warm(isolated: None, warm_cache: Path) -> None:
    """Let `$EVOKERNEL_HOME` have that cache; its memory stays the test's own."""
    Path(os.environ["EVOKERNEL_HOME"], "cache").symlink_to(warm_cache)


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Walk":
    """A reader of the documents in a folder of their own, where every candidate passes at once."""
    from evokernel.testing import FakeEvaluator
    from tests.document_commands import Walk

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(
        "evokernel.bench.evaluator.LocalEvaluator",
        lambda task, *rest, **more: FakeEvaluator(task),
    )
    return Walk("softmax", "gelu")
