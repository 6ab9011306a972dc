"""Writes kernels without a model: operator graph in, C++ candidates out."""
