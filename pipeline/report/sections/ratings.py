"""What the raters said, how far they agree, and what pairs came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.report import words
from pipeline.report.blocks import Block, Columns, Figure, Fold, Paragraph, Section, Table
from pipeline.report.charts.columns import columns
from pipeline.report.charts.intervals import intervals
from pipeline.report.estimates import Estimate
from pipeline.report.published import Published
from pipeline.report.steps import missing
from stages import annotation_qc, contracts
from stages.ratings.agreement import OVERALL
from stages.ratings.ledger import scores_only
from stages.ratings.statistics import severity

FEW_RATERS = 10
STATISTICS = {
    "alpha_ordinal": "Krippendorff's α, ordinal",
    "alpha_interval": "Krippendorff's α, interval",
    "alpha_nominal": "Krippendorff's α, nominal",
    "quadratic_weighted_kappa": "Cohen's κ, quadratic weights",
    "exact": "same score",
    "within_one_level": "at most one level apart",
    "direction": "same order of a pair, both strict",
    "rater_predicts_rater": "one rater's order predicts another's",
}


def section(published: Published) -> Section:
    """Agreement, distributions, severity, ties, editor league."""
    blocks: list[Block] = [*missing(published, "annotate")]
    annotated = published.results("annotate")
    blocks += _agreement(annotated.get("agreement", {})) + _by_task(annotated.get("agreement_by_task", {}))
    blocks += _decision(published)
    ratings = published.table("annotate", "ratings", contracts.RATINGS.names)
    if ratings is not None:
        ratings = scores_only(ratings)
        given, strictness = _distribution(ratings), _severity(ratings)
        few = len(strictness.rows) <= FEW_RATERS
        blocks += [Columns([given, strictness])] if few else [given, Fold(f"Severity of the {len(strictness.rows)} raters", [strictness])]
    blocks += missing(published, "preferences")
    statistics = published.json("preferences", "statistics.json")
    league = [*_league(statistics), *_ties(statistics)]
    blocks += [Columns(league)] if league else []
    blocks += _pairs(statistics) + _means(statistics)
    return Section(
        "ratings",
        "Ratings",
        "What the raters said, how far they agree, and the pairs that came of it. Intervals are 95 %, resampled by group.",
        blocks,
    )


def _decision(published: Published) -> list[Block]:
    """What quality control decided, where it was run."""
    index = published.index(annotation_qc.STEP)
    if index is None:
        return []
    removed = ", ".join(index.results["removed"])
    text = (
        f"Quality control accepted {words.count(index.counts['out'])} of {words.count(index.counts['in'])} ratings"
        f"{f' (annotators removed: {removed})' if removed else ''}; its targets are {'met' if index.results['met'] else 'not met'}. "
        f"Its page is {annotation_qc.STEP}/quality.html in the run directory. What follows in this section shows all ratings."
    )
    return [Paragraph(text)]


def _agreement(agreement: Mapping[str, Any]) -> list[Block]:
    if not agreement:
        return []
    dimensions = words.ordered(agreement)
    rows = []
    for key, label in STATISTICS.items():
        if any(key in agreement[dimension] for dimension in dimensions):
            rows.append((label, *(_cell(agreement[dimension].get(key)) for dimension in dimensions)))
    counted = [
        f"{words.name(name)}: {words.count(entry['items_rated_twice'])} candidates in {words.count(entry['groups_rated_twice'])} groups"
        for name, entry in agreement.items()
        if "items_rated_twice" in entry and "groups_rated_twice" in entry
    ]
    caption = f"Agreement between raters. Rated more than once: {'; '.join(counted)}." if counted else "Agreement between raters."
    return [Table(("", *map(words.name, dimensions)), rows, caption=caption)]


def _cell(value: Any) -> str:
    """An estimate with its interval; where there is none, the producer's reason."""
    estimate = Estimate.read(value)
    if estimate:
        return estimate.words(lambda number: f"{number:.3f}".replace("-", "−"))
    return str(value.get("note") or "–") if isinstance(value, dict) else str(value or "–")


def _distribution(ratings: pa.Table) -> Figure:
    dimension, score = np.array(ratings["dimension"].to_pylist()), ratings["score"].to_numpy()
    levels = np.unique(score)
    names = sorted(set(dimension))
    shares = {words.name(name): [float((score[dimension == name] == level).mean()) for level in levels] for name in names}
    title = "Scores given"
    drawn = columns([f"{level:g}" for level in levels], shares, title=title, x_label="score", y_label="share of the ratings")
    raters = len(set(ratings["annotator"].to_pylist()))
    return Figure(title, drawn, f"{words.count(len(score))} ratings by {words.count(raters)} raters.")


