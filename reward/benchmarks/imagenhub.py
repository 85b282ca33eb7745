"""ImagenHub, text-guided editing: three raters per edit, each with semantic consistency SC and perceptual quality PQ in {0, 0.5, 1}
(Ku et al. 2024, arXiv 2310.01596).

Folder, put together from three places:

- ``filtered-*.parquet`` anywhere below it: split filtered of the Hub data set ImagenHub/Text_Guided_Image_Editing (179 rows; img_id,
  turn_index, source_img, instruction);
- ``outputs/<editor>/sample_<img_id>_<turn_index>.jpg``: the editors' images, from the Imagen Museum;
- ``ratings/*_rater<n>.tsv``: the folder eval/human_ratings/Text-Guided_IE of the repository TIGER-AI-Lab/ImagenHub (MIT; last seen at
  439f72c). A table of uid by editor with cells "[SC, PQ]".

Published convention. The human score of an edit is the mean over raters of sqrt(SC * PQ); about three quarters are exactly 0. Spearman's
rho per editor, then tanh(mean rho). The editor Imagic is left out. Human agreement, from the correlations of ``human_correlations``, was
published as tanh(mean over raters) per editor and, for all editors, as the tanh of the mean of those: the tanh is applied twice, so that
this "upper bound" is deflated more than the models' rows.

Judges that give sub-scores of 0 to 10 are combined as sqrt(min SC * min PQ) / 10 (VIEScore, arXiv 2312.14867).
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from reward.benchmarks import ratings
from reward.benchmarks.figures import DEFAULT, Bootstrap
from reward.benchmarks.items import Edit, Rating, Scores
from reward.benchmarks.pictures import from_file
from reward.benchmarks.ranks import spearman
from reward.benchmarks.result import BenchmarkResult, size_note
from reward.benchmarks.tables import parquet_files, parquet_rows

NAME = "imagenhub"
HUB_ID = "ImagenHub/Text_Guided_Image_Editing"
PUBLISHED_RATINGS = 1432
LEFT_OUT = ("Imagic",)
LARGEST_SUBSCORE = 10.0

_CELL = re.compile(r"\[\s*(0|0\.5|1)(?:\.0)?\s*,\s*(0|0\.5|1)(?:\.0)?\s*\]")

Panel = dict[str, dict[str, np.ndarray]]
"""editor -> uid -> [rater, 2] with the columns SC and PQ."""


def load(path: str | Path) -> list[Rating]:
    """One rating per edit: the mean over raters. Sources and editors in the order of the Hub's file and of the rater files."""
    folder = Path(path)
    panel = read_ratings(folder / "ratings")
    files = parquet_files(folder, "**/filtered-*.parquet", HUB_ID)
    items = []
    for row in parquet_rows(files, columns=("img_id", "turn_index", "instruction"), images=("source_img",)):
        uid = f"sample_{row['img_id']}_{row['turn_index']}.jpg"
        for editor, rated in panel.items():
            if editor in LEFT_OUT:
                continue
            if uid not in rated:
                raise row.fault("img_id", f"{uid} of {editor} has no rating in {folder / 'ratings'}")
            edit = Edit(row["source_img"], row.text("instruction"), from_file(folder / "outputs" / editor / uid))
            score = float(np.sqrt(rated[uid].prod(axis=1)).mean())
            items.append(Rating(f"{editor}/{uid}", edit, score, editor, source=str(row["img_id"])))
    return items


def evaluate(items: Sequence[Rating], scores: Scores, *, bootstrap: Bootstrap = DEFAULT) -> BenchmarkResult:
    """Model and floors side by side."""
    notes = size_note(len(items), PUBLISHED_RATINGS, "rated edits")
    return ratings.evaluate(NAME, items, scores, bootstrap=bootstrap, published="tanh_of_mean", notes=notes)


