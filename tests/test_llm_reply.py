"""Which part of a reply is the candidate, and what its text claims: literal replies, no model."""

import re

import pytest

from evokernel.attempt import Fault
from evokernel.proposers.llm.claims import read_claims
from evokernel.proposers.llm.conversation import joined
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
    "thoughts opened by the server's template": f"hm:\n{block(OTHER)}\n</think>\n{block(KERNEL)}",
    "thoughts of another spelling": f"[THINK]\n{block(OTHER)}[/THINK]\n{block(KERNEL)}",
    "thoughts twice": f"<think>a</think>\n<think>b</think>\n{block(KERNEL)}",
    "a channel of its own": f"<|channel|>analysis<|message|>{block(OTHER)}<|end|><|start|>assistant"
    f"<|channel|>final<|message|>{block(KERNEL)}<|end|>",
    "the language in the first line": block(f"python\n{KERNEL}", ""),
    "the language c++ on a Python file": block(KERNEL, "c++"),
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
    "a whole unified difference": (
        block(
            "--- a/kernel.py\n+++ b/kernel.py\n@@ -1,2 +1,2 @@\n import torch\n-x = 1\n+x = 2\n",
            "diff",
        ),
        "diff",
        "changes",
    ),
    "search and replace, a space missing": (
        block("<<<<<<< SEARCH\n  x=1\n=======\n  x = 2\n>>>>>>> REPLACE\n"),
        "diff",
        "search and replace",
    ),
    "search and replace without a fence": (
        "<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE\n",
        "diff",
        "search and replace",
    ),
    "parts left out": (
        block(KERNEL + "\n# ... rest of the code unchanged ...\n"),
        "diff",
        "leaves parts of the file out",
    ),
    "only a plan in a block": (block("1. tile the loop\n", ""), "no_candidate", r"\(unnamed\)"),
    "only a command": (block("python run.py\n", "bash"), "no_candidate", r"\(bash\)"),
    "a difference": (block("+" + KERNEL.replace("\n", "\n+"), "diff"), "diff", "whole file"),
}


@pytest.mark.parametrize(("reply", "kind", "words"), FAULTS.values(), ids=FAULTS)
def test_reply_without_candidate_says_why(reply, kind, words):
    found = read_code(reply, is_cut_off=False)
    assert isinstance(found, Fault)
    assert found.kind == kind
    assert re.search(words, found.reason)


CHANGED = {
    "as it was": (KERNEL, True),
    "with other comments and layout": (f"# faster!\n{KERNEL}\n\n", True),
    "with a change": (OTHER, False),
}


@pytest.mark.parametrize(("code", "is_same"), CHANGED.values(), ids=CHANGED)
def test_code_that_was_to_change_and_did_not_is_no_candidate(code, is_same):
    found = read(block(code), before=(KERNEL,))
    assert (found.fault.kind if found.fault else "") == ("unchanged" if is_same else "")


def test_several_candidates_are_remarked_and_the_last_is_judged():
    found = read(f"{block(OTHER)}\nor:\n\n{block(KERNEL)}")
    assert found.source == KERNEL
    assert "2 candidates, of which only the last" in found.remark
    assert read(f"{block(KERNEL)}\nAgain:\n\n{block(KERNEL)}").remark == ""


SEAMS = {
    "amid a line": (f"```python\n{KERNEL[:30]}", f"{KERNEL[30:]}```\n"),
    "with a fence opened anew": (f"```python\n{KERNEL[:12]}\n", f"```python\n{KERNEL[12:]}```\n"),
    "with what was said repeated": (f"```python\n{KERNEL[:30]}", f"{KERNEL[13:]}```\n"),
}


@pytest.mark.parametrize(("first", "second"), SEAMS.values(), ids=SEAMS)
def test_parts_of_a_reply_are_joined(first, second):
    assert read(joined(first, second)).source.split() == KERNEL.split()


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


GAINS = {
    "1.4": 1.4,
    "1.4x over the candidate": 1.4,
    "about 1.2-1.6x": 1.4,
    "+30%": 1.3,
    "30 % faster": 1.3,
    "none": None,
    "2x for 1024 rows": 2.0,
}


@pytest.mark.parametrize(("said", "gain"), GAINS.items(), ids=GAINS)
def test_predicted_speedup_is_read(said, gain):
    assert read_claims(f"Predicted speedup: {said}\n").predicted == pytest.approx(gain)


def test_analysis_may_have_lines_and_lists_may_stand_below_their_label():
    claims = read_claims(
        "## Analysis: It is bound by memory,\nsince every row is read twice.\n\n"
        "**Plan:** Read it once.\n\n**Techniques:**\n- row-caching: keeps a row\n- `unrolling`\n"
        f"{block(KERNEL)}"
    )
    assert claims.analysis == "It is bound by memory, since every row is read twice"
    assert claims.plan == "Read it once"
    assert claims.techniques == ("row-caching", "unrolling")


def test_reply_without_claims_claims_nothing():
    claims = read_claims(block(KERNEL))
    assert (claims.plan, claims.techniques, claims.used) == ("", (), ())
