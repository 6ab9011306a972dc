"""Owns what a kernel file may import: `cpp_module`, `cuda_module`, and what belongs to them."""

from evokernel.compilers.binding import Launch, launches
from evokernel.jit.building import Broker, BuildError, use_broker
from evokernel.jit.cpp import CppModule, cpp_module, strided
from evokernel.jit.cuda import CudaModule, cuda_module

__all__ = [
    "Broker",
    "BuildError",
    "CppModule",
    "CudaModule",
    "Launch",
    "cpp_module",
    "cuda_module",
    "launches",
    "strided",
    "use_broker",
]
