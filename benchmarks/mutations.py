"""Plants faults into right kernels: one small change of the text each, as people and models do.

`faults(source, rows)` goes through the kernels that the templates write, or that follow their
manner, and gives every fault that it can plant, in their C++ and, by `call_faults`, in the Python
around it.
"""

import re
from collections.abc import Iterator

import call_faults
import formula_faults
import kernel_faults
from fault import Fault


def faults(source: str, rows: int = 0) -> Iterator[Fault]:
    """Every fault that can be planted into a candidate, class by class.

    Args:
        source: A candidate whose C++ stands in one raw text, its kernels last.
        rows: Number of rows of the declared workload, where there is another one; 0 if not.
    """
    start, end = _kernels(source)
    head, body, tail = source[:start], source[start:end], source[end:]
    yield from kernel_faults.faults(head, body, tail)
    for fault in formula_faults.faults(body):
        yield fault._replace(source=head + fault.source + tail)
    yield from call_faults.faults(head + body, tail, rows)


def _kernels(source: str) -> tuple[int, int]:
    found = re.search(r'(?m)^(?:extern "C" )?void \w+', source)
    if found is None:
        raise ValueError("no kernel in the source; expected functions that return nothing")
    return found.start(), source.index('"""', found.start())
