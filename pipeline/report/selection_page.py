"""The page of `pipeline select diff`: how two selections differ, and the edits that only one of them keeps."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import words
from pipeline.report.blocks import Block, Callout, Fact, Facts, Paragraph, Section, Table
from pipeline.report.page import render
from pipeline.report.pictures import Originals
from pipeline.report.triptychs import triptych
from reward.evaluation.estimate import Estimate
from stages.context import Context
from stages.engine import storage
from stages.filter import step as filter
from stages.filter.selection.difference import Difference, Side

MOST_STRATA = 40


def build(context: Context, found: Difference, path: Path, *, images: int) -> Path:
    """Write the page to ``path`` and return it; ``images`` edits are shown of each side, the first by rank.

    Raises ``ValueError`` when images are asked for and the data set is not there or has changed.
    """
    originals = Originals(path)
    sections = [_overview(found)]
    sides = ((found.only_a, found.only_a_ids, "only-a"), (found.only_b, found.only_b_ids, "only-b"))
    sections += [_gallery(context, side, list(ids[:images]), key, originals) for side, ids, key in sides]
    a, b = found.a.name, found.b.name
    sentence = f"{words.count(found.both.count)} samples are in both, {words.count(found.only_a.count)} only in “{a}”, "
    sentence += f"{words.count(found.only_b.count)} only in “{b}”."
    made_from = f"the selections and scores of run {context.run.path.name}"
    page = render(f"{a} and {b}", "Selections compared", sentence, sections, made_from, originals)
    originals.write()
    storage.publish_bytes(path, page)
    return path


def _overview(found: Difference) -> Section:
    facts = Facts(
        [
            Fact("In both", words.count(found.both.count), f"Jaccard {found.jaccard:.3f}"),
            Fact(
                "Rank correlation", _words(found.correlation, bare=True), f"{_words(found.correlation)}, Spearman over the samples in both"
            ),
        ]
    )
    rows = [(side.name, words.count(side.count), _words(side.mean)) for side in (found.a, found.b, found.both, found.only_a, found.only_b)]
    means = Table(("Samples", "Count", "Mean overall score [95 %]"), rows, "Mean scores; the intervals treat samples as independent.")
    strata = sorted(found.strata, key=lambda entry: (-max(entry.a, entry.b), entry.name))
    counts = [
        (
            entry.name or "(empty)",
            words.count(entry.a),
            words.count(entry.b),
            words.count(entry.both),
            f"{entry.b - entry.a:+,}".replace("-", "−"),
        )
        for entry in strata[:MOST_STRATA]
    ]
    more = f" The {MOST_STRATA} largest of {len(strata)} strata." if len(strata) > MOST_STRATA else ""
    by = Table((words.name(found.by).capitalize(), found.a.name, found.b.name, "both", "change"), counts, f"Samples by {found.by}.{more}")
    return Section("overview", "Overview", "", [facts, means, by])


def _gallery(context: Context, side: Side, ids: list[str], key: str, originals: Originals) -> Section:
    blocks: list[Block] = []
    if ids:
        step = context.run.step(filter.STEP)
        table = step.read("scores", ["sample_id", "overall_mean", "overall_sigma", "dimensions", "flags"])
        places = pc.index_in(pa.array(ids, pa.string()), value_set=table["sample_id"].combine_chunks())
        scores = {row["sample_id"]: row for row in table.take(places).to_pylist()}
        rows = filter.pictures(context, ids).to_pylist()
        blocks += [triptych(row, scores[row["sample_id"]], originals) for row in rows]
    note = context.need("filter").note
    shown = f"{len(ids)} of {words.count(side.count)}, the first by rank." if ids else f"{words.count(side.count)} samples, none shown."
    remark: list[Block] = [Callout("Read before the scores", note)] if note else []
    return Section(key, side.name[0].upper() + side.name[1:], "", [*remark, Paragraph(shown), *blocks])


def _words(found: Estimate | None, *, bare: bool = False) -> str:
    if found is None:
        return "–"
    return words.score(found.value) if bare else found.words(words.score)
