"""Which part of a reply is the candidate, and what its text claims: literal replies, no model."""

import re

import pytest

from evokernel.attempt import Fault
from evokernel.proposers.llm.claims import read_claims
from evokernel.proposers.llm.reply import read


def read_code(text: str, is_cut_off: bool) -> str | Fault:
    found = read(text, is_cut_off=is_cut_off)
    return found.fault or found.source


KERNEL = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"
OTHER = KERNEL.replace("pass", "x = 1")
CPP = 'extern "C" void f(float* x) {}\n'


def block(code: str, language: str = "python", fence: str = "```") -> str:
    return f"{fence}{language}\n{code}{fence}\n"


FOUND = {
    "one block": f"Plan: it.\n\n{block(KERNEL)}",
    "no language": block(KERNEL, ""),
    "another language": block(KERNEL, "python3 title=kernel.py"),
    "the word python in the code": block(KERNEL, "cuda"),
    "tildes": block(KERNEL, fence="~~~"),
    "longer fences": block(KERNEL, fence="`````"),
    "windows line ends": block(KERNEL).replace("\n", "\r\n"),
    "a plan block first": f"```\nstep 1\n```\n\n{block(KERNEL)}",
    "a usage block last": f"{block(KERNEL)}\n```bash\npython run.py\n```\n",
    "the kernel's own C++ shown before": f"{block(CPP, 'cpp')}\n{block(KERNEL)}",
    "several candidates": f"{block(OTHER)}\nWait, this is better:\n\n{block(KERNEL)}",
    "a broken one after it": block(KERNEL) + block("class ModelNew(\n"),
    "in a list": "1. The file:\n\n   " + block(KERNEL).replace("\n", "\n   "),
    "in a quote": "> " + block(KERNEL).replace("\n", "\n> "),
    "never closed": f"Here:\n\n```python\n{KERNEL}",
    "wrapped in markdown": f"````markdown\nThe file:\n\n{block(KERNEL)}````\n",
    "wrapped in markdown of the same length": f"```markdown\n{block(KERNEL)}```\n",
    "no fence at all": KERNEL,
    "thoughts before": f"<think>\n{block(OTHER)}</think>\n\n{block(KERNEL)}",
    "thoughts never closed but quoted": f"{block(KERNEL)}\nI use no <think> tag.\n",
}


@pytest.mark.parametrize("reply", FOUND.values(), ids=FOUND)
def test_candidate_is_found(reply):
    assert read_code(reply, is_cut_off=False) == KERNEL


def test_fence_inside_the_code_does_not_end_it():
    code = f'"""How to use it:\n\n```\nmodel()\n```\n"""\n\n{KERNEL}'
    assert read_code(f"Plan: x\n\n{block(code)}\nDone.\n", is_cut_off=False) == code


def test_kernel_text_keeps_its_dollars_backslashes_and_blanks():
    code = KERNEL.replace("pass", r'source = r"""#define A \ $x  ``"""')
    assert read_code(block(code), is_cut_off=False) == code


def test_code_that_is_no_python_is_handed_on_to_be_told_so():
    broken = KERNEL.replace("pass", "x = = 1")
    assert read_code(block(broken), is_cut_off=False) == broken


FAULTS = {
    "nothing": ("", "empty", "no text"),
    "only thoughts": ("<think>hm", "empty", "no text"),
    "no code": ("I cannot do that.", "no_candidate", "no code block"),
    "only C++": (block(CPP, "cpp"), "no_candidate", r"\(cpp\)"),
    "another class": (block("class Model:\n    pass\n"), "no_candidate", "`class ModelNew`"),
    "a difference": (block("+" + KERNEL.replace("\n", "\n+"), "diff"), "diff", "whole file"),
}


@pytest.mark.parametrize(("reply", "kind", "words"), FAULTS.values(), ids=FAULTS)
def test_reply_without_candidate_says_why(reply, kind, words):
    found = read_code(reply, is_cut_off=False)
    assert isinstance(found, Fault)
    assert found.kind == kind
    assert re.search(words, found.reason)


def test_half_a_kernel_is_not_judged():
    half = f"Plan: x\n\n```python\n{KERNEL}    def forward(self, x):\n        return x"
    found = read_code(half, is_cut_off=True)
    assert isinstance(found, Fault)
    assert found.kind == "cut_off"


def test_whole_kernel_is_judged_though_the_reply_was_cut_off_after_it():
    assert read_code(f"{block(KERNEL)}\nThis is fast bec", is_cut_off=True) == KERNEL


def test_claims_are_read_outside_of_code():
    claims = read_claims(
        "**Plan:** Read every row once.\n"
        "- Techniques: `Row Caching`, vectorized_math, none\n"
        "Used: kernel-0123456789ab, `edit-ba9876543210`.\n\n"
        f"{block('# Plan: another' + chr(10) + KERNEL)}"
        "Plan: too late\n"
    )
    assert claims.plan == "Read every row once"
    assert claims.techniques == ("row-caching", "vectorized-math")
    assert claims.used == ("kernel-0123456789ab", "edit-ba9876543210")


def test_reply_without_claims_claims_nothing():
    claims = read_claims(block(KERNEL))
    assert (claims.plan, claims.techniques, claims.used) == ("", (), ())
