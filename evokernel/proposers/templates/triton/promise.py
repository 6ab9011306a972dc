"""Owns what we expect of each technique in Triton before anything is measured."""

from __future__ import annotations

from evokernel.proposers.templates.contraction import Pipeline
from evokernel.proposers.templates.expressions import Program

_USUALLY = {
    "block-size": 0.8,
    "multi-row-blocks": 0.8,
    "persistent-grid": 0.6,
    "software-pipelining": 0.7,
    "online-softmax": 1.5,
    "single-pass-moments": 1.5,
    "row-caching": 1.5,
    "split-rows": 1.2,
    "column-blocking": 0.7,
    "shorter-functions": 1.0,
    "nontemporal-stores": 0.3,
}
"""Before anything is measured (ours)."""

_OF_PRODUCTS = {
    "block-size": 1.0,
    "output-blocking": 1.5,
    "cache-blocking": 1.0,
    "software-pipelining": 1.2,
    "grouped-order": 0.8,
    "split-products": 2.0,
    "stage-fusion": 2.5,
}
"""The same for products (ours)."""


def promise(technique: str, program: Program | Pipeline) -> float:
    """How much a technique should help a program: 0 nothing, 1 a little, 3 a lot."""
    if isinstance(program, Pipeline):
        return _OF_PRODUCTS.get(technique, 0.3 * _USUALLY.get(technique, 0.5))
    return _USUALLY.get(technique, 0.5)
