"""AURORA-Bench, pairs: which of two edits of a source people rated higher (Krojer et al. 2024, arXiv 2407.03471).

400 items of 8 tasks, about 2,000 ratings of 5 editors. The ratings and the edited images are an archive that the repository
McGill-NLP/AURORA links (MIT), not a Hub data set; McGill-NLP/aurora-bench on the Hub has the inputs only. The pairs that EditReward is
tested on were not published. All figures of its main table are multiples of 1/1600, those of its Table 7 are not: two different sets of
pairs, never to be compared.

Folder: pairwise.json, a list of records {prompt, path_src, path1, path2, model1_dim1_score, model2_dim1_score}, and the images, whose
paths are relative to the folder.

Published convention: accuracy with the oracle threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from reward.benchmarks import pairs
from reward.benchmarks.items import BenchmarkEdit, Comparison, Scores
from reward.benchmarks.pictures import from_file
from reward.benchmarks.result import BenchmarkResult, size_note
from reward.benchmarks.tables import json_rows
from reward.evaluation.bootstrap import DEFAULT, Bootstrap

NAME = "aurora-pair"
FILE = "pairwise.json"
PUBLISHED_COMPARISONS = 1600


def load(path: str | Path) -> list[Comparison]:
    """Comparisons of the file, in its order."""
    folder = Path(path)
    items = []
    for row in json_rows(folder / FILE, columns=("prompt", "path_src", "path1", "path2", "model1_dim1_score", "model2_dim1_score")):
        source, *edited = (from_file(folder / row.text(column)) for column in ("path_src", "path1", "path2"))
        first, second = (BenchmarkEdit(source, row.text("prompt"), image) for image in edited)
        label = int(np.sign(row.number_of("model1_dim1_score") - row.number_of("model2_dim1_score")))
        items.append(Comparison(f"{FILE}[{row.number}]", first, second, label, source=source.content))
    return items


def evaluate(items: Sequence[Comparison], scores: Scores, *, bootstrap: Bootstrap = DEFAULT) -> BenchmarkResult:
    """Model and trivial baselines."""
    return pairs.evaluate(NAME, items, scores, bootstrap=bootstrap, notes=size_note(len(items), PUBLISHED_COMPARISONS, "pairs"))
