"""Gate: almost the same edit occurs earlier, by vectors of your own.

The vectors are in a Parquet file with the columns ``sample_id`` and ``embedding``, one row per edit. Value: the largest cosine similarity
to an earlier edit of the data set, caught itself or not; NaN for the first edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from stages.filter.gates.gate import SEEN, Action, Gate, GateConfig

if TYPE_CHECKING:
    import numpy as np

    from stages.engine.tables import Tables

KEY = "filter.gates.near_embedding.embeddings"
BLOCK = 2048
"""Edits compared at a time: bounds memory at BLOCK x n values."""


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

    Time grows with the square of the number of edits, and all vectors are in memory: no exact search does without.
    """
    import numpy as np
    import pyarrow as pa

    assert config.embeddings is not None, "the configuration checks that there is a file"
    edits = database.table(f"SELECT number, sample_id FROM {SEEN} ORDER BY number")
    largest = np.full(len(edits), np.nan)
    vectors = _vectors(config.embeddings, edits["sample_id"].to_pylist()) if len(edits) else np.empty((0, 1), np.float32)
    for first in range(0, len(vectors), BLOCK):
        block = vectors[first : first + BLOCK]
        cosine = block @ vectors[: first + len(block)].T
        cosine[np.arange(cosine.shape[1])[None] >= first + np.arange(len(block))[:, None]] = -2.0  # itself and later ones
        largest[first : first + len(block)] = cosine.max(axis=1)
    largest = np.where(largest < -1.5, np.nan, np.round(largest, 6))
    found = pa.table({"number": edits["number"], "value": pa.array(largest, from_pandas=True)})
    database.keep("cosines", found.to_batches(), found.schema)
    limit = f"{config.similarity!r}::DOUBLE"
    return f"SELECT number, value, value > {limit} AS caught, {limit} AS threshold FROM cosines WHERE value IS NOT NULL"


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
    rows = {name: number for number, name in enumerate(table["sample_id"].to_pylist())}
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
