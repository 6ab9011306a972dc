"""Owns which tasks of a bank are the same as given ones: by fingerprint, or in other sizes."""

from collections.abc import Mapping

import numpy as np

from evokernel.memory.embedding import Embedder, Situation
from evokernel.memory.exchange import Bank
from evokernel.opgraph import OpGraph

ALIKE = 0.9
"""Cosine of two tasks' graphs from which on they count as one: other sizes of one task have 0.92 to
0.96, another spelling of it less (`benchmarks/embedder.py`)."""


def kin(bank: Bank, graphs: Mapping[str, OpGraph], embedder: Embedder) -> dict[str, str]:
    """Fingerprints of the tasks of a bank that are one of these, to its name."""
    found = {graph.fingerprint: name for name, graph in graphs.items()}
    vectors = {name: _vector(graph, embedder) for name, graph in graphs.items()}
    for fingerprint, body in bank.graphs.items():
        if fingerprint not in found:
            mine = _vector(OpGraph.model_validate_json(body), embedder)
            near = max(vectors, key=lambda name: float(mine @ vectors[name]))
            if float(mine @ vectors[near]) >= ALIKE:
                found[fingerprint] = near
    return found


def _vector(graph: OpGraph, embedder: Embedder) -> np.ndarray:
    return np.asarray(embedder.embed(Situation(graph=graph, family=graph.family)))
