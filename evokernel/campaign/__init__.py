"""Owns `Campaign`: many tasks in one go, as a file or a command names them."""

import tomllib
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from evokernel.config import RunConfig
from evokernel.errors import ConfigError
from evokernel.frozen import Frozen
from evokernel.task import Task

LINES = (1.0, 1.2, 1.5, 2.0)
"""Speedups above which tasks are counted (fast_1, fast_1.2, ...), as KernelBench does."""


class Purse(Frozen):
    """What all runs of a campaign may spend together; None is no limit."""

    attempts: int | None = Field(default=None, ge=1)
    minutes: float | None = Field(default=None, gt=0)
    """Wall-clock minutes, all sessions added up."""
    tokens: int | None = Field(default=None, ge=1)
    usd: float | None = Field(default=None, gt=0)


class Entry(Frozen):
    """One task of a campaign."""

    name: str
    """Unique within the campaign; a folder is named by it."""
    config: RunConfig
    """How its run is made."""


class Campaign(Frozen):
    """Tasks, how their runs are made, and what they may spend together."""

    title: str
    entries: tuple[Entry, ...]
    jobs: int = Field(default=1, ge=1)
    """Runs at a time. Whatever is timed takes turns all the same."""
    budget: Purse = Purse()


class _File(Frozen):
    """A campaign file as it is written."""

    title: str = ""
    tasks: tuple[str, ...] = Field(min_length=1)
    jobs: int = Field(default=1, ge=1)
    budget: Purse = Purse()
    run: dict[str, Any] = {}
    task: dict[str, dict[str, Any]] = {}


def campaign_of(
    title: str, configs: tuple[RunConfig, ...], jobs: int = 1, budget: Purse | None = None
) -> Campaign:
    """A campaign of one run for each config.

    Raises:
        ConfigError: the same task twice.
    """
    names = [_name(config.task) for config in configs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"the task `{twice[0]}` is named twice; expected each task once")
    entries = (Entry(name=n, config=config) for n, config in zip(names, configs, strict=True))
    return Campaign(title=title, entries=tuple(entries), jobs=jobs, budget=budget or Purse())


def read_campaign(path: Path, defaults: dict[str, Any] | None = None) -> Campaign:
    """Read a campaign file.

    Args:
        path: A TOML file: `tasks`, and where wanted `title`, `jobs`, `[budget]`, `[run]` (fields of
            every run's config) and `[task.NAME]` (fields of one). Paths and patterns (`*.py`) are
            relative to the file.
        defaults: Fields of a `RunConfig` where the file says nothing.

    Raises:
        ConfigError: it cannot be read or understood; the message names the place.
        TaskError: a task cannot be loaded.
    """
    given = _parsed(path)
    found = [task for each in given.tasks for task in _tasks(path, each)]
    names = {_name(task) for task in found}
    if unknown := sorted(set(given.task) - names):
        raise ConfigError(
            f"`[task.{unknown[0]}]` of `{path}` is about no task of the campaign; its tasks are "
            f"{', '.join(f'`{name}`' for name in sorted(names))}"
        )
    configs = []
    for task in found:
        Task.load(task)  # the last one may be misspelt
        fields = _over(_over(defaults or {}, given.run), given.task.get(_name(task), {}))
        configs.append(_config({**fields, "task": task}, path))
    return campaign_of(given.title or path.stem, tuple(configs), given.jobs, given.budget)


def _parsed(path: Path) -> _File:
    try:
        return _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"`{path}` cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"`{path}` is not TOML: {error}") from error
    except ValidationError as error:
        raise _fault(error, path) from error


def _config(fields: dict[str, Any], path: Path) -> RunConfig:
    try:
        return RunConfig.model_validate(fields)
    except ValidationError as error:
        raise _fault(error, path) from error


def _fault(error: ValidationError, path: Path) -> ConfigError:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or "the file"
    return ConfigError(f"`{place}` of `{path}` cannot be used: {first['msg']} (docs/campaigns.md)")


def _tasks(path: Path, named: str) -> list[str]:
    """A built-in name as it is, a path or pattern as seen from the file."""
    if named in Task.names():
        return [named]
    if any(letter in named for letter in "*?["):
        found = sorted(str(file) for file in path.parent.glob(named))
        if not found:
            raise ConfigError(f"no file fits `{named}` of `{path}`")
        return found
    return [str(path.parent / named)]


def _name(task: str) -> str:
    return Path(task).stem


def _over(known: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    inner = {
        key: _over(known[key], value)
        for key, value in new.items()
        if isinstance(value, dict) and isinstance(known.get(key), dict)
    }
    return {**known, **new, **inner}
