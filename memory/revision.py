"""Owns `Revision`: what a person may change of an experience; never what was tried."""

from evokernel.frozen import Frozen


class Revision(Frozen):
    """One change by hand; None leaves a field as it is. Earlier ones stay in the journal."""

    summary: str | None = None
    """The sentence by which it is known."""
    techniques: tuple[str, ...] | None = None
    """Names of its techniques; its situation is embedded anew with them."""
    note: str | None = None
    """A remark of the person's own; empty takes it away."""
    is_pinned: bool | None = None
    """Whether it is in every pool that it fits into, and no upkeep withdraws it."""

    def over(self, earlier: "Revision") -> "Revision":
        """Both together, this one being the later."""
        return earlier.model_copy(update=self.model_dump(exclude_none=True))

    def changed(self) -> dict[str, object]:
        """The fields that it changes."""
        return self.model_dump(exclude_none=True, exclude={"is_pinned"})
