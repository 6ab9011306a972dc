"""Owns the reference of settings and exceptions, read from the text of the modules."""

from collections.abc import Iterator
from typing import Any

from site_source import Find


def settings(names: list[str], find: Find) -> str:
    """A table for each of some records of `evokernel.config`."""
    records = (find(f"evokernel.config.{name}") for name in names)
    return "\n".join(line for record in records for line in _record(record))


def fields(record: Any) -> dict[str, Any]:
    """The fields of a record that is written as pydantic has them, those it inherits first."""
    of_base = [fields(base) for name in record.bases if (base := _base(record, str(name)))]
    inherited = {name: field for each in of_base for name, field in each.items()}
    own = {name: member for name, member in record.members.items() if member.is_attribute}
    return inherited | {name: field for name, field in own.items() if name != "model_config"}


def exceptions(names: list[str], find: Find) -> str:
    """The tree of exceptions, and a table of them."""
    module = find("evokernel.errors")
    tree, rows = module.docstring.value.split("\n\n"), ["| exception | when |", "|---|---|"]
    for each in module.members.values():
        if each.is_class:
            rows.append(f"| `{each.name}` | {_sentence(each)} |")
    drawn = next(part for part in tree if part.startswith("EvoKernelError"))
    return f"```\n{drawn}\n```\n\n" + "\n".join(rows)


def _base(record: Any, name: str) -> Any:
    member = record.module.members.get(name)
    return None if member is None or member.is_alias else member


def _record(record: Any) -> Iterator[str]:
    yield f"\n## {record.name}\n\n{_sentence(record)}\n"
    yield "| setting | type and default | meaning |\n|---|---|---|"
    for name, field in fields(record).items():
        kind = str(field.annotation).replace(" | ", " or ")
        yield f"| `{name}` | `{kind}`<br>{_default(field.value)} | {_sentence(field)} |"


def _default(value: Any) -> str:
    """The default of a field, out of `Field(...)` where it is in one."""
    text = "" if value is None else str(value)
    if not text.startswith("Field("):
        return f"`{text}`" if text else "needed"
    given = {each.name: str(each.value) for each in value.arguments if hasattr(each, "name")}
    factory = given.get("default_factory", "").removeprefix("lambda: ")
    limits = [f"{_SIGNS[name]} {given[name]}" for name in _SIGNS if name in given]
    shown = given.get("default") or (factory if "(" in factory else f"{factory}()")
    return ", ".join([f"`{shown}`", *(f"`{limit}`" for limit in limits)])


_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def _sentence(described: Any) -> str:
    """What stands below a name, in one line.

    Raises:
        PluginError: nothing does.
    """
    if described.docstring is None:
        from mkdocs.exceptions import PluginError

        raise PluginError(f"`{described.path}` has no docstring; the reference shows one")
    return " ".join(described.docstring.value.split()).replace("|", "\\|")
