"""The filter in detail: good edits by selection, distributions of the scores, group means, gates, cost."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pipeline.report import scored_edits
from pipeline.report.bar_charts import intervals
from pipeline.report.blocks import Block, Callout, Figure, Fold, Section
from pipeline.report.precision import wilson
from pipeline.report.published import Published
from pipeline.report.sections import contamination, filter_cost, filter_league, filter_scores
from pipeline.report.sections import gates as gates_section
from reward.evaluation.estimate import Estimate
from stages.engine import storage
from stages.engine.ids import settings_hash

STEPS = ("filter",)
STEP = "filter"
EVERYTHING = "everything scored"


def section(published: Published) -> Section:
    """Good shares, distributions, group means; gates, contamination and cost folded."""
    blocks: list[Block] = []
    edits = scored_edits.read(published)
    if edits is not None:
        selections = selected_tables(published)
        blocks += [Callout(note(published), "")] if note(published) else []
        blocks += _good(published)
        blocks += filter_scores.distributions(edits, selections)
        more = [*filter_scores.strata(edits), *filter_scores.simple_measures(edits), *filter_league.league(edits, selections)]
        blocks += [Fold("Scores by group, and beside simple measures", more)] if more else []
    gates = gates_section.blocks(published)
    blocks += [Fold("Gates before scoring", gates)] if gates else []
    compared = contamination.blocks(published, "filter", "edits", "they count as gated")
    blocks += [Fold("Contamination", compared)] if compared else []
    cost = filter_cost.cost(published)
    blocks += [Fold("Cost", cost)] if cost else []
    return Section("filter", "Filter", "Every edit is scored once. A selection is a rule that reads scores only.", blocks)


def note(published: Published) -> str:
    """The remark on these scores in the configuration."""
    return published.settings(STEP).get("filter", {}).get("note", "")


def good_shares(published: Published) -> dict[str, Estimate]:
    """Share of edits good in every dimension, of everything scored and by selection; empty without ground-truth quality."""
    edits = scored_edits.read(published)
    if edits is None or edits.good is None:
        return {}
    shares = {EVERYTHING: _share(edits.good, edits.source)}
    for name, table in selected_tables(published).items():
        kept = edits.kept(table)
        if kept.any() and not kept.all():
            shares[name] = _share(edits.good[kept], edits.source[kept])
    return shares


def _share(good: np.ndarray, source: np.ndarray) -> Estimate:
    """Of bool [n], with the interval that precision at k has."""
    return wilson(float(good.mean()), len(np.unique(source)))


def selected_tables(published: Published) -> dict[str, pa.Table]:
    """The configured selections in the configuration's order, then those made later from the same scores."""
    folder = published.path / STEP / "selections"
    scores = settings_hash([part.sha256 for part in published.index(STEP).artifacts.get("scores", [])])
    described = {path.stem: storage.read_json(path)["scores"] for path in sorted(folder.glob("*.json"))}
    names = [entry["name"] for entry in published.settings(STEP).get("filter", {}).get("selections", [])]
    names += [name for name, of in described.items() if of == scores and name not in names]
    return {name: storage.read_table(folder / f"{name}.parquet") for name in names}


def _good(published: Published) -> list[Block]:
    shares = good_shares(published)
    if not shares:
        return []
    rows = [("unfiltered" if name == EVERYTHING else published.label(name), share) for name, share in shares.items()]
    title = "Good edits in each selection"
    caption = "Share of edits that are good in every dimension by ground-truth quality, which the filter does not read. 95 % intervals."
    drawn = intervals(rows, title=title, x_label="share of good edits", emphasised=[rows[1][0]] if len(rows) > 1 else ())
    return [Figure(title, drawn, caption)]
