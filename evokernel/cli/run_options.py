"""Owns the options of `evokernel run`, and the parts of a `RunConfig` that they make."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evokernel.cli import memory_place, model_options, options


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """What a run may spend, and how it goes on."""

    attempts: options.Attempts = None
    minutes: options.Minutes = None
    width: options.Width = None
    depth: options.Depth = None
    patience: options.Patience = None
    roofline: options.RooflineShare = None
    seed: options.Seed = 0
    start: options.Start = None
    starts: options.Starts = "hope"

    def search(self) -> dict[str, Any]:
        """Fields of `SearchConfig`."""
        given = ("width", "depth", "patience", "roofline")
        known = _named({name: getattr(self, name) for name in given})
        return {**known, "seed": self.seed, "start": tuple(self.start or ())}


@dataclass(frozen=True, kw_only=True)
class MemoryOptions:
    """Which memory a run has, and how it is asked."""

    memory: options.MemoryOrNone = None
    policy: options.Policy = None
    credit: options.Credit = "equal"
    reward: options.Reward = None

    def chosen(self) -> dict[str, Any]:
        """Fields of `MemoryConfig`."""
        is_none = self.memory == "none"
        return {
            "path": None if is_none else memory_place.path(self.memory),
            "policy": self.policy or ("none" if is_none else "evokernel"),
            "credit": self.credit,
            "reward": self.reward,
        }


@dataclass(frozen=True, kw_only=True)
class KernelOptions:
    """In which language, and how exactly, the task is computed."""

    backend: options.BackendOrNone = None
    precision: options.PrecisionOrNone = None


def parts(
    kernel: KernelOptions,
    search: SearchOptions,
    author: model_options.AuthorOptions,
    memory: MemoryOptions,
    measuring: options.Measuring,
) -> dict[str, Any]:
    """Fields of `RunConfig`, as far as these options settle them.

    Raises:
        ConfigError: options that do not go together, or that name what is not there.
    """
    budget = {
        "attempts": search.attempts,
        "minutes": search.minutes,
        "usd": author.usd,
        "tokens": author.tokens,
    }
    return {
        "backend": kernel.backend or _picked(),
        "precision": kernel.precision,
        "budget": _named(budget),
        "search": search.search(),
        "memory": {**memory.chosen(), "starts": search.starts},
        "bench": measuring.bench(),
        "prompts": author.prompts and author.prompts.absolute(),
        "record": author.record,
        **author.agent(),
        **model_options.proposer(author),
    }


def _picked() -> str:
    """The backend where none is named: a GPU that is there is used."""
    from evokernel.bench.gpu import choice

    return choice.picked()


def _named(given: Mapping[str, object]) -> dict[str, object]:
    """The options that were given; the others are for the configuration to settle."""
    return {name: value for name, value in given.items() if value is not None}
