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
import tempfile
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from pydantic import Field, model_validator

from stages.filter.gates.gate import SEEN, Action, Gate, GateConfig

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

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

    The vectors are on the disk; in memory are about 250 bytes per edit.
    """
    import numpy as np
    import pyarrow as pa

    assert config.embeddings is not None, "the configuration checks that there is a file"
    places = "row_number() OVER (ORDER BY number) - 1 AS place"
    database.execute(f"CREATE OR REPLACE TABLE asked AS SELECT number, sample_id, {places} FROM {SEEN}")
    _read(database, config.embeddings)
    with tempfile.TemporaryFile(dir=database.folder) as scratch:
        largest = np.round(largest_before(_unit_vectors(database, config.embeddings, scratch)).astype(np.float64), 6)
    numbers = database.table("SELECT number FROM asked ORDER BY place")["number"]
    found = pa.table({"number": numbers, "value": pa.array(largest, from_pandas=True)})
    database.keep("cosines", found.to_batches(), found.schema)
    limit = f"{config.similarity!r}::DOUBLE"
    return f"SELECT number, value, value > {limit} AS caught, {limit} AS threshold FROM cosines WHERE value IS NOT NULL"


def largest_before(vectors: np.ndarray) -> np.ndarray:
    """Per unit vector, float32 [n, width], the largest cosine to one before it, float32 [n]; NaN where there is none in its cells."""
    import numpy as np

    count = len(vectors)
    several = count > EXACT
    centres = vectors[np.linspace(0, count - 1, math.isqrt(count)).astype(np.int64)] if several else vectors[:1]
    probed = np.zeros((count, min(PROBED, len(centres))), np.int32)  # cells of each vector, its own first
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
    """Per cell the rows, ascending, that have it among theirs; ``cells``: int32 [n, k]."""
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


def _read(database: Tables, path: str) -> None:
    """Make the table ``vectors`` of the file's rows, of which every edit in the table ``asked`` has one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from stages.engine import storage

    schema = pa.schema([("sample_id", pa.string()), ("embedding", pa.list_(pa.float32()))])

    def rows(file: IO[bytes]) -> Iterator[pa.RecordBatch]:
        for batch in storage.read_batches(file, BLOCK, schema.names):
            yield batch.select(schema.names).cast(schema, safe=False)

    try:
        with storage.open_file(path) as file:
            kind = pq.read_schema(file).field("embedding").type
            numbers = hasattr(kind, "value_type") and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))
            if numbers:
                database.keep("vectors", rows(file), schema)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{KEY}: {path} cannot be read as Parquet with the columns sample_id and embedding ({error})") from None
    if not numbers:
        raise ValueError(f"{KEY}: the column embedding of {path} holds {kind}; it should hold lists of numbers")
    twice = database.table("SELECT sample_id FROM vectors GROUP BY ALL HAVING count(*) > 1 ORDER BY sample_id LIMIT 1")["sample_id"]
    if twice:
        raise ValueError(f"{KEY}: {path} has several vectors for {twice[0]}; keep one per sample id")
    absent = database.table("SELECT sample_id FROM asked ANTI JOIN vectors USING (sample_id) ORDER BY place")["sample_id"]
    if absent:
        raise ValueError(
            f"{KEY}: {path} has no vector for {len(absent):,} of {database.number('SELECT count(*) FROM asked'):,} edits, "
            f"the first is {absent[0]}; the artifact inspected lists the sample ids"
        )


def _unit_vectors(database: Tables, path: str, scratch: IO[bytes]) -> np.ndarray:
    """The table ``vectors`` as unit vectors of the edits in the table ``asked``, in the file ``scratch``, float32 [n, width]."""
    import numpy as np
    import pyarrow.compute as pc

    found = "FROM vectors JOIN asked USING (sample_id)"
    widths = database.table(f"SELECT DISTINCT len(embedding) AS width {found}")["width"].to_pylist()
    if not widths:
        return np.empty((0, 1), np.float32)
    if None in widths or 0 in widths:
        raise ValueError(f"{KEY}: there are vectors in {path} that have no numbers")
    if len(widths) > 1:
        raise ValueError(f"{KEY}: the vectors in {path} have several lengths: {sorted(map(str, widths))}")
    vectors = np.memmap(scratch, np.float32, "w+", shape=(database.number("SELECT count(*) FROM asked"), widths[0]))
    for batch in database.rows(f"SELECT place, embedding {found}"):
        some = pc.list_flatten(batch["embedding"]).to_numpy(zero_copy_only=False).reshape(len(batch), -1)
        length = np.linalg.norm(some, axis=1, keepdims=True)
        if not np.isfinite(length).all() or (length == 0).any():
            raise ValueError(f"{KEY}: {path} has a vector that is zero or not finite")
        vectors[batch["place"].to_numpy()] = some / length
    return vectors


GATE = Gate(
    config=NearEmbeddingGate,
    description="Almost the same edit again, by your vectors",
    caption="nearly the same vector before, cosine",
    files=files,
    compare=compare,
)
