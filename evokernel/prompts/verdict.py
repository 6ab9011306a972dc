"""Owns what a prompt says of a judged candidate: its figures, or how it failed, and what to do."""

import math
import re

from evokernel.attempt import Attempt
from evokernel.evaluation import Contract, Diagnostic, Evaluation, Mismatch, Status
from evokernel.opgraph import OpGraph
from evokernel.profile import Profile
from evokernel.prompts import sources
from evokernel.prompts.section import Item, Section, line
from evokernel.prompts.situation import Situation
from evokernel.prompts.subject import BASELINES
from evokernel.wording import call_time, with_interval

_LINE = 500
_AROUND = 2
"""Lines of the candidate before and after the first error."""
_MESSAGES = 8
_DIFFERENCES = 4
_NEAR = 1000.0
"""Errors above so many times what is allowed are not a matter of the rule (ours)."""
_PRINTED = 1500
"""Letters of what the candidate printed: its end."""


def verdict(situation: Situation) -> Section:
    """How the first parent was judged: its figures, or its failure with all that is known."""
    attempt = situation.parents[0]
    evaluation = attempt.evaluation
    is_right = evaluation.status.is_feasible
    told = figures(evaluation) if is_right else _failure(attempt, situation)
    return Section(
        name="verdict",
        title="How fast it is" if is_right else "How it failed",
        items=tuple(Item(text=text) for text in told),
        budget=2000,
        least=600,
    )


def log(situation: Situation) -> Section:
    """The end of what the failed candidate printed."""
    evaluation = situation.parents[0].evaluation
    text = "" if _is_told(evaluation) else sources.log(evaluation.log)[-_PRINTED:].strip()
    item = Item(text="", code=text, what="the output")
    return Section(
        name="log", title="The end of what it printed", items=(item,) if text else (), budget=600
    )


def _is_told(evaluation: Evaluation) -> bool:
    """Whether the verdict says all that was printed: a compiler's messages, one line's error."""
    if evaluation.status in {Status.PASSED, Status.COMPILE_ERROR}:
        return True
    has_place = any(d.file == "candidate.py" and d.line for d in evaluation.diagnostics)
    is_traceback = evaluation.log.lstrip().startswith("Traceback (most recent call last)")
    return has_place and is_traceback and evaluation.log.count('File "candidate.py"') < 2


def advice(attempt: Attempt) -> str:
    """Which section of `advice.md` is for this verdict."""
    evaluation = attempt.evaluation
    if attempt.proposal.fault is not None:
        return "no_candidate"
    if not evaluation.status.is_feasible:
        return evaluation.status.value
    speedups = evaluation.timing.speedups if evaluation.timing else ()
    return "faster" if speedups and all(s.is_faster for s in speedups) else "slower"


def figures(evaluation: Evaluation) -> list[str]:
    """Time, speedups and what bounds a candidate that passed, one sentence each."""
    told: list[str] = []
    if timing := evaluation.timing:
        told.append(f"Right, and takes {call_time(timing.median_ms, timing.wall_ms)} a call.")
        told += [
            f"{with_interval(s.ratio)} as fast as {BASELINES.get(s.against, s.against)}, measured "
            "side by side."
            for s in timing.speedups
        ]
        told += [f"Note: {note.rstrip('.')}." for note in timing.notes]
    return told + (_bounds(evaluation.profile) if evaluation.profile else [])


def _bounds(profile: Profile) -> list[str]:
    share = profile.roofline_share
    reached = "" if share is None else f"; it reaches {share:.0%} of the roofline"
    if share is not None and share > 1:
        reached = "; it reaches the roofline, as far as peaks could be measured"
    rates = ""
    if profile.gbytes_per_s is not None and profile.gflops is not None:
        rates = (
            f" ({profile.gbytes_per_s:.1f} GB/s of necessary traffic, {profile.gflops:.1f} GFLOP/s "
            "of necessary arithmetic)"
        )
    told = [f"Bound by {profile.bound_by}{reached}{rates}."]
    return told + [f"{note[:1].upper()}{note[1:].rstrip('.')}." for note in _telling(profile)]


