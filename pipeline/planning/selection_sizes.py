"""How many edits each configured selection keeps: counted where the run has scores, else described in words."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from stages.engine.rundir import Index, StepFolder
from stages.filter.selection.config import SelectionConfig


def described(selections: Sequence[SelectionConfig], step: StepFolder) -> str:
    """Every selection with its rule and its size; ``step`` is the filter step of the run directory."""
    index = step.index()
    kept = {} if index is None else _kept(selections, step, index)
    return ", ".join(f"{choice.name} ({_words(choice)}{_size(choice, kept)})" for choice in selections)


def _words(choice: SelectionConfig) -> str:
    """Order, size and bound as the configuration gives them."""
    words = [choice.rule]
    if choice.count is not None:
        words.append(f"{choice.count:,}")
    elif choice.fraction is not None:
        words.append(f"{choice.fraction:g}")
    elif choice.like is not None:
        words.append(f"as many as {choice.like}")
    elif choice.quotas is not None and choice.quotas.numbers is not None:
        words.append(f"{sum(choice.quotas.numbers.values()):,}")
    if choice.threshold is not None:
        words.append(f"within the threshold {choice.threshold:g}")
    if choice.quantile is not None:
        words.append(f"within the quantile {choice.quantile:g}")
    if choice.at_most is not None:
        words.append(f"at most {choice.at_most.count} per {choice.at_most.per}")
    return " ".join(words)


def _size(choice: SelectionConfig, kept: Mapping[str, int | str]) -> str:
    """The size, or why it is not known yet."""
    found = kept.get(choice.name)
    if isinstance(found, int):
        return f": {found:,} of the scored edits"
    if found is not None:
        return f": not possible with the present scores, {found}"
    decided = choice.count is not None or choice.like is not None or (choice.quotas is not None and choice.quotas.numbers is not None)
    if choice.rule == "all" or decided:
        return ""
    return ": its number is known after scoring"


def _kept(selections: Sequence[SelectionConfig], step: StepFolder, index: Index) -> dict[str, int | str]:
    """Number of edits by selection, or the reason where the scores do not allow it. Selections that exist are not computed again."""
    from stages.engine import storage, tables
    from stages.engine.contracts import SELECTION
    from stages.filter.selection import rule as selection
    from stages.filter.selection import stored
    from stages.filter.selection.scored_rows import ScoredRows

    parts = index.artifacts["scores"]
    descriptions = [stored.describe(step, choice.name) or {} for choice in selections]
    wanted = [(choice.model_dump(mode="json"), stored.scores_hash(parts)) for choice in selections]
    if [(entry.get("selection"), entry.get("scores")) for entry in descriptions] == wanted:
        return {choice.name: entry["rows"] for choice, entry in zip(selections, descriptions, strict=True)}
    kept: dict[str, int | str] = {}
    with tempfile.TemporaryDirectory() as folder, tables.opened(folder) as database:
        rows = ScoredRows.of(database, step, index.artifacts, index.results.get("flags", ()))
        made: dict[str, Path] = {}
        for choice in selections:
            path = Path(folder) / f"{choice.name}.parquet"
            try:
                kept[choice.name], _ = storage.publish_rows(path, SELECTION, selection.select(rows, choice, made).rows)
                made[choice.name] = path
            except ValueError as error:
                kept[choice.name] = str(error).removeprefix(f"selection {choice.name}: ")
    return kept
