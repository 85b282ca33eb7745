"""Distributions of the scores: overall, per dimension, on the raters' scale, per stratum; and their relation to simple measures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from pipeline import words
from pipeline.report.blocks import Block, Columns, Fact, Facts, Figure, Heading, Paragraph
from pipeline.report.charts import boxes, histogram, scatter
from pipeline.report.scored_edits import ScoredEdits
from stages.filter.selection.difference import spearman

DRAWN_SELECTIONS = 2
"""More lines in one histogram cannot be told apart."""
MOST_STRATA = 12
GOOD = 3
"""Likert score from which an edit is good (paper A.2: 3 is good, 4 very good)."""


def distributions(edits: ScoredEdits, selections: Mapping[str, pa.Table]) -> list[Block]:
    """Histograms of raw scores, and of Likert scores where the model is calibrated."""
    kept = {name: edits.kept(table) for name, table in selections.items()}
    kept = {name: mask for name, mask in kept.items() if not mask.all()}
    drawn = {name: kept[name] for name in sorted(kept, key=lambda name: (name != "selected", name))[:DRAWN_SELECTIONS]}
    raw = {"overall score": edits.overall} | {f"score, {words.name(name)}": column for name, column in edits.raw.items()}
    figures = [_histogram(name, column, drawn) for name, column in raw.items()]
    if drawn:
        first, chosen = next(iter(drawn.items()))
        points = np.stack([edits.overall, edits.table["overall_sigma"].to_numpy()], axis=1)
        groups = {f"in “{first}”": points[chosen], "not in it": points[~chosen]}
        title = "Score and uncertainty"
        figures.append(Figure(title, scatter(groups, title=title, x_label="overall score", y_label="σ of the score")))
    caption = Paragraph("Scores have no unit and no zero point; only differences are meaningful. The marks on the axis are medians.")
    return [Heading("Scores"), caption, Columns(figures), *_likert(edits, drawn)]


def strata(edits: ScoredEdits) -> list[Block]:
    """The overall score by task, language, data set and editor, where there are several."""
    figures = []
    for what, stratum in edits.strata.items():
        largest = stratum.largest(MOST_STRATA)
        groups = {stratum.names[code] or "(empty)": edits.overall[stratum.codes == code] for code in largest}
        rest = ~np.isin(stratum.codes, largest)
        if rest.any():
            groups[f"{len(stratum.names) - len(largest)} others"] = edits.overall[rest]
        groups = dict(sorted(groups.items(), key=lambda entry: -float(np.median(entry[1]))))
        title = f"Overall score by {what}"
        caption = "Dot: median; bar: middle half; line: 5 to 95 %. In brackets the number of edits."
        figures.append(Figure(title, boxes(groups, title=title, x_label="overall score"), caption))
    return [Heading("Scores by stratum"), Columns(figures)] if figures else []


def simple_measures(edits: ScoredEdits) -> list[Block]:
    """Scores against simple measures: how far the edit is from its source, how large the image is."""
    measures = {
        "change from the source (0 to 255)": edits.table["change_from_source"].to_numpy(),
        "source image in megapixels": edits.pixels / 1e6,
    }
    figures = []
    for name, column in measures.items():
        if column.min() == column.max():
            continue
        title = f"Score against {name.partition(' (')[0]}"
        points = {"scored edits": np.stack([column, edits.overall], axis=1)}
        found = spearman(column, edits.overall)
        correlation = found.words(words.score) if found else "–"
        caption = f"Rank correlation {correlation} (95 % interval, edits taken as independent)."
        figures.append(Figure(title, scatter(points, title=title, x_label=name, y_label="overall score"), caption))
    if not figures:
        return []
    text = "A score that correlates strongly with a simple measure may measure little else. A good edit of a large area also changes much."
    return [Heading("Scores and simple measures"), Paragraph(text), Columns(figures)]


def _histogram(name: str, column: np.ndarray, drawn: Mapping[str, np.ndarray]) -> Figure:
    samples = {f"scored ({words.count(len(column))})": column} | {selection: column[mask] for selection, mask in drawn.items()}
    return Figure(f"Distribution, {name}", histogram(samples, title=f"Distribution of {name}", x_label=name))


def _likert(edits: ScoredEdits, drawn: Mapping[str, np.ndarray]) -> list[Block]:
    """The raters' scale: histograms, and how many edits are good in every dimension."""
    if not edits.likert:
        return []
    good = np.minimum.reduce(list(edits.likert.values())) >= GOOD
    note = f"predicted rating {GOOD} or more in every dimension"
    facts = [Fact("Predicted good, of everything scored", words.share(float(good.mean())), note)]
    facts += [Fact(f"Predicted good, of “{name}”", words.share(float(good[mask].mean())), note) for name, mask in drawn.items()]
    figures = [_histogram(f"predicted rating, {words.name(name)}", column, drawn) for name, column in edits.likert.items()]
    text = (
        "The same scores on the raters' scale, through a monotone map fitted to held-out ratings. Where the map is flat, many raw scores "
        "share one predicted rating. The shares below are predictions of the model, not ratings."
    )
    return [Heading("Predicted ratings: the scores on the raters' scale"), Paragraph(text), Facts(facts), Columns(figures)]
