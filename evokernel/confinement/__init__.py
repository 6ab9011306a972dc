"""Owns how a process gives up rights for good, before it does what cannot be trusted.

It stands below everything and needs nothing but the standard library: measuring processes and
compilers use it alike.
"""
