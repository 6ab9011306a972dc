"""Texts of one's own: file by file, checked before any call, and known again by their hash."""

import pytest
from typer.main import get_command

from evokernel.cli.prompts import app
from evokernel.config import ModelConfig, RunConfig
from evokernel.errors import ConfigError, UsageError
from evokernel.optimize import optimize
from evokernel.program.description import further_shapes
from evokernel.prompts import FILES, Texts, backends, copy, render
from evokernel.proposers.llm import ModelProposer
from evokernel.task import Task
from evokernel.testing import FakeEvaluator, ScriptedProposer, fake_graph, fake_kernel
from tests.prompt_samples import NOTES, TASK, request


def test_a_folder_replaces_ours_file_by_file(tmp_path):
    (tmp_path / "draft.md").write_text("$task\n\nWrite it in the style of the house, for 5 $$.\n")
    (tmp_path / "README.md").write_text("notes with a $ of our own")
    ours, mine = Texts.load(), Texts.load(tmp_path)
    assert mine.own == ("draft.md",)
    assert mine.digest != ours.digest
    prompt = render(request(), NOTES, mine)
    assert prompt.digest == mine.digest
    assert prompt.user.endswith("Write it in the style of the house, for 5 $.")
    assert TASK.source.strip() in prompt.user
    assert "Techniques" not in prompt.user
    assert prompt.system == render(request(), NOTES, ours).system


def test_a_copy_is_the_same_and_keeps_what_is_there(tmp_path):
    folder = tmp_path / "new" / "texts"
    (written, *_) = copy(folder), None
    assert {path.name for path in written} == set(FILES)
    assert Texts.load(folder).digest == Texts.load().digest
    (folder / "draft.md").write_text("$task mine")
    (folder / "cpp.md").unlink()
    assert [path.name for path in copy(folder)] == ["cpp.md"]
    assert (folder / "draft.md").read_text() == "$task mine"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("draft.md", "$task\n$tsak", "`draft.md` line 2: nothing is filled in for `$tsak`"),
        ("draft.md", "$task ${machnie}", "Did you mean `machine`?"),
        ("draft.md", "$task costs $ 5", "line 1 has a `$` that begins no place; write `$$`"),
        ("draft.md", "Write it.", "`draft.md` lacks `$task`"),
        ("refine.md", "$task", "`refine.md` lacks `$candidate`"),
        ("repair.md", " \n", "`repair.md` is empty"),
        ("cpp.md", "for $task", "nothing is filled in for `$task`, nor for anything else"),
        ("system.md", "$contract $language $task", "expected among `contract`, `language`"),
        ("advice.md", "## wrong_valeus\nx", "Did you mean `wrong_values`"),
        ("drfat.md", "$task", "Did you mean `draft.md`"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, name, text, told):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as refused:
        Texts.load(tmp_path)
    assert told in str(refused.value)


def test_every_fault_of_a_folder_is_named_at_once(tmp_path):
    (tmp_path / "draft.md").write_text("$task $a $b")
    (tmp_path / "repair.md").write_text("$task")
    with pytest.raises(ConfigError) as refused:
        Texts.load(tmp_path)
    assert all(part in str(refused.value) for part in ("`$a`", "`$b`", "lacks `$candidate`"))


def test_a_folder_that_is_none_and_a_file_that_is_no_text(tmp_path):
    with pytest.raises(ConfigError, match=r"is no folder; .* `evokernel prompts copy"):
        Texts.load(tmp_path / "missing")
    (tmp_path / "draft.md").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read as text in UTF-8"):
        Texts.load(tmp_path)


def test_every_language_has_a_guide():
    assert {f"{name}.md" for name in backends()} <= set(FILES)
    for backend in backends():
        assert "TUNE = " in render(request(backend=backend), NOTES).system


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16"])
def test_the_precision_of_the_task_is_told(precision):
    prompt = render(request(task=TASK.in_precision(precision)), NOTES)
    told = prompt.system.partition("# Precision")[2].partition("# The language")[0]
    name = {"fp16": "float16", "bf16": "bfloat16", "tf32": "TF32", "fp32": "float32"}[precision]
    assert name in told
    assert "EVOKERNEL" not in prompt.user


def test_texts_are_refused_before_the_model_is_reached(tmp_path):
    (tmp_path / "draft.md").write_text("$tsak")
    with pytest.raises(ConfigError, match="tsak"):
        ModelProposer("x", ModelConfig(base_url="http://127.0.0.1:9/v1"), prompts=tmp_path)


def test_a_person_reads_what_comes_next_in_a_run(tmp_path):
    result = optimize(
        TASK,
        RunConfig(task=TASK.name, runs=tmp_path / "runs", budget={"attempts": 1}),
        evaluator=FakeEvaluator(TASK),
        proposer=ScriptedProposer(lambda request: fake_kernel(2.0)),
        graph=fake_graph(),
    )
    (tmp_path / "refine.md").write_text("$task\n$candidate\nA house rule.\n")
    told = command("show", "refine", "--run", result.path)
    assert "# Your step: make a correct candidate faster" in told
    assert fake_kernel(2.0).strip() in told
    mine = command("show", "refine", "--run", result.path, "--prompts", tmp_path)
    assert mine.rstrip().endswith("A house rule.")
    sizes = command("show", "refine", "--run", result.path, "--sizes", "--room", 3000)
    assert "system message" in sizes
    assert "candidate" in sizes
    for words, why in (
        (("repair",), "has 0 failed attempts"),
        (("recombine",), "has 1 right attempts"),
        (("refine", "--attempt", 2), "attempt 2 of"),
    ):
        with pytest.raises(UsageError, match=why):
            command("show", *words, "--run", result.path)


@pytest.fixture(autouse=True)
def _captured(capsys):
    command.capsys = capsys


def command(*words: object) -> str:
    """What `evokernel prompts` prints."""
    get_command(app).main(list(map(str, words)), prog_name="prompts", standalone_mode=False)
    return command.capsys.readouterr().out


def test_a_person_reads_the_prompt_of_a_task(tmp_path):
    told = command("show", "draft", "--task", "softmax")
    assert "## The task: softmax" in told
    assert "softmax(self=x, dim=" in told
    assert (
        command("show", "draft", "--task", "softmax", "--backend", "triton").count("tl.load") == 1
    )
    listed = command("list", "--json")
    assert Texts.load().digest in listed
    assert f"written into {tmp_path / 'mine'}" in command("copy", tmp_path / "mine")
    with pytest.raises(UsageError, match="either `--task TASK` or `--run RUN`"):
        command("show", "draft")
    with pytest.raises(UsageError, match="a task alone has nothing to refine"):
        command("show", "refine", "--task", "softmax")
    with pytest.raises(UsageError, match="`draft`, `repair`"):
        command("show", "drfat", "--task", "softmax")


def test_further_shapes_are_shown_and_hidden_ones_counted():
    more = (
        "\n\ndef get_workloads():\n"
        '    return [{"name": "odd", "inputs": lambda: [torch.rand(7, 13)]},\n'
        '            {"name": "secret", "hidden": True, "inputs": lambda: [torch.rand(3, 5)]}]\n'
    )
    task = Task.from_source(TASK.source + more, "shapes")
    user = render(request(task=task, workloads=further_shapes(task)), NOTES).user
    assert "- `odd`: float32[7, 13]\n- 1 further workload that nobody is shown" in user
    assert "[3, 5]" not in user
    assert further_shapes(TASK) == ()
