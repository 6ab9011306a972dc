"""Owns how verdicts and experiences are told to a model that asked a tool for them."""

from evokernel.evaluation import Diagnostic, Evaluation, Mismatch, Timing
from evokernel.memory.experience import Experience
from evokernel.profile import Profile
from evokernel.wording import milliseconds, with_interval

MOST_MESSAGES, MOST_MISMATCHES = 8, 4
LOG_LETTERS = 1_500
LINE_LETTERS = 500
"""How much of each part is told (ours)."""


def told(evaluation: Evaluation) -> str:
    """A verdict in lines: the figures of a candidate that passed, or all that is known of why not.

    Args:
        evaluation: By the quick profile.
    """
    if evaluation.timing is not None:
        return "\n".join([*_figures(evaluation.timing), *_profile(evaluation.profile)])
    lines = [f"Status `{evaluation.status}`: {_line(evaluation.reason or 'no reason is known')}"]
    messages = [d for d in evaluation.diagnostics if d.severity != "note"]
    lines += [_message(message) for message in messages[:MOST_MESSAGES]]
    if evaluation.correctness:
        wrong = evaluation.correctness.mismatches[:MOST_MISMATCHES]
        lines += [_mismatch(mismatch) for mismatch in wrong]
        lines += [f"The rule: {_line(evaluation.correctness.tolerance)}"] if wrong else []
    if evaluation.contract and evaluation.contract.library_calls:
        calls = ", ".join(evaluation.contract.library_calls)
        lines.append(f"Operators of the library that it called: {calls}")
    if log := evaluation.log.strip():
        lines += ["The end of what it printed:", log[-LOG_LETTERS:]]
    return "\n".join(lines)


def experience_in_short(experience: Experience) -> str:
    """One line: id, kind, family, what it says, what was measured."""
    known = f"- `{experience.id}` ({experience.kind}, {experience.family}, {experience.outcome})"
    return f"{known}: {_line(experience.summary)}{_measured(experience)}"


def experience_in_full(experience: Experience) -> str:
    """All that is kept of it."""
    lines = [experience_in_short(experience)]
    if experience.techniques:
        lines.append(f"Techniques: {', '.join(experience.techniques)}")
    lines += [f"{name.capitalize()}:\n{text}" for name, text in experience.payload.items() if text]
    return "\n".join(lines)


def _figures(timing: Timing) -> list[str]:
    lines = [f"Right, and takes {milliseconds(timing.median_ms)} a call (measured roughly)."]
    lines += [
        f"{with_interval(speedup.ratio)} as fast as {speedup.against}."
        for speedup in timing.speedups
    ]
    if timing.roofline_share is not None:
        lines.append(f"It reaches {timing.roofline_share:.0%} of the roofline.")
    return [*lines, *(f"Note: {_line(note)}" for note in timing.notes)]


def _profile(profile: Profile | None) -> list[str]:
    if profile is None:
        return []
    limits = f"; costs time: {', '.join(profile.limits)}" if profile.limits else ""
    lines = [f"Bound by {profile.bound_by}{limits}."]
    if profile.gbytes_per_s is not None and profile.gflops is not None:
        lines.append(
            f"{profile.gbytes_per_s:.1f} GB/s of necessary traffic, {profile.gflops:.1f} GFLOP/s "
            "of necessary arithmetic."
        )
    return [*lines, *(_line(note) for note in profile.notes)]


def _message(message: Diagnostic) -> str:
    place = ":".join(str(part) for part in (message.file, message.line) if part is not None)
    excerpt = f"\n    {_line(message.excerpt)}" if message.excerpt else ""
    return f"{place} {message.severity}: {_line(message.message)}{excerpt}".strip()


def _mismatch(found: Mismatch) -> str:
    place = f", worst at {list(found.worst_index)}" if found.worst_index is not None else ""
    values = ""
    if found.got is not None and found.expected is not None:
        values = f": got {found.got:.8g}, expected {found.expected:.8g}"
    share = f"; {found.wrong} of {found.total} elements are wrong" if found.total else ""
    return (
        f"Inputs of the kind `{found.family}`, workload `{found.workload}`, output {found.output}: "
        f"{_line(found.detail)}{share}{place}{values}"
    )


def _measured(experience: Experience) -> str:
    ratio = experience.measurement.speedup
    if ratio is None:
        return ""
    against = "eager" if experience.kind == "kernel" else "its parent"
    return f" {with_interval(ratio)} as fast as {against}."


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LINE_LETTERS else f"{text[:LINE_LETTERS]} [...]"
