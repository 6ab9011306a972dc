"""Owns records kept in the cache folder: read whole or not at all, replaced at once."""

import hashlib
import json
import os
import re
import time
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from evokernel.frozen import Frozen

T = TypeVar("T", bound=Frozen)


def read(path: Path, kind: type[T]) -> T | None:
    """What a file holds; None where there is none, or one of another time."""
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError):
        return None


def write(path: Path, record: Frozen) -> None:
    """Write it aside, then rename it: whoever reads it finds all of it.

    Raises:
        OSError: The folder cannot be written; nothing is left behind.
    """
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(record.model_dump_json(indent=1), encoding="utf-8")
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def is_recent(path: Path, seconds: float) -> bool:
    """Whether a file was written within so many seconds."""
    return time.time() - path.stat().st_mtime < seconds


def digest(*parts: object) -> str:
    """First 16 hex digits of the SHA-256 of the parts as JSON."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def slug(name: str) -> str:
    """A device's name as part of a file's, e.g. `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:32].strip("-")
