"""The filter: what came in, what was set aside and why, how scores are distributed, and the edits at the ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.report import words
from pipeline.report.blocks import Block, Callout, Columns, Figure, Fold, Gallery, Heading, Paragraph, Section, Strip
from pipeline.report.charts.bars import Bar, bars
from pipeline.report.charts.histogram import histogram
from pipeline.report.charts.scatter import scatter
from pipeline.report.edited_images import EditedImages, edited_images
from pipeline.report.estimates import Estimate
from pipeline.report.pictures import picture
from pipeline.report.published import Published
from pipeline.report.sections import contamination, gates
from pipeline.report.steps import missing
from stages import storage
from stages.ids import settings_hash

STEP = "filter"
EVERYTHING = "everything scored"
GALLERY = 12
SHOWN_OPEN = 6
DRAWN_SELECTIONS = 2
"""More lines than that over one histogram cannot be told apart."""


def section(published: Published) -> Section:
    """Note, funnel, distributions, galleries."""
    blocks: list[Block] = [*missing(published, STEP), *_note(published)]
    selections = _selections(published)
    index = published.index(STEP)
    if index:
        funnel = _funnel(index.counts, index.quarantined, published.rows(STEP, "scores"), selections)
        blocks.append(Columns([*funnel, *_good(published)]))
    blocks += gates.blocks(published) + contamination.blocks(published)
    scores = published.table(STEP, "scores", ["sample_id", "dimensions", "overall_mean", "overall_sigma", "change_from_source", "task"])
    if scores is not None:
        blocks += _distributions(scores, selections)
        blocks += _galleries(published, scores)
    return Section("filter", "Filter", "Every edit is scored once; a selection is a rule that reads scores only.", blocks)


def note(published: Published) -> str:
    """The configuration's remark on these scores."""
    return published.settings(STEP).get("filter", {}).get("note", "")


def good_shares(published: Published) -> dict[str, float]:
    """Share of edits good in both dimensions, of everything scored and by selection; empty where the true levels are not known."""
    results = published.results(STEP)
    parts = {name: entry.get("good_share") for name, entry in results.get("selections", {}).items() if entry.get("rule") != "all"}
    named = {EVERYTHING: results.get("good_share")} | {name: parts[name] for name in selection_names(published) if name in parts}
    return {name: estimate.value for name, value in named.items() if (estimate := Estimate.read(value))}


def selection_names(published: Published) -> list[str]:
    """The configured selections in the configuration's order."""
    return [entry["name"] for entry in published.settings(STEP).get("filter", {}).get("selections", [])]


def _note(published: Published) -> list[Callout]:
    text = note(published)
    return [Callout("Read before the scores", text)] if text else []


def _selections(published: Published) -> dict[str, pa.Table]:
    """The configured selections, then those made later from the same scores."""
    folder = published.path / STEP / "selections"
    index = published.index(STEP)
    if index is None:
        return {}
    scores = settings_hash([part.sha256 for part in index.artifacts.get("scores", [])])
    described = {path.stem: storage.read_json(path)["scores"] for path in sorted(folder.glob("*.json"))}
    names = selection_names(published)
    names += [name for name, of in described.items() if of == scores and name not in names]
    return {name: pq.read_table(folder / f"{name}.parquet", partitioning=None) for name in names}


def _funnel(
    counts: Mapping[str, int], quarantined: Mapping[str, int], scored: int | None, selections: Mapping[str, pa.Table]
) -> list[Block]:
    rows = [Bar("edits in", counts["in"], series=4)] if "in" in counts else []
    rows += [Bar(f"quarantined: {reason}", count, series=1) for reason, count in quarantined.items()]
    if scored is not None:
        rows.append(Bar("scored", scored, series=4))
    for name, table in selections.items():
        part = f"({words.share(table.num_rows / scored)})" if scored else ""
        rule = table["rule"][0].as_py() if table.num_rows else ""
        rows.append(Bar(f"selection “{name}”, rule {rule}" if rule else f"selection “{name}”", table.num_rows, part))
    return [Figure("Funnel", bars(rows, title="Funnel"))] if rows else []


