"""Output of `pipeline annotate ingest` (counts, warnings, inter-rater agreement) and `annotate next` (chosen groups)."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from pipeline.commands.print_quality import estimate
from pipeline.words import text_table
from stages.annotate.step import IngestResult
from stages.engine.rundir import Index

SHOWN = 10
"""Groups of a list that are printed."""


def ingested(result: IngestResult) -> str:
    """Tables as text; a column without any number is left out."""
    batches = [("new", batch) for batch in result.new] + [("known", batch) for batch in result.known]
    rows = [[batch.file, state, *_counts(batch)] for state, batch in batches]
    header = ["file", "state", "ratings", "accepted", "duplicates", "quarantined", "superseded"]
    shown = [column for column in range(len(header)) if any(row[column] for row in rows)]
    parts = [text_table([header[column] for column in shown], [[row[column] for column in shown] for row in rows])]
    parts += [f"warning: {warning}" for warning in result.warnings]
    agreement = result.index.results.get("agreement", {})
    by_task = result.index.results.get("agreement_by_task", {})
    parts.append(_agreement("all ratings", agreement))
    parts += [_agreement(task, entry) for task, entry in by_task.items()] if len(by_task) > 1 else []
    return "\n\n".join(part for part in parts if part)


def chosen(run: Path, path: Path, index: Index) -> str:
    """The first groups of the list, the number of groups of each kind, and the path of the list."""
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    by_task = ", ".join(f"{task or 'no kind'} {count:,}" for task, count in index.results["by_task"].items())
    table = text_table(
        ["rank", "group", "kind", "reason"], [[row["rank"], row["group_id"], row["task"], row["reason"]] for row in rows[:SHOWN]]
    )
    more = f"\n... and {len(rows) - SHOWN:,} more" if len(rows) > SHOWN else ""
    hint = f"export them with: pipeline annotate export --run {run} --groups {path}"
    return f"{table}{more}\n\n{len(rows):,} groups ({by_task}): {path}\n{hint}"


def _counts(batch: Any) -> list[str]:
    """Cells of a batch; a zero is an empty text."""
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in batch.quarantined.items())
    duplicates, superseded = (f"{count:,}" if count else "" for count in (batch.duplicates, batch.superseded))
    return [f"{batch.ratings:,}", f"{batch.accepted:,}", duplicates, reasons, superseded]


def _agreement(title: str, agreement: dict[str, Any]) -> str:
    """One table per set of ratings: a row per statistic, a column per dimension."""
    names = list(
        dict.fromkeys(name for entry in agreement.values() for name, value in entry.items() if isinstance(value, dict) and "value" in value)
    )
    if not names:
        return ""
    rows = [[name, *(estimate(entry.get(name), "{:.3f}") for entry in agreement.values())] for name in names]
    return f"inter-rater agreement, {title} (95 % intervals over groups)\n" + text_table(["statistic", *agreement], rows)
