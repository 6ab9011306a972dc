"""Owns how a product's operands lie in memory: from views of tensors to matrices and windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from evokernel.opgraph import Node
from evokernel.proposers.templates.contraction import Matrix, Patches
from evokernel.proposers.templates.scope import integers
from evokernel.proposers.templates.views import View, merge


class Lying(NamedTuple):
    """A tensor, and which of its elements an operand is."""

    key: str
    view: View


def of_matrices(node: Node, left: Lying, right: Lying) -> dict[str, Any]:
    """Sizes and operands of a `product`, as `Contraction` has them.

    Axes of the stack merge wherever both operands walk them evenly; those innermost ones along
    which only the left operand moves become rows.
    """
    *batch, rows, cols = node.outputs[0].shape
    depth = left.view.shape[-1]
    one = left.view.expand((*batch, rows, depth))
    two = right.view.expand((*batch, depth, cols))
    runs = merge((*batch, rows), [one.strides[:-1], (*two.strides[:-2], 0)])
    last = runs.pop() if runs and runs[-1].strides[1] == 0 else None
    return {
        "batch": tuple(run.size for run in runs),
        "rows": last.size if last else 1,
        "cols": cols,
        "depth": depth,
        "dtype": node.outputs[0].dtype,
        "left": Matrix(
            key=left.key,
            offset=one.offset,
            batch=tuple(run.strides[0] for run in runs),
            down=last.strides[0] if last else 0,
            across=one.strides[-1],
        ),
        "right": Matrix(
            key=right.key,
            offset=two.offset,
            batch=tuple(run.strides[1] for run in runs),
            down=two.strides[-2],
            across=two.strides[-1],
        ),
    }


def of_windows(node: Node, image: Lying, weight: Lying) -> dict[str, Any]:
    """Sizes and operands of a `patch_product`, as `Contraction` has them.

    The filters are the left operand: a result then has its channels as rows, as torch lays it out.
    """
    (images, channels, *size), (filters, inner, *window) = image.view.shape, weight.view.shape
    groups = channels // inner
    plane, rows, depth = math.prod(size), filters // groups, inner * math.prod(window)
    kept = [axis for axis, number in enumerate((images, groups)) if number > 1]
    of_image, of_weight = (channels * plane, inner * plane), (0, rows * depth)
    patches = Patches(
        key=image.key,
        batch=tuple(of_image[axis] for axis in kept),
        channels=inner,
        size=_three(size, 1),
        window=_three(window, 1),
        stride=_three(integers(node, "stride"), 1),
        padding=_three(integers(node, "padding"), 0),
        dilation=_three(integers(node, "dilation"), 1),
        result=_three(node.outputs[0].shape[2:], 1),
    )
    return {
        "batch": tuple((images, groups)[axis] for axis in kept),
        "rows": rows,
        "cols": math.prod(node.outputs[0].shape[2:]),
        "depth": depth,
        "dtype": node.outputs[0].dtype,
        "left": Matrix(
            key=weight.key,
            offset=0,
            batch=tuple(of_weight[axis] for axis in kept),
            down=depth,
            across=1,
        ),
        "right": _simplified(patches),
    }


def _three(sizes: Sequence[int], missing: int) -> tuple[int, int, int]:
    one, two, three = (*(missing,) * (3 - len(sizes)), *sizes)
    return one, two, three


def _simplified(patches: Patches) -> Matrix | Patches:
    """Windows of one element that move by one are the image itself."""
    ones, zeros = (1, 1, 1), (0, 0, 0)
    if (patches.window, patches.stride, patches.padding) != (ones, ones, zeros):
        return patches
    plane = math.prod(patches.size)
    return Matrix(key=patches.key, offset=0, batch=patches.batch, down=plane, across=1)