def read_ratings(folder: Path) -> Panel:
    """All rater files of a folder; every rater must have rated the same. Raises ``ValueError`` naming file, line and cell."""
    files = sorted(folder.glob("*_rater*.tsv"))
    if not files:
        raise ValueError(f"there is no *_rater*.tsv in {folder}; expected one table of uid by editor per rater")
    panels = [_read_rater(file) for file in files]
    first = panels[0]
    for file, panel in zip(files[1:], panels[1:], strict=True):
        if {editor: set(rated) for editor, rated in panel.items()} != {editor: set(rated) for editor, rated in first.items()}:
            raise ValueError(f"{file} does not rate the same editors and images as {files[0].name}")
    return {editor: {uid: np.array([panel[editor][uid] for panel in panels]) for uid in rated} for editor, rated in first.items()}


def subscores(raters: np.ndarray) -> dict[str, np.ndarray]:
    """[..., 2] with SC and PQ -> SC, PQ and overall [...]."""
    return {"SC": raters[..., 0], "PQ": raters[..., 1], "O": np.sqrt(raters[..., 0] * raters[..., 1])}


def judge_subscores(semantic: Sequence[float] | float, perceptual: Sequence[float] | float) -> dict[str, float]:
    """A judge's sub-scores of 0 to 10 for one edit (one number, or a list of which the smallest counts): SC, PQ and overall."""
    worst = [float(np.clip(np.min(values), 0, LARGEST_SUBSCORE)) for values in (semantic, perceptual)]
    return {"SC": worst[0], "PQ": worst[1], "O": math.sqrt(worst[0] * worst[1]) / LARGEST_SUBSCORE}


def judge_correlations(panel: Panel, judged: Mapping[str, Mapping[str, Mapping[str, float]]], part: str) -> dict[str, float]:
    """Spearman's rho of a judge with the mean of the raters, in one part (SC, PQ or O), for every editor that the judge was shown.

    judged: editor -> uid -> SC, PQ, O. An image without a judgement counts as one that the judge says nothing about (``ranks.spearman``);
    published values leave it out, which on the public ratings moves a figure by 0.0006 at most.
    Raises ``ValueError`` for an editor that was not rated.
    """
    found = {}
    for editor, given in judged.items():
        if editor not in panel:
            raise ValueError(f"a judge was shown the editor {editor}, which people did not rate; they rated {', '.join(panel)}")
        human = np.array([subscores(raters)[part].mean() for raters in panel[editor].values()])
        found[editor] = spearman(np.array([given[uid][part] if uid in given else math.nan for uid in panel[editor]]), human)
    return found


def human_correlations(panel: Panel, part: str) -> dict[str, list[float]]:
    """Per editor, Spearman's rho of each rater with the mean of the others, in one part (SC, PQ or O)."""
    found = {}
    for editor, rated in panel.items():
        values = np.array([subscores(raters)[part] for raters in rated.values()])  # [item, rater]
        found[editor] = [spearman(values[:, rater], np.delete(values, rater, axis=1).mean(axis=1)) for rater in range(values.shape[1])]
    return found


def _read_rater(file: Path) -> dict[str, dict[str, tuple[float, float]]]:
    with open(file, newline="", encoding="utf-8") as opened:
        lines = [[cell.strip() for cell in line] for line in csv.reader(opened, delimiter="\t", quoting=csv.QUOTE_NONE)]
    header = lines[0] if lines else []
    if header[:1] != ["uid"] or len(header) < 2:
        raise ValueError(f"{file}, line 1: expected 'uid' and then the names of the editors, separated by tabs; found {header}")
    found: dict[str, dict[str, tuple[float, float]]] = {editor: {} for editor in header[1:]}
    for number, cells in enumerate(lines[1:], start=2):
        if not any(cells):
            continue
        if len(cells) != len(header):
            raise ValueError(f"{file}, line {number} has {len(cells)} fields where the first line has {len(header)}")
        for editor, cell in zip(header[1:], cells[1:], strict=True):
            scores = _CELL.fullmatch(cell)
            if scores is None:
                raise ValueError(f"{file}, line {number}, column {editor}: {cell!r} is not a cell [SC, PQ] with scores 0, 0.5 or 1")
            found[editor][cells[0]] = (float(scores[1]), float(scores[2]))
    return found
