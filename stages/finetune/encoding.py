"""Encoding the pairs of all arms before any training: units of some pairs of one shard, on Ray actors that have the frozen encoders.

Only what no earlier unit has is encoded. A unit has the null conditions of the sources that are new in it, too.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from finetune.library_editors.config import PretrainedEditorConfig
from finetune.precompute.key import encoding_id
from reward.inputs.decoding import DECODER, decode
from stages.context import Context
from stages.engine import storage, tar
from stages.engine.contracts import Quarantined
from stages.engine.disk import check_room
from stages.engine.ids import settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import StepFolder
from stages.engine.units import Unit, UnitOutput, Work
from stages.finetune import cache
from stages.finetune.arm_rows import PairRow
from stages.finetune.config import EncodeConfig
from stages.shards.sample_index import SAMPLES

if TYPE_CHECKING:
    from finetune.editing_model import Encoders


@dataclass(frozen=True)
class _Task:
    """Some pairs of one shard; ``nulls``: keys of null conditions that this unit makes."""

    rows: tuple[PairRow, ...]
    nulls: frozenset[str]


def encoding_of(editor: PretrainedEditorConfig) -> str:
    """Name of the encoding: of the encoders' files and settings, the working size and the decoder. Reads the files, loads nothing."""
    from finetune import families

    return encoding_id(families.encoders_identity(editor), editor.sampling.side, DECODER)


def encode(
    context: Context, step: StepFolder, editor: PretrainedEditorConfig, config: EncodeConfig, encoding: str, rows: Sequence[PairRow]
) -> cache.Cache:
    """Encode what is missing of these pairs; returns all that is encoded. Raises ``ValueError`` for shards that are damaged."""
    found = cache.find(step, encoding)
    missing = [row for row in rows if not found.knows(row.key, row.null_key, config.ratio_difference)]
    units = _units(missing, found, config, encoding)
    if not units:
        return found
    _check_room(step.path, editor, len(missing))
    made = run_units(
        step,
        units,
        partial(make_work, editor, config),
        cluster=context.cluster,
        workers=config.workers,
        num_gpus=context.cluster.share_of_a_gpu(config.workers),
        phase="encode",
        rows_are="pairs",
    )
    return cache.of_units(step, [*found.units, *made.records])


def _check_room(folder: Path, editor: PretrainedEditorConfig, pairs: int) -> None:
    """Say what the entries will take. Raises ``ValueError`` where the disk does not have it."""
    from finetune.estimate import bytes_per_pair

    needed = pairs * bytes_per_pair(editor, editor.sampling.side)
    print(f"{folder.name}: {pairs:,} pairs to encode, about {needed / 1e9:,.1f} GB", file=sys.stderr, flush=True)
    remedy = "choose another --run directory, a smaller finetune.editor.sampling.side or fewer pairs"
    check_room(folder, needed, f"{pairs:,} encoded pairs", remedy)


def _units(rows: Sequence[PairRow], found: cache.Cache, config: EncodeConfig, encoding: str) -> list[Unit]:
    by_shard: dict[tuple[str, str], list[PairRow]] = {}
    for row in rows:
        by_shard.setdefault((row.folder, row.shard), []).append(row)
    known, units = set(found.places), []
    for (_, shard), members in by_shard.items():
        for first in range(0, len(members), config.unit_pairs):
            part = tuple(members[first : first + config.unit_pairs])
            nulls = frozenset(row.null_key for row in part) - known
            known |= nulls
            key = settings_hash(encoding, [row.key for row in part], sorted(nulls), config.ratio_difference)
            units.append(Unit(key, _Task(part, nulls), len(part), f"{len(part)} pairs of {shard}", encoding))
    return units


