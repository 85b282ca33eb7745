"""ImagenHub, text-guided editing: three raters per edit, each with semantic consistency SC and perceptual quality PQ in {0, 0.5, 1}
(Ku et al. 2024, arXiv 2310.01596).

Folder, put together from three places:

- ``filtered-*.parquet`` anywhere below it: split filtered of the Hub data set ImagenHub/Text_Guided_Image_Editing (179 rows; img_id,
  turn_index, source_img, instruction);
- ``outputs/<editor>/sample_<img_id>_<turn_index>.jpg``: the editors' images, from the Imagen Museum;
- ``ratings/*_rater<n>.tsv``: the folder eval/human_ratings/Text-Guided_IE of the repository TIGER-AI-Lab/ImagenHub (MIT; last seen at
  439f72c). A table of uid by editor with cells "[SC, PQ]".

Published convention. The human score of an edit is the mean over raters of sqrt(SC * PQ); about three quarters are exactly 0. Spearman's
rho per editor, then tanh(mean rho). The editor Imagic is left out. Human agreement (each rater with the mean of the others) was published
as tanh(mean over raters) per editor and, for all editors, as the tanh of the mean of those. The tanh is applied twice, so that this "upper
bound" is deflated more than the models' rows. The result's notes give it in both ways.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from reward.benchmarks import ratings
from reward.benchmarks.items import BenchmarkEdit, Rating, Scores
from reward.benchmarks.pictures import from_file
from reward.benchmarks.result import BenchmarkResult, size_note
from reward.benchmarks.tables import parquet_files, parquet_rows
from reward.evaluation.bootstrap import DEFAULT, Bootstrap

NAME = "imagenhub"
HUB_ID = "ImagenHub/Text_Guided_Image_Editing"
PUBLISHED_RATINGS = 1432
LEFT_OUT = ("Imagic",)

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
            edit = BenchmarkEdit(row["source_img"], row.text("instruction"), from_file(folder / "outputs" / editor / uid))
            scores = np.sqrt(rated[uid].prod(axis=1))
            raters = tuple(scores.tolist())
            items.append(Rating(f"{editor}/{uid}", edit, float(scores.mean()), editor, source=str(row["img_id"]), raters=raters))
    return items


def evaluate(items: Sequence[Rating], scores: Scores, *, bootstrap: Bootstrap = DEFAULT) -> BenchmarkResult:
    """Model and trivial baselines."""
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
