"""Owns `ModelProposer`: candidates written by a language model, whatever litellm can reach."""

import hashlib
import socket
import time
from urllib.parse import urlsplit

from evokernel.attempt import Backend, Candidate, Fault, Proposal
from evokernel.bench import Say, silent
from evokernel.config import ModelConfig
from evokernel.errors import ConfigError, PromptTooLong
from evokernel.opgraph import OpGraph
from evokernel.prompts import Limits, Prompt, backends, render
from evokernel.proposers import Request
from evokernel.proposers.llm.access import Access, access
from evokernel.proposers.llm.calls import Caller, Pause, Reply
from evokernel.proposers.llm.reply import Claims, read_claims, read_code
from evokernel.proposers.techniques import Technique, catalogue
from evokernel.task import Task

SHORTER = 3
"""How often a prompt that is too long is halved before that is an error (ours)."""
CONNECT_S = 5.0
"""How long a server of one's own may take to accept a connection, seconds (ours)."""


class ModelProposer:
    """Asks a model for candidates; implements `Proposer`.

    Args:
        name: As the user gives it: `PROVIDER/NAME`, or any name with a base URL.
        settings: How it is asked.
        say: Told what the proposer is waiting for.
        needs_price: A budget in dollars is to be kept.
        pause: Waits between two calls.

    Raises:
        ConfigError: no such provider, no key, or an address that is none; litellm is not imported.
    """

    def __init__(
        self,
        name: str,
        settings: ModelConfig | None = None,
        *,
        say: Say = silent,
        needs_price: bool = False,
        pause: Pause = time.sleep,
    ) -> None:
        self.name = name
        settings = settings or ModelConfig()
        self._access = access(name, settings)
        self._caller = Caller(self._access, settings, say, pause)
        self._needs_price = needs_price

    def check(self, task: Task, graph: OpGraph | None, backend: Backend) -> None:
        """Refuse what cannot work before anything is measured or paid for; any task is served.

        Raises:
            ConfigError: no prompt for the backend, nobody at the address, litellm missing, or a
                budget in dollars for a model without a price.
        """
        if backend not in backends():
            raise ConfigError(
                f"there is no prompt for the backend `{backend}`; expected one of "
                f"{', '.join(f'`{known}`' for known in backends())}"
            )
        _knock(self._access)
        if not self._caller.has_price() and self._needs_price:
            raise ConfigError(
                f"the price of `{self.name}` is unknown, so a budget in dollars cannot be kept; "
                "give a budget in tokens with `--tokens` in place of `--usd`"
            )

    def propose(self, request: Request) -> Proposal:
        """Ask for one candidate.

        A reply that holds none is a proposal as well, with its `fault`: it was paid for, and the
        next step may repair it.

        Raises:
            ModelError: the model could not be asked.
        """
        prompt, reply = self._asked(request)
        claims = read_claims(reply.text)
        techniques = tuple(name for name in claims.techniques if name in catalogue())
        before = request.parents[0].proposal.techniques if request.parents else ()
        source = _source(reply)
        fault = source if isinstance(source, Fault) else None
        return Proposal(
            candidate=Candidate(
                source=source if isinstance(source, str) else _stand_in(source, request, reply),
                backend=request.backend,
            ),
            stage=request.stage,
            parents=tuple(parent.proposal.candidate.sha for parent in request.parents),
            techniques=() if fault else techniques,
            changed=() if fault else tuple(sorted({*before} ^ {*techniques})),
            used=_used(claims, request),
            rationale=claims.plan,
            prompt=prompt.text,
            reply=reply.text,
            usage=reply.usage,
            fault=fault,
        )

    def _asked(self, request: Request) -> tuple[Prompt, Reply]:
        """Ask; a prompt that does not fit is shortened by the stated limits and sent again."""
        limits = Limits()
        for _ in range(SHORTER):
            prompt = render(request, _suitable(request), limits)
            try:
                return prompt, self._caller.ask(prompt.system, prompt.user)
            except PromptTooLong:
                limits = limits.halved()
        prompt = render(request, _suitable(request), limits)
        return prompt, self._caller.ask(prompt.system, prompt.user)


def _knock(access: Access) -> None:
    """See whether anybody answers at a given address; hosted models are not asked."""
    if access.base_url is None:
        return
    parts = urlsplit(access.base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), CONNECT_S).close()
    except OSError as error:
        raise ConfigError(
            f"nobody answers at `{access.base_url}` ({error.strerror or error}); start the server "
            "of the model, or correct the address (`--base-url`)"
        ) from error


def _suitable(request: Request) -> list[Technique]:
    """Techniques for this kind of task; where its kind is unknown, those for every kind."""
    family = request.graph.family if request.graph else "unknown"
    return [t for t in catalogue().values() if t.suits(family, request.backend)]


def _source(reply: Reply) -> str | Fault:
    """The candidate's source, or why there is none."""
    if reply.finish == "content_filter":
        return Fault(kind="filtered", reason="a content filter ended the reply")
    found = read_code(reply.text, is_cut_off=reply.finish == "length")
    if isinstance(found, Fault) and not reply.text.strip():
        spent = f" after {reply.usage.tokens_out} tokens" if reply.usage.tokens_out else ""
        thought = ", all of them spent on reasoning" if reply.thought else ""
        return Fault(kind="empty", reason=f"the reply is empty{spent}{thought}")
    return found


def _stand_in(fault: Fault, request: Request, reply: Reply) -> str:
    """A comment in the candidate's place, another one for each step: none repeats another."""
    digest = hashlib.sha256(f"{request.step}\n{reply.text}".encode()).hexdigest()[:12]
    return f"# no candidate: {fault.reason}\n# reply {digest}\n"


def _used(claims: Claims, request: Request) -> tuple[str, ...]:
    shown = {experience.id for experience in request.shown}
    return tuple(id for id in claims.used if id in shown)
