"""Owns the package's version and its public names, each fetched on first use.

Importing this module imports nothing else: the command line answers at once, and `evokernel.memory`
can be used without torch.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Attempt": "evokernel.attempt",
    "Best": "evokernel.optimize",
    "Candidate": "evokernel.attempt",
    "Evaluation": "evokernel.evaluation",
    "EvoKernelError": "evokernel.errors",
    "RunEvent": "evokernel.optimize.events",
    "RunConfig": "evokernel.config",
    "RunResult": "evokernel.optimize",
    "ModuleNotCaptured": "evokernel.errors",
    "OutsideVerifiedDomain": "evokernel.export.guard",
    "Patch": "evokernel.export.patching",
    "PatchError": "evokernel.errors",
    "RunStopped": "evokernel.optimize",
    "Session": "evokernel.optimize.session",
    "SessionError": "evokernel.errors",
    "Stage": "evokernel.attempt",
    "Status": "evokernel.evaluation",
    "Task": "evokernel.task",
    "Workload": "evokernel.task",
    "aoptimize": "evokernel.optimize.awaiting",
    "build_workflow": "evokernel.optimize.workflow",
    "capture": "evokernel.program.captured:captured",
    "open": "evokernel.optimize.session:open_session",
    "optimize": "evokernel.optimize",
    "patch": "evokernel.export.patching",
    "reopen": "evokernel.optimize.session",
    "resume": "evokernel.optimize",
    "typed": "evokernel.optimize.events",
}


def __getattr__(name: str) -> Any:
    """Fetch a public name from the module that owns it."""
    if name not in _HOMES:
        raise AttributeError(f"module `evokernel` has no attribute `{name}`")
    module, _, attribute = _HOMES[name].partition(":")
    value = getattr(import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, fetched or not."""
    return sorted({*globals(), *_HOMES})


class _Package(ModuleType):
    """Keeps `evokernel.optimize` a function: the import system would bind the module to the name.

    `from evokernel.optimize import ...` finds the module all the same.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
