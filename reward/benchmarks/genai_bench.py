"""GenAI-Bench, image editing: votes of visitors of an arena on pairs of edits (Jiang et al. 2024, arXiv 2406.04485).

Hub: data set TIGER-Lab/GenAI-Bench, not gated (the authors' repository is MIT; see its card for the data), configuration image_edition,
split test_v1: image_edition/test_v1-*.parquet with source_prompt, target_prompt, instruct_prompt, source_image, left_output_image,
right_output_image, left_model, right_model, vote_type. 919 votes: leftvote 240, rightvote 263, tievote 24, bothbad_vote 392. The editors
are those of 2022 and 2023.

Published convention of reward models: both kinds of ties are one label, accuracy with the oracle threshold. A scorer that gives
everything the same score reaches 416/919 = 0.4527 that way. Published figures of judges of pairs do not compare: those answer with one of
four labels and must hit it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reward.benchmarks import pairs
from reward.benchmarks.items import BenchmarkEdit, Comparison, Scores
from reward.benchmarks.result import BenchmarkResult, size_note
from reward.benchmarks.tables import parquet_files, parquet_rows
from reward.evaluation.bootstrap import DEFAULT, Bootstrap

NAME = "genai-bench"
HUB_ID = "TIGER-Lab/GenAI-Bench"
SPLIT = "test_v1"
PUBLISHED_COMPARISONS = 919
LABELS = {"leftvote": 1, "rightvote": -1, "tievote": 0, "bothbad_vote": 0}


def load(path: str | Path) -> list[Comparison]:
    """Comparisons of a local copy, in the order of its files."""
    rows = parquet_rows(
        parquet_files(path, f"image_edition/{SPLIT}-*.parquet", HUB_ID),
        columns=("instruct_prompt", "vote_type"),
        images=("source_image", "left_output_image", "right_output_image"),
    )
    items = []
    for row in rows:
        vote, instruction = row.text("vote_type"), row.text("instruct_prompt")
        if vote not in LABELS:
            raise row.fault("vote_type", f"{vote!r} is none of {', '.join(LABELS)}")
        first, second = (BenchmarkEdit(row["source_image"], instruction, row[f"{side}_output_image"]) for side in ("left", "right"))
        items.append(
            Comparison(f"{row.file.name}[{row.number}]", first, second, LABELS[vote], source=row["source_image"].content, kind=vote)
        )
    return items


def evaluate(items: Sequence[Comparison], scores: Scores, *, bootstrap: Bootstrap = DEFAULT) -> BenchmarkResult:
    """Model and trivial baselines."""
    return pairs.evaluate(NAME, items, scores, bootstrap=bootstrap, notes=size_note(len(items), PUBLISHED_COMPARISONS, "votes"))
