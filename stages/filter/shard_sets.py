"""Shards of selections: first each sample is assigned to a shard, then every shard is a unit of work.

Images are stored once, in the data set they came in: a worker reads those of its shard again, and a sample whose content is no longer what
was scored is an error. A set of shards is finished when its ``index.json`` is there; it names everything in it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fsspec.implementations.local import LocalFileSystem

from stages.context import Context
from stages.datasets import readers as edits
from stages.engine import contracts, hashed_files, storage
from stages.engine.ids import settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import StepFolder
from stages.engine.units import Unit, UnitOutput, Work
from stages.filter.known import Known
from stages.filter.selection.order import fixed_width, hashed
from stages.shards import format as shards
from stages.shards import lease
from stages.shards.config import ShardsConfig
from stages.shards.read import folder_of

LOCATION = ["position", "image_bytes"]
"""Columns of ``edits`` that planning shards needs beside the scores."""


@dataclass(frozen=True)
class Task:
    """One shard to write: where, which rows of the data set, and their selected scores in the same order."""

    folder: str
    name: str
    piece: edits.Slice
    samples: pa.Table
    selection: str


@dataclass(frozen=True)
class ShardSet:
    """The shards of one selection. ``key`` names their content; ``folder`` is a path or URL; ``about`` goes into their index."""

    name: str
    key: str
    folder: str
    units: Sequence[Unit]
    about: Mapping[str, Any]


def assign(
    step: StepFolder,
    config: ShardsConfig,
    chosen: Mapping[str, pa.Table],
    scores: pa.Table,
    delivered: pa.Table,
    slices: Sequence[edits.Slice],
    about: Mapping[str, Mapping[str, Any]],
    known: Known,
) -> list[ShardSet]:
    """Sets of shards for selection tables by name. ``scores``, ``delivered``: of all samples in one order, rows of the ``scores`` contract
    and the columns :data:`LOCATION` of ``edits``; ``about``: what the indexes of the sets say besides, by name."""
    for name in LOCATION:
        scores = scores.append_column(name, delivered[name])
    sets = []
    for name, table in chosen.items():
        folder = folder_of(step, config, name)
        samples = _joined(_ordered(table, config.shuffle_seed), scores)
        units, contents = [], []
        parts = [*cuts(samples["image_bytes"].to_numpy(), config)]
        for number, ((first, last), texts) in enumerate(zip(parts, known.texts(samples["sample_id"], parts), strict=True)):
            part = samples.take(np.arange(first, last)).append_column("known", texts)  # a slice would travel with the whole table
            piece = edits.pick(slices, edits.numbers_of(part["position"]).tolist())
            task = Task(folder, shards.shard_name(number), piece, part, name)
            content = settings_hash("shard", shards.FORMAT, name, number, part.to_pylist())
            contents.append(content)
            units.append(Unit(settings_hash(content, config.target), task, part.num_rows))  # a unit is done where it was written
        sets.append(ShardSet(name, settings_hash("shards", contents, dict(about[name])), folder, units, about[name]))
    return sets


def cuts(image_bytes: np.ndarray, config: ShardsConfig) -> Iterator[tuple[int, int]]:
    """First row and the row after the last of every shard; ``image_bytes``: int64 [n], in the order of the shards."""
    ends = np.cumsum(image_bytes)
    first = 0
    while first < len(ends):
        last = min(first + config.samples_per_shard, len(ends))
        if config.bytes_per_shard is not None:
            before = ends[first] - image_bytes[first]
            fitting = int(np.searchsorted(ends, before + config.bytes_per_shard, side="right"))
            last = min(last, max(fitting, first + 1))
        yield first, last
        first = last


def write(context: Context, step: StepFolder, sets: Sequence[ShardSet], *, workers: int) -> dict[str, dict[str, Any]]:
    """Write what is not there yet; returns the index of every set by name.

    Raises ``ValueError`` when another run writes there, when a folder contains another finished set and ``--force`` is off, or when the
    data set changed since it was scored.
    """
    missing = [entry for entry in sets if not is_whole(entry.folder, entry.key)]
    owner = lease.owner_of(step)
    for entry in sets:
        if entry not in missing:
            lease.release_left(entry.folder, owner)
    _take_all(missing, owner, force=context.force)
    for entry in missing:
        _remove_index(entry.folder)
        for unit in entry.units:
            _forget_lost(step, unit)
    units = [unit for entry in missing for unit in entry.units]
    result = run_units(step, units, make_work, cluster=context.cluster, workers=workers, phase="write shards", rows_are="samples")
    records = {unit.key: record for unit, record in zip(units, result.records, strict=True)}
    for entry in missing:
        parts = [records[unit.key].parts for unit in entry.units]
        described, sample_index = (  # "twin" names a file of resumable units, so it stays
            pa.concat_tables([storage.read_table(step.path / part[name].path) for part in parts]) for name in ("shard", "twin")
        )
        written = [shards.Shard(**row) for row in described.to_pylist()]
        lease.check(entry.folder, owner)
        _remove_stale(entry.folder, {shard.name for shard in written})
        shards.publish(entry.folder, written, sample_index, {"selection": entry.name, "key": entry.key, **entry.about})
        lease.release(entry.folder, owner)
        for unit in entry.units:
            shutil.rmtree(step.path / "units" / unit.key, ignore_errors=True)
    return {entry.name: shards.read_index(entry.folder) for entry in sets}


def make_work() -> Work:
    """The work of one shard."""

    def work(task: Task) -> UnitOutput:
        shard, sample_index = shards.write_shard(task.folder, task.name, _samples(task))
        return UnitOutput({"shard": pa.Table.from_pylist([vars(shard)]), "twin": sample_index}, rows_in=shard.rows, rows_out=shard.rows)

    return work


def is_whole(folder: str, key: str) -> bool:
    """Whether a finished set of that key is there. Local files are hashed as in a run (``hashed_files``), those of an object store compared
    by size, all in one listing."""
    index = _index(folder)
    if not index or index.get("key") != key:
        return False
    local = storage.local(folder)
    if local:
        wanted = [(entry["name"], entry["sha256"]) for entry in (index["samples"], *index["shards"])]
        return all(hashed_files.has(local, name, sha256) for name, sha256 in wanted)
    there = {Path(entry["name"]).name: entry["size"] for entry in storage.listed(folder)}
    samples = f"{folder}/{shards.SAMPLES}"
    if shards.SAMPLES not in there or storage.sha256_of(samples) != index["samples"]["sha256"]:
        return False
    return all(there.get(entry["name"]) == entry["bytes"] for entry in index["shards"])


def _samples(task: Task) -> Iterator[shards.Sample]:
    rows = task.samples.to_pylist()
    for row, edit in zip(rows, edits.fetch_known(task.piece, [row["sample_id"] for row in rows]), strict=True):
        scores = contracts.scores_by_dimension(row["dimensions"])
        facts = {
            "dataset": edit.dataset,
            "id": edit.row_id,
            "files": {"source": edit.source_path, "edited": edit.edited_path},
            "metadata": json.loads(edit.metadata),
            "flags": row["flags"],
            **json.loads(row["known"]),
            "instruction": edit.instruction,
            "language": edit.language,
            "task": edit.task,
            "licence": edit.licence,
            "position": edit.position,
            "scores": scores | {"overall": {"mean": row["overall_mean"], "sigma": row["overall_sigma"]}},
            "scorer_revision": row["scorer_revision"],
            "change_from_source": row["change_from_source"],
            "selection": {"name": task.selection} | {key: row[key] for key in ("rule", "rank", "score", "stratum")},
        }
        yield shards.Sample(edit.sample_id, edit.source, edit.source_sha256, edit.edited, edit.edited_sha256, facts)


def _ordered(table: pa.Table, shuffle_seed: int | None) -> pa.Table:
    """The selection in the order of the shards: by a seeded hash, so that no trainer sees scores sorted, or by rank."""
    if shuffle_seed is None:
        return table
    ids = fixed_width(table["sample_id"])
    return table.take(np.lexsort((ids, hashed(ids, "shards", shuffle_seed))))


def _joined(table: pa.Table, scored: pa.Table) -> pa.Table:
    """The selection's rows with the columns of ``scored``, in the selection's order."""
    where = pc.index_in(table["sample_id"], value_set=scored["sample_id"].combine_chunks())
    assert where.null_count == 0, "everything selected was scored"
    rows = scored.take(where)
    for name in ("rank", "stratum", "score", "rule"):
        rows = rows.append_column(name, table[name])
    return rows


def _take_all(missing: Sequence[ShardSet], owner: lease.Owner, *, force: bool) -> None:
    """Take the leases of all sets, or of none. A finished set of other content is not replaced unasked."""
    taken: list[str] = []
    try:
        for entry in missing:
            lease.take(entry.folder, owner)
            taken.append(entry.folder)
            index = _index(entry.folder)
            if index and index.get("key") != entry.key and not force:
                raise ValueError(
                    f"{entry.folder} contains finished shards of other content; replace them with --force, or choose another name"
                )
    except ValueError:
        for folder in taken:
            lease.release(folder, owner)
        raise


def _remove_index(folder: str) -> None:
    """Make the folder unfinished before anything in it changes."""
    filesystem, path = storage.locate(f"{folder}/{shards.INDEX}")
    if filesystem.exists(path):
        filesystem.rm(path)


def _index(folder: str) -> dict[str, Any] | None:
    """The folder's index: None where there is none, empty where it is damaged."""
    filesystem, path = storage.locate(f"{folder}/{shards.INDEX}")
    if not filesystem.exists(path):
        return None
    try:
        return shards.read_index(folder)
    except ValueError:
        return {}


def _forget_lost(step: StepFolder, unit: Unit) -> None:
    """A unit whose tar is gone or damaged is not done, whatever the log says."""
    record = step.path / "units" / unit.key / "shard.parquet"
    if not record.exists():
        return
    shard = shards.Shard(**storage.read_table(record).to_pylist()[0])
    if not _is_there(unit.payload.folder, shard):
        shutil.rmtree(record.parent)


def _is_there(folder: str, shard: shards.Shard) -> bool:
    filesystem, path = storage.locate(f"{folder}/{shard.name}")
    if not filesystem.exists(path) or filesystem.size(path) != shard.bytes:
        return False
    return not isinstance(filesystem, LocalFileSystem) or storage.sha256_of(path) == shard.sha256


def _remove_stale(folder: str, names: set[str]) -> None:
    """Shards of an earlier, larger set, and what a killed worker left."""
    filesystem, path = storage.locate(folder)
    filesystem.invalidate_cache()
    for file in filesystem.ls(path, detail=False):
        name = Path(file).name
        if (name.startswith("shard-") and name.endswith(".tar") and name not in names) or name.startswith(storage.TEMPORARY):
            filesystem.rm(file)
