"""Gate: almost the same edit occurs earlier, by vectors of your own.

The vectors are in a Parquet file with the columns ``sample_id`` and ``embedding``, one row per edit. Value: the largest cosine similarity
to an earlier edit of the data set, caught itself or not; NaN for the first edit.

Of up to ``EXACT`` edits each is compared with all earlier ones. More are parted into cells by the nearest of sqrt(n) centres, which are
edits at equal distances in the data set (an inverted file as in Sivic and Zisserman 2003), and each is compared with the earlier edits
in the ``PROBED`` cells whose centres are nearest to it. The time grows with n sqrt(n) then, and a value is a lower bound: what is caught is
near, and a near one in another cell is missed.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from stages.filter.gates.gate import SEEN, Action, Gate, GateConfig

if TYPE_CHECKING:
    import numpy as np

    from stages.engine.tables import Tables

KEY = "filter.gates.near_embedding.embeddings"
EXACT = 20_000
"""Edits of which all pairs are compared."""
PROBED = 16
BLOCK = 2048
"""Edits compared at a time: bounds memory at BLOCK values per edit of a cell, or per centre."""


class NearEmbeddingGate(GateConfig):
    """Almost the same edit by vectors of your own."""

    action: Action = Field("off", description="As for the other gates; needs embeddings")
    embeddings: str | None = Field(None, description="Parquet file or URL with the columns sample_id and embedding")
    similarity: float = Field(0.95, ge=-1, le=1, description="Caught above this cosine similarity to an earlier edit")

    @model_validator(mode="after")
    def _has_embeddings(self) -> NearEmbeddingGate:
        if self.action != "off" and self.embeddings is None:
            raise ValueError("near_embedding needs the file of vectors: set embeddings, or action: off")
        return self


def compare(database: Tables, config: NearEmbeddingGate) -> str:
    """Near vectors. Raises ``ValueError`` naming the file when it has not one vector of one length per edit.

    All vectors are in memory.
    """
    import numpy as np
    import pyarrow as pa

    assert config.embeddings is not None, "the configuration checks that there is a file"
    edits = database.table(f"SELECT number, sample_id FROM {SEEN} ORDER BY number")
    vectors = _vectors(config.embeddings, edits["sample_id"].to_pylist()) if len(edits) else np.empty((0, 1), np.float32)
    largest = np.round(largest_before(vectors).astype(np.float64), 6)
    found = pa.table({"number": edits["number"], "value": pa.array(largest, from_pandas=True)})
    database.keep("cosines", found.to_batches(), found.schema)
    limit = f"{config.similarity!r}::DOUBLE"
    return f"SELECT number, value, value > {limit} AS caught, {limit} AS threshold FROM cosines WHERE value IS NOT NULL"


def largest_before(vectors: np.ndarray) -> np.ndarray:
    """Per unit vector, float32 [n, width], the largest cosine to one before it, float32 [n]; NaN where there is none in its cells."""
    import numpy as np

    count = len(vectors)
    several = count > EXACT
    centres = vectors[np.linspace(0, count - 1, math.isqrt(count)).astype(np.int64)] if several else vectors[:1]
    probed = np.zeros((count, min(PROBED, len(centres))), np.int64)  # cells of each vector, its own first
    for first in range(0, count if several else 0, BLOCK):
        cosine = vectors[first : first + BLOCK] @ centres.T
        probed[first : first + BLOCK] = np.argsort(-cosine, axis=1, kind="stable")[:, : probed.shape[1]]
    largest = np.full(count, np.nan, np.float32)
    for members, asking in zip(_by_cell(probed[:, :1], len(centres)), _by_cell(probed, len(centres)), strict=True):
        for first in range(0, len(asking), BLOCK):
            rows = asking[first : first + BLOCK]
            before = members[: np.searchsorted(members, rows[-1])]
            cosine = vectors[rows] @ vectors[before].T
            cosine[before[None] >= rows[:, None]] = np.nan
            found = np.fmax.reduce(cosine, axis=1, initial=np.nan)
            largest[rows] = np.fmax(largest[rows], found)
    return largest


def _by_cell(cells: np.ndarray, count: int) -> list[np.ndarray]:
    """Per cell the rows, ascending, that have it among theirs; ``cells``: int64 [n, k]."""
    import numpy as np

    order = np.argsort(cells, axis=None, kind="stable")
    return np.split(order // cells.shape[1], np.cumsum(np.bincount(cells.ravel(), minlength=count))[:-1])


def files(config: NearEmbeddingGate) -> dict[str, str]:
    """sha256 of the file of vectors. Raises ``ValueError`` when it cannot be read."""
    from stages.engine import storage

    assert config.embeddings is not None, "the configuration checks that there is a file"
    try:
        return {"embeddings": storage.sha256_of(config.embeddings)}
    except OSError as error:
        raise ValueError(f"{KEY}: {config.embeddings} cannot be read ({type(error).__name__})") from None


def _vectors(path: str, ids: list[str]) -> np.ndarray:
    """Unit vectors float32 [n, width] of the edits in their order."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from stages.engine import storage

    try:
        table = pq.read_table(pa.BufferReader(storage.read_bytes(path)), columns=["sample_id", "embedding"])
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{KEY}: {path} cannot be read as Parquet with the columns sample_id and embedding ({error})") from None
    kind = table["embedding"].type
    if not hasattr(kind, "value_type") or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise ValueError(f"{KEY}: the column embedding of {path} holds {kind}; it should hold lists of numbers")
    rows = {name: number for number, name in enumerate(table["sample_id"].to_pylist())}
    if len(rows) < table.num_rows:
        (twice, _), *_ = Counter(table["sample_id"].to_pylist()).most_common(1)
        raise ValueError(f"{KEY}: {path} has several vectors for {twice}; keep one per sample id")
    absent = [name for name in ids if name not in rows]
    if absent:
        raise ValueError(
            f"{KEY}: {path} has no vector for {len(absent):,} of {len(ids):,} edits, "
            f"the first is {absent[0]}; the artifact inspected lists the sample ids"
        )
    lists = table["embedding"].combine_chunks().take(pa.array([rows[name] for name in ids]))
    widths = set(pc.list_value_length(lists).to_pylist())
    if len(widths) != 1 or widths & {None, 0}:
        raise ValueError(f"{KEY}: the vectors in {path} have several lengths: {sorted(map(str, widths))}")
    vectors = pc.list_flatten(lists).to_numpy(zero_copy_only=False).astype(np.float32).reshape(len(ids), -1)
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(length).all() or (length == 0).any():
        raise ValueError(f"{KEY}: {path} has a vector that is zero or not finite")
    return vectors / length


GATE = Gate(
    config=NearEmbeddingGate,
    description="Almost the same edit again, by your vectors",
    caption="nearly the same vector before, cosine",
    files=files,
    compare=compare,
)