def _severity(ratings: pa.Table) -> Table:
    """How much higher each rater scores than the others on the same candidates."""
    by_rater = severity(ratings)
    names = sorted({dimension for entry in by_rater.values() for dimension in entry} - {OVERALL})
    rows = []
    for rater, entry in by_rater.items():
        gaps = [entry.get(name, {}).get("difference") for name in names]
        compared = max((entry[name]["compared"] for name in names if name in entry), default=0)
        rows.append((rater, words.count(compared), *("–" if gap is None else words.difference(gap) for gap in gaps)))
    caption = "Severity: how much higher (+, lenient) or lower (−, strict) a rater scores than the others on the same candidates."
    return Table(("Rater", "Compared", *map(words.name, names)), rows, caption=caption)


def _by_task(agreement: Mapping[str, Any]) -> list[Block]:
    key = "alpha_ordinal"
    dimensions = sorted({name for entry in agreement.values() for name, values in entry.items() if key in values})
    rows = [(words.name(task), *(_cell(entry.get(name, {}).get(key)) for name in dimensions)) for task, entry in agreement.items()]
    if not rows:
        return []
    return [Fold(f"Agreement by task ({STATISTICS[key]})", [Table(("Task", *map(words.name, dimensions)), rows)])]


def _ties(statistics: Mapping[str, Any]) -> list[Block]:
    paper = statistics.get("paper_tie_shares", {})
    labels = {"opposed": "overall, while the dimensions disagree"}
    rows = [
        (labels.get(name, words.name(name)), words.share(estimate.value), words.share(paper[name]) if name in paper else "–")
        for name in words.ordered(statistics.get("tie_shares", {}))
        if (estimate := Estimate.read(statistics["tie_shares"][name]))
    ]
    caption = "Share of candidate pairs with equal scores, beside the paper's EditReward-Data."
    return [Table(("Tied in", "This run", "Paper"), rows, caption=caption)] if rows else []


def _league(statistics: Mapping[str, Any]) -> list[Block]:
    rates = statistics.get("win_rates", {})
    rows = [(name, estimate) for name, value in rates.items() if (estimate := Estimate.read(value.get(OVERALL)))]
    if not rows:
        return []
    rows.sort(key=lambda row: -row[1].value)
    title = "Editor league"
    drawn = intervals(rows, title=title, x_label="share of pairs won, overall", reference=("even", 0.5))
    return [Figure(title, drawn, "How often an editor's candidate is rated above another editor's; a tie counts half.")]


def _pairs(statistics: Mapping[str, Any]) -> list[Block]:
    pairs, groups = statistics.get("pairs", {}), statistics.get("groups", {})
    kinds = list(dict.fromkeys(kind for counts in pairs.values() for kind in counts))
    rows = [
        (split, words.count(groups[split]) if split in groups else "–", *(words.count(counts.get(kind, 0)) for kind in kinds))
        for split, counts in pairs.items()
    ]
    caption = (
        "Preference pairs by split and kind. A tie whose dimensions disagree becomes two pairs with opposite labels (tie-disentangled)."
    )
    return [Table(("Split", "Complete groups", *map(words.name, kinds)), rows, caption=caption)] if rows else []


def _means(statistics: Mapping[str, Any]) -> list[Block]:
    """Mean score and win rate by editor, mean score by task."""
    shares, rates = statistics.get("score_shares", {}), statistics.get("win_rates", {})
    tables = []
    for key, label in (("by_editor", "Editor"), ("by_task", "Task")):
        entries = shares.get(key, {})
        dimensions = sorted({name for entry in entries.values() for name in entry})
        rows = []
        for name, entry in entries.items():
            cells = [words.score(entry[d]["mean"]) if d in entry else "–" for d in dimensions]
            won = [_cell(rates.get(name, {}).get(d)) for d in dimensions] if key == "by_editor" else []
            rows.append((name, *cells, *won))
        if rows:
            won_columns = [f"{words.name(d)}, pairs won" for d in dimensions] if key == "by_editor" else []
            tables.append(Table((label, *(f"{words.name(d)}, mean" for d in dimensions), *won_columns), rows))
    return [Fold("Mean scores by editor and by task", tables)] if tables else []
