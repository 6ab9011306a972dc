"""Problems in the format of KernelBench run unchanged, and templates cover what they promise."""

from functools import cache
from pathlib import Path

import pytest

from evokernel.opgraph import OpGraph, capture
from evokernel.program import Program
from evokernel.task import Task

FOLDER = Path(__file__).parent / "kernelbench"
PROBLEMS = {
    f"{file.parent.name}/{file.stem}": file for file in sorted(FOLDER.glob("level[12]/*.py"))
}
"""Written by us after the operator lists of KernelBench's levels 1 and 2, numbers included."""


@cache
def program(name: str) -> Program:
    return Task.load(PROBLEMS[name]).program()


@cache
def graph(name: str) -> OpGraph:
    return capture(program(name))


def test_there_are_enough_of_both_levels():
    levels = [name.partition("/")[0] for name in PROBLEMS]
    assert levels.count("level1") >= 40
    assert levels.count("level2") >= 40


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_runs_and_is_captured(name: str):
    task = program(name).task
    assert task.name[0].isdigit()
    assert task.title.endswith(".")
    program(name).check()
    assert graph(name).source == "export"
    assert graph(name).family != "other"
    assert graph(name).min_bytes < 10e6
