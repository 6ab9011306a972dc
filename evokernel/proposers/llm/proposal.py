"""Owns how a reply becomes a proposal, whoever led the conversation."""

import hashlib

from evokernel.attempt import Candidate, Fault, Proposal, Usage
from evokernel.proposers import Request
from evokernel.proposers.llm.claims import Claims, read_claims
from evokernel.proposers.llm.reply import Reading
from evokernel.proposers.techniques import catalogue


def proposal_of(
    request: Request,
    prompt: str,
    texts: tuple[str, ...],
    reading: Reading,
    usage: Usage,
    author: str,
) -> Proposal:
    """Put together what a step hands over.

    Args:
        request: What was asked.
        prompt: What the model was shown, in full.
        texts: What was said after it, in turns; claims are read from the last that makes any.
        reading: The candidate, or the fault that there is none.
        usage: What all of it cost.
        author: The model.
    """
    claims = next((c for text in reversed(texts) if (c := read_claims(text)) != Claims()), Claims())
    techniques = tuple(name for name in claims.techniques if name in catalogue())
    before = request.parents[0].proposal.techniques if request.parents else ()
    fault, reply = reading.fault, "\n\n---\n\n".join(texts)
    source = _stand_in(fault, request, reply) if fault else reading.source
    return Proposal(
        candidate=Candidate(source=source, backend=request.backend),
        stage=request.stage,
        parents=tuple(parent.proposal.candidate.sha for parent in request.parents),
        techniques=() if fault else techniques,
        changed=() if fault else tuple(sorted({*before} ^ {*techniques})),
        used=_used(claims, request),
        rationale=claims.plan,
        analysis=claims.analysis,
        predicted=None if fault else claims.predicted,
        author=author,
        prompt=prompt,
        reply=reply,
        usage=usage,
        fault=fault,
        remark=reading.remark,
    )


def _stand_in(fault: Fault, request: Request, reply: str) -> str:
    """A comment in the candidate's place, another one for each step: none repeats another."""
    digest = hashlib.sha256(f"{request.step}\n{reply}".encode()).hexdigest()[:12]
    return f"# no candidate: {fault.reason}\n# reply {digest}\n"


def _used(claims: Claims, request: Request) -> tuple[str, ...]:
    shown = {experience.id for experience in request.shown}
    return tuple(id for id in claims.used if id in shown)