def make_work(editor: PretrainedEditorConfig, config: EncodeConfig) -> Work:
    """Load the encoders and return the work of one unit: the table ``encoded``."""
    import torch

    from finetune import families

    encoders = families.open_encoders(editor, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    return partial(_encode, encoders, editor.sampling.side, config)


def _encode(encoders: Encoders, side: int, config: EncodeConfig, task: _Task) -> UnitOutput:
    rows: list[dict[str, Any]] = []
    quarantine: list[Quarantined] = []
    nulls = set(task.nulls)
    for row, source, edited in _images(task.rows):
        made = _pair(encoders, side, config, row, source, edited)
        rows.append({"key": row.key, "name": row.sample_id, **(vars(made) if isinstance(made, cache.SetAside) else made)})
        if isinstance(made, cache.SetAside):
            quarantine.append(Quarantined(row.sample_id, f"{row.shard}: {row.sample_id}", made.reason, made.message))
        if row.null_key in nulls:
            null = _null(encoders, side, source)
            if not isinstance(null, cache.SetAside):
                nulls.remove(row.null_key)
                rows.append({"key": row.null_key, "name": row.source_sha256, **null})
    table = pa.Table.from_pylist(rows, schema=cache.ENCODED)
    return UnitOutput({cache.TABLE: table}, len(task.rows), len(task.rows) - len(quarantine), quarantine)


def _pair(
    encoders: Encoders, side: int, config: EncodeConfig, row: PairRow, source: bytes, edited: bytes
) -> dict[str, Any] | cache.SetAside:
    """The columns of an encoded pair, or why it is set aside."""
    from finetune.precompute.encode import encode_pair, fitted, ratio_difference
    from finetune.precompute.entry import pair_bytes

    try:
        images = [decode(data, what=f"the {role} image") for role, data in (("source", source), ("edited", edited))]
        size = encoders.working_size(*images[0].size, side)
    except ValueError as error:
        return cache.SetAside("unusable-image", str(error))
    difference = ratio_difference(*images)
    if difference > config.ratio_difference:
        return cache.ratio_refused(difference, config.ratio_difference)
    try:
        unread = encoders.unread(fitted(images[0], size), row.instruction)
        if unread:
            return cache.SetAside("long-instruction", unread)
        pair = encode_pair(encoders, *images, row.instruction, size)
    except ValueError as error:
        return cache.SetAside("unreadable-instruction", str(error))
    sizes = (*pair.target.mean.shape[1:], *pair.reference.mean.shape[1:])
    return {"ratio_difference": difference} | dict(zip(cache.SIZES, sizes, strict=True)) | _stored(pair_bytes(pair))


def _null(encoders: Encoders, side: int, source: bytes) -> dict[str, Any] | cache.SetAside:
    """The columns of a source's null condition, or why there is none."""
    from finetune.precompute.encode import encode_null
    from finetune.precompute.entry import condition_bytes

    try:
        image = decode(source, what="the source image")
        size = encoders.working_size(*image.size, side)
    except ValueError as error:
        return cache.SetAside("unusable-image", str(error))
    entry = condition_bytes(encode_null(encoders, image, size))
    return {"ratio_difference": 0.0} | dict.fromkeys(cache.SIZES, 0) | _stored(entry)


def _stored(entry: bytes) -> dict[str, Any]:
    return {"entry": entry, "sha256": hashlib.sha256(entry).hexdigest()}


def _images(rows: Sequence[PairRow]) -> Iterator[tuple[PairRow, bytes, bytes]]:
    """Encoded images of pairs of one shard, read by seeking. Raises ``ValueError`` when they are not those of the sample index."""
    path = f"{rows[0].folder}/{rows[0].shard}"
    try:
        with storage.open_file(path) as file:
            members = _members(file, {row.sample_id for row in rows})
            for row in rows:
                data = {}
                for part, sha256 in (("source", row.source_sha256), ("edited", row.edited_sha256)):
                    member = members.get((row.sample_id, part))
                    if member is None:
                        raise tar.Damaged(f"lacks {row.sample_id}.{part}")
                    file.seek(member.offset)
                    data[part] = file.read(member.size)
                    if hashlib.sha256(data[part]).hexdigest() != sha256:
                        raise tar.Damaged(f"contains another {member.name} at byte {member.offset} than its {SAMPLES} lists")
                yield row, data["source"], data["edited"]
    except FileNotFoundError:
        raise ValueError(f"{path} is missing; run `pipeline shards verify {rows[0].folder}`") from None
    except tar.Damaged as error:
        raise ValueError(f"{path} {error}; run `pipeline shards verify {rows[0].folder}`") from None


def _members(file: Any, wanted: set[str]) -> Mapping[tuple[str, str], tar.Member]:
    found = {}
    for member in tar.scan(file):
        sample_id, _, suffix = member.name.partition(".")
        if sample_id in wanted:
            found[sample_id, suffix.partition(".")[0]] = member
    return found
