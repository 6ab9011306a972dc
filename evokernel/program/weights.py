"""Owns the weights that lie beside a task file: plain tensors, known by their hash."""

import hashlib
import io
from pathlib import Path
from typing import TYPE_CHECKING

from evokernel.errors import TaskError
from evokernel.task import Weights

if TYPE_CHECKING:
    import torch


def load_weights(module: "torch.nn.Module", weights: Weights, label: str) -> None:
    """Replace a module's weights.

    Args:
        module: Just constructed.
        weights: Where they lie.
        label: The task, in backquotes.

    Raises:
        TaskError: they are gone, changed, or belong to another module.
    """
    import torch

    path = Path(weights.file)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TaskError(
            f"the weights of {label} cannot be read from `{path}`: {error.strerror or error}; "
            "capture the module again"
        ) from error
    if hashlib.sha256(content).hexdigest() != weights.sha256:
        raise TaskError(
            f"the weights of {label} in `{path}` are not those that were captured; capture the "
            "module again"
        )
    try:
        module.load_state_dict(torch.load(io.BytesIO(content), weights_only=True))
    except RuntimeError as error:
        said = " ".join(str(error).split())
        raise TaskError(
            f"the weights in `{path}` do not fit `Model` of {label}: {said:.300}"
        ) from error
