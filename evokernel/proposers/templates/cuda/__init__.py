"""Writes CUDA C++ kernels without a model."""

from evokernel.proposers.templates.cuda.language import Cuda

__all__ = ["Cuda"]
