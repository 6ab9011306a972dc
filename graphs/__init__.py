"""Owns the order of work: the state, the nodes and the workflow that joins them."""
