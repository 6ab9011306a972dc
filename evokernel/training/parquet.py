"""Owns Parquet: columns and types are read off the record, also those of an empty column."""

import types
import typing
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evokernel.errors import ConfigError
from evokernel.frozen import Frozen


def require() -> None:
    """Go on only where pyarrow is installed.

    Raises:
        ConfigError: it is not.
    """
    if find_spec("pyarrow") is None:
        raise ConfigError(
            "Parquet needs pyarrow, which is not installed; install the extra `train` "
            "(`pip install 'evokernel-agent[train]'`), or name a file in `.jsonl`"
        )


def write(rows: Sequence[Frozen], path: Path, kind: type[Frozen]) -> None:
    """Write one table; the schema's version is in the file's metadata as well."""
    import pyarrow
    from pyarrow import parquet

    version = str(kind.model_fields["schema_version"].default)
    schema = schema_of(kind).with_metadata({"evokernel.schema": version})
    table = pyarrow.Table.from_pylist([row.model_dump(mode="json") for row in rows], schema)
    parquet.write_table(table, path, compression="zstd")


def schema_of(kind: type[Frozen]) -> Any:
    """The columns of a record, in order."""
    import pyarrow

    return pyarrow.schema(
        [
            pyarrow.field(name, _type(field.annotation), nullable=_is_optional(field.annotation))
            for name, field in kind.model_fields.items()
        ]
    )


def _type(annotation: Any) -> Any:
    import pyarrow

    arguments = [a for a in typing.get_args(annotation) if a is not types.NoneType]
    if _is_optional(annotation):
        return _type(arguments[0])
    if typing.get_origin(annotation) is tuple:
        return pyarrow.list_(_type(arguments[0]))
    if isinstance(annotation, type) and issubclass(annotation, Frozen):
        return pyarrow.struct(list(schema_of(annotation)))
    return {
        bool: pyarrow.bool_(),
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        str: pyarrow.string(),
    }[annotation]


def _is_optional(annotation: Any) -> bool:
    return types.NoneType in typing.get_args(annotation)
