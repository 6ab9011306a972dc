"""Owns where the windows of an image lie, for convolutions as products in Triton."""

from __future__ import annotations

from evokernel.proposers.templates.contraction import Patches


def image_terms(image: Patches) -> list[str]:
    """Where the window of each column of a block begins, along each axis of the image."""
    lines, below = [], 1
    for axis in (2, 1, 0):
        count = image.result[axis]
        if _is_idle(image, axis):
            below *= count
            continue
        part = "n" if below == 1 else f"n // {below}"
        part = f"{part} % {count}" if axis else part
        below *= count
        step = f"({part}) * {image.stride[axis]} - {image.padding[axis]}"
        lines.append(f"from{axis}_ = {step}")
    return lines or ["from2_ = 0 * n"]


def image_steps(image: Patches) -> list[str]:
    """The element of each window at a place `tap` of the window, and whether there is one."""
    lines, parts, masks = [], [], ["has_column_"]
    below, distance = 1, 1
    for axis in (2, 1, 0):
        size = image.window[axis]
        if not _is_idle(image, axis):
            part = "tap_" if below == 1 else f"tap_ // {below}"
            part = f"{part} % {size}" if axis else part
            far = image.dilation[axis]
            lines.append(f"at{axis}_ = from{axis}_ + ({part}) * {far}")
            parts.append(f"at{axis}_" if distance == 1 else f"at{axis}_ * {distance}")
            if image.padding[axis]:
                masks.append(f"((at{axis}_ >= 0) & (at{axis}_ < {image.size[axis]}))[None, :]")
        below *= size
        distance *= image.size[axis]
    place = " + ".join(parts[::-1]) or "from2_"
    return [*lines, f"place_ = ({place})[None, :]", f"within_ = {' & '.join(masks)}"]


def _is_idle(image: Patches, axis: int) -> bool:
    """Whether there is only one place along an axis."""
    return image.result[axis] == 1 and image.window[axis] == 1 and not image.padding[axis]