def _good(published: Published) -> list[Block]:
    shares = good_shares(published)
    if not shares:
        return []
    rows = [
        Bar(f"{name}" if name != EVERYTHING else "full, everything scored", share, series=4 if name == EVERYTHING else 0)
        for name, share in shares.items()
    ]
    title = "Good edits in each selection"
    caption = "Share of edits that are good in both dimensions by the true levels, which the filter never sees."
    return [Figure(title, bars(rows, title=title, form=words.share, full=1.0), caption)]


def _distributions(scores: pa.Table, selections: Mapping[str, pa.Table]) -> list[Block]:
    ids = np.array(scores["sample_id"].to_pylist())
    kept = {name: np.isin(ids, table["sample_id"].to_pylist()) for name, table in selections.items()}
    kept = {name: mask for name, mask in kept.items() if not mask.all()}
    ordered = sorted(kept, key=lambda name: (name != "selected", name))[:DRAWN_SELECTIONS]
    values = {"overall score": scores["overall_mean"].to_numpy()} | _dimension_means(scores)
    figures = []
    for name, column in values.items():
        samples = {f"scored ({words.count(len(column))})": column} | {selection: column[kept[selection]] for selection in ordered}
        figures.append(Figure(f"Distribution, {name}", histogram(samples, title=f"Distribution of {name}", x_label=name)))
    if ordered:
        chosen = kept[ordered[0]]
        points = np.stack([scores["overall_mean"].to_numpy(), scores["overall_sigma"].to_numpy()], axis=1)
        groups = {f"in “{ordered[0]}”": points[chosen], "not in it": points[~chosen]}
        figures.append(
            Figure(
                "Score and uncertainty", scatter(groups, title="Score and uncertainty", x_label="overall score", y_label="σ of the score")
            )
        )
    caption = [
        Paragraph("Scores have no unit and no zero: only differences mean something. Triangles and squares on the axis mark medians.")
    ]
    return [Heading("Scores"), *caption, Columns(figures)]


def _dimension_means(scores: pa.Table) -> dict[str, np.ndarray]:
    values: dict[str, list[float]] = {}
    for row in scores["dimensions"].to_pylist():
        for entry in row:
            values.setdefault(words.name(entry["dimension"]), []).append(entry["mean"])
    return {name: np.array(column) for name, column in values.items() if len(column) == scores.num_rows}


def _galleries(published: Published, scores: pa.Table) -> list[Block]:
    rows = scores.to_pylist()
    orders = {
        "Best": sorted(rows, key=lambda row: (-row["overall_mean"], row["sample_id"]))[:GALLERY],
        "Worst": sorted(rows, key=lambda row: (row["overall_mean"], row["sample_id"]))[:GALLERY],
        "Most uncertain": sorted(rows, key=lambda row: (-row["overall_sigma"], row["sample_id"]))[:GALLERY],
    }
    images = edited_images(published, {row["sample_id"] for chosen in orders.values() for row in chosen})
    remark = note(published)
    blocks: list[Block] = []
    for title, chosen in orders.items():
        strips = [_strip(row, images[row["sample_id"]]) for row in chosen if row["sample_id"] in images]
        blocks.append(Heading(f"{title} by score" if title != "Most uncertain" else "Most uncertain, largest σ"))
        if remark:
            blocks.append(Callout(remark, ""))
        if strips:
            blocks.append(Gallery(strips[:SHOWN_OPEN]))
        if strips[SHOWN_OPEN:]:
            blocks.append(Fold(f"{len(strips) - SHOWN_OPEN} more", [Gallery(strips[SHOWN_OPEN:])]))
        absent = len(chosen) - len(strips)
        if absent:
            blocks.append(
                Paragraph(f"The images of {absent} of these {len(chosen)} edits are not in this run: the filter step kept no copy.")
            )
    return blocks


def _strip(row: dict[str, Any], images: EditedImages) -> Strip:
    means = " · ".join(f"{words.abbreviation(entry['dimension'])} {words.score(entry['mean'])}" for entry in row["dimensions"])
    facts = f"score {words.score(row['overall_mean'])} ± {words.score(row['overall_sigma'])} · {means}"
    pictures = [
        picture(images.source, alt=f"source of: {images.instruction}", lines=("source",)),
        picture(images.edited, alt=f"edited: {images.instruction}", lines=("edited",)),
    ]
    return Strip(images.instruction, pictures, facts)
