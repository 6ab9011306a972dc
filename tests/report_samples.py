"""Runs and campaigns with fakes whose reports have something to say of everything."""

from pathlib import Path

from evokernel.campaign import campaign_of
from evokernel.campaign.folder import CampaignFolder, Fault
from evokernel.config import RunConfig
from evokernel.evaluation import Status
from evokernel.optimize import optimize
from evokernel.testing import (
    FakeClock,
    FakeEvaluator,
    ScriptedProposer,
    fake_graph,
    fake_kernel,
    fake_task,
    wander,
)

HOSTILE = "</script><img src=x onerror=alert(1)>"
"""What a page must show as text, wherever it stands."""

GOOD = fake_kernel(2.0, techniques=("fusion",), note=HOSTILE)
BETTER = fake_kernel(1.6, techniques=("fusion", "unrolling"))
WRONG = fake_kernel(status=Status.WRONG_VALUES, note=HOSTILE)
SLOW = fake_kernel(9.9, techniques=("unrolling",))
REFUTED = fake_kernel(1.0, promotes="no", note="too good")
KINDS = (GOOD, WRONG, SLOW, GOOD, BETTER, REFUTED)
"""Every kind of attempt."""


def run(folder: Path, *sources: str, name: str = "add-one", attempts: int = 0) -> Path:
    """The folder of a run with these kernels, or of one that wanders."""
    task, written = fake_task(name), iter(sources)
    script = (lambda request: next(written, None)) if sources else wander
    memory, budget = {"policy": "similarity"}, {"attempts": attempts or len(sources)}
    config = RunConfig(task=name, runs=folder, budget=budget, memory=memory)
    clock = FakeClock()
    return optimize(
        task,
        config,
        evaluator=FakeEvaluator(task, clock=clock, seconds=3.0),
        proposer=ScriptedProposer(script),
        graph=fake_graph(),
        clock=clock,
    ).path


def campaign(path: Path) -> CampaignFolder:
    """Two tasks with a kernel, one without, one that does not count, one that has not begun."""
    names = ("softmax", "layer_norm", "rms_norm", "void", "later")
    folder = CampaignFolder.create(
        path, campaign_of("one night", tuple(RunConfig(task=name) for name in names))
    )
    entries = {entry.name: entry for entry in folder.campaign.entries}
    for name, sources in {"softmax": KINDS, "layer_norm": (SLOW,), "rms_norm": (WRONG,)}.items():
        run(folder.runs(entries[name]), *sources, name=name)
    fault = Fault(kind="TaskError", text=f"task failed: {HOSTILE}", is_tasks=True)
    folder.save_fault(entries["void"], fault)
    return folder
