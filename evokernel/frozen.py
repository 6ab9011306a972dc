"""Owns the base class of every record that flows between parts."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """An immutable record; unknown fields are refused, so that a typo never passes silently."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
