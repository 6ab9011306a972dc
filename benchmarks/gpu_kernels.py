"""Owns four kernels over rows in three forms: a task, a candidate of ours, and an extension.

The kernel itself, in `kernels/rows`, is the same text in a candidate that `jit.cuda_module` builds
and in one that torch's `load_inline` builds, so that what differs is who builds and who judges.
"""

from pathlib import Path
from typing import NamedTuple

from evokernel.task import Task

FOLDER = Path(__file__).with_name("kernels") / "rows"
ROWS, COLUMNS = 16384, 4096


class RowKernel(NamedTuple):
    """One kernel and what it computes."""

    name: str
    reference: str
    """An expression of `x`."""
    result: str
    """Makes its output, from `x`."""
    sizes: str
    """The same in C++."""
    blocks: str
    """The grid, from `rows` and `columns`; the same text in Python and in C++."""


ALIKE = ("torch.empty_like(x)", "torch::empty_like(x)")
EACH = ("torch.empty(rows, device=x.device)", "torch::empty({rows}, x.options())")
KERNELS = (
    RowKernel("gelu", "F.gelu(x)", *ALIKE, "132 * 16"),
    RowKernel("row_sum", "x.sum(-1)", *EACH, "rows"),
    RowKernel("softmax", "F.softmax(x, -1)", *ALIKE, "rows"),
    RowKernel("layer_norm", "F.layer_norm(x, x.shape[-1:])", *ALIKE, "rows"),
)

_TASK = """import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return {reference}


def get_inputs():
    return [torch.randn({rows}, {columns})]


def get_init_inputs():
    return []
"""

_OURS = '''import torch
from torch import nn

from evokernel.jit import cuda_module

MODULE = cuda_module(r"""
{kernel}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = {result}
        MODULE.{name}[{blocks}, 256](x, out, rows, columns)
        return out
'''

_INLINE = '''import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
{kernel}

torch::Tensor run(torch::Tensor x) {{
  const long long rows = x.size(0);
  const int columns = x.size(1);
  torch::Tensor out = {sizes};
  {name}<<<{blocks}, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, columns);
  return out;
}}
"""
MODULE = load_inline(
    name="{name}_{stamp}",
    cpp_sources="torch::Tensor run(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["run"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return MODULE.run(x)
'''


def task(kernel: RowKernel) -> Task:
    """The reference file, at GPU size."""
    text = _TASK.format(reference=kernel.reference, rows=ROWS, columns=COLUMNS)
    return Task.from_source(text, name=kernel.name, device="cuda")


def ours(kernel: RowKernel, stamp: int) -> str:
    """A candidate that is built anew for every stamp."""
    return _OURS.format(kernel=_text(kernel, stamp), **kernel._asdict())


def inline(kernel: RowKernel, stamp: int) -> str:
    """The same kernel as an extension of torch's."""
    return _INLINE.format(kernel=_text(kernel, stamp), stamp=stamp, **kernel._asdict())


def _text(kernel: RowKernel, stamp: int) -> str:
    return f"// {stamp}\n{(FOLDER / f'{kernel.name}.cu').read_text().rstrip()}"
