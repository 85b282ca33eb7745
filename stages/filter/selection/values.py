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


def value_of(scored: ScoredRows, config: SelectionConfig) -> str:
    """The value that the selection orders by.

    Raises ``ValueError`` when it needs Likert scores and the reward model gave none.
    """
    if config.rule == "random":
        return drawn(scored.tables, "selection", config.seed)
    if config.rule == "closest-to-source":
        return "change_from_source"
    if config.value == "overall":
        return "overall_mean"
    if config.value == "lower-bound":
        return f"overall_mean - {config.sigmas!r}::DOUBLE * overall_sigma"
    percentile = config.scale == "percentile" and config.value != "likert"
    return COMBINED[config.value](_percentiles(scored) if percentile else _likert(scored, config))


def _likert(scored: ScoredRows, config: SelectionConfig) -> list[str]:
    found = [f"dimensions[{place}].likert" for place, _ in enumerate(scored.dimensions(), 1)]
    given = " + ".join(found) or "NULL"  # null where one is
    if scored.tables.number(f"SELECT count(*) FROM scored WHERE ({given}) IS NULL"):
        instead = "" if config.value == "likert" else " or scale percentile"
        raise ValueError(
            f"selection {config.name}: value {config.value} needs Likert scores, and the reward model has no map to the raters' scale; "
            f"train it with `pipeline run train-reward`, which calibrates it, or choose value overall{instead}"
        )
    return found


def _percentiles(scored: ScoredRows) -> list[str]:
    """Scores are rounded, so that few values are different: these are counted and put in order, not the edits."""
    found = []
    for place, _ in enumerate(scored.dimensions(), 1):
        mean = f"dimensions[{place}].mean"
        share = f"sum(count(*)) OVER (ORDER BY {mean})::DOUBLE / {scored.count}"
        scored.tables.execute(
            f"CREATE OR REPLACE TABLE share_{place} AS SELECT {mean} AS mean, {share} AS share FROM scored GROUP BY {mean}"
        )
        found.append(f"(SELECT share FROM share_{place} WHERE mean = {mean})")
    return found
