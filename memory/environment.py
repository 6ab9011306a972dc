"""Owns `Environment`: where evidence comes from, and how far it counts somewhere else."""

import re

from evokernel.frozen import Frozen

DISCOUNTS = {"device": 0.5, "torch": 0.8, "compiler": 0.8, "harness": 0.5, "proposer": 0.5}
"""How far evidence counts that differs in one part (ours): times rarely carry over to another
device, verdicts to another harness; another author makes other use of the same experience."""

_TOOL = re.compile(r"(harness|torch|compiler) (.*?)(?=, (?:harness|torch|compiler) |$)")


class Environment(Frozen):
    """Fingerprints of what measured and who wrote; an empty part is not known."""

    device: str = ""
    """Of the device."""
    tools: str = ""
    """Of harness, torch and compiler, as `Measurement.tools`."""
    proposer: str = ""
    """Who writes the candidates: `templates`, `external`, or a model's name."""

    def parts(self) -> dict[str, str]:
        """What is known of it, by the names of `DISCOUNTS`."""
        tools = dict(_TOOL.findall(self.tools))
        known = {"device": self.device, "proposer": self.proposer, **tools}
        return {name: value for name, value in known.items() if value}


def discount(evidence: Environment, here: Environment) -> float:
    """How far evidence from one environment counts in another, 0..1.

    The product over the parts that both know and that differ; what is not known is believed.
    """
    theirs, ours = evidence.parts(), here.parts()
    share = 1.0
    for name, value in theirs.items():
        if name in ours and ours[name] != value:
            share *= DISCOUNTS[name]
    return share


def differs(evidence: Environment, here: Environment) -> bool:
    """Whether a time or a verdict was measured elsewhere; whoever wrote the code."""
    nobody = {"proposer": ""}
    return discount(evidence.model_copy(update=nobody), here.model_copy(update=nobody)) < 1
