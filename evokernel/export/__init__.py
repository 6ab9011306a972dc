"""Owns the export of a kernel: one Python file that needs torch and a compiler, not EvoKernel.

What is left out: kernels of other backends than `cpp`, and candidates whose parameters have other
names or shapes than the reference's, into which nobody could load a trained module.
"""

from evokernel.attempt import Candidate
from evokernel.export.claims import Claims
from evokernel.frozen import Frozen
from evokernel.task import Task


class Exported(Frozen):
    """An exported file, not written yet."""

    text: str
    workloads: tuple[str, ...]
    """Names of the workloads whose shapes the kernel serves."""
    modes: tuple[str, ...]
    """Of `train` and `eval`, those in which it serves."""
    notes: tuple[str, ...] = ()
    """What to know about it."""


def export(
    task: Task,
    candidate: Candidate,
    claims: Claims,
    workloads: tuple[str, ...],
    is_strict: bool = False,
) -> Exported:
    """Make the file of a kernel that passed.

    The candidate is run once to see its C++ sources, and the finished file checks itself once, each
    in a process of its own, the second without EvoKernel.

    Args:
        task: What it is for.
        candidate: Its text.
        claims: What was measured.
        workloads: Names of the workloads on which it was found right.
        is_strict: Whether a call outside of the verified domain raises.

    Raises:
        ConfigError: It cannot be exported; the message says why.
    """
    from evokernel.export.domain import verified
    from evokernel.export.door import checked, modes_served, surveyed
    from evokernel.export.text import assembled

    survey = surveyed(task, candidate.source)
    domain = verified(task, workloads, survey.shapes)
    text = assembled(task, candidate.source, survey.kernels, domain, claims, is_strict)
    modes = modes_served(checked(text), task.options.mode)
    if modes != domain.modes:
        domain = domain._replace(modes=modes)
        text = assembled(task, candidate.source, survey.kernels, domain, claims, is_strict)
    left = [mode for mode in ("train", "eval") if mode not in modes]
    notes = tuple(
        f"in {mode} mode the original runs: it does something else there" for mode in left
    )
    return Exported(text=text, workloads=workloads, modes=modes, notes=notes)
