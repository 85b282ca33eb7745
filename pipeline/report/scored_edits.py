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

STEP = "filter"
SCORES = ["sample_id", "dimensions", "overall_mean", "overall_sigma", "change_from_source", "task", "language", "flags", "dataset"]
SCORES += ["metadata", SOURCE_HASH, "source_width", "source_height"]
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
    ``source``: cluster of each edit by its source image, int [n]; ``pixels``: of the source image, int64 [n];
    ``good``: which edits are good in every dimension by ground-truth quality, bool [n], None where the data set does not know it."""

    table: pa.Table
    raw: dict[str, np.ndarray]
    likert: dict[str, np.ndarray]
    strata: dict[str, Groups]
    source: np.ndarray
    pixels: np.ndarray
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
    likert = {name: column for name, column in _means(table, "likert").items() if np.isfinite(column).all()}
    found = {name: table[name] for name in ("task", "language", "dataset")} | {"editor": _editor(table["metadata"])}
    strata = {name: groups(column) for name, column in found.items() if column is not None}
    return ScoredEdits(
        table,
        _means(table),
        likert,
        {name: column for name, column in strata.items() if len(column.names) > 1},
        table[SOURCE_HASH].combine_chunks().dictionary_encode().indices.to_numpy(),
        table["source_width"].to_numpy().astype(np.int64) * table["source_height"].to_numpy(),
        readers.good(table["metadata"].to_pylist()) if knows_truth(published) else None,
    )


def groups(column: pa.ChunkedArray) -> Groups:
    """The rows of a column of texts without nulls, by text."""
    encoded = column.combine_chunks().dictionary_encode()
    names, places = np.unique(encoded.dictionary.to_pylist(), return_inverse=True)
    return Groups(names.tolist(), places[encoded.indices.to_numpy()])


def knows_truth(published: Published) -> bool:
    """Whether the metadata of the scored edits says how good they are."""
    return readers.knows_truth(published.settings(STEP).get("filter", {}).get("input", {}).get("dataset", ""))


def _means(scores: pa.Table, field: str = "mean") -> dict[str, np.ndarray]:
    """The ``mean``, ``sigma`` or ``likert`` of every dimension: float64 [n] by name, NaN where there is none.

    Raises ``ValueError`` where rows have not all the same dimensions.
    """
    entries = pc.list_flatten(scores["dimensions"])
    names, values = pc.struct_field(entries, "dimension"), pc.struct_field(entries, field)
    if not scores.num_rows or not len(entries):
        return {}
    every = pc.list_value_length(scores["dimensions"])[0].as_py()
    wanted = [names[place].as_py() for place in range(every)]
    # Every row should repeat the dimensions of the first one; then the flat values are a table [row, dimension]
    expected = np.tile(np.arange(every), scores.num_rows)
    found = pc.index_in(names, value_set=pa.array(wanted)).to_numpy()
    if len(entries) != len(expected) or not np.array_equal(found, expected):
        raise ValueError("the scores' rows have not all the same dimensions in the same order; score the edits with one reward model")
    table = values.to_numpy().reshape(scores.num_rows, every)
    return {name: np.ascontiguousarray(table[:, place]) for place, name in enumerate(wanted)}


def _editor(metadata: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Editor of each edit from its metadata; None where no metadata has it."""
    encoded = metadata.combine_chunks().dictionary_encode()  # many edits share one metadata text, which is parsed once
    parsed = [json.loads(text) for text in encoded.dictionary.to_pylist()]
    names = [next((str(entry[key]) for key in EDITOR_KEYS if isinstance(entry, dict) and entry.get(key)), "") for entry in parsed]
    return pa.chunked_array([pa.array(names, pa.string()).take(encoded.indices)]) if any(names) else None
