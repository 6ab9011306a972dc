"""Owns the call of a model through litellm: one retry layer, typed errors, tokens and cost."""

import time
from collections.abc import Callable
from typing import Any

from evokernel.attempt import Usage
from evokernel.bench import Say, silent
from evokernel.config import ModelConfig, library_settings
from evokernel.errors import ConfigError
from evokernel.frozen import Frozen
from evokernel.proposers.llm.access import Access
from evokernel.proposers.llm.faults import Failure, failure, unusable
from evokernel.proposers.llm.scrubbing import without_keys

Pause = Callable[[float], None]
"""Waits so many seconds."""

FIRST_WAIT_S = 2.0
"""Before the first repeated call, where the server names no time; doubled with each (ours)."""
LETTERS_A_TOKEN = 4
"""Where the server does not count its tokens: the usual ratio for English and code."""


class Reply(Frozen):
    """What came back, and what it cost."""

    text: str
    finish: str
    """As the server says: `stop`, `length` (cut off), `content_filter`, ..."""
    thought: int = 0
    """Letters of reasoning that the server sent beside the text."""
    usage: Usage


class Caller:
    """Asks one model.

    Args:
        access: How it is reached.
        settings: Limits.
        say: Told what the call is waiting for.
        pause: Waits between two calls.
    """

    def __init__(
        self,
        access: Access,
        settings: ModelConfig,
        say: Say = silent,
        pause: Pause = time.sleep,
    ) -> None:
        self._access = access
        self._settings = settings
        self._say = say
        self._pause = pause

    def has_price(self) -> bool:
        """Whether a call's cost in dollars can be told. Imports litellm (seconds)."""
        return self._access.is_local or _price_is_listed(library(), self._access.model)

    def ask(self, system: str, user: str) -> Reply:
        """Get one reply; rate limits and faults of the server are waited out, within limits.

        Raises:
            ModelError: the kind that says what is wrong, with no key in its message.
        """
        answer = self._once(system, user)
        repeats = 0
        while isinstance(answer, Failure) and (wait := self._wait_s(answer, repeats)) is not None:
            self._say(f"{answer.brief}; asking {self._access.model} again in {wait:.0f} s")
            self._pause(wait)
            repeats += 1
            answer = self._once(system, user)
        if isinstance(answer, Failure):
            times = f" It was asked {repeats + 1} times." if repeats else ""
            raise answer.kind(f"{answer.message}{times}")
        return answer

    def _wait_s(self, failed: Failure, repeats: int) -> float | None:
        """How long to wait before the next call; None where there should be none."""
        if not failed.may_pass or repeats >= self._settings.retries:
            return None
        wait = FIRST_WAIT_S * 2**repeats if failed.wait_s is None else failed.wait_s
        return wait if wait <= self._settings.longest_wait_s else None

    def _once(self, system: str, user: str) -> "Reply | Failure":
        self._say(f"waiting for {self._access.model} to answer")
        litellm = library()
        more = {"max_tokens": self._settings.reply_tokens} if self._settings.reply_tokens else {}
        try:
            response = litellm.completion(
                model=self._access.model,
                messages=[
                    {"role": "system", "content": system},
                    {"role": "user", "content": user},
                ],
                api_key=self._access.sent_key,
                base_url=self._access.base_url,
                timeout=self._settings.timeout_s,
                max_retries=0,  # the SDK's own retries would multiply ours
                num_retries=0,
                **more,
            )
        except Exception as error:  # litellm's, its SDK's, and whatever they did not expect
            return failure(error, self._access, self._settings)
        if not response.choices:
            return unusable("an answer without a reply in it", self._access, self._settings)
        return self._reply(litellm, response, f"{system}{user}")

    def _reply(self, litellm: Any, response: Any, prompt: str) -> Reply:
        choice = response.choices[0]
        text = without_keys(choice.message.content or "", self._access.secrets())
        thought = getattr(choice.message, "reasoning_content", None) or ""
        counted = getattr(response, "usage", None)
        tokens_in = int(getattr(counted, "prompt_tokens", 0) or 0)
        tokens_out = int(getattr(counted, "completion_tokens", 0) or 0)
        is_estimated = tokens_in + tokens_out == 0
        if is_estimated:
            tokens_in = -(-len(prompt) // LETTERS_A_TOKEN)
            tokens_out = -(-len(text + thought) // LETTERS_A_TOKEN)
        usage = Usage(
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            usd=self._usd(litellm, response, tokens_in, tokens_out, is_estimated),
            is_estimated=is_estimated,
        )
        finish = str(choice.finish_reason or "")
        return Reply(text=text, finish=finish, thought=len(thought), usage=usage)

    def _usd(
        self, litellm: Any, response: Any, tokens_in: int, tokens_out: int, is_estimated: bool
    ) -> float | None:
        """What a call cost; None where no price is known."""
        model = self._access.model
        if self._access.is_local:
            return 0.0
        if not _price_is_listed(litellm, model):
            return None
        try:
            if is_estimated:
                return float(sum(litellm.cost_per_token(model, tokens_in, tokens_out)))
            return float(litellm.completion_cost(response, model=model))
        except Exception:  # whatever it is, the reply is paid for: keep it, its price is unknown
            return None


def library() -> Any:
    """Import litellm, which takes seconds, and keep it quiet.

    Raises:
        ConfigError: it is not installed.
    """
    library_settings()
    try:
        import litellm
    except ImportError as error:
        raise ConfigError(
            f"a model is asked through litellm, which cannot be imported ({error}); install it "
            "anew with `pip install 'evokernel-agent[model]'`"
        ) from error
    litellm.suppress_debug_info = True  # else it prints advice among our lines
    return litellm


def _price_is_listed(litellm: Any, model: str) -> bool:
    try:
        listed = litellm.get_model_info(model)
    except Exception:  # the kind differs between providers: whatever it is, there is no price
        return False
    # What it returns has 0 where the list names no price; the entry itself does not.
    entry = litellm.model_cost.get(listed.get("key"), {})
    return any(entry.get(name) is not None for name in ("input_cost_per_token", "tiered_pricing"))
