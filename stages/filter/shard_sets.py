"""Shards of selections: first each sample is assigned to a shard, then every shard is a unit of work.

Images are stored once, in the data set they came in: a worker reads those of its shard again, and a sample whose content is no longer what
was scored is an error. A set of shards is finished when its ``index.json`` is there; it names everything in it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stages.context import Context
from stages.datasets import readers as edits
from stages.engine import contracts, hashed_files, storage
from stages.engine.ids import settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import StepFolder
from stages.engine.tables import batches
from stages.engine.units import Unit, UnitOutput, Work
from stages.filter import shard_rows
from stages.filter.selection.scored_rows import ScoredRows
from stages.shards import format as shards
from stages.shards import lease
from stages.shards.config import ShardsConfig
from stages.shards.read import folder_of
from stages.shards.sample_index import SAMPLES


@dataclass(frozen=True)
class Task:
    """One shard to write: where, what gives its rows of the data set, and the file of their selected scores in the same order."""

    folder: str
    name: str
    piece: Callable[[], edits.Slice]
    samples: Path
    selection: str


@dataclass(frozen=True)
class _Picked:
    """The rows of a shard in a plan, picked when they are asked for. The plan stays where it is: a worker is sent these rows."""

    slices: Sequence[edits.Slice]
    samples: Path

    def __call__(self) -> edits.Slice:
        numbers = edits.numbers_of(storage.read_table(self.samples, ["position"])["position"])
        return edits.pick(self.slices, numbers.tolist())

    def __reduce__(self) -> tuple[Any, ...]:
        return partial, (_itself, self())


def _itself(piece: edits.Slice) -> edits.Slice:
    return piece


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
    chosen: Mapping[str, Path],
    scored: ScoredRows,
    slices: Sequence[edits.Slice],
    about: Mapping[str, Mapping[str, Any]],
    scratch: str | Path,
) -> list[ShardSet]:
    """Sets of shards for selections: their tables, files, by name. ``about``: what the indexes of the sets say besides, by name.

    What a worker is to know of its samples is written into files of the folder ``scratch``, which must stay until the shards are written.
    """
    sets = []
    for name, table in chosen.items():
        folder = folder_of(step, config, name)
        units, contents = [], []
        planned = Path(scratch).absolute() / name
        for number, samples in enumerate(shard_rows.of_shards(scored, table, config, planned / "arranged")):
            path = planned / f"{number:06d}.parquet"
            storage.publish_bytes(path, storage.table_bytes(samples))
            task = Task(folder, shards.shard_name(number), _Picked(slices, path), path, name)
            content = settings_hash("shard", shards.FORMAT, name, number, samples.to_pylist())
            contents.append(content)
            units.append(Unit(settings_hash(content, config.target), task, samples.num_rows))  # a unit is done where it was written
        sets.append(ShardSet(name, settings_hash("shards", contents, dict(about[name])), folder, units, about[name]))
    return sets


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
        described, listed = ([step.path / records[unit.key].parts[name].path for unit in entry.units] for name in ("shard", "sample_index"))
        written = [shards.Shard(**row) for path in described for row in storage.read_table(path).to_pylist()]
        lease.check(entry.folder, owner)
        _remove_stale(entry.folder, {shard.name for shard in written})
        schema = pq.read_schema(listed[0])
        sample_index = pa.RecordBatchReader.from_batches(schema, batches(listed, schema))
        shards.publish(entry.folder, written, sample_index, {"selection": entry.name, "key": entry.key, **entry.about})
        lease.release(entry.folder, owner)
        for unit in entry.units:
            shutil.rmtree(step.path / "units" / unit.key, ignore_errors=True)
    return {entry.name: shards.read_index(entry.folder) for entry in sets}


def make_work() -> Work:
    """The work of one shard."""

    def work(task: Task) -> UnitOutput:
        shard, sample_index = shards.write_shard(task.folder, task.name, _samples(task))
        return UnitOutput({"shard": pa.Table.from_pylist([vars(shard)]), "sample_index": sample_index}, shard.rows, shard.rows)

    return work


def is_whole(folder: str, key: str) -> bool:
    """Whether a finished set of that key is there. Local files are hashed as in a run (``hashed_files``), those of an object store compared
    by size, all in one listing."""
    index = _index(folder)
    if index.get("key") != key:
        return False
    local = storage.local(folder)
    if local:
        wanted = [(entry["name"], entry["sha256"]) for entry in (index["samples"], *index["shards"])]
        return all(hashed_files.has(local, name, sha256) for name, sha256 in wanted)
    there = {Path(entry["name"]).name: entry["size"] for entry in storage.listed(folder)}
    samples = f"{folder}/{SAMPLES}"
    if SAMPLES not in there or storage.sha256_of(samples) != index["samples"]["sha256"]:
        return False
    return all(there.get(entry["name"]) == entry["bytes"] for entry in index["shards"])


def _samples(task: Task) -> Iterator[shards.Sample]:
    rows = storage.read_table(task.samples).to_pylist()
    for row, edit in zip(rows, edits.fetch_known(task.piece(), [row["sample_id"] for row in rows]), strict=True):
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


def _index(folder: str) -> dict[str, Any]:
    """The folder's index, empty where there is none or a damaged one."""
    try:
        return shards.read_index(folder)
    except storage.UnknownLocation:
        raise
    except ValueError:
        return {}


def _forget_lost(step: StepFolder, unit: Unit) -> None:
    """A unit whose tar is gone or damaged is not done, whatever the log says."""
    record = step.path / "units" / unit.key / "shard.parquet"
    if not record.exists():
        return
    try:
        (shard,) = (shards.Shard(**row) for row in storage.read_table(record).to_pylist())
        there = _is_there(unit.payload.folder, shard)
    except (ValueError, TypeError, OSError):  # the record itself is damaged; Arrow raises the last for its footer
        there = False
    if not there:
        shutil.rmtree(record.parent)


def _is_there(folder: str, shard: shards.Shard) -> bool:
    filesystem, path = storage.locate(f"{folder}/{shard.name}")
    if not filesystem.exists(path) or filesystem.size(path) != shard.bytes:
        return False
    return storage.local(folder) is None or storage.sha256_of(path) == shard.sha256


def _remove_stale(folder: str, names: set[str]) -> None:
    """Shards of an earlier, larger set, and what a killed worker left."""
    filesystem, _ = storage.locate(folder)
    for file in storage.listed(folder):
        name = Path(file["name"]).name
        if (name.startswith("shard-") and name.endswith(".tar") and name not in names) or name.startswith(storage.TEMPORARY):
            filesystem.rm(file["name"])
