"""Writes Triton candidates: a program or pipeline in, a Python module with `@triton.jit` out."""
