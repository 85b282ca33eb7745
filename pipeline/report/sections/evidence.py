"""The three charts behind the verdict: how many edits each stage keeps, how precise the best scores are, what training on them gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pipeline import words
from pipeline.report import scored_edits
from pipeline.report.bar_charts import Bar, bars, intervals
from pipeline.report.blocks import Block, Columns, Figure, Fold, Paragraph, Section, Stack, Table
from pipeline.report.precision import Judged, judged, steps
from pipeline.report.published import Published
from pipeline.report.sections.arms import overall_scores
from pipeline.report.sections.filtering import STEP, selected_tables

STEPS = (STEP, "evaluate-reward", "evaluate-editor")


def section(published: Published) -> Section:
    """Funnel, precision at k, and the benchmark scores of the trained editors."""
    selections = selected_tables(published) if published.done(STEP) else {}
    known = judged(published)
    edits = scored_edits.read(published)
    sizes = [table.num_rows for table in selections.values()] if edits is not None and edits.good is not None else []
    beside: list[Block] = [*_funnel(published, selections), *_editors(published)]
    columns: list[Block] = [*([Stack(beside)] if beside else []), *([_precision(known, sizes)] if known else [])]
    blocks: list[Block] = [Columns(columns)] if columns else []
    if known is not None:
        blocks.append(_beside_closeness(known, sizes))
    elif published.done(STEP):
        blocks.append(
            Paragraph(
                "Precision is not known: these edits have neither ground truth nor human ratings. Rate a sample of the best to know it."
            )
        )
    return Section("evidence", "Evidence", "", blocks)


def _funnel(published: Published, selections: Mapping[str, pa.Table]) -> list[Figure]:
    index, scored = published.index(STEP), published.rows(STEP, "scores")
    gates: Mapping[str, Any] = index.results.get("gates", {})
    rows = [Bar("edits in", index.counts["in"], series=4)] if "in" in index.counts else []
    rows += [Bar(f"quarantined: {reason}", count, series=1) for reason, count in index.quarantined.items()]
    rows += [Bar(f"gated: {words.name(name)}", gate["dropped"], series=3) for name, gate in gates.items() if gate.get("dropped")]
    if scored is not None:
        rows.append(Bar("scored", scored, series=4))
    for name, table in selections.items():
        rule = table["rule"][0].as_py() if table.num_rows else ""
        if rule == "all":
            continue  # as many as were scored
        part = f"({words.share(table.num_rows / scored)})" if scored else ""
        rows.append(Bar(f"selection “{name}”, rule {rule}" if rule else f"selection “{name}”", table.num_rows, part))
    return [Figure("What the filter keeps", bars(rows, title="Funnel"), "Edits at each stage.")] if rows else []


def _precision(known: Judged, sizes: list[int]) -> Figure:
    order, count = known.best(), len(known.score)
    rows = [(f"best {words.count(k)}", known.precision(order, k)) for k in steps(count, sizes)]
    everything = known.precision(order, count)
    title = "How precise the best scores are"
    drawn = intervals(
        rows or [(f"all {words.count(count)}", everything)],
        title="Precision at k",
        x_label="share of good edits among the best k by score",
        reference=(f"all {words.count(count)}: {words.percent(everything.value)}", everything.value),
    )
    caption = f"Precision at k of the {known.edits}. Good: {known.standard}. Whiskers are 95 % intervals."
    return Figure(title, drawn, caption)


def _beside_closeness(known: Judged, sizes: list[int]) -> Fold:
    best, closest, count = known.best(), known.closest(), len(known.score)
    rows = [
        (f"best {words.count(k)}", known.precision(best, k).words(words.share), known.precision(closest, k).words(words.share))
        for k in [*steps(count, sizes), count]
    ]
    caption = "Share of good edits [95 % interval]. Closeness to the source knows neither instruction nor ratings; a useful score beats it."
    return Fold("Precision beside the order by closeness to the source", [Table(("", "By score", "By closeness"), rows, caption)])


def _editors(published: Published) -> list[Figure]:
    rows = overall_scores(published)
    if not rows:
        return []
    drawn = intervals(
        rows,
        title="Overall score by training set",
        x_label="overall score, 0 to 10",
        form=words.score,
        tick_form=words.plain,
        emphasised=("selected",),
    )
    return [Figure("What training on it gives", drawn, "Benchmark score of the editor by its training set, with 95 % intervals.")]
