"""Owns the tripwire: it notes every operator that a process dispatches."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


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
        return operator(*args, **(kwargs or {}))
