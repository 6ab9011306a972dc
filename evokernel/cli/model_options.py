"""Owns the options about models, and how they become a part of a run's configuration."""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evokernel.cli.options import Prompts
from evokernel.errors import ConfigError

if TYPE_CHECKING:
    from evokernel.config import ModelConfig

Text = str | None

_SETTINGS = {
    "base_url": "base_url",
    "api_key_env": "api_key_env",
    "timeout": "timeout_s",
    "effort": "reasoning_effort",
    "reply_tokens": "reply_tokens",
}
"""Fields of `ModelConfig` by the options that set them."""


def _named(help: str, metavar: str = "NAME") -> Any:
    return typer.Option(metavar=metavar, help=help)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model, where it is, and how it is asked."""

    model: Annotated[
        Text,
        _named(
            "A model writes the candidates: PROVIDER/NAME, such as openai/gpt-5; any name with "
            "--base-url; replay:FILE gives recorded replies again.  "
            "[default: the built-in templates]"
        ),
    ] = None
    base_url: Annotated[
        Text, _named("Address of a model server, e.g. http://localhost:8000/v1.", "URL")
    ] = None
    api_key_env: Annotated[
        Text,
        _named("Environment variable that holds the model's key.  [default: the provider's usual]"),
    ] = None
    effort: Annotated[
        Text,
        _named(
            "How long a model thinks: low, medium, high, or what its provider knows besides.",
            "LEVEL",
        ),
    ] = None
    param: Annotated[
        list[str] | None,
        _named(
            "A further parameter of the model's provider, e.g. temperature=0.2; may be repeated.",
            "NAME=VALUE",
        ),
    ] = None
    model_config: Annotated[
        Path | None,
        _named("TOML file with settings of models; the other options go before it.", "FILE"),
    ] = None

    def alone(self) -> str:
        """An option that was given and makes no sense without a model; empty is none."""
        given = vars(self)
        about = (name for name in given if name not in {"model", *_STAGES, *_AGENT})
        return next((name for name in about if given[name] is not None), "")


@dataclass(frozen=True, kw_only=True)
class AuthorOptions(ModelOptions):
    """The models that write a run's candidates: how, and for how much."""

    model_draft: Annotated[
        Text,
        _named(
            "Another model for drafts and repairs; NAME@URL names its server.  [default: --model]"
        ),
    ] = None
    model_refine: Annotated[Text, _named("Another model for refinements.  [default: --model]")] = (
        None
    )
    agentic: Annotated[
        bool,
        typer.Option(
            "--agentic",
            help="Let the model compile, evaluate and profile what it writes, and look into the "
            "memory, before it hands in.",
        ),
    ] = False
    or_plain: Annotated[
        bool,
        typer.Option(
            "--or-plain", help="With --agentic: a model without tools writes without them."
        ),
    ] = False
    skills: Annotated[
        Path | None,
        _named("With --agentic: a folder of further skills (.md files).", "DIR"),
    ] = None
    prompts: Prompts = None
    usd: Annotated[float | None, _named("US dollars that a model may cost at most.", "X")] = None
    tokens: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Tokens, of prompts and replies, to spend at most."),
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option(min=1, metavar="S", help="Seconds that a reply may take.  [default: 600]"),
    ] = None
    reply_tokens: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Tokens of a reply at most.  [default: the model's]"),
    ] = None
    record: Annotated[
        Path | None,
        _named("Write every call of the model there, for --model replay:FILE.", "FILE"),
    ] = None

    def agent(self) -> dict[str, Any]:
        """Fields of `RunConfig`; the skills are read before anything else begins.

        Raises:
            ConfigError: options that do not go together, or skills that cannot be read.
        """
        given = {"or_plain": self.or_plain, "skills": self.skills and self.skills.absolute()}
        wanted = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
        if self.agentic and self.model is None:
            raise ConfigError("`--agentic` is about a model: expected `--model NAME` with it")
        if not self.agentic and wanted:
            raise ConfigError(f"`{wanted[0]}` is about `--agentic`: expected that with it")
        if not self.agentic:
            return {}
        from evokernel.config import AgentConfig
        from evokernel.proposers.llm.skills import Skills

        Skills.load(AgentConfig.model_validate(given), "cpp")
        return {"agent": given}


_STAGES = ("model_draft", "model_refine")
_AGENT = ("agentic", "or_plain", "skills")


def proposer(options: ModelOptions, *, is_checked: bool = True) -> dict[str, Any]:
    """Who writes the candidates; names, keys and addresses are checked before all else.

    Args:
        options: As they were given.
        is_checked: Look at keys and addresses.

    Returns:
        Fields of `RunConfig`; none where no model is named.

    Raises:
        ConfigError: an option or a line of the file that cannot be used, or about no model.
    """
    told, given = _told(options.model_config), vars(options)
    name = options.model or told.pop("name", None)
    draft, refine = (
        _stage(given.get(f"model_{stage}"), told.pop(stage, None)) for stage in ("draft", "refine")
    )
    if name is None and draft and refine:
        name = refine["name"]
    if name is None:
        _require_none(draft, refine, options)
        return {}
    settings = {
        field: given[option] for option, field in _SETTINGS.items() if given.get(option) is not None
    }
    chosen = {**told, **settings, "draft": draft, "refine": refine}
    chosen = {**chosen, **_params(options.param, dict(told.get("parameters", {})))}
    config = _checked(chosen)
    if is_checked:
        _check_names(name, config)
    return {"proposer": name, "model": config.model_dump(exclude_unset=True, exclude_none=True)}


def _require_none(draft: object, refine: object, options: ModelOptions) -> None:
    if draft or refine:
        given, other = ("draft", "refine") if draft else ("refine", "draft")
        raise ConfigError(
            f"`--model-{given}` names a model for one stage only; name the other one with "
            f"`--model-{other}`, or with `--model` one for both"
        )
    if alone := options.alone():
        raise ConfigError(
            f"`--{alone.replace('_', '-')}` is about a model, and none is named: expected `--model "
            "NAME` with it, such as `--model openai/gpt-5`"
        )


def _check_names(name: str, config: "ModelConfig") -> None:
    """See that every model can be reached, as far as that is seen without asking it."""
    from evokernel.attempt import Stage
    from evokernel.proposers.llm.access import access
    from evokernel.proposers.llm.replay import PREFIX, located

    for stage in Stage:
        wanted, how = config.of(stage, name)
        if wanted.startswith(PREFIX):
            located(wanted.removeprefix(PREFIX))
        else:
            access(wanted, how)


def _stage(name: str | None, told: dict[str, Any] | None) -> dict[str, Any] | None:
    if name is not None:
        return {"name": name}  # another model than the file's: its settings do not apply
    return told


def _told(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"`--model-config {file}` cannot be read: {reason}; expected TOML, such as "
            '`reasoning_effort = "high"`'
        ) from error


def _params(given: list[str] | None, parameters: dict[str, Any]) -> dict[str, Any]:
    """`NAME=VALUE`, the value read as JSON where it is some; two have fields of their own."""
    fields: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"`--param {text}` cannot be used; expected NAME=VALUE")
        place = fields if name in {"temperature", "reasoning_effort"} else parameters
        place[name.strip()] = _value(value)
    return {**fields, "parameters": parameters}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _checked(fields: dict[str, Any]) -> "ModelConfig":
    from pydantic import ValidationError

    from evokernel.config import ModelConfig

    try:
        return ModelConfig.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "the model"
        expected = first["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
        raise ConfigError(f"settings of the model: `{name}`: {expected}") from error
