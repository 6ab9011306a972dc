"""Owns the table of tools: what each is for, what it takes, what it answers, who carries it out."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from evokernel.frozen import Frozen
from evokernel.serve import asked, told
from evokernel.serve.desks import Tell

Work = Callable[[asked.Asked, Tell], Awaitable[Frozen]]
"""Carries a call out."""


class Tool(NamedTuple):
    """One tool."""

    title: str
    description: str
    takes: type[asked.Asked]
    answers: type[told.Told]
    is_read_only: bool = False
    is_idempotent: bool = False
    """Calling it again with the same arguments changes nothing more."""


TOOLS = {
    "recall": Tool(
        "What helped before",
        "Call this before you write a kernel. Gives the task, the machine and the times to beat in "
        "words, how a candidate has to be written, and the experiences of other tasks that memory "
        "holds to be worth showing. Begins your run for the task, or goes on with it. The reward "
        "of your next `evaluate` goes to what was shown, so that memory learns what helps.",
        asked.Recall,
        told.Recalled,
    ),
    "evaluate": Tool(
        "Judge a kernel",
        "Judges one candidate: does it compile, is it right, did it do the work itself, how fast "
        "against eager and torch.compile. Isolated, in a process of its own. Takes 5 to 60 "
        "seconds, the first one of a task longer; progress is told, and cancelling ends everything "
        "it started. A wrong kernel is an answer, not an error. Memory keeps the attempt: a "
        "failure at once as a lesson, a success in quarantine until `best` has confirmed it.",
        asked.Evaluate,
        told.Evaluated,
    ),
    "best": Tool(
        "The best kernel of a run",
        "Source and file of the fastest right kernel, and whether fresh processes confirmed it. "
        "With `confirm`, what your evaluations claim is measured again, and only what holds "
        "becomes active in memory: do it once, when you are done with a task.",
        asked.Best,
        told.Found,
        is_idempotent=True,
    ),
    "profile": Tool(
        "What bounds a kernel",
        "Memory, compute, latency, launches or contention; how much of the machine's roof it "
        "reaches; what to do next. For an attempt that passed.",
        asked.Profile,
        told.Profiled,
        is_read_only=True,
    ),
    "remember": Tool(
        "Keep a remark",
        "Writes down in words what you learned. It stays in quarantine: it is shown inside its own "
        "run only, until a person takes it over. What was measured needs no remark.",
        asked.Remember,
        told.Remembered,
        is_idempotent=True,
    ),
    "start_run": Tool(
        "Start a run",
        "Lets EvoKernel make a task fast by itself, with its templates or a model. Returns as soon "
        "as the run has begun (5 to 60 seconds); it goes on in a process of its own, also after "
        "this server has ended. `run_status` follows it, `best` has its kernel, `stop_run` ends "
        "it.",
        asked.StartRun,
        told.RunStanding,
    ),
    "run_status": Tool(
        "Where a run stands",
        "State, attempts and best kernel of a run, of `start_run` or of your own evaluations. With "
        "`wait_s`, waits for its end.",
        asked.RunStatus,
        told.RunStanding,
        is_read_only=True,
    ),
    "stop_run": Tool(
        "Stop a run",
        "Stops a run that was started with `start_run`, by any server. It stays and "
        "`evokernel resume` goes on with it. A run of your own evaluations needs no stopping.",
        asked.StopRun,
        told.RunStanding,
        is_idempotent=True,
    ),
    "doctor": Tool(
        "Look at this machine",
        "What a run needs and what is missing, with advice. Call it when other tools fail.",
        asked.Doctor,
        told.Checked,
        is_read_only=True,
    ),
}
"""By name."""
