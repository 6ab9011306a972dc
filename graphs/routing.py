"""Owns which node follows which."""

from typing import Literal

from langgraph.graph import END

from evokernel.attempt import Stage
from evokernel.graphs.nodes import SKIPPED
from evokernel.graphs.state import State


def after_retrieve(state: State) -> Literal["draft", "refine", "promote"]:
    """Write the planned candidate; without a plan, settle what is still open."""
    if state.get("reason"):
        return "promote"
    return "draft" if state["stage"] == Stage.DRAFT else "refine"


def after_proposal(state: State) -> Literal["compile", "retrieve"]:
    """Judge the candidate; without one, plan another step."""
    return "retrieve" if state["status"] == SKIPPED else "compile"


def after_compile(state: State) -> Literal["verify", "profile", "learn"]:
    """A candidate that was not built teaches why."""
    return "learn" if state["status"] else "verify"


def after_verify(state: State) -> Literal["profile", "learn"]:
    """Only a kernel that passed is worth a profile."""
    return "learn" if state["status"] else "profile"


def after_learn(state: State) -> Literal["promote", "retrieve"]:
    """A new best kernel is looked at again before others build on it."""
    return "promote" if state["is_best"] else "retrieve"


def after_promote(state: State) -> str:
    """Go on, unless the run is over."""
    return END if state.get("reason") else "retrieve"
