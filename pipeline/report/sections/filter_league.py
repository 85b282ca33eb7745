"""Mean score and share kept per editor, data set, task and language, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from pipeline import words
from pipeline.report.blocks import Block, Heading, Paragraph, Table
from pipeline.report.scored_edits import Groups, ScoredEdits
from reward.evaluation.estimate import Estimate
from stages.filter.selection.difference import Z

MOST_ROWS = 30


def league(edits: ScoredEdits, selections: Mapping[str, pa.Table]) -> list[Block]:
    """One table per stratum with several values: editors first."""
    masks = {name: mask for name, table in selections.items() if not (mask := edits.kept(table)).all()}
    tables = [_table(edits, what, edits.strata[what], masks) for what in ("editor", "dataset", "task", "language") if what in edits.strata]
    if not tables:
        return []
    clusters = len(np.unique(edits.source))
    sources = (
        f"clustered by source image ({words.count(clusters)} of them)" if clusters < len(edits.source) else "edits taken as independent"
    )
    text = f"Normal 95 % intervals of the mean, {sources}. They cover the sampling of edits, not a bias of the reward model."
    return [Heading("Mean scores by group"), Paragraph(text), *tables]


def clustered_mean(values: np.ndarray, clusters: np.ndarray) -> Estimate:
    """Mean of values [n] with a normal 95 % interval from cluster sums (``clusters`` int [n]); without one for a single cluster.

    Variance: k / (k - 1) times the sum over the k clusters of (sum of deviations)^2 / n^2, the sandwich estimator of a mean.
    """
    mean = float(values.mean())
    _, codes = np.unique(clusters, return_inverse=True)
    sums = np.bincount(codes, weights=values - mean)  # [k]: edits of one source are correlated, so clusters are the independent units
    if len(sums) < 2:
        return Estimate(mean)
    half = Z * math.sqrt(len(sums) / (len(sums) - 1) * float((sums**2).sum())) / len(values)
    return Estimate(mean, mean - half, mean + half, len(values))


def _table(edits: ScoredEdits, what: str, stratum: Groups, masks: Mapping[str, np.ndarray]) -> Table:
    rows = []
    for code in stratum.largest(MOST_ROWS):
        mask = stratum.codes == code
        estimate = clustered_mean(edits.overall[mask], edits.source[mask])
        likert = [words.score(float(values[mask].mean())) for values in edits.likert.values()]
        kept = [words.share(float(chosen[mask].mean())) for chosen in masks.values()]
        name = stratum.names[code] or "(empty)"
        rows.append((estimate.value, (name, words.count(int(mask.sum())), estimate.words(words.score), *likert, *kept)))
    ordered = [row for _, row in sorted(rows, key=lambda entry: (-entry[0], entry[1][0]))]
    columns = (
        what.capitalize(),
        "Edits",
        "Mean score [95 %]",
        *(f"Predicted {words.name(name)}" for name in edits.likert),
        *(f"kept by “{name}”" for name in masks),
    )
    more = f" The {MOST_ROWS} largest of {words.count(len(stratum.names))}." if len(stratum.names) > MOST_ROWS else ""
    return Table(columns, ordered, f"By {what}, highest mean first.{more}")
