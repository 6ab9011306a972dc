"""Owns the check that an exported file makes of itself: the kernel against the original.

Embedded in every exported file.
"""

import copy
import hashlib
import json
import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from evokernel.export.spec import Domain
from evokernel.nested import leaves
from evokernel.program.casting import convert, to_dtype

FACTOR, FLOOR = 10.0, 64.0
"""The kernel may err by FACTOR times the original's own error against fp64, and by FLOOR roundings
of the largest value. That is coarse: the file was verified far more strictly before it was made."""


def main(made: Any, original: ModuleType, domain: Domain, is_json: bool) -> int:
    """Print the check of every workload and mode.

    Returns:
        The exit code: 0 where the kernel served every call and was right.
    """
    found = [
        compared(made, original, domain, workload, mode)
        for workload in domain.workloads
        for mode in domain.modes
    ]
    if is_json:
        print(json.dumps(found))
    for one in () if is_json else found:
        why = "".join(f"; {reason}" for reason in one["reasons"])
        served = "not served by the kernel" if why else "served by the kernel"
        print(
            f"{one['workload']}, {one['mode']}: {'right' if one['is_right'] else 'WRONG'}, {served}"
            f"{why}; largest error {one['error']:.3g}, allowed {one['allowed']:.3g}"
        )
    is_well = all(one["is_right"] and one["is_state_kept"] and not one["reasons"] for one in found)
    return 0 if is_well else 1


def compared(
    made: Any, original: ModuleType, domain: Domain, workload: str, mode: str, seed: int = 0
) -> dict[str, Any]:
    """Call kernel and original twice on fresh inputs, the second time with other weights.

    Args:
        made: The exported class.
        original: The executed file of the task.
        domain: What was verified.
        workload: One of its workloads.
        mode: `train` or `eval`.
        seed: Of weights and inputs.

    Returns:
        `is_right`, `error` and `allowed` (absolute, of the worst output), `is_state_kept` (buffers
        came out as the original's do), `reasons` of calls that the kernel did not serve, and
        `bits`: hashes of what original and kernel gave.
    """
    args, kwargs = _constructor(original, seed)
    twins = [_module(kind, args, kwargs, mode, seed) for kind in (original.Model, made)]
    model, kernel = twins
    if domain.cast:
        convert(model, getattr(torch, domain.cast))
        kernel.to(getattr(torch, domain.cast))  # as its user does; it converts the rest by itself
    found = contrasted(
        model, kernel, lambda turn: _inputs(original, domain, workload, seed + turn), seed
    )
    return {"workload": workload, "mode": mode, **found}


def contrasted(
    model: Any, kernel: Any, make_inputs: Callable[[int], list[Any]], seed: int
) -> dict[str, Any]:
    """What `compared` says of two modules with the same weights, which it changes.

    Args:
        model: The original.
        kernel: Its twin with the kernel; `kernel.evokernel` is the guard.
        make_inputs: Gives the arguments of the first and of the second turn.
        seed: Set before every call.
    """
    worst, bits, is_state_kept = (0.0, 0.0), [hashlib.sha256(), hashlib.sha256()], True
    for turn in range(2):
        inputs = make_inputs(turn)
        exact = _exact(model, inputs, seed)
        results = [_called(twin, inputs, seed) for twin in (model, kernel)]
        for digest, result in zip(bits, results, strict=True):
            _add(digest, result)
        worst = max(worst, _distance(results[0], results[1], exact), key=_ratio)
        is_state_kept = is_state_kept and _same_state(model, kernel)
        _change_weights(model)
        kernel.load_state_dict(model.state_dict())
    return {
        "is_right": _ratio(worst) <= 1,
        "error": worst[0],
        "allowed": worst[1],
        "is_state_kept": is_state_kept,
        "reasons": kernel.evokernel.reasons,
        "bits": [digest.hexdigest()[:16] for digest in bits],
    }


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)


