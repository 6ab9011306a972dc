"""How long a server wants to be left alone, and what a call may take: no server, no litellm."""

import pytest

from evokernel.attempt import Usage
from evokernel.config import Budget, ModelConfig
from evokernel.errors import ModelError, ParameterRefused, PromptTooLong
from evokernel.proposers import BudgetSpent
from evokernel.proposers.llm.allowance import LONG_REPLY, Allowance
from evokernel.proposers.llm.facts import ModelFacts, Price
from evokernel.proposers.llm.faults import Failure
from evokernel.proposers.llm.parameters import Parameters
from evokernel.proposers.llm.waiting import asked_wait_s
from evokernel.record.spending import Spending

NOW = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT


class Answer(Exception):
    """A failed call with headers, as clients raise it."""

    def __init__(self, said: str = "", **headers: str) -> None:
        super().__init__(said)
        self.litellm_response_headers = {n.replace("_", "-"): v for n, v in headers.items()}


WAITS = {
    "seconds": (Answer(retry_after="7"), 7.0),
    "a fraction": (Answer(Retry_After="0.5"), 0.5),
    "a date": (Answer(retry_after="Fri, 15 Jan 2027 08:00:30 GMT"), 30.0),
    "a date gone by": (Answer(retry_after="Fri, 15 Jan 2027 07:00:00 GMT"), 0.0),
    "milliseconds": (Answer(retry_after_ms="1500", retry_after="2"), 1.5),
    "OpenAI's words": (Answer("Rate limit reached. Please try again in 6m0.5s."), 360.5),
    "less than a second": (Answer("Please try again in 350ms. Visit"), 0.35),
    "Google's words": (Answer('{"@type": "RetryInfo", "retryDelay": "17s"}'), 17.0),
    "nothing": (Answer("slow down"), None),
    "nonsense": (Answer(retry_after="soon"), None),
}


@pytest.mark.parametrize(("error", "wait"), WAITS.values(), ids=WAITS)
def test_wait_that_a_server_asks_for(error, wait):
    assert asked_wait_s(error, lambda: NOW) == pytest.approx(wait)


# -- what a call may take --------------------------------------------------------------------------

PRICED = ModelFacts(price=Price(token_in=1e-6, token_out=1e-5), reply_tokens=8_000)


def allowance(spent: Spending | None = None, **budget) -> Allowance:
    return Allowance(Budget(**budget), lambda: spent or Spending())


def limit(allowance: Allowance, known: ModelFacts, wanted: int | None = None) -> int | None:
    with allowance.held(1_000, known, wanted) as found:
        return found


def test_without_a_budget_the_reply_is_as_long_as_the_model_likes():
    assert limit(allowance(), PRICED) is None
    assert limit(allowance(), PRICED, 500) == 500


def test_reply_is_limited_to_what_is_left():
    assert limit(allowance(tokens=5_000), PRICED) == 4_000
    assert limit(allowance(tokens=500_000), PRICED) is None
    assert limit(allowance(tokens=500_000), ModelFacts()) == LONG_REPLY
    assert limit(allowance(usd=0.03), PRICED) == pytest.approx(
        2_900, abs=1
    )  # 0.001 for the prompt, 0.029 for the reply


def test_no_call_is_made_that_could_exceed():
    for budget in ({"tokens": 1_500}, {"usd": 0.005}):
        with pytest.raises(BudgetSpent, match="the next call needs"):
            limit(allowance(**budget), PRICED)
    with pytest.raises(BudgetSpent, match="price of a call is unknown"):
        limit(allowance(usd=5.0), ModelFacts())


def test_calls_under_way_count():
    shared = allowance(tokens=20_000)
    with shared.held(1_000, PRICED, None) as first, shared.held(1_000, PRICED, None) as second:
        assert (first, second) == (None, None)
        with pytest.raises(BudgetSpent), shared.held(1_000, PRICED, None):
            pass
    assert limit(shared, PRICED) is None


def test_limit_is_never_shorter_than_replies_have_been():
    long = Spending.of([Usage(tokens_in=10, tokens_out=3_000)])
    with pytest.raises(BudgetSpent, match="3,000 for a reply"):
        limit(allowance(long, tokens=6_500), PRICED)


# -- parameters ------------------------------------------------------------------------------------


def refusal(said: str, parameter: str = "", kind: type[ModelError] = ParameterRefused) -> Failure:
    return Failure(kind=kind, message=said, brief="", said=said, parameter=parameter)


def test_refused_parameter_is_left_out_from_then_on():
    settings = ModelConfig(temperature=0.2, reasoning_effort="high", parameters={"top_k": 5})
    parameters = Parameters(settings)
    sent = parameters.sent(None, caches=False)
    assert sent == {"temperature": 0.2, "reasoning_effort": "high", "top_k": 5}
    assert "`temperature`" in parameters.amend(refusal("temperature: only 1 is supported"), sent)
    assert "`top_k`" in parameters.amend(refusal("Unknown name", "top_k"), sent)
    assert parameters.sent(None, caches=False) == {"reasoning_effort": "high"}
    assert parameters.amend(refusal("a bad request", kind=ModelError), sent) == ""


def test_limit_of_a_reply_takes_another_name_or_value_before_it_is_left_out():
    parameters = Parameters(ModelConfig())
    said = "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    assert parameters.amend(refusal(said), parameters.sent(9_000, caches=False))
    sent = parameters.sent(9_000, caches=False)
    assert sent == {"max_completion_tokens": 9_000}
    parameters.amend(refusal("max_completion_tokens is too large: 9000; at most 4096"), sent)
    assert parameters.sent(9_000, caches=False) == {"max_completion_tokens": 4_500}


def test_context_that_prompt_and_limit_exceed_lowers_the_limit():
    parameters = Parameters(ModelConfig())
    long = refusal("maximum context length", kind=PromptTooLong)
    for expected in (4_096, 2_048, 1_024, 512, 512):
        sent = parameters.sent(8_192, caches=False)
        is_lowered = bool(parameters.amend(long, sent))
        assert parameters.sent(8_192, caches=False) == {"max_tokens": expected}
    assert not is_lowered
