"""Mean opinion scores on 0..100, for raters who use the scale differently (EditHF, section on data, equation 1).

A score becomes z = (score - the rater's mean) / (the rater's standard deviation) over the rater's scores in that dimension, and
100 (z + 3) / 6; the mean over the raters of a candidate is its mean opinion score. In: ratings without outlying raters (quality control
removes them). Out: one label per candidate and dimension; raters who gave only one score are quarantined, because z is not defined.

Use it for a fine scale with many raters and candidates assigned at random: otherwise the candidates of a rater who got better ones
receive too low scores. On the 4-point scale with one rater per group use the mean.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.annotate.agreement.alpha import panels
from stages.annotate.consensus.consensus import Consensus, Label
from stages.annotate.ratings.groups import MEAN_DIGITS
from stages.annotate.ratings.rating_task import ADJUDICATION
from stages.engine.contracts import Quarantined

FEW = 100
"""With fewer ratings in a dimension, a rater's mean and deviation are inaccurate."""


def mean_opinion(ratings: pa.Table) -> tuple[Consensus, list[str]]:
    """Labels, and a warning for raters with few ratings."""
    ratings = ratings.filter(pc.not_equal(ratings["round"], ADJUDICATION))
    annotators = sorted(set(ratings["annotator"].to_pylist()))
    dimension = ratings["dimension"].to_numpy(zero_copy_only=False)
    labels: list[Label] = []
    left_out: list[Quarantined] = []
    few = set()
    for name, panel in panels(ratings).items():
        rows = ratings.filter(pa.array(dimension == name))
        z = np.full(len(panel.value), np.nan)
        for code in np.unique(panel.rater):
            own = panel.rater == code
            spread = panel.value[own].std(ddof=1) if own.sum() > 1 else 0.0
            if spread > 0:
                z[own] = (panel.value[own] - panel.value[own].mean()) / spread
            else:
                message = f"{annotators[code]} gave only one score in {name}, so that it gives no information about any candidate"
                left_out.append(Quarantined(annotators[code], f"annotator {annotators[code]}", "no-variation", message))
            if own.sum() < FEW:
                few.add(annotators[code])
        labels += _labels(name, rows, z)
    labels.sort(key=lambda label: (label.source_id, label.candidate_id, label.dimension))
    warnings = [f"{len(few)} raters gave fewer than {FEW} scores in a dimension, e.g. {min(few)}: inaccurate z-scores"] if few else []
    return Consensus(labels, [], left_out), warnings


def _labels(dimension: str, rows: pa.Table, z: np.ndarray) -> list[Label]:
    known = ~np.isnan(z)
    candidates, candidate = np.unique(rows["candidate_id"].to_numpy(zero_copy_only=False)[known], return_inverse=True)
    group_of = dict(zip(*(rows[name].to_pylist() for name in ("candidate_id", "source_id")), strict=True))
    count = np.bincount(candidate)
    means = np.round(np.bincount(candidate, 100 * (z[known] + 3) / 6) / count, MEAN_DIGITS)
    return [
        Label(group_of[name], name, dimension, float(means[i]), int(count[i]), "mean-opinion") for i, name in enumerate(candidates.tolist())
    ]
