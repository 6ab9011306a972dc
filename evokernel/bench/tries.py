"""Owns the answers of earlier tries: the same source on the same device is tried once."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from pydantic import ValidationError

from evokernel.bench import remembered
from evokernel.config import BenchConfig
from evokernel.errors import ConfigError
from evokernel.tuning import Try


class KnownTries:
    """A folder with one file for each try, below the cache folder.

    Args:
        config: How candidates are judged; its limits and its cache folder count.
        contract: What they may call.
        facts: What else a verdict rests on: task, device, harness, measurement.
    """

    def __init__(self, config: BenchConfig, contract: str, facts: dict[str, str]) -> None:
        self._folder = config.cache / "tuning"
        limits = (config.compile_s, config.run_s, config.memory_bytes)
        self._scene = json.dumps([facts, contract, limits], sort_keys=True)

    def find(self, candidate: str, against: str | None) -> Try | None:
        """The answer for a source; None where there is none, or one against another opponent.

        Args:
            candidate: Hash of the source with its values in place.
            against: Hash of the best one so far; None where there is none.
        """
        try:
            known = Try.model_validate_json(self._path(candidate).read_bytes())
        except (OSError, ValidationError):
            return None
        if known.status.is_feasible and known.against != against:
            return None
        return known.model_copy(update={"is_cached": True})

    def keep(self, found: Try) -> None:
        """Write an answer down, at once and whole.

        Raises:
            ConfigError: The cache folder cannot be written.
        """
        path = self._path(found.candidate)
        try:
            remembered.write(path, found)
        except OSError as error:
            raise ConfigError(
                f"cannot write what was tried into `{self._folder}`: {error.strerror}; free some "
                "space or name a writable folder with `EVOKERNEL_HOME`"
            ) from error

    def _path(self, candidate: str) -> Path:
        digest = hashlib.sha256(f"{self._scene}\n{candidate}".encode()).hexdigest()[:24]
        return self._folder / digest[:2] / f"{digest}.json"
