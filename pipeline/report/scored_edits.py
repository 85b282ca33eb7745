"""The scored edits of the filter step as columns, for its section of the page."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.report.published import Published
from stages.datasets import readers
from stages.filter.selection.side_columns import SOURCE_HASH
from stages.filter.selection.values import means

STEP = "filter"
SCORES = ["sample_id", "dimensions", "overall_mean", "overall_sigma", "change_from_source", "task", "language", "flags"]
EDITOR_KEYS = ("editor", "model")
"""Keys of an edit's metadata that can name its editor."""


@dataclass(frozen=True)
class Groups:
    """Rows [n] by a text that they share: ``names`` ascending, and ``codes``, the place of each row's name, int [n]."""

    names: list[str]
    codes: np.ndarray

    def largest(self, most: int) -> np.ndarray:
        """Codes of at most so many groups, the largest first, int [k]."""
        return np.argsort(-np.bincount(self.codes, minlength=len(self.names)), kind="stable")[:most]


@dataclass(frozen=True)
class ScoredEdits:
    """``table``: columns of ``scores`` [n]; ``raw`` and ``likert``: float64 [n] per dimension, ``likert`` empty without a calibrated model;
    ``strata``: the edits by task, language, dataset and editor, where more than one value occurs;
    ``source``: cluster of each edit, int [n]; ``pixels``: of the source image, int64 [n], None where nothing measured them;
    ``good``: which edits are good in every dimension by ground-truth quality, bool [n], None where the data set does not know it."""

    table: pa.Table
    raw: dict[str, np.ndarray]
    likert: dict[str, np.ndarray]
    strata: dict[str, Groups]
    source: np.ndarray
    pixels: np.ndarray | None
    good: np.ndarray | None

    @property
    def overall(self) -> np.ndarray:
        """Overall mean, float64 [n]."""
        return self.table["overall_mean"].to_numpy()

    def kept(self, selection: pa.Table) -> np.ndarray:
        """Which edits a selection keeps, bool [n]."""
        return pc.is_in(self.table["sample_id"], value_set=selection["sample_id"].combine_chunks()).to_numpy()


@lru_cache(maxsize=1)
def read(published: Published) -> ScoredEdits | None:
    """The published scores; None while nothing is scored."""
    table = published.table(STEP, "scores", SCORES)
    if table is None:
        return None
    likert = {name: column for name, column in means(table, "likert").items() if np.isfinite(column).all()}
    edits = _beside(published, table, "edits", ["dataset", "source", "metadata"])
    inspected = _beside(published, table, "inspected", [SOURCE_HASH, "source_width", "source_height"])
    found: dict[str, pa.ChunkedArray | None] = {name: table[name] for name in ("task", "language")}
    if edits is not None:
        found |= {"dataset": edits["dataset"], "editor": _editor(edits["metadata"])}
    strata = {name: groups(column) for name, column in found.items() if column is not None}
    pixels = None
    if inspected is not None:
        pixels = inspected["source_width"].to_numpy().astype(np.int64) * inspected["source_height"].to_numpy()
    return ScoredEdits(
        table,
        means(table),
        likert,
        {name: column for name, column in strata.items() if len(column.names) > 1},
        _sources(edits, inspected, table.num_rows),
        pixels,
        readers.good(edits["metadata"].to_pylist()) if edits is not None and knows_truth(published) else None,
    )


def groups(column: pa.ChunkedArray) -> Groups:
    """The rows of a column of texts without nulls, by text."""
    encoded = column.combine_chunks().dictionary_encode()
    names, places = np.unique(encoded.dictionary.to_pylist(), return_inverse=True)
    return Groups(names.tolist(), places[encoded.indices.to_numpy()])


def knows_truth(published: Published) -> bool:
    """Whether the metadata of the scored edits says how good they are."""
    return readers.knows_truth(published.settings(STEP).get("filter", {}).get("input", {}).get("dataset", ""))


def _beside(published: Published, table: pa.Table, artifact: str, columns: list[str]) -> pa.Table | None:
    """Columns of another artifact for the same samples in the same order."""
    other = published.table(STEP, artifact, ["sample_id", *columns])
    if other is None:
        return None
    # for each row of ``table`` the row of ``other`` with the same id
    return other.take(pc.index_in(table["sample_id"], value_set=other["sample_id"].combine_chunks()))


def _editor(metadata: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Editor of each edit from its metadata; None where no metadata has it."""
    encoded = metadata.combine_chunks().dictionary_encode()  # many edits share one metadata text, which is parsed once
    parsed = [json.loads(text) for text in encoded.dictionary.to_pylist()]
    names = [next((str(entry[key]) for key in EDITOR_KEYS if isinstance(entry, dict) and entry.get(key)), "") for entry in parsed]
    return pa.chunked_array([pa.array(names, pa.string()).take(encoded.indices)]) if any(names) else None


def _sources(edits: pa.Table | None, inspected: pa.Table | None, count: int) -> np.ndarray:
    """Cluster of each edit: its source image by hash or by name; each edit its own where neither is known."""
    if inspected is not None:
        named = inspected[SOURCE_HASH]
    elif edits is not None:
        named = pc.struct_field(edits["source"], "path")
    else:
        return np.arange(count)
    return np.arange(count) if named.null_count else named.combine_chunks().dictionary_encode().indices.to_numpy()
