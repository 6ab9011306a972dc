"""Owns the parts of a step's prompt: each a heading with facts below it, or nothing at all."""

import ast
from collections.abc import Iterable

from evokernel.attempt import Attempt
from evokernel.evaluation import Diagnostic, Evaluation, Mismatch
from evokernel.memory.experience import Experience
from evokernel.opgraph import Argument, Node, OpGraph, Ref, TensorSpec
from evokernel.prompts.limits import Limits, cut, fenced, line, listed
from evokernel.prompts.situation import Situation, TechniqueNote
from evokernel.wording import call_time, milliseconds, times, with_interval


def task(situation: Situation, limits: Limits) -> str:
    """What is to be made fast."""
    task = situation.task
    source = cut(_shown_source(task.source), limits.task, "the task")
    facts = [f"Precision: {task.options.precision}; mode of the module: {task.options.mode}."]
    if situation.graph is not None:
        facts += _graph(situation.graph, limits)
    body = "\n".join([fenced(source, "python"), *facts])
    return _section(f"The task: {line(task.title, limits.line)}", body)


def machine(situation: Situation) -> str:
    """Where it runs, and the times to beat."""
    facts = [f"- {fact}" for fact in situation.machine]
    for name, median_ms in situation.baselines.items():
        facts.append(f"- {_NAMES.get(name, name)} takes {milliseconds(median_ms)} a call")
    return _section("The machine, and the times to beat", "\n".join(facts)) if facts else ""


_NAMES = {"eager": "PyTorch eager", "compile": "torch.compile", "parent": "its parent"}


def techniques(known: Iterable[TechniqueNote], parents: tuple[Attempt, ...]) -> str:
    """The names that a reply may use, and what they mean."""
    applied = set(parents[0].proposal.techniques) if parents else set()
    lines = [
        f"- `{t.name}`{' (this candidate has it)' if t.name in applied else ''}: {t.does} "
        f"Helps: {t.helps} Costs: {t.costs}"
        for t in known
    ]
    if not lines:
        return ""
    intro = "Use these names in your answer; other ideas are as welcome, in your own words.\n"
    return _section("Techniques", "\n".join([intro, *lines]))


def experiences(situation: Situation, limits: Limits) -> str:
    """What memory brought back."""
    if not situation.shown:
        return ""
    intro = (
        "From earlier work on this or related tasks, best first; measured where it says so. Take "
        "from them what fits; their shapes and operators may be others.\n"
    )
    told = [_experience(e, situation.task.name, limits) for e in situation.shown]
    return _section("What helped before", "\n\n".join([intro.strip(), *told]))


def drafts(situation: Situation, limits: Limits) -> str:
    """Earlier drafts of the run."""
    return _attempts(
        situation.children,
        limits,
        "Drafts so far",
        "Other drafts of this run exist already; write one that goes another way:",
    )


def children(situation: Situation, limits: Limits) -> str:
    """What was tried from the same start point."""
    title = "What was tried from this candidate"
    return _attempts(situation.children, limits, title, "", situation.parents[:1])


def candidate(attempt: Attempt, limits: Limits) -> str:
    """What is to be edited or repaired."""
    proposal = attempt.proposal
    if proposal.fault is not None:
        reply = cut(proposal.reply, limits.experience, "the reply")
        body = f"The reply to the last step held no candidate. It was:\n\n{fenced(reply)}"
        return _section("The last reply", body if reply.strip() else "It was empty.")
    source = cut(proposal.candidate.source, limits.candidate, "the candidate")
    known = ", ".join(proposal.techniques) or "none named"
    body = f"Attempt {attempt.number}; techniques: {known}.\n\n{fenced(source, 'python')}"
    return _section("The candidate", body)


def second(attempt: Attempt, limits: Limits) -> str:
    """The other start point of a recombination, with its figures."""
    source = cut(attempt.proposal.candidate.source, limits.other, "the second candidate")
    known = ", ".join(attempt.proposal.techniques) or "none named"
    body = [f"Attempt {attempt.number}; techniques: {known}.\n", fenced(source, "python"), ""]
    return _section("The second candidate", "\n".join([*body, *_figures(attempt.evaluation)]))


