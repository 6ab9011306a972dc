"""Owns the words for what is known of a GPU kernel: what a verdict rests on, a sentence each."""

from evokernel.bench.gpu.case import Case
from evokernel.bench.gpu.counters import Counters

KERNELS, STALLS = 2, 3
"""How many of each are described."""
TENSOR_SHARE = 0.02
"""Share of the tensor cores' rate below which they are not at work."""
_WORDS = {
    "long scoreboard": "global memory",
    "short scoreboard": "shared memory or special functions",
    "barrier": "barriers",
    "wait": "instructions of fixed latency",
    "math pipe throttle": "busy arithmetic units",
    "lg throttle": "a full queue of global accesses",
    "mio throttle": "a full queue of shared memory",
    "tex throttle": "a full queue of textures",
    "no instruction": "instructions to be fetched",
    "gmma": "tensor cores",
    "drain": "last writes",
    "membar": "memory fences",
    "imc miss": "constants",
    "branch resolving": "branches",
    "dispatch stall": "the dispatcher",
}


def figures(case: Case) -> tuple[str, ...]:
    """What the words rest on."""
    said = [_in_words(case), _calls(case)]
    said += [_kernel(case, launch) for launch in _by_time(case)]
    said += [_waits(case), _traffic(case), case.found.refusal, case.found.trace.note]
    return tuple(text for text in said if text)


def _in_words(case: Case) -> str:
    if case.memory is None or case.compute is None:
        return "the reference could not be captured, so that its work and traffic are unknown"
    return (
        f"{case.memory:.0%} of the memory roof and {case.compute:.0%} of the arithmetic roof of "
        f"{case.floors.peaks}"
    )


def _calls(case: Case) -> str:
    if case.overhead is None:
        return ""
    trace = case.found.trace
    return (
        f"back to back, a call takes {1e3 * trace.call_s:.4g} ms, {1 - case.overhead:.0%} of it "
        f"inside kernels ({trace.launches:g} launches)"
    )


def _by_time(case: Case) -> list[Counters]:
    """The longest launches, each kernel once."""
    longest: dict[str, Counters] = {}
    for launch in sorted(case.found.counters, key=lambda launch: -launch.seconds):
        longest.setdefault(launch.kernel, launch)
    return list(longest.values())[:KERNELS]


def _kernel(case: Case, launch: Counters) -> str:
    everything = sum(one.seconds for one in case.found.counters)
    mine = sum(one.seconds for one in case.found.counters if one.kernel == launch.kernel)
    said = [
        f"`{launch.kernel}` ({mine / everything:.0%} of the kernels' time): {launch.blocks} blocks "
        f"of {launch.threads} threads, {launch.registers} registers"
    ]
    if launch.occupancy is not None:
        possible_share = launch.occupancy_limit if launch.occupancy_limit is not None else 1.0
        why = f", limited by {launch.limited_by}" if launch.limited_by else ""
        said.append(f"{launch.occupancy:.0%} occupancy of {possible_share:.0%} possible{why}")
    rates = {
        "of the memory's rate": launch.dram_share,
        "of the arithmetic's": launch.compute_share,
        "of the tensor cores'": launch.tensor_share if _is_used(launch) else None,
    }
    said += [f"{share:.0%} {what}" for what, share in rates.items() if share is not None]
    return ", ".join(said)


def _is_used(launch: Counters) -> bool:
    """Other instructions than products count there, too, a little."""
    return (launch.tensor_share or 0.0) >= TENSOR_SHARE


def _waits(case: Case) -> str:
    stalls = case.counted.stalls[:STALLS] if case.counted else ()
    named = [f"{_WORDS.get(s.reason, s.reason)} {s.share:.0%}" for s in stalls]
    return f"its warps wait for {', '.join(named)} of the time" if named else ""


def _traffic(case: Case) -> str:
    if case.traffic_ratio is None:
        return ""
    return f"it moves {case.traffic_ratio:.2f} times what the task needs to and from memory"
