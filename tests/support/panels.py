"""Tables of scores as panels and as ratings, and the published example that several statistics use."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from stages.annotate.agreement.alpha import Panel
from stages.engine.contracts import table

NONE = np.nan


KRIPPENDORFF_2011 = np.array(  # section C: four observers, twelve units, missing data
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, NONE, NONE, NONE],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NONE, 3],
        [NONE, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NONE],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NONE],
    ]
)


def panel_of(scores: np.ndarray, groups: list[int] | None = None) -> Panel:
    """Scores [rater, item] with NaN where not rated; every item is a group of its own unless said."""
    rater, item = np.nonzero(~np.isnan(scores))
    group = np.arange(scores.shape[1]) if groups is None else np.asarray(groups)
    return Panel(group[item], np.zeros_like(item), item, rater, scores[rater, item])


def rows_of(scores: dict[str, dict[str, dict[str, list[float]]]]) -> pa.Table:
    """A ratings table from group -> annotator -> dimension -> scores of its candidates."""
    return table(
        "ratings",
        [
            {
                "rating_id": f"{group}{annotator}{dimension}{place}",
                "source_id": group,
                "candidate_id": f"{group}{place}",
                "annotator": annotator,
                "dimension": dimension,
                "score": float(score),
                "scale_min": 1.0,
                "scale_max": 4.0,
                "round": "production",
                "submission": "",
                "rated_at": "",
                "seconds": None,
                "comment": "",
                "rubric_version": "v1",
            }
            for group, annotators in scores.items()
            for annotator, dimensions in annotators.items()
            for dimension, values in dimensions.items()
            for place, score in enumerate(values)
        ],
    )
