"""Owns `RunConfig`, resolved once from arguments and environment; below it nothing asks again."""

import math
import os
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, JsonValue, model_validator

from evokernel.attempt import Backend, Stage
from evokernel.frozen import Frozen
from evokernel.task import Precision


def home() -> Path:
    """The folder of caches and the default memory: `$EVOKERNEL_HOME`, else the XDG data folder."""
    if named := os.environ.get("EVOKERNEL_HOME"):
        return Path(named)
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "evokernel"


def host_compiler() -> tuple[tuple[str, ...], bool]:
    """The C++ compiler commands to try, best first, and whether the user chose.

    `$CXX` alone where it is set (it may hold arguments: `ccache g++`), else `g++`, `clang++`.
    """
    named = os.environ.get("CXX", "").strip()
    return ((named,), True) if named else (("g++", "clang++"), False)


def compiler_environment() -> dict[str, str]:
    """What of the environment a compiler gets: where its own parts lie, and no keys or tokens."""
    names = {"PATH", "HOME", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CPLUS_INCLUDE_PATH"}
    names |= {"GCC_EXEC_PREFIX", "COMPILER_PATH", "CONDA_PREFIX", "CONDA_BUILD_SYSROOT"}
    prefixes = ("NIX_CFLAGS", "NIX_LDFLAGS", "NIX_CC_WRAPPER", "NIX_BINTOOLS_WRAPPER")
    return {k: v for k, v in os.environ.items() if k in names or k.startswith(prefixes)}


def worker_environment() -> dict[str, str]:
    """What of the environment a process gets that runs candidates: no keys or tokens."""
    names = {"PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CC", "CXX"}
    names |= {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME"}
    return {name: os.environ[name] for name in names if name in os.environ}


def python_path() -> tuple[str, ...]:
    """Folders that the user adds to those of the interpreter, absolute."""
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return tuple(str(Path(entry).absolute()) for entry in named if entry)


def cuda_homes() -> tuple[str, ...]:
    """Folders of CUDA toolkits that the user names: `$CUDA_HOME`, then `$CUDA_PATH`."""
    named = (os.environ.get(name, "").strip() for name in ("CUDA_HOME", "CUDA_PATH"))
    return tuple(dict.fromkeys(filter(None, named)))


def key_names() -> tuple[str, ...]:
    """Names of the variables that hold a key of a model provider; never their values."""
    others = {"AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK", "AZURE_AD_TOKEN", "HF_TOKEN"}
    others |= {"GOOGLE_APPLICATION_CREDENTIALS", "WATSONX_TOKEN"}
    named = (name for name in os.environ if name.endswith("_API_KEY") or name in others)
    return tuple(sorted(name for name in named if os.environ[name]))


def secret(name: str) -> str:
    """What an environment variable holds; empty where it is not set. Never stored or printed."""
    return os.environ.get(name, "").strip()


def library_settings() -> None:
    """Tell litellm to stay at home, before it is imported: nothing fetched, no `.env` file read."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches its prices on import
    os.environ["LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS"] = "True"
    os.environ["LITELLM_OFFLINE_MODE"] = "true"  # other lists that it would fetch by itself
    os.environ["LITELLM_MODE"] = "PRODUCTION"  # else it loads a `.env` of the current folder


class Budget(Frozen):
    """What a run may spend; whatever runs out first ends it."""

    attempts: int = Field(default=16, ge=1)
    """Charged attempts."""
    minutes: float | None = Field(default=None, gt=0)
    """Wall-clock minutes of the run, all its resumptions added up; None is no limit."""
    tokens: int | None = Field(default=None, ge=1)
    """Tokens of prompts and replies together; None is no limit."""
    usd: float | None = Field(default=None, gt=0)
    """US dollars for a model whose price is known; None is no limit."""
    retries: int = Field(default=3, ge=0)
    """Evaluations of one candidate that the machine may spoil, one after the other, before the run
    stops (resumable)."""


class SearchConfig(Frozen):
    """How the population of start points evolves."""

    width: int = Field(default=2, ge=1)
    """Trajectories that take turns; they share one pool of start points."""
    depth: int | None = Field(default=None, ge=1)
    """Turns per trajectory; None is as many as the budget allows."""
    seed: int = Field(default=0, ge=0)
    """Seed of every random choice of the run."""
    start: tuple[Path, ...] = ()
    """The user's own kernels to start from."""
    repairs: int = Field(default=2, ge=0)
    """Repairs of a failed draft before its trajectory goes on without it (ours)."""
    recombine: float = Field(default=0.2, ge=0, le=1)
    """Chance that a refinement combines two start points instead of editing one (ours)."""
    explore: float = Field(default=0.0, ge=0, le=1)
    """Chance that an edit begins from the best kernel of the algorithm that was worked on least,
    instead of the start point of the highest value; 0.2 where a model writes (ours)."""
    patience: int = Field(default=0, ge=0)
    """Rounds (a turn of each trajectory) without a gain of `least_gain` that end a run; 0 is never,
    3 where a model writes (ours)."""
    least_gain: float = Field(default=0.02, ge=0)
    """What counts as a gain of the best kernel, as a share of its time (ours)."""
    roofline: float = Field(default=0.0, ge=0)
    """Share of the roofline at which the best kernel is good enough, and the run ends; 0 is never,
    0.95 where a model writes (ours: what is left is within the error of the measured peaks)."""
    alarm: int = Field(default=4, ge=0)
    """Replies in a row without a candidate, or three quarters of twice as many, that end a run; 0
    is never (ours)."""


Credit = Literal["equal", "evidence"]
"""How a reward is shared among the experiences shown: alike, or by what was made use of."""


StartRule = Literal["hope", "bandit"]
"""By what a start point is valued: the best gain seen around it, or an upper confidence bound."""


Stale = Literal["discount", "hide"]
"""It counts less, or what claims something that was measured elsewhere is not shown either."""


class MemoryConfig(Frozen):
    """Which memory, and how it chooses what to show. The constants are ours unless marked."""

    path: Path | None = None
    """Folder of the memory; None is a memory that lives and dies with the run."""
    policy: str = "evokernel"
    """`none`, `random`, `similarity`, `evokernel`, `memrl`, `hybrid` or `placebo`; or `MODULE:NAME`
    of a `Recipe` of your own."""
    reward: str | None = None
    """`evokernel`, `parent`, `milestone`, `kevin`, `sigmoid` or `cuda-l1`; None is what the policy
    has: `parent` for `hybrid` and `placebo`, `evokernel` for the others."""
    shown_draft: int = Field(default=4, ge=0)
    """N for drafting: experiences shown at most."""
    shown_refine: int = Field(default=3, ge=0)
    """N for refining."""
    pool_factor: int = Field(default=4, ge=1)
    """Lambda of the paper: the pool holds K = lambda * N items (the paper uses 2 to 30)."""
    epsilon: float = Field(default=0.1, ge=0, le=1)
    """Chance per slot to draw at random from the pool (the paper names no value)."""
    alpha: float = Field(default=0.2, gt=0, le=1)
    """Constant step size of the value update (the paper names no value)."""
    sigma_floor: float = Field(default=0.2, gt=0)
    """Smallest spread by which a refine reward is divided (the paper names no value)."""
    credit: Credit = "equal"
    """`equal` is the paper's rule; `evidence` moves values less where nothing was made use of."""
    starts: StartRule = "hope"
    """How start points are valued."""
    probe: float = Field(default=0.12, ge=0, le=0.5)
    """`hybrid`: chance that a step tries something that was hardly tried."""
    null: float = Field(default=0.05, ge=0, le=0.5)
    """`hybrid`: chance that a step is shown nothing, to learn what memory as a whole is worth."""
    withhold: float = Field(default=0.25, ge=0, lt=1)
    """`hybrid`: chance of each choice to be held back in a probe step."""
    stale: Stale = "discount"
    """What becomes of evidence from another device, toolchain, harness or model."""
    task_slots: int = Field(default=32, ge=0)
    """Experiences of one task, backend and kind that may be retrieved; 0 is no limit."""
    bank: int = Field(default=50_000, ge=0)
    """Experiences that may be retrieved at all; 0 is no limit. The journal keeps everything."""
    holdout: tuple[str, ...] = ()
    """Task fingerprints whose experiences are never shown."""


class TuneConfig(Frozen):
    """How much the search among a candidate's declared values (`TUNE`) may spend."""

    tries: int = Field(default=16, ge=0)
    """Combinations to build, check and time at most; 0 leaves every value as it stands."""
    seconds: float = Field(default=60.0, gt=0)
    """Wall seconds after which no further one is begun."""


class BenchConfig(Frozen):
    """How candidates are judged."""

    measurement: Literal["standard", "quick"] = "standard"
    """`quick` takes at most about a second and serves tests and early rejects."""
    threads: int = Field(default=0, ge=0)
    """CPU threads for both sides; 0 is all that this process may use."""
    margin: float = Field(default=0.01, ge=0)
    """A win needs the interval's lower bound above 1 + margin."""
    baselines: tuple[Literal["eager", "compile"], ...] = ("eager", "compile")
    """Opponents that are timed alternately with each candidate."""
    contract: Literal["own_kernels_only", "library_allowed"] = "own_kernels_only"
    """What a candidate may call; `evokernel evaluate` defaults to `library_allowed`."""
    compile_s: float = Field(default=120.0, gt=0)
    """Wall limit of one compiler call, seconds."""
    run_s: float = Field(default=60.0, gt=0)
    """Wall limit of one phase of a candidate's worker, seconds."""
    quiet_s: float = Field(default=20.0, ge=0)
    """How long the standard measurement waits for a moment in which nothing else runs, seconds."""
    memory_bytes: int = Field(default=0, ge=0)
    """Memory limit of a CPU worker; 0 is derived from the task and the free memory."""
    tune: TuneConfig = TuneConfig()
    """What a candidate's declared values may cost."""
    cache: Path = Field(default_factory=lambda: home() / "cache")
    """Folder of compiled kernels, device peaks and baselines."""
    seed: int | None = None
    """Seed of the secret inputs; None draws one that no candidate can know."""


class ModelChoice(Frozen):
    """What belongs to one model: where it is, what is sent with each call, what it costs."""

    base_url: str | None = None
    """Address of an OpenAI-compatible server, or of a provider's; None is the provider's own."""
    api_key_env: str | None = None
    """Environment variable that holds the key; None is the provider's usual one."""
    temperature: float | None = Field(default=None, ge=0)
    """None leaves it to the model: many refuse any other."""
    reasoning_effort: str | None = None
    """`low`, `medium`, `high` or what the provider knows besides; None leaves it to the model."""
    parameters: dict[str, JsonValue] = {}
    """Further parameters of the provider, sent as they are, e.g. `{"top_p": 0.9}`."""
    reply_tokens: int | None = Field(default=None, ge=1)
    """Most tokens of a reply; None is the model's own limit."""
    context_tokens: int | None = Field(default=None, ge=1)
    """Tokens of prompt and reply together; None is what the model's list or server says."""
    usd_per_million_in: float | None = Field(default=None, ge=0)
    """Price of a million prompt tokens, US dollars; None is that of litellm's list."""
    usd_per_million_out: float | None = Field(default=None, ge=0)
    """Price of a million tokens of replies."""

    @model_validator(mode="after")
    def _whole_price_and_no_names_of_ours(self) -> Self:
        if (self.usd_per_million_in is None) != (self.usd_per_million_out is None):
            raise ValueError("a price needs both `usd_per_million_in` and `usd_per_million_out`")
        if taken := sorted({*self.parameters} & RESERVED):
            raise ValueError(f"the parameter `{taken[0]}` is EvoKernel's own to set")
        return self


RESERVED = frozenset(
    {"model", "messages", "tools", "stream", "n", "api_key", "base_url", "api_base", "timeout"}
    | {"max_retries", "num_retries", "max_tokens", "max_completion_tokens", "temperature"}
    | {"reasoning_effort", "mock_response"}
)
"""Parameters of a call that have options of their own or would break the reading of replies."""


class StageModel(ModelChoice):
    """Another model for one stage; what it leaves open is as for the run's model."""

    name: str
    """`PROVIDER/NAME`, any name with a base URL, or both in one: `NAME@URL`."""

    @model_validator(mode="before")
    @classmethod
    def _split(cls, given: Any) -> Any:
        name = given.get("name") if isinstance(given, dict) else None
        if not isinstance(name, str) or "@http" not in name:
            return given
        name, _, url = name.partition("@http")
        return {**given, "name": name, "base_url": f"http{url}"}


class ModelConfig(ModelChoice):
    """How models are asked. It holds names of keys, never keys."""

    draft: StageModel | None = None
    """Who writes drafts and repairs; None is the run's model."""
    refine: StageModel | None = None
    """Who refines; None is the run's model."""
    timeout_s: float = Field(default=600.0, gt=0)
    """How long one reply may take, seconds."""
    deadline_s: float = Field(default=1800.0, gt=0)
    """How long one reply may take with all repeated calls and the waits between, seconds (ours)."""
    retries: int = Field(default=5, ge=0)
    """Calls repeated after a rate limit or a fault of the server, before the run stops
    (resumable)."""
    longest_wait_s: float = Field(default=120.0, ge=0)
    """Longest wait that a server may ask for between two calls, seconds (ours)."""
    concurrency: int = Field(default=4, ge=1)
    """Calls under way at the same time (ours)."""
    continuations: int = Field(default=2, ge=0)
    """Calls that complete a reply which was cut off, before it counts as cut off (ours)."""
    followups: int = Field(default=1, ge=0)
    """Short questions back to a reply without one candidate, before it is an attempt (ours)."""

    def of(self, stage: Stage, name: str) -> tuple[str, "ModelConfig"]:
        """The model of a stage, and how it is asked.

        What a stage's model leaves open is as for the run's model `name`; its price and context
        are its own, and so is the key where it has an address of its own.
        """
        chosen = self.draft if stage is Stage.DRAFT else self.refine
        if chosen is None:
            return name, self
        own = {"usd_per_million_in", "usd_per_million_out", "context_tokens"}
        own |= {"api_key_env"} if chosen.base_url else set()
        values = {name: getattr(chosen, name) for name in ModelChoice.model_fields}
        given = {n: v for n, v in values.items() if n in own or v not in (None, {})}
        return chosen.name, self.model_copy(update=given)


class AgentConfig(Frozen):
    """How a model works with tools within a step. The limits are ours."""

    replies: int = Field(default=10, ge=2)
    """Replies of one step; with the last one it has to hand in."""
    calls: int = Field(default=16, ge=1)
    """Tool calls of one step."""
    tokens: int = Field(default=200_000, ge=1)
    """Tokens of one step, prompts and replies together, after which it has to hand in."""
    or_plain: bool = False
    """A model that cannot call tools writes without them, instead of ending the run."""
    skills: Path | None = None
    """Folder with further skills; those of the same name take the place of ours."""


class RunConfig(Frozen):
    """One optimisation of one task, fully resolved."""

    task: str = ""
    """Name of a built-in task or path of a task file; a run that is given a task puts it in."""
    backend: Backend = "cpp"
    """Language of the kernels."""
    precision: Precision | None = None
    """Replaces the task's own; None keeps that."""
    proposer: str = "templates"
    """`templates`, `external`, or a model as `PROVIDER/NAME` (any name with `model.base_url`), or
    `replay:FILE`."""
    model: ModelConfig = ModelConfig()
    """How a model is asked, where one writes."""
    agent: AgentConfig | None = None
    """With it a model works with tools in each step; None asks for the candidate at once."""
    record: Path | None = None
    """File that receives every call of a model, for `replay:FILE` to give the replies again."""
    prompts: Path | None = None
    """Folder with texts that replace ours in prompts, file by file."""
    runs: Path = Path("runs")
    """Folder that receives the run folder."""
    budget: Budget = Budget()
    """What ends the run."""
    search: SearchConfig = SearchConfig()
    """How start points evolve."""
    memory: MemoryConfig = MemoryConfig()
    """Which memory, and what it shows."""
    bench: BenchConfig = Field(default_factory=BenchConfig)
    """How candidates are judged."""
    force: bool = False
    """Run although the task fails its check; every result carries the label then."""

    @model_validator(mode="before")
    @classmethod
    def _resolved(cls, given: Any) -> Any:
        """Settle what depends on who writes the candidates, where nobody said otherwise."""
        if not isinstance(given, dict) or given.get("proposer", "templates") in NO_MODEL:
            return given
        search = SearchConfig.model_validate(given.get("search", {}))
        budget = Budget.model_validate(given.get("budget", {}))
        search, budget = _for_models(search, budget)
        return {**given, "search": search, "budget": budget}


NO_MODEL = ("templates", "external")
"""Proposers that are no model: the built-in templates, and a caller outside."""
MODEL_WIDTH, MODEL_DEPTH = 4, 8
"""Trajectories and turns of each where a model writes. With the same number of calls a few serial
trajectories reached more than many parallel ones: 16 x 8 calls 1.10x, 128 x 1 calls 0.65x (Kevin,
arXiv 2507.11948). The figures are ours."""


def _for_models(search: SearchConfig, budget: Budget) -> tuple[SearchConfig, Budget]:
    """A few serial trajectories; with fewer attempts fewer, each at least twice as deep as wide."""
    known: dict[str, int | float] = {"explore": 0.2, "patience": 3, "roofline": 0.95}
    if "attempts" in budget.model_fields_set:
        turns = max(0, budget.attempts - len(search.start))
        known["width"] = max(1, min(MODEL_WIDTH, math.isqrt(turns // 2)))
    else:
        known["width"] = MODEL_WIDTH
        width = search.width if "width" in search.model_fields_set else MODEL_WIDTH
        turns = width * (search.depth or MODEL_DEPTH)
        budget = budget.model_copy(update={"attempts": turns + len(search.start)})
    unset = {n: value for n, value in known.items() if n not in search.model_fields_set}
    return search.model_copy(update=unset), budget
