"""The ratings: scores given, inter-rater agreement, severity of raters; and the preference pairs made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline import words
from pipeline.report.bar_charts import columns
from pipeline.report.blocks import Block, Columns, Figure, Fold, Paragraph, Section, Table
from pipeline.report.published import Published
from pipeline.report.sections import contamination, pair_statistics
from stages.annotate.agreement.alpha import OVERALL
from stages.annotate.ratings.ledger import scores_only
from stages.annotate.ratings.shown_levels import nearest, note, shown_levels
from stages.engine.steps import ANNOTATION_QC
from stages.preferences.statistics import severity

STEPS = ("annotate", "preferences")
FEW_RATERS = 10
STATISTICS = {
    "alpha_ordinal": "Krippendorff's α, ordinal",
    "alpha_ordinal_new_raters": "the same, for new raters",
    "alpha_interval": "Krippendorff's α, interval",
    "alpha_nominal": "Krippendorff's α, nominal",
    "quadratic_weighted_kappa": "Cohen's κ, quadratic weights",
    "ac2_ordinal": "Gwet's AC2, ordinal weights",
    "ac2_quadratic": "Gwet's AC2, quadratic weights",
    "ac1": "Gwet's AC1",
    "icc_1_1": "ICC(1,1)",
    "icc_1_k": "ICC(1,k)",
    "icc_2_1": "ICC(2,1)",
    "icc_2_k": "ICC(2,k)",
    "icc_3_1": "ICC(3,1)",
    "icc_3_k": "ICC(3,k)",
    "exact": "same score",
    "within_one_level": "at most one level apart",
    "direction": "same order of a pair, both strict",
    "rater_predicts_rater": "one rater's order predicts another's",
}


def section(published: Published) -> Section:
    """Agreement, distributions, severity, ties, win rates of the editors."""
    blocks: list[Block] = _decision(published)
    ratings = published.ratings()
    if ratings is not None:
        ratings = scores_only(ratings)
        given, strictness = _distribution(ratings), _severity(ratings)
        few = len(strictness.rows) <= FEW_RATERS
        blocks += [Columns([given, strictness])] if few else [given, Fold(f"Severity of the {len(strictness.rows)} raters", [strictness])]
    annotated = published.results("annotate")
    agreement = _agreement(annotated.get("agreement", {})) + _by_task(annotated.get("agreement_by_task", {}))
    blocks += [Fold("Inter-rater agreement", agreement)] if agreement else []
    blocks += pair_statistics.blocks(published.json("preferences", "statistics.json"))
    compared = contamination.blocks(published, "preferences", "training sources", "their groups have no pairs")
    blocks += [Fold("Contamination", compared)] if compared else []
    return Section(
        "ratings",
        "Ratings",
        "Scores given, inter-rater agreement, and the preference pairs made of them. Intervals are 95 %, resampled by group.",
        blocks,
    )


def _decision(published: Published) -> list[Block]:
    """What rating quality control decided, where it was run."""
    index = published.index(ANNOTATION_QC)
    if not published.done(ANNOTATION_QC):
        return []
    removed = ", ".join(index.results["removed"])
    text = (
        f"Quality control accepted {words.count(index.counts['out'])} of {words.count(index.counts['in'])} ratings"
        f"{f' (annotators removed: {removed})' if removed else ''}. Its targets are {'met' if index.results['met'] else 'not met'}. "
        f"See {ANNOTATION_QC}/quality.html in the run directory. "
        "Agreement, scores given and severity below are of all ratings. Preference pairs, and everything made from them, use the accepted "
        "ratings only."
    )
    return [Paragraph(text)]


def _agreement(agreement: Mapping[str, Any]) -> list[Block]:
    if not agreement:
        return []
    counted = [
        f"{words.name(name)}: {words.count(entry['items_rated_twice'])} candidates in {words.count(entry['groups_rated_twice'])} groups"
        for name, entry in agreement.items()
        if "items_rated_twice" in entry and "groups_rated_twice" in entry
    ]
    caption = f"Inter-rater agreement. Rated more than once: {'; '.join(counted)}." if counted else "Inter-rater agreement."
    return [statistics_table(agreement, words.precise, caption)]


def statistics_table(agreement: Mapping[str, Any], form: Callable[[float], str], caption: str) -> Table:
    """A row per statistic that a dimension has, a column per dimension."""
    dimensions = words.ordered(agreement)
    rows = [
        (label, *(words.cell(agreement[dimension].get(key), form) for dimension in dimensions))
        for key, label in STATISTICS.items()
        if any(key in agreement[dimension] for dimension in dimensions)
    ]
    return Table(("", *map(words.name, dimensions)), rows, caption=caption)


def _distribution(ratings: pa.Table) -> Figure:
    dimension, score = np.array(ratings["dimension"].to_pylist()), ratings["score"].to_numpy()
    given = np.unique(score).tolist()
    levels = shown_levels(given)
    place = nearest(score, levels)
    names = sorted(set(dimension))
    shares = {words.name(name): [float((place[dimension == name] == at).mean()) for at in range(len(levels))] for name in names}
    title = "Scores given"
    drawn = columns([f"{level:g}" for level in levels], shares, title=title, x_label="score", y_label="share of the ratings")
    raters = len(set(ratings["annotator"].to_pylist()))
    return Figure(title, drawn, f"{words.count(len(score))} ratings by {words.count(raters)} raters. {note(given)}")


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
    rows = [
        (words.name(task), *(words.cell(entry.get(name, {}).get(key), words.precise) for name in dimensions))
        for task, entry in agreement.items()
    ]
    if not rows:
        return []
    return [Fold(f"Agreement by task ({STATISTICS[key]})", [Table(("Task", *map(words.name, dimensions)), rows)])]
