"""Two graphs for a LangGraph server (`langgraph.json`): templates write, or somebody outside does.

pip install "langgraph-cli[inmem]" && langgraph dev
"""

import evokernel
from evokernel import RunConfig

templates = evokernel.build_workflow(RunConfig(budget={"attempts": 8}))
"""Input: `{"task": "softmax"}`, with `settings` where something is to be different."""

author = evokernel.build_workflow(RunConfig(proposer="external"), approve=True)
"""Interrupts for every candidate, and once at the end for an approval."""