def verdict(evaluation: Evaluation, limits: Limits) -> str:
    """How the candidate was judged: its figures, or its failure with all that is known."""
    if evaluation.status.is_feasible:
        return _section("How fast it is", "\n".join(_figures(evaluation)))
    reason = evaluation.reason or "no reason is known"
    told = [f"Status `{evaluation.status}`: {line(reason, limits.line)}"]
    messages = [_diagnostic(d, limits) for d in evaluation.diagnostics if d.severity != "note"]
    told += listed(messages, limits.diagnostics, "messages")
    if evaluation.correctness is not None:
        wrong = [_mismatch(m, limits) for m in evaluation.correctness.mismatches]
        told += listed(wrong, limits.mismatches, "differences")
        told.append(f"The rule: {line(evaluation.correctness.tolerance, limits.line)}")
    contract = evaluation.contract
    if contract is not None and contract.library_calls:
        told.append(f"Operators of the library that it called: {', '.join(contract.library_calls)}")
    if evaluation.log.strip():
        told += ["The end of what it printed:", fenced(evaluation.log[-limits.log :])]
    return _section("How it failed", "\n".join(told))


def _section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}\n"


def _shown_source(source: str) -> str:
    """The task's file without workloads that are hidden from whoever writes candidates."""
    if "hidden" not in source:
        return source
    lines = source.splitlines()
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.FunctionDef) and node.name == "get_workloads":
            note = (
                "# get_workloads(): further shapes, some of them not shown; take none for granted"
            )
            lines[node.lineno - 1 : node.end_lineno] = [note]
    return "\n".join(lines)


# -- the operator graph ----------------------------------------------------------------------------


def _graph(graph: OpGraph, limits: Limits) -> list[str]:
    nodes = listed([_node(n) for n in graph.nodes], limits.graph, "operators")
    results = ", ".join(_argument(ref) for ref in graph.results)
    return [
        f"\nIts operators (family `{graph.family}`), as recorded for the first workload:\n",
        fenced("\n".join([*nodes, f"return {results}"])),
        f"\n{graph.flops:.4g} floating-point operations a call; at least {graph.min_bytes:.4g} "
        "bytes have to be moved (inputs and parameters read once, results written once).",
    ]


def _node(node: Node) -> str:
    made = ", ".join(_spec(spec) for spec in node.outputs)
    if node.kind != "call":
        value = "" if node.value is None else f" = {node.value}"
        return f"{node.name}: {made}  ({node.kind} {node.op}{value})"
    names = node.argnames or ("",) * len(node.args)
    pairs = zip(names, node.args, strict=False)
    given = ", ".join(f"{name}={_argument(a)}" if name else _argument(a) for name, a in pairs)
    return f"{node.name} = {node.op}({given}): {made}"


def _argument(value: Argument) -> str:
    if isinstance(value, Ref):
        return f"{value.node}[{value.index}]" if value.index else value.node
    if isinstance(value, tuple):
        return f"[{', '.join(map(_argument, value))}]"
    return repr(value)


def _spec(spec: TensorSpec) -> str:
    strides = f" strides {list(spec.strides)}" if spec.strides else ""
    return f"{spec.dtype}{list(spec.shape)}{strides}"


# -- attempts and evaluations ----------------------------------------------------------------------


def _attempts(
    attempts: tuple[Attempt, ...],
    limits: Limits,
    title: str,
    intro: str,
    parents: tuple[Attempt, ...] = (),
) -> str:
    """One line each, newest first."""
    if not attempts:
        return ""
    before = parents[0].median_ms if parents else None
    told = [_attempt(a, before, limits) for a in reversed(attempts)]
    lines = listed(told, limits.children, "attempts, older ones")
    return _section(title, "\n".join([intro, *lines] if intro else lines))


