"""GenAI-Bench, image editing: votes of visitors of an arena on pairs of edits (Jiang et al. 2024, arXiv 2406.04485).

Hub: data set TIGER-Lab/GenAI-Bench, not gated (the authors' repository is MIT; see its card for the data), configuration image_edition,
split test_v1: image_edition/test_v1-*.parquet with source_prompt, target_prompt, instruct_prompt, source_image, left_output_image,
right_output_image, left_model, right_model, vote_type. 919 votes: leftvote 240, rightvote 263, tievote 24, bothbad_vote 392. The editors
are those of 2022 and 2023.

Published convention of reward models: both kinds of ties are one label, accuracy with the oracle threshold. A scorer that gives
everything the same score reaches 416/919 = 0.4527 that way. Judges of pairs are scored otherwise (``vote_accuracy``): they answer with
one of four labels and must hit it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from reward.benchmarks import pairs
from reward.benchmarks.figures import DEFAULT, Bootstrap
from reward.benchmarks.items import Comparison, Edit, Scores
from reward.benchmarks.result import BenchmarkResult, size_note
from reward.benchmarks.tables import parquet_files, parquet_rows

NAME = "genai-bench"
HUB_ID = "TIGER-Lab/GenAI-Bench"
SPLIT = "test_v1"
PUBLISHED_COMPARISONS = 919
LABELS = {"leftvote": 1, "rightvote": -1, "tievote": 0, "bothbad_vote": 0}
ANSWERS = {
    "leftvote": ("[[A>B]]", "[[A>>B]]"),
    "rightvote": ("[[B>A]]", "[[B>>A]]"),
    "tievote": ("[[A=B=Good]]", "[[A=B]]"),
    "bothbad_vote": ("[[A=B=Bad]]", "[[A=B]]"),
}
"""Answers of a judge of pairs that count as right for each vote."""

_ANSWER = re.compile(r"\[\[.*\]\]")


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
        first, second = (Edit(row["source_image"], instruction, row[f"{side}_output_image"]) for side in ("left", "right"))
        items.append(
            Comparison(f"{row.file.name}[{row.number}]", first, second, LABELS[vote], source=row["source_image"].content, kind=vote)
        )
    return items


def evaluate(items: Sequence[Comparison], scores: Scores, *, bootstrap: Bootstrap = DEFAULT) -> BenchmarkResult:
    """Model and floors side by side."""
    return pairs.evaluate(NAME, items, scores, bootstrap=bootstrap, notes=size_note(len(items), PUBLISHED_COMPARISONS, "votes"))


def vote_accuracy(votes: Sequence[str], answers: Sequence[str | None]) -> float:
    """Share of votes that a judge of pairs hits with one of four labels; no answer, or one without [[...]], is wrong.

    The answer is what stands between the first [[ and the last ]]. Raises ``ValueError`` for a vote that is none.
    """
    unknown = set(votes) - ANSWERS.keys()
    if unknown:
        raise ValueError(f"vote {sorted(unknown)[0]!r} is none of {', '.join(ANSWERS)}")
    found = [_ANSWER.search(answer or "") for answer in answers]
    return sum(answer is not None and answer[0] in ANSWERS[vote] for vote, answer in zip(votes, found, strict=True)) / len(votes)
