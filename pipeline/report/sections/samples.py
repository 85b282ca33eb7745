"""Sample sheets: a source, its instruction, and all candidates with their ratings and reward scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from pipeline import words
from pipeline.report.blocks import Block, Picture, Section, Strip, opened
from pipeline.report.pictures import picture
from pipeline.report.published import Published

STEPS = ("generate",)
SHEETS = 8
SHOWN_OPEN = 3

Ratings = Mapping[str, Mapping[str, Sequence[float]]]


def section(published: Published) -> Section:
    """The first sheet of each task; the groups are the first by id, not chosen by their scores."""
    blocks: list[Block] = []
    chosen = _chosen(published)
    if chosen:
        blocks += opened(_sheets(published, chosen), SHOWN_OPEN)
    lead = (
        "One group per task, the first by id: source and instruction, then every candidate with its editor. "
        "Rated candidates come first, best first, with the mean of their human ratings (IF: instruction following, VQ: visual quality). "
        "“score” is the reward model's overall score, which has no unit, given for held-out groups."
    )
    return Section("samples", "Samples", lead, blocks)


def _chosen(published: Published) -> list[dict[str, Any]]:
    """One source per task; held-out ones where there are any, because those have reward scores."""
    table = published.table("generate", "sources", ["source_id", "split", "task", "instruction"])
    if table is None:
        return []
    rows = sorted(table.to_pylist(), key=lambda row: (row["split"] != "validation", row["source_id"]))
    first: dict[str, dict[str, Any]] = {}
    for row in rows:
        first.setdefault(row["task"], row)
    chosen = [first[task] for task in sorted(first)]
    chosen += [row for row in rows if row not in chosen][: max(SHOWN_OPEN - len(chosen), 0)]
    return chosen[:SHEETS]


def _sheets(published: Published, chosen: list[dict[str, Any]]) -> list[Strip]:
    ids = [row["source_id"] for row in chosen]
    images = published.table("generate", "sources", ["source_id", "image"], where=("source_id", ids))
    columns = ["candidate_id", "source_id", "editor", "seed", "image", "status", "error"]
    table = published.table("generate", "candidates", columns, where=("source_id", ids))
    drawn_rows = published.table("generate", "drawn", ["candidate_id"], where=("source_id", ids))
    drawn = set(drawn_rows["candidate_id"].to_pylist()) if drawn_rows else set()
    candidates = [row | {"drawn": row["candidate_id"] in drawn} for row in table.to_pylist()] if table else []
    names = [row["candidate_id"] for row in candidates]
    ratings = _ratings(published, names)
    scores = _scores(published, names)
    sources = {row["source_id"]: row["image"]["bytes"] for row in images.to_pylist()} if images else {}
    return [
        _sheet(row, sources.get(row["source_id"]), [c for c in candidates if c["source_id"] == row["source_id"]], ratings, scores)
        for row in chosen
    ]


def _ratings(published: Published, candidates: list[str]) -> Ratings:
    table = published.ratings(where=("candidate_id", candidates))
    scores: dict[str, dict[str, list[float]]] = {}
    for row in table.to_pylist() if table else []:
        scores.setdefault(row["candidate_id"], {}).setdefault(row["dimension"], []).append(row["score"])
    return scores


def _scores(published: Published, candidates: list[str]) -> dict[str, float]:
    table = published.table("evaluate-reward", "scores", ["sample_id", "overall_mean"], where=("sample_id", candidates))
    return dict(zip(table["sample_id"].to_pylist(), table["overall_mean"].to_pylist(), strict=True)) if table else {}


def _sheet(
    source: dict[str, Any], image: bytes | None, candidates: list[dict[str, Any]], ratings: Ratings, scores: Mapping[str, float]
) -> Strip:
    def order(row: dict[str, Any]) -> tuple[bool, bool, float, str, int]:
        rated = ratings.get(row["candidate_id"])
        mean = fmean(fmean(values) for values in rated.values()) if rated else 0.0
        return not rated, not row["drawn"], -mean, row["editor"], row["seed"]

    instruction = source["instruction"]
    lead = picture(image, alt=f"source: {instruction}", lines=("source",))
    pictures = [
        _candidate(row, instruction, ratings.get(row["candidate_id"], {}), scores.get(row["candidate_id"]))
        for row in sorted(candidates, key=order)
    ]
    kind = f"{words.name(source['task'])}, " if source["task"] else ""
    held_out = "held out" if source["split"] == "validation" else "training"
    return Strip(instruction, pictures, f"{kind}{held_out} group {source['source_id'][:8]}", lead)


def _candidate(row: dict[str, Any], instruction: str, rated: Mapping[str, Sequence[float]], score: float | None) -> Picture:
    lines = [f"{row['editor'].rpartition('/')[2]} #{row['seed']}"]
    if row["status"] != "ok":
        return picture(None, alt=f"failed edit by {row['editor']}: {instruction}", lines=[*lines, f"failed: {row['error']}"])
    if rated:
        lines.append("rated " + " · ".join(f"{words.abbreviation(name)} {fmean(values):.3g}" for name, values in sorted(rated.items())))
    if score is not None:
        lines.append(f"score {words.score(score)}")
    if row["drawn"] and not rated:
        lines.append("to be rated")
    return picture((row["image"] or {}).get("bytes"), alt=f"edit by {row['editor']}, seed {row['seed']}: {instruction}", lines=lines)
