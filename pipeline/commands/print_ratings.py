"""What `pipeline annotate ingest` and `annotate next` say: balances, warnings, agreement of raters; the groups chosen and why."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from pipeline.words import text_table
from stages.annotate.step import IngestResult
from stages.engine.rundir import Index

SHOWN = 10
"""Groups of a list that are printed."""


def ingested(result: IngestResult) -> str:
    """Tables as text."""
    rows = [[batch.file, "new", *_balance(batch)] for batch in result.new] + [
        [batch.file, "was there", *_balance(batch)] for batch in result.known
    ]
    parts = [text_table(["file", "state", "ratings", "accepted", "duplicates", "quarantined", "superseded"], rows)]
    parts += [f"warning: {warning}" for warning in result.warnings]
    agreement = result.index.results.get("agreement", {})
    by_task = result.index.results.get("agreement_by_task", {})
    parts.append(_agreement("all ratings", agreement))
    parts += [_agreement(task, entry) for task, entry in by_task.items()] if len(by_task) > 1 else []
    return "\n\n".join(part for part in parts if part)


def chosen(run: Path, path: Path, index: Index) -> str:
    """The first groups of the list, how many of each kind, and where it is."""
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    by_task = ", ".join(f"{task or 'no kind'} {count:,}" for task, count in index.results["by_task"].items())
    table = text_table(
        ["rank", "group", "kind", "why"], [[row["rank"], row["group_id"], row["task"], row["reason"]] for row in rows[:SHOWN]]
    )
    more = f"\n... and {len(rows) - SHOWN:,} more" if len(rows) > SHOWN else ""
    hint = f"hand them out with: pipeline annotate export --run {run} --groups {path}"
    return f"{table}{more}\n\n{len(rows):,} groups ({by_task}): {path}\n{hint}"


def _balance(batch: Any) -> list[str]:
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in batch.quarantined.items())
    return [f"{batch.ratings:,}", f"{batch.accepted:,}", f"{batch.duplicates:,}", reasons or "0", f"{batch.superseded:,}"]


def _agreement(title: str, agreement: dict[str, Any]) -> str:
    """One table per set of ratings: a row per statistic, a column per dimension."""
    names = list(
        dict.fromkeys(name for entry in agreement.values() for name, value in entry.items() if isinstance(value, dict) and "value" in value)
    )
    if not names:
        return ""
    rows = [[name, *(_estimate(entry.get(name)) for entry in agreement.values())] for name in names]
    return f"agreement of raters, {title} (95 % intervals over groups)\n" + text_table(["statistic", *agreement], rows)


def _estimate(value: dict[str, Any] | None) -> str:
    if value is None:
        return ""
    if value["value"] is None:
        return str(value.get("note", "none"))
    return f"{value['value']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"
