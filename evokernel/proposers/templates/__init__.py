"""Writes kernels without a model: operator graph in, C++ candidates out."""

from evokernel.proposers.templates.proposer import TemplateProposer

__all__ = ["TemplateProposer"]
