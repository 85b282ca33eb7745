"""Gate: almost the same edit with the same words occurs earlier. Exact copies are quarantined in any case (stages/filter/inspection.py).

The perceptual hashes of source, edited image and of their difference must all be near. The difference counts because two edits of one
photograph share nearly all of it. Value: the largest of the three distances in bits, to the earlier edit for which it is smallest; NaN
where no earlier edit has the instruction. Where more than ``FIRST`` different edits have the instruction, a value above the threshold is
the distance to the nearest of the first ones: an upper bound, which nothing is caught by.

Earlier means before it in the data set. Every edit is compared with all earlier ones, also with those that are caught themselves, so
whether an edit has a near one does not depend on others being caught.

Near edits are found by bands (stages/engine/near_hashes.py): two hashes within d bits are equal in one of d + 1 bands. One, two or all
three hashes are cut into bands, so that few edits are equal in a band of each. Edits with three equal hashes are compared once.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from pydantic import Field

from stages.filter.gates.gate import SEEN, Gate, GateConfig

if TYPE_CHECKING:
    from stages.engine.tables import Tables

HASHES = ("change_phash", "edited_phash", "source_phash")
"""Those that tell edits of one photograph apart come first."""
BITS = 64
FIRST = 256
"""Edits of an instruction with which each later one is compared in any case."""
PART = 2_000_000
"""Edits that are compared at a time, with all of the same words: what the joins need of them stays in memory."""
_DISTANCE = f"greatest({', '.join(f'bit_count(xor(later.{name}, earlier.{name}))' for name in HASHES)})"


class NearDuplicateGate(GateConfig):
    """Almost the same edit with the same words, earlier in the data set."""

    bits: int = Field(4, ge=0, le=64, description="Bits by which each of three perceptual hashes may differ")


def compare(database: Tables, config: NearDuplicateGate) -> str:
    """Distances to the first edits of the same words, and to all near ones."""
    database.execute("CREATE OR REPLACE TABLE nearest (number BIGINT, bits BIGINT)")
    parts = -(-database.number(f"SELECT count(*) FROM {SEEN}") // PART)
    for part in range(parts):
        _compare_some(database, config, f"hash(instruction) % {parts} = {part}")
    return f"SELECT number, bits::DOUBLE AS value, bits <= {config.bits} AS caught, {config.bits}::DOUBLE AS threshold FROM nearest"


def _compare_some(database: Tables, config: NearDuplicateGate, where: str) -> None:
    """Add the edits ``where`` that holds to the table ``nearest``: all edits of the same words, or none."""
    from stages.engine.near_hashes import bands

    hashes = ", ".join(HASHES)
    for name, rows in {
        "together": f"SELECT number, instruction, {hashes} FROM {SEEN} WHERE {where}",
        "texts": "SELECT instruction, min(number) AS text FROM together GROUP BY ALL HAVING count(*) > 1",
        "alike": f"SELECT number, text, {hashes} FROM together JOIN texts USING (instruction)",
        "different": f"SELECT min(number) AS number, text, {hashes} FROM alike GROUP BY text, {hashes}",
        "sizes": f"SELECT text, count(*) AS size FROM different GROUP BY text HAVING size > {FIRST}",
        "often": "SELECT different.* FROM different SEMI JOIN sizes USING (text)",
        # All edits of a rare text, the first ones of a frequent one: a list of places for every text would not fit in memory
        "firsts": f"SELECT unnest(min(number, {FIRST})) AS number FROM often GROUP BY text",
        "earlier": "FROM different ANTI JOIN sizes USING (text) UNION ALL FROM often SEMI JOIN firsts USING (number)",
        # Equal hashes again, then the first edits of the same words
        "near": f"SELECT alike.number, 0 AS bits FROM alike JOIN different USING (text, {hashes}) WHERE alike.number > different.number",
    }.items():
        database.execute(f"CREATE OR REPLACE TABLE {name} AS {rows}")
    _add_near(database, "different", "earlier")
    edits, pairs = (database.number(f"SELECT coalesce(sum(size{power}), 0) FROM sizes") for power in ("", " * size"))
    if edits:
        masks = bands(min(config.bits, BITS - 1))
        for chosen in product(masks, repeat=_hashes_in_bands(edits, pairs, config.bits + 1)):
            equal = (
                f"later.{name} & {band}::UBIGINT = earlier.{name} & {band}::UBIGINT" for name, band in zip(HASHES, chosen, strict=False)
            )
            _add_near(database, "often", "often", " AND ".join(["TRUE", *equal]), config.bits)
    database.execute("INSERT INTO nearest SELECT number, min(bits) FROM near GROUP BY number")


def _add_near(database: Tables, later: str, earlier: str, where: str = "TRUE", most: int = BITS) -> None:
    """Add the distance of each of the later edits to the nearest of the earlier ones of the same words, if it is at ``most`` that."""
    pairs = f"{later} AS later JOIN {earlier} AS earlier ON later.text = earlier.text AND earlier.number < later.number AND {where}"
    query = f"SELECT later.number, min({_DISTANCE}) AS bits FROM {pairs} WHERE {_DISTANCE} <= {most} GROUP BY later.number"
    database.execute(f"INSERT INTO near {query}")


def _hashes_in_bands(edits: int, pairs: int, bands: int) -> int:
    """How many of the three hashes to cut into bands: what takes the fewest steps if bits are drawn; 0 compares all pairs."""
    return min(range(len(HASHES) + 1), key=lambda cut: bands**cut * (edits + pairs / 2 ** (cut * BITS / bands)))


GATE = Gate(
    config=NearDuplicateGate,
    description="Almost the same edit again, by perceptual hashes",
    caption="nearly the same edit before, bits",
    compare=compare,
    reads=("instruction", *HASHES),
)
