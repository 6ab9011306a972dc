"""Owns the doors for programs that are authors themselves: the MCP server.

    client <-- stdio, MCP --> server --> tools --> desks --> a desk: one run of an author outside
                                            |
                                            +--> running: runs of their own, which go on without us

The server answers and never measures. What judges a candidate is a desk, a process of its own that
ends with its connection; what makes a run is `evokernel run`, which does not.
"""
