"""Owns the options about models, and how they become a part of a run's configuration."""

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evokernel.errors import ConfigError

if TYPE_CHECKING:
    from evokernel.config import ModelConfig

ModelDraft = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Another model for drafts and repairs; NAME@URL names its server.  [default: --model]",
    ),
]
ModelRefine = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Another model for refinements.  [default: --model]"),
]
Effort = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        help="How long a model thinks: low, medium, high, or what its provider knows besides.",
    ),
]
Param = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="A further parameter of the model's provider, e.g. temperature=0.2; may be repeated.",
    ),
]
ReplyTokens = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Tokens of a reply at most.  [default: the model's]"),
]
ModelFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="TOML file with settings of models; the other options go before it."
    ),
]
Record = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Write every call of the model there, for --model replay:FILE."
    ),
]


def proposer(
    names: dict[str, str | None],
    settings: dict[str, Any],
    params: list[str] | None,
    file: Path | None,
    about_models: dict[str, object],
    *,
    is_checked: bool = True,
) -> dict[str, Any]:
    """Who writes the candidates; names, keys and addresses are checked before all else.

    Args:
        names: Of the models: `model`, `draft`, `refine`.
        settings: Fields of `ModelConfig` by options; None was not given.
        params: `NAME=VALUE`.
        file: Settings in TOML.
        about_models: Options that make no sense without a model, by name.
        is_checked: Look at keys and addresses.

    Returns:
        Fields of `RunConfig`; none where no model is named.

    Raises:
        ConfigError: an option or a line of the file that cannot be used, or about no model.
    """
    told = _told(file)
    name = names["model"] or told.pop("name", None)
    draft, refine = (
        _stage(names.get(stage), told.pop(stage, None)) for stage in ("draft", "refine")
    )
    if name is None and draft and refine:
        name = refine["name"]
    if name is None:
        _require_none(draft, refine, {**about_models, "param": params, "model-config": file})
        return {}
    given = {key: value for key, value in settings.items() if value is not None}
    chosen = {**told, **given, "draft": draft, "refine": refine}
    chosen = {**chosen, **_params(params, dict(told.get("parameters", {})))}
    config = _checked(chosen)
    if is_checked:
        _check_names(name, config)
    return {"proposer": name, "model": config.model_dump(exclude_unset=True, exclude_none=True)}


def _require_none(draft: object, refine: object, about_models: dict[str, object]) -> None:
    if draft or refine:
        given, other = ("draft", "refine") if draft else ("refine", "draft")
        raise ConfigError(
            f"`--model-{given}` names a model for one stage only; name the other one with "
            f"`--model-{other}`, or with `--model` one for both"
        )
    if alone := [name for name, value in about_models.items() if value is not None]:
        raise ConfigError(
            f"`--{alone[0]}` is about a model, and none is named: expected `--model NAME` with "
            "it, such as `--model openai/gpt-5`"
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
