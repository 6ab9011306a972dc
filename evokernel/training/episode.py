"""Owns one episode: replies in, rewards and feedback out."""

import hashlib
from contextlib import ExitStack

from evokernel.answers import answers
from evokernel.attempt import Attempt
from evokernel.errors import ConfigError
from evokernel.external import ExternalRun, Submission
from evokernel.memory.harvest import failure_text
from evokernel.training import rewards
from evokernel.training.observation import EnvironmentConfig, Observation, Text
from evokernel.training.returns import GAMMA, returns


class Episode:
    """One run, its rewards so far, and what is to be answered next."""

    def __init__(
        self, run: ExternalRun, config: EnvironmentConfig, rule: rewards.Reward, stack: ExitStack
    ) -> None:
        self.id = run.record.id
        self.task = run.task
        self._run = run
        self._config = config
        self._rule = rule
        self._stack = stack
        self._rewards: list[float | None] = []
        self._best_ms: float | None = None
        self._best: float | None = None
        self._asked = ""

    def first(self) -> Observation:
        """What is to be answered first."""
        self._run.know_machine()
        return Observation(
            episode=self.id, task=self.task.name, turn=0, done=False, messages=self._messages()
        )

    def step(self, reply: str) -> Observation:
        """Judge a reply."""
        submission = read(reply, self._parent(), self._asked)
        attempt = self._run.judge(submission).attempt
        reward = self._rule(rewards.facts(attempt, self._best_ms))
        self._rewards.append(reward)
        self._remember(attempt)
        done = len(self._rewards) == self._config.turns
        evaluation = attempt.evaluation
        speedups = {name: rewards.speedup(evaluation, name) for name in ("eager", "compile")}
        return Observation(
            episode=self.id,
            task=self.task.name,
            turn=len(self._rewards),
            done=done,
            messages=() if done else self._messages(),
            reward=reward,
            returns=self._returns() if done else (),
            feedback=feedback(attempt),
            status=evaluation.status,
            outcome=evaluation.outcome,
            answers=answers(evaluation),
            median_ms=attempt.median_ms,
            speedups={name: ratio for name, ratio in speedups.items() if ratio is not None},
            best=self._best,
        )

    def close(self) -> None:
        """Let go of the run."""
        self._stack.close()

    def _parent(self) -> Attempt | None:
        attempts = self._run.attempts()
        best = self._run.record.best()
        if self._config.edits == "best" and best is not None:
            return best
        return attempts[-1] if attempts else None

    def _messages(self) -> tuple[Text, ...]:
        parent = self._parent()
        number = parent.number if parent else 0
        prompt = self._run.prompt(self._run.request(number, self._run.recall(number)))
        if prompt is None:
            raise ConfigError(
                f"there is no prompt for the backend `{self._config.backend}`; `cpp` has one"
            )
        self._asked = prompt.text
        return Text(role="system", content=prompt.system), Text(role="user", content=prompt.user)

    def _remember(self, attempt: Attempt) -> None:
        ms, eager = attempt.median_ms, rewards.speedup(attempt.evaluation, "eager")
        if ms is not None:
            self._best_ms = ms if self._best_ms is None else min(ms, self._best_ms)
        if eager is not None:
            self._best = eager if self._best is None else max(eager, self._best)

    def _returns(self) -> tuple[float, ...]:
        gamma = self._config.gamma
        gamma = GAMMA[self._config.form] if gamma is None else gamma
        return returns([reward or 0.0 for reward in self._rewards], gamma, self._config.form)


def read(reply: str, parent: Attempt | None, prompt: str = "") -> Submission:
    """A reply as a submission; one that holds no candidate is judged as such."""
    from evokernel.proposers.llm import reply as replies
    from evokernel.proposers.llm.claims import read_claims
    from evokernel.proposers.techniques import catalogue

    claims = read_claims(reply)
    before = (parent.proposal.candidate.source,) if parent else ()
    found = replies.read(reply, before=before)
    fault = found.fault
    digest = hashlib.sha256(reply.encode("utf-8", "replace")).hexdigest()[:12]
    return Submission(
        source=f"# {fault.reason}\n# reply {digest}\n" if fault else found.source,
        parent=parent.number if parent else 0,
        techniques=() if fault else tuple(n for n in claims.techniques if n in catalogue()),
        rationale=claims.plan,
        used=claims.used,
        prompt=prompt,
        reply=reply,
        fault=fault,
    )


def feedback(attempt: Attempt) -> str:
    """What became of an attempt, in words: by the stage that it reached."""
    evaluation = attempt.evaluation
    if not evaluation.status.is_feasible:
        return failure_text(evaluation)
    told = [f"{answer.name}: {answer.in_words()}" for answer in answers(evaluation)]
    return "\n".join([*told, *(evaluation.profile.notes if evaluation.profile else ())])
