"""Owns the package's version and its public names, each fetched on first use.

Importing this module imports nothing else: the command line answers at once, and `evokernel.memory`
can be used without torch.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Attempt": "evokernel.attempt",
    "Candidate": "evokernel.attempt",
    "Evaluation": "evokernel.evaluation",
    "EvoKernelError": "evokernel.errors",
    "RunConfig": "evokernel.config",
    "RunResult": "evokernel.optimize",
    "Stage": "evokernel.attempt",
    "Status": "evokernel.evaluation",
    "Task": "evokernel.task",
    "Workload": "evokernel.task",
    "optimize": "evokernel.optimize",
}


def __getattr__(name: str) -> Any:
    """Fetch a public name from the module that owns it."""
    if name not in _HOMES:
        raise AttributeError(f"module `evokernel` has no attribute `{name}`")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, fetched or not."""
    return sorted({*globals(), *_HOMES})
