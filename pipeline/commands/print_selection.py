"""`pipeline select`: from flags to a selection and its printed strata; `pipeline select diff`: tables and a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipeline import words
from pipeline.words import text_table
from reward.evaluation.estimate import Estimate
from stages.context import Context
from stages.filter import step as filter
from stages.filter.selection import difference, stored
from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.difference import Difference

SHARES = ("proportional", "equal", "like")
FLAGS = {
    ("quotas", "by"): "--quota-by",
    ("at_most", "count"): "--at-most",
    ("at_most", "bits"): "--bits",
    ("without_flags",): "--without-flag",
}
"""Flags whose names differ from the configuration's keys."""


def read_flags(flags: Mapping[str, Any]) -> SelectionConfig:
    """The selection that the command's flags describe. Raises ``ValueError`` that names the flag."""
    plain = {name: flags[name] for name in SelectionConfig.model_fields if name in flags}
    quotas = _quotas(flags["quota_by"], flags["quota"], flags["short"])
    if (flags["at_most"] is None) != (flags["per"] is None):
        raise ValueError("--at-most N and --per COLUMN belong together: give both or neither")
    if flags["bits"] and flags["per"] is None:
        raise ValueError("--bits applies to clusters of hashes: give --at-most and --per as well")
    at_most = None if flags["per"] is None else {"per": flags["per"], "count": flags["at_most"], "bits": flags["bits"]}
    try:
        return SelectionConfig.model_validate(plain | {"quotas": quotas, "at_most": at_most})
    except ValidationError as error:
        raise ValueError(_first(error.errors()[0])) from None


def select(context: Context, config: SelectionConfig, *, shards: bool) -> None:
    """Make and publish the selection, and its shards if asked."""
    count = filter.select(context, config)
    step = context.run.step(filter.STEP)
    description = stored.describe(step, config.name) or {}
    print(f"selection {config.name}: {count:,} samples, sha256 {description['sha256'][:12]}")
    strata = description["strata"]
    if strata:
        rows = [[entry["name"] or "(empty)", *(f"{entry[key]:,}" for key in ("scored", "available", "asked", "kept"))] for entry in strata]
        print(text_table([config.quotas.by if config.quotas else "stratum", "scored", "available", "asked", "kept"], rows))
        short = sum(max(entry["asked"] - entry["kept"], 0) for entry in strata)
        if short:
            print(f"{short:,} samples were missing in their strata and were taken from other strata by rank (quotas.short: refill)")
    if shards:
        print(f"shards: {filter.write_shards(context, config)}")


def diff(context: Context, first: str, second: str, *, by: str, page: str | None, images: int) -> None:
    """Print what differs between two selections and write the page."""
    from pipeline.report import selection_page

    found = difference.compare(context, first, second, by=by, most=images)
    print(described(found))
    path = Path(page) if page else context.run.path / f"selection-{first}-{second}.html"
    print(f"page: {selection_page.build(context, found, path, images=images)}")


def described(found: Difference) -> str:
    """The comparison as text: counts, means, rank correlation, and the strata."""
    lines = [
        text_table(
            ["", "samples", "mean score [95 %]"],
            [
                [side.name, f"{side.count:,}", interval(side.mean, "-")]
                for side in (found.a, found.b, found.both, found.only_a, found.only_b)
            ],
        ),
        f"Jaccard {found.jaccard:.3f}; rank correlation of the common part "
        + interval(found.correlation, "not defined (fewer than 4 common samples)"),
    ]
    rows = [
        [entry.name or "(empty)", f"{entry.a:,}", f"{entry.b:,}", f"{entry.both:,}", f"{entry.b - entry.a:+,}"] for entry in found.strata
    ]
    return "\n".join([*lines, "", text_table([found.by, found.a.name, found.b.name, "both", "difference"], rows)])


def interval(found: Estimate | None, absent: str) -> str:
    """A number with its 95 % interval, or ``absent``."""
    return found.words(words.score) if found else absent


def _quotas(by: str | None, given: tuple[str, ...], short: str) -> dict[str, Any] | None:
    if (by is None) != (not given):
        raise ValueError("--quota-by COLUMN and --quota SHARES belong together: give both or neither")
    if by is None:
        if short != "refuse":
            raise ValueError("--short applies to quotas that cannot be filled: give --quota-by and --quota as well")
        return None
    if len(given) == 1 and given[0] in SHARES:
        return {"by": by, "shares": given[0], "short": short}
    numbers: dict[str, int] = {}
    for text in given:
        name, equals, number = text.rpartition("=")
        if not equals or not number.isdecimal():
            raise ValueError(f"--quota {text}: expected one of {', '.join(SHARES)}, or STRATUM=NUMBER such as recolour=200")
        if name in numbers:
            raise ValueError(f"--quota {text}: the stratum {name} is given twice; leave one out")
        numbers[name] = int(number)
    return {"by": by, "numbers": numbers, "short": short}


def _first(detail: Any) -> str:
    place = tuple(detail["loc"])
    flag = f"{FLAGS.get(place, '--' + '-'.join(str(part) for part in place))}: " if place else ""
    if place == ("name",):
        return f"--name {detail['input']!r}: use small letters, digits and hyphens, and a letter first"
    message = detail["msg"].removeprefix("Value error, ")
    given = f" (given: {detail['input']})" if isinstance(detail["input"], (str, int, float)) else ""
    return f"{flag}{message[0].lower()}{message[1:]}{given}"