def _telling(profile: Profile) -> list[str]:
    """Notes without those that say the rates again, or what could not be measured."""
    silent = ("of the memory roof", "hardware counters", "may not be read")
    told = [note for note in profile.notes if not any(words in note for words in silent)]
    return [re.sub(rf"(?i)^bound by {profile.bound_by}: ", "", note) for note in told]


# -- failures --------------------------------------------------------------------------------------


def _failure(attempt: Attempt, situation: Situation) -> list[str]:
    evaluation = attempt.evaluation
    reason = sources.reason(evaluation.reason) or "no reason is known"
    told = [f"Status `{evaluation.status}`: {line(reason, _LINE)}"]
    if attempt.proposal.fault is not None:
        return told
    source = attempt.proposal.candidate.source
    messages = [d for d in evaluation.diagnostics if d.severity != "note"]
    told += _messages(messages, source, reason)
    told += _differences(evaluation, situation.graph, reason)
    if evaluation.contract is not None:
        told += _breaches(evaluation.contract, source, reason)
    return told


def _messages(messages: list[Diagnostic], source: str, reason: str) -> list[str]:
    """Errors before warnings, each once, the first one with the lines around it."""
    ranked = sorted(messages, key=lambda d: d.severity != "error")
    told: list[str] = []
    for message in ranked[:_MESSAGES]:
        at = _line_of(message, source)
        text = _message(message, at, reason)
        if text not in told:
            told.append(text)
            if at is not None and len(told) == 1:
                told.append(_around(source, at))
    if more := len(ranked) - _MESSAGES:
        told += [f"[... and {more} more messages]"] if more > 0 else []
    return told


def _message(message: Diagnostic, at: int | None, reason: str) -> str:
    place = ":".join(str(p) for p in (message.file, message.line) if p is not None)
    if at is not None and message.file != "candidate.py":
        place += f" (line {at} of your file)"
    text = line(sources.without_folders(message.message), _LINE)
    said = f"- {place} {message.severity}" if place else f"- {message.severity}"
    said += "" if text in reason and place else f": {text}"
    is_shown_below = at is not None
    excerpt = "" if is_shown_below or not message.excerpt else line(message.excerpt, _LINE)
    return f"{said}\n      {excerpt}" if excerpt else said


def _line_of(message: Diagnostic, source: str) -> int | None:
    """The line of the candidate's file that a message means, if that is certain."""
    lines = source.splitlines()
    if message.file == "candidate.py" and message.line and message.line <= len(lines):
        return message.line
    wanted = (message.excerpt or "").strip()
    found = [number for number, text in enumerate(lines, 1) if text.strip() == wanted]
    return found[0] if wanted and len(found) == 1 else None


def _around(source: str, at: int) -> str:
    """The lines around one, numbered, with a mark."""
    lines = source.splitlines()
    first = max(1, at - _AROUND)
    shown = enumerate(lines[first - 1 : at + _AROUND], first)
    return "\n".join(f"    {'>' if n == at else ' '} {n:4d}  {text[:160]}" for n, text in shown)


def _differences(evaluation: Evaluation, graph: OpGraph | None, reason: str) -> list[str]:
    found = evaluation.correctness
    if found is None or found.is_right:
        return []
    told = [_difference(m, graph, reason) for m in found.mismatches[:_DIFFERENCES]]
    if (more := len(found.mismatches) - _DIFFERENCES) > 0:
        told.append(f"[... and {more} more differences]")
    if evaluation.status is not Status.WRONG_VALUES:
        return [text for text in told if text]
    wrong = {m.family for m in found.mismatches}
    if right := [family for family in found.families if family not in wrong]:
        told.append(f"Kinds of inputs for which it was right: {', '.join(right)}.")
    if found.worst_ratio < _NEAR:
        told.append(f"The rule: {line(found.tolerance, _LINE)}")
    return [text for text in told if text]


