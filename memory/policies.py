"""Owns the policies by name: how each chooses what to show, and how it learns its values."""

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from evokernel.config import MemoryConfig
from evokernel.errors import ConfigError
from evokernel.memory.choice import Occasion, PoolItem, Selection
from evokernel.memory.hybrid import HybridRule
from evokernel.memory.joint import Joint, Traits
from evokernel.memory.placebo import Placebo
from evokernel.memory.reward_rules import PARENT, RewardRule, rule_of
from evokernel.memory.rules import EvoKernelRule, MemRLRule, NoMemory, RandomChoice, Similarity
from evokernel.memory.values import Learner, Rewarded, Values

MEMRL_ALPHA = 0.3
"""Step size of MemRL (its own)."""


class Policy(Protocol):
    """A rule that decides what one step is shown; every choice has a known propensity."""

    @property
    def name(self) -> str:
        """As it is configured and logged."""

    @property
    def parameters(self) -> Mapping[str, float]:
        """Its constants, as recorded with every retrieval."""

    def pool_factor(self, factor: int, seasoned: int) -> float:
        """Lambda: the pool holds so many items for each slot.

        Args:
            factor: The configured one.
            seasoned: Experiences whose value of this stage rests on three rewards or more.
        """

    def choose(self, pool: Sequence[PoolItem], occasion: Occasion) -> Selection:
        """Decide one step: draws from nothing but `occasion.rng`, and says by what chances.

        Args:
            pool: What may be shown, most similar first, with similarities and values.
            occasion: Stage, slots, share of the budget spent, random numbers.
        """


class Surroundings(NamedTuple):
    """What a learner must know that is in no reward."""

    traits: Callable[[str], Traits]
    """By what an experience is grouped."""
    weigh: Callable[[Rewarded], float] = lambda event: 1.0
    """How far an event counts, 0..1."""


def _paper(config: MemoryConfig, around: Surroundings, rule: RewardRule) -> Learner:
    return Values(config.alpha, config.sigma_floor, config.credit, rule)


def _memrl(config: MemoryConfig, around: Surroundings, rule: RewardRule) -> Learner:
    plain = rule._replace(standardised=frozenset())
    return Values(MEMRL_ALPHA, config.sigma_floor, config.credit, plain)


def _joint(config: MemoryConfig, around: Surroundings, rule: RewardRule) -> Learner:
    return Joint(around.traits, config.sigma_floor, rule, around.weigh)


def _placebo(config: MemoryConfig, around: Surroundings, rule: RewardRule) -> Learner:
    return Placebo(around.traits, config.sigma_floor, rule, around.weigh)


class Recipe(NamedTuple):
    """One policy: ours by its name, yours as `MODULE:NAME` of a recipe that can be imported."""

    choice: Callable[[MemoryConfig], Policy]
    """How it chooses."""
    learner: Callable[[MemoryConfig, Surroundings, RewardRule], Learner] = _paper
    """What learns its values."""
    reward: str = "evokernel"
    """The function of rewards that it learns from unless another is configured."""


def _hybrid(name: str) -> Callable[[MemoryConfig], Policy]:
    return lambda config: HybridRule(config.probe, config.null, config.withhold, name)


POLICIES: dict[str, Recipe] = {
    "none": Recipe(lambda config: NoMemory()),
    "random": Recipe(lambda config: RandomChoice()),
    "similarity": Recipe(lambda config: Similarity()),
    "evokernel": Recipe(lambda config: EvoKernelRule(config.epsilon)),
    "memrl": Recipe(lambda config: MemRLRule(config.epsilon), _memrl),
    "hybrid": Recipe(_hybrid("hybrid"), _joint, PARENT.name),
    "placebo": Recipe(_hybrid("placebo"), _placebo, PARENT.name),
}


def check(config: MemoryConfig) -> None:
    """Refuse a policy or reward that does not exist.

    Raises:
        ConfigError: the nearest name is suggested.
    """
    rule_of(config.reward or recipe_of(config.policy).reward)


def policy_of(config: MemoryConfig) -> Policy:
    """The policy that `config` names.

    Raises:
        ConfigError: no such policy; the nearest name is suggested.
    """
    return recipe_of(config.policy).choice(config)


def learner_of(config: MemoryConfig, around: Surroundings) -> Learner:
    """What learns the values by which that policy chooses, with nothing learned yet.

    Raises:
        ConfigError: no such policy or reward; the nearest name is suggested.
    """
    recipe = recipe_of(config.policy)
    return recipe.learner(config, around, rule_of(config.reward or recipe.reward))


def recipe_of(name: str) -> Recipe:
    """The policy of that name.

    Args:
        name: One of `POLICIES`, or `MODULE:NAME` of a `Recipe` in a module that can be imported.

    Raises:
        ConfigError: no such policy; the nearest name is suggested.
    """
    if ":" in name:
        return _imported(name)
    if name not in POLICIES:
        near = difflib.get_close_matches(name, POLICIES, n=1)
        hint = f" (did you mean `{near[0]}`?)" if near else ""
        raise ConfigError(
            f"no memory policy `{name}`{hint}: expected one of {', '.join(POLICIES)}, or "
            "`MODULE:NAME` of your own"
        )
    return POLICIES[name]


def _imported(place: str) -> Recipe:
    module, _, name = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"memory policy `{place}` cannot be imported ({error}): expected `MODULE:NAME` of a "
            "`Recipe`; a module that lies beside you is found with `PYTHONPATH=.`"
        ) from error
    if not isinstance(found, Recipe):
        raise ConfigError(
            f"memory policy `{place}` is of type `{type(found).__name__}`: expected an "
            "`evokernel.memory.policies.Recipe`"
        )
    return found
