"""Owns the tripwire: it notes every operator that a process dispatches."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_LIBRARY = frozenset(name.partition("::")[0] for name in torch._C._dispatch_get_all_op_names())
"""Namespaces of operators that were there before any module was imported."""

_PROCESSOR = torch._C.DispatchKey.CPU


class Tripwire(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While entered, counts dispatched operators by name, e.g. `aten.add.Tensor`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    @property
    def operators(self) -> list[str]:
        """Their names, first seen first."""
        return list(self.counts)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False keeps torch from importing its compiler, seconds, at the first operator."""
        return False

    def arm(self) -> None:
        """Enter, without a block."""
        self.__enter__()  # type: ignore[no-untyped-call]

    def disarm(self) -> None:
        """Leave what `arm` entered."""
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self,
        operator: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        self.counts[str(operator)] += 1
        if getattr(operator, "namespace", "aten") not in _LIBRARY:
            return self._within(operator, args, kwargs or {})
        return operator(*args, **(kwargs or {}))

    def _within(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an operator that the module registered itself; what it dispatches counts as well."""
        tensors = [value for value in args if isinstance(value, torch.Tensor)]
        key = torch._C.DispatchKey.CUDA if any(t.is_cuda for t in tensors) else _PROCESSOR
        if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(operator.name(), key.name):
            return operator(*args, **kwargs)
        with self:
            return operator.redispatch(torch._C.DispatchKeySet(key), *args, **kwargs)
