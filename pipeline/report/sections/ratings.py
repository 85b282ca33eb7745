"""What the raters said, how far they agree, and what pairs came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.report import words
from pipeline.report.blocks import Block, Columns, Figure, Section, Table
from pipeline.report.charts.columns import columns
from pipeline.report.charts.intervals import intervals
from pipeline.report.estimates import Estimate
from pipeline.report.published import Published
from pipeline.report.steps import missing

PAPER_TIES = {"instruction_following": 0.3828, "visual_quality": 0.3283, "overall": 0.2068}
"""Shares of tied pairs in EditReward-Data (paper, section 2.2)."""
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
    blocks: list[Block] = [*missing(published, "annotate"), *_agreement(published.results("annotate").get("agreement", {}))]
    ratings = published.table("annotate", "ratings", ["dimension", "score", "annotator"])
    if ratings is not None:
        blocks += [Columns([_distribution(ratings), _severity(ratings)])]
    blocks += missing(published, "preferences")
    statistics = published.json("preferences", "statistics.json")
    blocks += _pairs(statistics) + _league(statistics)
    return Section("ratings", "Ratings", "Intervals are 95 %, resampled by group.", blocks)


def _agreement(agreement: Mapping[str, Any]) -> list[Block]:
    if not agreement:
        return []
    dimensions = list(agreement)
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
    """Mean score of each rater less that of all, per dimension; raters are compared on different groups, so small gaps mean little."""
    annotator, dimension = np.array(ratings["annotator"].to_pylist()), np.array(ratings["dimension"].to_pylist())
    score = ratings["score"].to_numpy()
    names = sorted(set(dimension))
    rows = []
    for rater in sorted(set(annotator)):
        own = annotator == rater
        gaps = [
            words.difference(float(score[own & (dimension == name)].mean() - score[dimension == name].mean()))
            if (own & (dimension == name)).any()
            else "–"
            for name in names
        ]
        rows.append((rater, words.count(int(own.sum())), *gaps))
    caption = "Severity: a rater's mean score less that of all raters. They rated different groups, so small gaps mean little."
    return Table(("Rater", "Ratings", *map(words.name, names)), rows, caption=caption)


def _pairs(statistics: Mapping[str, Any]) -> list[Block]:
    ties = statistics.get("tie_shares", {})
    rows = []
    for name, value in ties.items():
        estimate = Estimate.read(value)
        if estimate:
            paper = PAPER_TIES.get(name)
            rows.append((words.name(name), words.share(estimate.value), words.share(paper) if paper else "–"))
    if not rows:
        return []
    return [Table(("Tied pairs", "This run", "EditReward-Data (paper)"), rows, caption="Share of candidate pairs with equal scores.")]


def _league(statistics: Mapping[str, Any]) -> list[Block]:
    rates = statistics.get("win_rates", statistics.get("editors", {}))
    rows = [(name, estimate) for name, value in rates.items() if (estimate := Estimate.read(value))]
    if not rows:
        return []
    rows.sort(key=lambda row: -row[1].value)
    title = "Editor league"
    drawn = intervals(rows, title=title, x_label="share of pairs won", reference=("even", 0.5))
    return [Figure(title, drawn, "How often the raters prefer an editor's candidate to another editor's; ties count half.")]
