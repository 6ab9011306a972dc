"""Owns the files that rows are written to: JSON lines, or Parquet with the same columns."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from evokernel.errors import ConfigError
from evokernel.frozen import Frozen


def write(rows: Sequence[Frozen], path: Path, kind: type[Frozen]) -> None:
    """Write rows to a file whose name says how: `.jsonl` or `.parquet`; whole or not at all.

    Args:
        rows: All of one kind.
        path: The file.
        kind: What a row is, for a table without any.

    Raises:
        ConfigError: another ending, a folder that cannot be written, or pyarrow is missing.
    """
    writer = writer_of(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        writer(rows, part, kind)
        part.replace(path)
    except OSError as error:
        raise ConfigError(
            f"`{path}` cannot be written: {error.strerror or error}; name a file in a folder that "
            "exists and can be written"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def writer_of(path: Path) -> Callable[[Sequence[Frozen], Path, type[Frozen]], None]:
    """How a file of that name is written.

    Raises:
        ConfigError: another ending, or pyarrow is missing.
    """
    if path.suffix == ".jsonl":
        return _json_lines
    if path.suffix == ".parquet":
        from evokernel.training import parquet

        parquet.require()
        return parquet.write
    raise ConfigError(f"`{path}` is no file for rows; expected a name in `.jsonl` or `.parquet`")


def _json_lines(rows: Sequence[Frozen], path: Path, kind: type[Frozen]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            plain = row.model_dump(mode="json")
            file.write(json.dumps(plain, ensure_ascii=False, allow_nan=False) + "\n")