def _attempt(attempt: Attempt, before_ms: float | None, limits: Limits) -> str:
    proposal, evaluation = attempt.proposal, attempt.evaluation
    change = ", ".join(proposal.changed or proposal.techniques)
    why = line(proposal.rationale, limits.line // 2)
    said = f"- attempt {attempt.number} ({change or 'no named technique'}): {why}".rstrip(": ")
    if attempt.median_ms is None:
        return f"{said} -> {evaluation.status}: {line(evaluation.reason, limits.line // 2)}"
    gain = f", {times(before_ms / attempt.median_ms)} as fast" if before_ms else ""
    return f"{said} -> right, {milliseconds(attempt.median_ms)}{gain}"


def _figures(evaluation: Evaluation) -> list[str]:
    told: list[str] = []
    if timing := evaluation.timing:
        told.append(f"Right, and takes {call_time(timing.median_ms, timing.wall_ms)} a call.")
        told += [
            f"{with_interval(s.ratio)} as fast as {_NAMES.get(s.against, s.against)} "
            f"({call_time(s.opponent_ms, s.opponent_wall_ms)})."
            for s in timing.speedups
        ]
        told += [f"Note: {note.rstrip('.')}." for note in timing.notes]
    if profile := evaluation.profile:
        share = profile.roofline_share
        reached = "" if share is None else f"; it reaches {share:.0%} of the roofline"
        told.append(f"Bound by {profile.bound_by}{reached}.")
        if profile.gbytes_per_s is not None and profile.gflops is not None:
            told.append(
                f"{profile.gbytes_per_s:.1f} GB/s of necessary traffic, {profile.gflops:.1f} "
                "GFLOP/s of necessary arithmetic."
            )
        told += [f"{note[:1].upper()}{note[1:].rstrip('.')}." for note in profile.notes]
    return told


def _diagnostic(diagnostic: Diagnostic, limits: Limits) -> str:
    place = ":".join(str(p) for p in (diagnostic.file, diagnostic.line) if p is not None)
    said = f"- {place} {diagnostic.severity}: {line(diagnostic.message, limits.line)}"
    excerpt = diagnostic.excerpt
    return f"{said}\n      {line(excerpt, limits.line)}" if excerpt else said


def _mismatch(mismatch: Mismatch, limits: Limits) -> str:
    place = "" if mismatch.worst_index is None else f" Worst at index {list(mismatch.worst_index)}"
    if place and mismatch.got is not None and mismatch.expected is not None:
        place += f": got {mismatch.got:.8g}, expected {mismatch.expected:.8g}"
    share = f" {mismatch.wrong} of {mismatch.total} elements are wrong." if mismatch.total else ""
    return (
        f"- inputs of the kind `{mismatch.family}`, workload `{mismatch.workload}`, output "
        f"{mismatch.output}: {line(mismatch.detail, limits.line).rstrip('.')}.{share}"
        f"{place}{'.' if place else ''}"
    )


# -- experiences -----------------------------------------------------------------------------------


def _experience(experience: Experience, task: str, limits: Limits) -> str:
    payload = experience.payload
    where = "this task" if experience.origin.task == task else f"task `{experience.origin.task}`"
    head = f"### `{experience.id}`: {_KINDS[experience.kind]} ({where}, {experience.family})"
    told = [head, "", f"{line(experience.summary, limits.line)}.{_measured(experience)}"]
    for name in ("error", "feedback", "note"):
        if payload.get(name):
            told.append(f"{name.capitalize()}: {line(payload[name], limits.line)}")
    # A difference says more than the source that it leads to; a failed source is no example.
    if payload.get("diff"):
        told.append(fenced(cut(payload["diff"], limits.experience, "the difference"), "diff"))
    elif payload.get("source") and experience.outcome == "success":
        told.append(fenced(cut(payload["source"], limits.experience, "the source"), "python"))
    return "\n".join(told)


_KINDS = {
    "kernel": "a kernel that was right",
    "edit": "an edit",
    "fix": "a repair that worked",
    "lesson": "what failed",
    "technique": "a note on a technique",
    "api": "a note on an interface",
}


def _measured(experience: Experience) -> str:
    measured = experience.measurement
    told = ""
    if measured.speedup is not None:
        against = {"kernel": "eager", "edit": "its parent"}.get(experience.kind, "its parent")
        told += f" {with_interval(measured.speedup)} as fast as {against}"
    if measured.median_ms is not None:
        told += f"{',' if told else ''} {milliseconds(measured.median_ms)} a call"
    return f"{told}." if told else ""
