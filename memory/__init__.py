"""Owns what was learned: experiences, their values and their retrieval.

Importing this package imports nothing else; each public name is fetched on first use, so that
neither SQLAlchemy nor Chroma is loaded before a memory is opened.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "Entry": "evokernel.memory.experience",
    "Experience": "evokernel.memory.experience",
    "Explanation": "evokernel.memory.explanation",
    "ExperienceStatus": "evokernel.memory.experience",
    "Measurement": "evokernel.memory.experience",
    "Origin": "evokernel.memory.experience",
    "Account": "evokernel.memory.accounts",
    "Memory": "evokernel.memory.store",
    "PoolItem": "evokernel.memory.choice",
    "Query": "evokernel.memory.retrieval",
    "Revision": "evokernel.memory.revision",
    "TechniqueUse": "evokernel.memory.technique_table",
    "Withdrawal": "evokernel.memory.withdrawal",
    "Recalled": "evokernel.memory.retrieval",
    "Retrieval": "evokernel.memory.retrieval",
    "Scene": "evokernel.memory.harvest",
    "Situation": "evokernel.memory.embedding",
    "Reward": "evokernel.memory.rewards",
    "draft_reward": "evokernel.memory.rewards",
    "harvest": "evokernel.memory.harvest",
    "refine_reward": "evokernel.memory.rewards",
}


def __getattr__(name: str) -> Any:
    """Fetch a public name from the module that owns it."""
    if name not in _HOMES:
        raise AttributeError(f"module `evokernel.memory` has no attribute `{name}`")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names, fetched or not."""
    return sorted({*globals(), *_HOMES})
