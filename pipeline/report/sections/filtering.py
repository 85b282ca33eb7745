"""The filter: how many edits each stage keeps, distributions of the scores, galleries, cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pipeline import words
from pipeline.report import scored_edits
from pipeline.report.blocks import Block, Callout, Columns, Figure, Section
from pipeline.report.charts import Bar, bars
from pipeline.report.published import Published
from pipeline.report.sections import contamination, filter_cost, filter_galleries, filter_league, filter_scores
from pipeline.report.sections import gates as gates_section
from reward.evaluation.estimate import Estimate
from reward.model.origin import OTHER_DOMAIN
from stages.engine import storage
from stages.engine.ids import settings_hash

STEPS = ("filter",)
STEP = "filter"
EVERYTHING = "everything scored"


def section(published: Published) -> Section:
    """Note, funnel, gates, contamination, distributions, group means, galleries, cost."""
    blocks: list[Block] = [*published.missing(STEP), *_note(published)]
    selections = _selections(published)
    index = published.index(STEP)
    if published.done(STEP):
        gates = index.results.get("gates", {})
        funnel = _funnel(index.counts, index.quarantined, gates, published.rows(STEP, "scores"), selections)
        blocks.append(Columns([*funnel, *_good(published)]))
    blocks += gates_section.blocks(published) + contamination.blocks(published, "filter", "edits", "they count as gated")
    edits = scored_edits.read(published)
    if edits is not None:
        blocks += filter_scores.distributions(edits, selections)
        blocks += filter_scores.strata(edits)
        blocks += filter_scores.simple_measures(edits)
        blocks += filter_league.league(edits, selections)
        blocks += filter_galleries.galleries(published, edits, selections, note(published))
    blocks += filter_cost.cost(published)
    return Section("filter", "Filter", "Every edit is scored once. A selection is a rule that reads scores only.", blocks)


def note(published: Published) -> str:
    """The remark on these scores in the configuration."""
    return published.settings(STEP).get("filter", {}).get("note", "")


def good_shares(published: Published) -> dict[str, float]:
    """Share of edits good in both dimensions, of everything scored and by selection; empty without ground-truth quality."""
    results = published.results(STEP)
    parts = {name: entry.get("good_share") for name, entry in results.get("selections", {}).items() if entry.get("rule") != "all"}
    named = {EVERYTHING: results.get("good_share")} | {name: parts[name] for name in selection_names(published) if name in parts}
    return {name: estimate.value for name, value in named.items() if (estimate := Estimate.read(value))}


def selection_names(published: Published) -> list[str]:
    """The configured selections in the configuration's order."""
    return [entry["name"] for entry in published.settings(STEP).get("filter", {}).get("selections", [])]


def _note(published: Published) -> list[Callout]:
    texts = [published.results(STEP).get(OTHER_DOMAIN, ""), note(published)]
    return [Callout("Read before the scores", text[0].upper() + text[1:]) for text in texts if text]


def _selections(published: Published) -> dict[str, pa.Table]:
    """The configured selections, then those made later from the same scores."""
    folder = published.path / STEP / "selections"
    scores = settings_hash([part.sha256 for part in published.index(STEP).artifacts.get("scores", [])])
    described = {path.stem: storage.read_json(path)["scores"] for path in sorted(folder.glob("*.json"))}
    names = selection_names(published)
    names += [name for name, of in described.items() if of == scores and name not in names]
    return {name: storage.read_table(folder / f"{name}.parquet") for name in names}


def _funnel(
    counts: Mapping[str, int],
    quarantined: Mapping[str, int],
    gates: Mapping[str, Any],
    scored: int | None,
    selections: Mapping[str, pa.Table],
) -> list[Block]:
    rows = [Bar("edits in", counts["in"], series=4)] if "in" in counts else []
    rows += [Bar(f"quarantined: {reason}", count, series=1) for reason, count in quarantined.items()]
    dropped = {name: gate["dropped"] for name, gate in gates.items() if gate.get("dropped")}
    rows += [Bar(f"gated: {words.name(name)}", count, series=3) for name, count in dropped.items()]
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
        Bar("unfiltered" if name == EVERYTHING else published.label(name), share, series=4 if name == EVERYTHING else 0)
        for name, share in shares.items()
    ]
    title = "Good edits in each selection"
    caption = "Share of edits that are good in both dimensions by ground-truth quality, which the filter does not read."
    return [Figure(title, bars(rows, title=title, form=words.share, full=1.0), caption)]
