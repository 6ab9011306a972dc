"""Owns the built-in suite: task files in the KernelBench format."""