def _constructor(original: ModuleType, seed: int) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of the constructor: a list, a dictionary, or a list of both."""
    _seed(seed)
    made = original.get_init_inputs() if hasattr(original, "get_init_inputs") else []
    if isinstance(made, dict):
        return [], made
    if len(made) == 2 and isinstance(made[0], list | tuple) and isinstance(made[1], dict):
        return list(made[0]), made[1]
    return list(made), {}


def _module(kind: Any, args: list[Any], kwargs: dict[str, Any], mode: str, seed: int) -> Any:
    _seed(seed)
    return kind(*args, **kwargs).train(mode == "train")


def _inputs(original: ModuleType, domain: Domain, workload: str, seed: int) -> list[Any]:
    """The arguments of one workload, with fresh values."""
    _seed(seed)
    if workload == "default":
        made = original.get_inputs()
    else:
        listed = enumerate(original.get_workloads(), start=1)
        named = {str(entry.get("name", f"workload_{n}")): entry["inputs"] for n, entry in listed}
        made = named[workload]() if callable(named[workload]) else named[workload]
    values = list(made.values() if isinstance(made, dict) else made)
    made = copy.deepcopy(values)
    return to_dtype(made, getattr(torch, domain.cast)) if domain.cast else made


def _called(module: Any, inputs: list[Any], seed: int) -> list[torch.Tensor]:
    _seed(seed)
    with torch.no_grad():
        found = leaves(module(*copy.deepcopy(inputs)))
    return [leaf for _, leaf in found if isinstance(leaf, torch.Tensor)]


def _exact(model: Any, inputs: list[Any], seed: int) -> list[torch.Tensor] | None:
    """What the original gives in fp64; None where it does not run in fp64."""
    try:
        precise = copy.deepcopy(model)
        convert(precise, torch.float64)
        return _called(precise, to_dtype(inputs, torch.float64), seed)
    except (RuntimeError, TypeError, ValueError):
        return None


def _distance(
    expected: list[torch.Tensor], got: list[torch.Tensor], exact: list[torch.Tensor] | None
) -> tuple[float, float]:
    """Error and allowed error of the worst output."""
    if [(t.shape, t.dtype) for t in expected] != [(t.shape, t.dtype) for t in got]:
        return float("inf"), 0.0
    found = [(0.0, 0.0)]
    for wanted, made, truth in zip(expected, got, exact or expected, strict=True):
        error = _largest(made, truth)
        allowed = 0.0
        if wanted.is_floating_point():
            finite = truth[truth.isfinite()].abs()
            scale = float(finite.max()) if finite.numel() else 0.0
            allowed = FLOOR * torch.finfo(wanted.dtype).eps * scale
            allowed += FACTOR * _largest(wanted, truth)
        found.append((error, allowed))
    return max(found, key=_ratio)


def _largest(made: torch.Tensor, truth: torch.Tensor) -> float:
    """The largest absolute difference; equal infinities and two NaN differ by nothing."""
    made, truth = made.double(), truth.double()
    same = (made == truth) | (made.isnan() & truth.isnan())
    apart = torch.where(same, 0.0, (made - truth).abs()).nan_to_num(float("inf"), float("inf"))
    return float(apart.max()) if apart.numel() else 0.0


def _ratio(worst: tuple[float, float]) -> float:
    error, allowed = worst
    if error <= allowed:
        return error / allowed if allowed else 0.0
    return error / allowed if allowed else float("inf")


def _add(digest: Any, outputs: list[torch.Tensor]) -> None:
    for output in outputs:
        flat = output.detach().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).cpu().numpy().tobytes() if flat.numel() else b"")


def _same_state(model: Any, kernel: Any) -> bool:
    ours, theirs = kernel.state_dict(), model.state_dict()
    return ours.keys() == theirs.keys() and all(
        torch.allclose(ours[name].double(), theirs[name].double(), 1e-3, 1e-5, equal_nan=True)
        for name in theirs
    )


def _change_weights(model: Any) -> None:
    """What was made of the first weights must not serve the second ones."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.mul_(1.0 + 0.1 * torch.randn_like(parameter))
