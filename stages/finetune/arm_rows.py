"""The pairs of every arm, from the sample indexes of its shards: no image is opened.

Pairs that several arms have are one row, with the arm that has them first. Sources are held out of all arms together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from finetune.precompute.key import null_key, pair_key
from stages.context import Context
from stages.engine import steps
from stages.engine.ids import uniform
from stages.shards import format as shards
from stages.shards import read
from stages.shards.sample_index import open_sample_index


@dataclass(frozen=True, slots=True)
class PairRow:
    """One pair of a shard. key, null_key: names of its entry and of its source's null condition."""

    key: str
    null_key: str
    sample_id: str
    folder: str
    shard: str
    instruction: str
    source_sha256: str
    edited_sha256: str


def arm_rows(context: Context, arm: str, encoding: str) -> list[PairRow]:
    """Pairs of an arm in the order of its shards.

    Raises ``ValueError`` when the shards are not those that this run's filter step wrote, or are damaged.
    """
    folder = read.folder_in(context, arm)
    index = shards.read_index(folder)
    own = context.run.step(steps.FILTER).path / "shards" / arm
    if index != shards.read_index(str(own)):
        raise ValueError(
            f"{folder} has shards of another run than {context.run.path}; write this run's again with `pipeline run filter --force`, "
            "or name another folder in filter.shards.target"
        )
    listed, faults = open_sample_index(folder, index)
    if listed is None:
        raise ValueError(f"{folder}: {faults[0]}; {shards.REMEDY}")
    return [
        PairRow(
            key=pair_key(encoding, source_sha256=source, edited_sha256=edited, instruction=instruction),
            null_key=null_key(encoding, source_sha256=source),
            sample_id=sample_id,
            folder=folder,
            shard=shard,
            instruction=instruction,
            source_sha256=source,
            edited_sha256=edited,
        )
        for shard, rows in listed.by_shard(["sample_id", "instruction", "source_sha256", "edited_sha256"])
        for sample_id, instruction, source, edited in zip(*(column.to_pylist() for column in rows.columns), strict=True)
    ]


def distinct(arms: Sequence[Sequence[PairRow]]) -> list[PairRow]:
    """Every pair once, as the first arm that has it has it."""
    found: dict[str, PairRow] = {}
    for rows in arms:
        for row in rows:
            found.setdefault(row.key, row)
    return list(found.values())


def held_out_rows(rows: Sequence[PairRow], count: int, seed: int) -> list[PairRow]:
    """At least `count` pairs, of sources drawn by their content: with a source come all its pairs. Fewer only where there are no more."""
    by_source: dict[str, list[PairRow]] = {}
    for row in sorted(rows, key=lambda row: row.key):
        by_source.setdefault(row.source_sha256, []).append(row)
    found: list[PairRow] = []
    for source in sorted(by_source, key=lambda source: uniform("held-out", seed, source)):
        if len(found) >= count:
            break
        found += by_source[source]
    return found