def _difference(mismatch: Mismatch, graph: OpGraph | None, reason: str) -> str:
    pattern = _pattern(mismatch, graph)
    detail = line(mismatch.detail, _LINE).rstrip(".")
    if detail in reason:
        return pattern
    output = f", output {mismatch.output}" if mismatch.output else ""
    where = f"inputs `{mismatch.family}`, workload `{mismatch.workload}`{output}"
    return f"- {where}: {detail}. {pattern}".rstrip()


def _pattern(mismatch: Mismatch, graph: OpGraph | None) -> str:
    """What the difference looks like, where that is plain."""
    told = [*_by_value(mismatch), *_by_place(mismatch, graph)]
    return f"This looks like {'; and '.join(told)}." if told else ""


def _by_value(mismatch: Mismatch) -> list[str]:
    got, expected = mismatch.got, mismatch.expected
    if got is None or expected is None:
        return []
    if math.isnan(got) and not math.isnan(expected):
        return ["a value that is never written, or 0/0 or inf - inf on the way to it"]
    if math.isnan(expected) and not math.isnan(got):
        return ["a NaN that gets lost in a comparison, a maximum or a clamp"]
    if math.isinf(got) and not math.isinf(expected):
        return ["an overflow on the way to the result, or a division by zero"]
    if got == 0 and expected != 0 and abs(expected) > 1e-30:
        return ["elements that no thread writes, or a result that is lost"]
    gap = abs(got - expected) / max(abs(expected), 1e-300)
    if 0 < gap < 1e-2 and math.isfinite(gap):
        return [f"lost precision (the relative error is {gap:.1g}), not a wrong formula"]
    return []


def _by_place(mismatch: Mismatch, graph: OpGraph | None) -> list[str]:
    share = mismatch.wrong / mismatch.total if mismatch.total else 0.0
    if share > 0.99:
        return ["a fault in what every element goes through"]
    shape = _shape(mismatch, graph)
    if shape and mismatch.worst_index and len(shape) == len(mismatch.worst_index):
        width, at = shape[-1], mismatch.worst_index[-1]
        rest = mismatch.wrong <= mismatch.total / max(width, 1) * 64
        if width > 64 and at >= width - 64 and rest and share < 0.2:
            return ["a fault at the end of rows, where no whole vector or block is left"]
    return []


def _shape(mismatch: Mismatch, graph: OpGraph | None) -> tuple[int, ...]:
    """Shape of the output, where the graph tells it for this workload."""
    output = mismatch.output or "0"
    if graph is None or mismatch.workload != "default" or not output.isdigit():
        return ()
    made = {node.name: node.outputs for node in graph.nodes}
    number = int(output)
    if number >= len(graph.results):
        return ()
    ref = graph.results[number]
    return made[ref.node][ref.index].shape


def _breaches(contract: Contract, source: str, reason: str) -> list[str]:
    told = [f"- {line(b, _LINE)}" for b in contract.breaches if b.rstrip(".") not in reason]
    if contract.library_calls and not all(call in reason for call in contract.library_calls):
        called = ", ".join(f"`{call}`" for call in contract.library_calls)
        told.append(f"- operators of PyTorch that `forward` called: {called}")
    if contract.is_kept:
        return told
    at = {h.line: h.excerpt or h.message for h in contract.hints if h.line}
    at |= _calls(contract.library_calls, source)
    lines = [f"- line {n}: {line(text, 160)}" for n, text in sorted(at.items())]
    return told + lines[:_DIFFERENCES]


def _calls(operators: tuple[str, ...], source: str) -> dict[int, str]:
    """Lines of the candidate that name an operator which the library was seen to compute."""
    names = {re.sub(r"^(?:\w+\.)?_*|(?:\.\w+)$|_$", "", operator) for operator in operators}
    names.discard("")
    pattern = re.compile(rf"\.(?:{'|'.join(map(re.escape, sorted(names)))})_?\(")
    found = enumerate(source.splitlines(), 1) if names else ()
    return {number: text.strip() for number, text in found if pattern.search(text)}
