"""Memory and templates together: what is worth much is applied next, what is withdrawn is not."""

import pytest

from evokernel.attempt import Attempt, Candidate, Proposal, Stage
from evokernel.evaluation import Evaluation, Promotion, Status
from evokernel.memory.experience import ExperienceStatus
from evokernel.memory.store import Memory
from evokernel.opgraph import capture
from evokernel.proposers import Request
from evokernel.proposers.templates import TemplateProposer
from evokernel.task import Task
from tests.memory_samples import BAD, GOOD, config, edit, keep, query

SOFTMAX = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(64, 4096)]
"""
PLANTED, OTHER = "fewer-threads", "dynamic-scheduling"


@pytest.fixture(scope="module")
def refinement():
    """Ask the templates for the next refinement of a draft, given what is shown."""
    task = Task.from_source(SOFTMAX, name="softmax")
    graph = capture(task.program())
    fields = {"task": task, "graph": graph, "backend": "cpp", "seed": 3, "step": "new/1"}
    proposer = TemplateProposer()
    drafted = proposer.propose(Request(stage=Stage.DRAFT, **fields))
    start = judged(drafted.candidate)

    def propose(shown) -> Proposal:
        given = {"stage": Stage.REFINE, "parents": (start,), "shown": shown}
        return proposer.propose(Request(**fields, **given))

    return propose


def judged(candidate: Candidate) -> Attempt:
    """A start point of which nothing is known but its source."""
    evaluation = Evaluation(candidate=candidate.sha, task="t", status=Status.TIMEOUT, reason="slow")
    proposal = Proposal(candidate=candidate, stage=Stage.DRAFT)
    return Attempt(number=1, step="new/0", trajectory=0, proposal=proposal, evaluation=evaluation)


@pytest.fixture
def memory(tmp_path):
    with Memory.open(config(tmp_path / "memory", shown_refine=1)) as memory:
        yield memory


def learned(memory: Memory) -> str:
    """Plant two confirmed edits, and let one of them go well whenever it is shown."""
    good, bad = keep(memory, edit(PLANTED), edit(OTHER))
    for name in (PLANTED, OTHER):
        claim = {"candidate": f"sha-{name}", "parent": None, "claim": "edit", "holds": True}
        promotion = Promotion(**claim, processes=3, ratio=edit(name).measurement.speedup)
        memory.promote("old", [promotion], f"old/promotion-{name}")
    for number in range(4):
        for shown, hidden, reward in ((good, bad, GOOD), (bad, good, BAD)):
            step = f"teach-{number}-{shown}"
            assert memory.recall(query(step, exclude=(hidden,))).ids == (shown,)
            memory.reinforce(f"new/{step}", Stage.REFINE, reward)
    return good


def test_a_planted_experience_makes_the_next_refinement_apply_its_technique(memory, refinement):
    id = learned(memory)
    recalled = memory.recall(query("1"))
    assert recalled.ids == (id,)
    proposal = refinement(recalled.experiences)
    assert PLANTED in proposal.changed
    assert proposal.used == (id,)

    memory.set_status(id, ExperienceStatus.TOMBSTONE, "found to be a cheat")
    again = memory.recall(query("2"))
    assert id not in again.ids
    proposal = refinement(again.experiences)
    assert PLANTED not in proposal.changed
    assert PLANTED not in refinement(()).changed
