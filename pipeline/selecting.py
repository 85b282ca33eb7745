"""`pipeline select`: another selection from scores that exist."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ValidationError

from stages import filter
from stages.config import SelectionConfig
from stages.context import Context

Rule = Literal["top", "random", "closest-to-source", "all"]


def select(context: Context, *, name: str, rule: Rule, count: int | None, fraction: float | None, seed: int, shards: bool) -> None:
    """Make and publish the selection, and its shards if asked."""
    try:
        config = SelectionConfig(name=name, rule=rule, count=count, fraction=fraction, seed=seed)
    except ValidationError as error:
        raise ValueError(_first(error.errors()[0])) from None
    table = filter.select(context, config)
    print(f"selection {name}: {table.num_rows:,} samples")
    if shards:
        print(f"shards: {filter.write_shards(context, config)}")


def _first(detail: Any) -> str:
    flag = f"--{detail['loc'][0]}: " if detail["loc"] else ""
    return flag + detail["msg"].removeprefix("Value error, ")
