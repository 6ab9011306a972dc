"""Owns the order of work: the state, the nodes and the workflow that joins them.

Importing this package imports nothing else; langgraph is loaded with `evokernel.graphs.workflow`.
"""
