"""Credit: who made use of an experience says so, the code confirms it, and the value follows."""

import pytest

from evokernel.attempt import Candidate, Proposal, Stage
from evokernel.config import MemoryConfig, RunConfig
from evokernel.memory import credit
from evokernel.memory.credit import CITED, CONFIRMED, PRESENT
from evokernel.memory.journal import Journal
from evokernel.memory.store import Memory
from evokernel.memory.values import Rewarded, Values
from evokernel.optimize import optimize
from evokernel.testing import FakeEvaluator, ScriptedProposer, fake_graph, fake_task
from tests.memory_samples import GOOD, config, experience, keep, query

SKELETON = "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return out\n"
TRICK = "for (int64_t i = 0; i < n; i += 8) acc = _mm256_fmadd_ps(a[i], b[i], acc);\n"
OTHER = "std::sort(values.begin(), values.end(), std::greater<float>());\n"


def shown(name: str, source: str = "", diff: str = "", **changes):
    texts = {"source": source, "diff": diff}
    return experience(name, payload={k: v for k, v in texts.items() if v}, **changes)


def proposal(source: str, **more) -> Proposal:
    candidate = Candidate(source=source, backend="cpp")
    return Proposal.model_validate({"candidate": candidate, "stage": Stage.DRAFT, **more})


def weight(experience, proposal, known=()) -> float:
    return credit.weights([experience], proposal, known)[experience.id]


KERNEL = shown("kernel", SKELETON + TRICK, kind="kernel")


@pytest.mark.parametrize(
    ("source", "is_cited", "expected"),
    [
        (SKELETON + OTHER, False, PRESENT),
        (SKELETON + OTHER, True, PRESENT + CITED),
        (SKELETON + TRICK, False, PRESENT + CONFIRMED),
        (SKELETON + TRICK, True, 1.0),
    ],
)
def test_what_is_said_and_what_the_code_shows(source, is_cited, expected):
    made = proposal(source, used=(KERNEL.id,) if is_cited else ())
    assert weight(KERNEL, made, [SKELETON]) == pytest.approx(expected)


def test_code_that_the_author_had_anyway_proves_nothing():
    assert weight(KERNEL, proposal(SKELETON + TRICK), [SKELETON + TRICK]) == PRESENT


def test_a_part_of_the_code_in_other_surroundings_is_enough():
    adapted = proposal(SKELETON + OTHER + TRICK.replace("int64_t i", "size_t j"))
    assert weight(KERNEL, adapted, [SKELETON]) > PRESENT + CONFIRMED / 2


def test_of_an_edit_only_the_added_lines_count():
    edit = shown("edit", SKELETON + OTHER + TRICK, f"--- a\n+++ b\n-{OTHER}+{TRICK}", kind="edit")
    assert weight(edit, proposal(SKELETON + OTHER)) == PRESENT
    assert weight(edit, proposal(SKELETON + TRICK)) == PRESENT + CONFIRMED


def test_a_note_is_confirmed_by_its_technique():
    note = experience("row-caching", kind="technique", payload={"note": "keep the row"})
    assert weight(note, proposal(OTHER, techniques=("row-caching",))) == PRESENT + CONFIRMED
    assert weight(note, proposal(OTHER, techniques=("vectorized-math",))) == PRESENT


def test_a_lesson_is_not_confirmed_by_repeating_its_failure():
    lesson = shown("lesson", SKELETON + TRICK, kind="lesson", outcome="failure")
    assert weight(lesson, proposal(SKELETON + TRICK)) == PRESENT


def test_values_follow_the_weights_only_where_asked():
    event = Rewarded(
        seq=1, step="r/1", stage=Stage.DRAFT, value=1.0, shown=("a", "b"), weights={"a": 0.2}
    )
    equal, weighed = Values(0.5, 0.2), Values(0.5, 0.2, "evidence")
    for values in (equal, weighed):
        values.fold([event])
    assert [equal.of(id, Stage.DRAFT).q for id in "ab"] == [0.5, 0.5]
    assert [weighed.of(id, Stage.DRAFT).q for id in "ab"] == pytest.approx([0.1, 0.5])
    assert weighed.of("a", Stage.DRAFT).visits == 1


def test_weights_are_recorded_and_the_other_rule_can_be_had_later(tmp_path):
    with Memory.open(config(tmp_path, credit="evidence")) as memory:
        keep(memory, experience("old", kind="lesson", outcome="failure"))
        (id,) = memory.recall(query("1")).ids
        memory.reinforce("new/1", Stage.REFINE, GOOD.model_copy(update={"weights": {id: 0.5}}))
        assert memory.value(id, Stage.REFINE).q == pytest.approx(0.06)
    with Memory.open(config(tmp_path)) as memory:
        assert memory.value(id, Stage.REFINE).q == pytest.approx(0.12)


def test_every_step_of_a_run_records_whom_it_owes(tmp_path):
    task = fake_task()
    settings = RunConfig(
        task=task.name,
        runs=tmp_path / "runs",
        budget={"attempts": 6},
        memory=MemoryConfig(path=tmp_path / "memory", credit="evidence"),
    )
    optimize(
        task,
        settings,
        evaluator=FakeEvaluator(task),
        proposer=ScriptedProposer(),
        graph=fake_graph(),
    )
    journal = Journal.open(tmp_path / "memory")
    rewards = [reward for reward in journal.rewards_after(0) if reward.shown]
    journal.close()
    assert rewards
    for reward in rewards:
        assert set(reward.weights) == set(reward.shown)
        assert all(PRESENT + CITED <= weight <= 1 for weight in reward.weights.values())
