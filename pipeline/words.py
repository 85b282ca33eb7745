"""Numbers, names and plain tables as a reader wants them, on the terminal and on pages."""

from __future__ import annotations

import itertools
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reward.evaluation.estimate import Estimate


def count(value: int) -> str:
    """12,345."""
    return f"{value:,}"


def share(value: float) -> str:
    """A share as a percentage with one decimal."""
    return f"{100 * value:.1f}\u202f%"


def percent(value: float) -> str:
    """A share as a whole percentage."""
    return f"{100 * value:.0f}\u202f%"


def plain(value: float) -> str:
    """A number without needless digits, such as a tick's."""
    return f"{value:,.6g}".replace("-", "−")


def score(value: float) -> str:
    """A score with two decimals and a real minus sign."""
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def difference(value: float) -> str:
    """A difference, always with its sign."""
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")


def precise(value: float) -> str:
    """A statistic with three decimals."""
    return f"{value:.3f}".replace("-", "−")


Form = Callable[[float], str]
"""How a number is written."""


def bounds(estimate: Estimate, form: Form) -> str:
    """The interval of an estimate, ``0.85 to 0.89``; empty where it has none."""
    return "" if estimate.low is None or estimate.high is None else f"{form(estimate.low)} to {form(estimate.high)}"


def cell(published: Any, form: Callable[[float], str]) -> str:
    """A number or an estimate with its interval as a step published it; where there is none, the note that says why, or a dash."""
    from reward.evaluation.estimate import Estimate

    found = Estimate.read(published)
    if found is None:
        return str(published.get("note") or "–") if isinstance(published, Mapping) else "–"
    return found.words(form)


def duration(seconds: float) -> str:
    """``4.2 s``, ``3 min 05 s``, ``2 h 10 min`` or ``2.3 days``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes < 48 * 60 else f"{seconds / 86_400:,.1f} days"


def size(count: float) -> str:
    """``1.6 MB``: bytes with the largest unit that fits."""
    unit, factor = next((unit for unit in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9)) if count >= unit[1]), ("MB", 1e6))
    return f"{count / factor:,.1f} {unit}"


def name(key: str) -> str:
    """A key such as ``visual_quality`` in words."""
    return key.replace("_", " ").replace("-", " ")


def ordered(names: Iterable[str], first: Sequence[str] = (), last: Sequence[str] = ("overall", "opposed")) -> list[str]:
    """Names in their order, but ``first`` before and ``last`` behind all others (published JSON is sorted by key)."""
    given = list(names)
    middle = [name for name in given if name not in first and name not in last]
    return [name for name in first if name in given] + middle + [name for name in last if name in given]


def listing(parts: list[str]) -> str:
    """``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def abbreviation(dimension: str) -> str:
    """``instruction_following`` as IF; initials of any other dimension likewise."""
    return "".join(part[0] for part in dimension.split("_") if part).upper()


NARROWEST = 12
"""Characters below which a column of a wrapped table is not made narrower."""
GAP = "  "


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """A table for the terminal: columns padded to their widest cell, a rule under the header.

    width: characters of a line; default: those of the terminal, and as many as needed where the output is a file. Wide columns are wrapped;
    columns that do not fit even so follow in further tables, each beginning with the first column.
    """
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    limit = width or (shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize)
    natural = [max(len(row[column]) for row in cells) for column in range(len(header))]
    parts: list[list[int]] = [[0]]
    for column in range(1, len(header)):
        if _total(min(natural[shown], NARROWEST) for shown in [*parts[-1], column]) > limit and len(parts[-1]) > 1:
            parts.append([0])
        parts[-1].append(column)
    tables = ([[row[column] for column in part] for row in cells] for part in parts)
    return "\n\n".join(_text_table([shown[0], *filter(any, shown[1:])], limit) for shown in tables)


def _text_table(cells: Sequence[Sequence[str]], limit: int) -> str:
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    while _total(widths) > limit and max(widths) > NARROWEST:
        widest = widths.index(max(widths))
        next_widest = sorted({*widths, NARROWEST})[-2]
        widths[widest] = max(next_widest, widths[widest] - (_total(widths) - limit))
    first, *rest = (_wrapped(row, widths) for row in cells)
    return "\n".join([*first, GAP.join("-" * width for width in widths), *(line for row in rest for line in row)])


def _total(widths: Iterable[int]) -> int:
    listed = list(widths)
    return sum(listed) + len(GAP) * (len(listed) - 1)


def _wrapped(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """The lines of a row."""
    columns = [textwrap.wrap(cell, width) if len(cell) > width else [cell] for cell, width in zip(row, widths, strict=True)]
    lines = itertools.zip_longest(*columns, fillvalue="")
    return [GAP.join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip() for line in lines]
