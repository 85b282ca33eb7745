"""What a selection orders by: one number per scored edit, as an expression in SQL on the columns of the scores.

Raw means have neither a zero nor a unit, and the heads of two dimensions need not have the same ones. Their mean keeps its order when a
dimension is shifted; a product does not, and a minimum compares numbers on two scales. So product and minimum are taken on a common scale:
the calibrated Likert score (positive, the raters' own), or the percentile (share of the scored edits that are not better in this
dimension), which needs no calibration but is relative to the scored edits. Means that are only shifted to be positive are not offered:
their zero is the worst edit of the set, so one outlier would change the order of all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.order import drawn
from stages.filter.selection.scored_rows import ScoredRows

COMBINED: dict[str, Callable[[Sequence[str]], str]] = {
    "likert": lambda of: f"({' + '.join(of)}) / {len(of)}",
    "product": " * ".join,
    "minimum": lambda of: f"least({', '.join(of)})",
}
"""Values of all dimensions on a common scale, of an expression per dimension."""


def ascends(config: SelectionConfig) -> bool:
    """Whether small values come first."""
    return config.rule in ("random", "closest-to-source", "bottom")


def value_of(scored: ScoredRows, config: SelectionConfig) -> tuple[str, str]:
    """The value that the selection orders by, and the rows that it is an expression on.

    Raises ``ValueError`` when it needs Likert scores and the reward model gave none.
    """
    if config.rule == "random":
        return drawn(scored.tables, "selection", config.seed), "scored"
    if config.rule == "closest-to-source":
        return "change_from_source", "scored"
    if config.value == "overall":
        return "overall_mean", "scored"
    if config.value == "lower-bound":
        return f"overall_mean - {config.sigmas!r}::DOUBLE * overall_sigma", "scored"
    combined, places = COMBINED[config.value], range(1, len(scored.dimensions()) + 1)
    if config.scale == "percentile" and config.value != "likert":
        return combined([f"share_{place}" for place in places]), _with_percentiles(scored, places)
    likert = [f"dimensions[{place}].likert" for place in places]
    if not places or scored.tables.number(f"SELECT count(*) FROM scored WHERE ({' + '.join(likert)}) IS NULL"):
        instead = "" if config.value == "likert" else " or scale percentile"
        raise ValueError(
            f"selection {config.name}: value {config.value} needs Likert scores, and the reward model has no map to the raters' scale; "
            f"train it with `pipeline run train-reward`, which calibrates it, or choose value overall{instead}"
        )
    return combined(likert), "scored"


def _with_percentiles(scored: ScoredRows, places: Sequence[int]) -> str:
    """The rows with ``share_1`` and so on. Scores are rounded, so that few are different: these are counted and put in order."""
    means = {place: f"dimensions[{place}].mean" for place in places}
    columns = ", ".join(f"{mean} AS mean_{place}" for place, mean in means.items())
    scored.tables.execute(f"CREATE OR REPLACE TABLE means AS SELECT {columns} FROM scored")
    for place in places:
        share = f"sum(count(*)) OVER (ORDER BY mean_{place})::DOUBLE / {scored.count} AS share_{place}"
        scored.tables.execute(f"CREATE OR REPLACE TABLE of_{place} AS SELECT mean_{place}, {share} FROM means GROUP BY mean_{place}")
    return " ".join(["scored", *(f"JOIN of_{place} ON mean_{place} = {mean}" for place, mean in means.items())])
