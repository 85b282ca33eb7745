"""Which edits have a source or an instruction that a reference has: a benchmark, other data, the reward model's training data.

In: the tables ``sources`` (columns :data:`SOURCES`) and ``items`` (:func:`read`) of a database. Out: its table ``hits``. A source matches
exactly (equal bytes) or nearly (perceptual hashes that differ in few bits); an instruction matches when it has the same words
(reward/likeness.py). Per edit and reference there is at most one row for images and one for the instruction: the item that matches best,
and how many others do. "Remove the dog" occurs twice without any leak, so by default only an image counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from stages.contamination.config import Counts
from stages.engine import contracts, near_hashes
from stages.engine.tables import PLACE, Tables, numbered, with_place

EXACT, NEAR, INSTRUCTION = MATCHES = ("exact image", "near image", "instruction")
COMPARED = ("sample_id", "source_sha256", "source_phash", "instruction")
SOURCES = with_place(pa.schema([contracts.INSPECTED.field(name) for name in COMPARED]))
"""What is compared of edits, and a number for each."""
_COUNTED: dict[Counts, str] = {
    "image": "kind < 2",
    "image-and-instruction": "kind < 2 AND NOT best.other_words",
    "image-or-instruction": "TRUE",
}
_WAYS = f"{PLACE} BIGINT, first BIGINT, kind TINYINT, best STRUCT(other_words BOOLEAN, distance TINYINT, item BIGINT), items BIGINT"
"""Per edit, reference and way to match: the best item (with the same words, then the nearest, then the first), and how many match."""


def read(database: Tables, items: Iterable[pa.RecordBatch]) -> None:
    """Make the table ``items`` of rows of the contract ``references``, which keep their order."""
    database.keep("items", numbered(items), with_place(contracts.REFERENCES))
    database.execute(f"CREATE OR REPLACE TABLE items AS SELECT *, min({PLACE}) OVER (PARTITION BY reference) AS first FROM items")


def find(database: Tables, distance: int | None, counts: Counts) -> None:
    """Make the table ``hits``. ``distance``: bits for a near image; None: equal bytes only."""
    hashes = ("source.source_phash", "item.source_phash")
    ways = [(EXACT, "0", "source.source_sha256 = item.source_sha256")]
    if distance is not None:
        ways += [(NEAR, near_hashes.differing(*hashes), condition) for condition in near_hashes.near(*hashes, distance)]
    ways.append((INSTRUCTION, "NULL", "source.instruction = item.instruction AND item.instruction <> ''"))
    database.execute(f"CREATE OR REPLACE TABLE ways ({_WAYS})")
    for match, bits, condition in ways:
        other_words = "source.instruction <> item.instruction OR item.instruction = ''"
        best = f"min({{'other_words': {other_words}, 'distance': ({bits})::TINYINT, 'item': item.{PLACE}}})"
        found = f"SELECT source.{PLACE}, item.first, {MATCHES.index(match)}, {best}, count(*)"
        database.execute(f"INSERT INTO ways {found} FROM sources AS source JOIN items AS item ON {condition} GROUP BY ALL")
    database.execute(
        f"""
        CREATE OR REPLACE TABLE hits AS
        WITH matches AS (
            SELECT {PLACE}, first, kind, min(best) AS best, sum(items)::BIGINT - 1 AS others FROM ways GROUP BY ALL
        ), told AS (  -- an exact image is no near one as well, and where an image has the same words, its row says so
            SELECT * FROM matches WINDOW image AS (PARTITION BY {PLACE}, first ORDER BY kind)
            QUALIFY row_number() OVER image = 1 OR kind = 2 AND first_value(best.other_words) OVER image
        )
        SELECT told.{PLACE}, told.first, kind, sample_id, reference, item, {[*MATCHES]}[kind + 1] AS match, best.distance AS distance,
            NOT best.other_words AS same_instruction, others, {_COUNTED[counts]} AS counted
        FROM told JOIN sources USING ({PLACE}) JOIN items ON best.item = items.{PLACE}
        """
    )


def hits(database: Tables) -> Iterator[pa.RecordBatch]:
    """The table ``hits`` as rows of the contract ``contamination``, in the order of references and, within one, of edits."""
    spans = [*database.spans(PLACE, "hits")]
    for first in database.table("SELECT DISTINCT first FROM hits ORDER BY first")["first"]:
        for there in spans:
            found = f"SELECT {', '.join(contracts.CONTAMINATION.names)} FROM hits WHERE first = {first} AND {there}"
            for batch in database.rows(f"{found} ORDER BY {PLACE}, kind"):
                yield batch.cast(contracts.CONTAMINATION)
