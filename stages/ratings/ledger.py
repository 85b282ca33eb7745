"""The ledger: all ratings that a run has accepted, in batches in the order of their ingest; nothing in it is ever changed.

A batch is one delivered file: its ratings and its quarantine, published as one folder under ``annotate/units``. The step's index lists the
batches in order and is published last, so a crash in between leaves the ledger as it was. A file whose content is in the ledger
already adds nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stages import contracts
from stages.ids import settings_hash
from stages.ratings import agreement, imagenhub
from stages.ratings.delivery import Delivery, Item
from stages.ratings.manifest import Manifest
from stages.ratings.validate import Cell, Checked, Said
from stages.rundir import Index, StepFolder
from stages.units import publish_unit

STEP = "annotate"


@dataclass(frozen=True)
class Batch:
    """One file of the ledger. ``ratings`` = ``accepted`` + ``duplicates`` + what is quarantined, by reason."""

    key: str
    file: str
    sha256: str
    format: str
    ratings: int
    accepted: int
    duplicates: int
    quarantined: dict[str, int] = field(default_factory=dict)


def batch_key(delivery: Delivery, manifest: Manifest) -> str:
    """Name of a delivery by its content. An ImagenHub file's name says who rated what, so it is part of the content."""
    name = delivery.file if delivery.format == imagenhub.DATASET else ""
    return settings_hash(delivery.sha256, delivery.format, name, manifest.inputs, manifest.settings)


def open_ledger(folder: StepFolder, manifest: Manifest, *, force: bool) -> Index | None:
    """The ledger's index, or None for a new one.

    Raises ``ValueError`` when it holds ratings of other candidates or of another scale, or when a file of it is damaged; ``force``
    then starts a new ledger.
    """
    index = folder.index()
    if index is None:
        return None
    new = "with --force a new ledger is started from the files given"
    if index.inputs != dict(manifest.inputs):
        held = " and ".join(index.inputs)
        problem = "was made for other candidates" if index.inputs.keys() == manifest.inputs.keys() else f"holds ratings of {held}, not of {' and '.join(manifest.inputs)}"
        problem = f"the ledger in {folder.path} {problem}; use another --run, or {new}"
    elif any(index.settings[name] != value for name, value in manifest.settings.items()):
        problem = f"the ledger in {folder.path} has the dimensions {index.settings['dimensions']} on the scale {index.settings['scale']}, the configuration other ones; restore those, or {new}"
    elif (damaged := folder.damage(index)) is not None:
        problem = f"{folder.path / damaged} of the ledger is missing or changed; restore it from a backup, or {new}"
    else:
        return index
    if not force:
        raise ValueError(problem)
    return None


def batches(index: Index | None) -> list[Batch]:
    """The batches of a ledger in their order."""
    return [Batch(**value) for value in index.results["batches"]] if index else []


def said(folder: StepFolder, index: Index | None) -> dict[Cell, Said]:
    """What every rater has said so far."""
    if index is None:
        return {}
    columns = folder.read("ratings", ["candidate_id", "dimension", "annotator", "round", "score", "rated_at"]).columns
    *cell, score, time = (column.to_pylist() for column in columns)
    return dict(zip(zip(*cell, strict=True), zip(score, time, strict=True), strict=True))


def items(folder: StepFolder, index: Index | None) -> list[Item]:
    """Items that ratings files brought with them."""
    return imagenhub.items_of(folder.read("sources"), folder.read("candidates")) if index and "sources" in index.artifacts else []


def append(
    folder: StepFolder,
    index: Index | None,
    manifest: Manifest,
    additions: Sequence[tuple[Batch, Checked, dict[str, pa.Table]]],
    *,
    tasks: dict[str, str],
    seed: int,
) -> Index:
    """Publish new batches (with tables that belong to them) and then the index. ``tasks``: task of every group, for the statistics."""
    all_batches = batches(index) + [batch for batch, _, _ in additions]
    settings = dict(manifest.settings) | {"batches": [batch.key for batch in all_batches], "seed": seed}
    key, _ = folder.begin(settings=settings, inputs=manifest.inputs, force=True)
    artifacts = {name: list(parts) for name, parts in index.artifacts.items()} if index else {}
    for batch, checked, others in additions:
        ratings = contracts.table("ratings", checked.accepted)
        quarantine = contracts.table("quarantine", [asdict(row) for row in checked.quarantine])
        for name, part in publish_unit(folder.path, batch.key, {"ratings": ratings, "quarantine": quarantine, **others}).items():
            artifacts.setdefault(name, []).append(part)
    counts = Counter[str]()
    for batch in all_batches:
        counts.update({"in": batch.ratings, "out": batch.accepted, "duplicates": batch.duplicates, "quarantined": sum(batch.quarantined.values())})
    ledger = _ratings(folder, artifacts)
    results: dict[str, Any] = {
        "batches": [asdict(batch) for batch in all_batches],
        "annotators": len(set(ledger["annotator"].to_pylist())),
        "agreement": agreement.summary(ledger, manifest.scale.levels, seed=seed),
        "agreement_by_task": agreement.by_task(ledger, tasks, manifest.scale.levels, seed=seed),
    }
    return folder.publish(
        Index(
            step=STEP,
            key=key,
            settings=settings,
            inputs=dict(manifest.inputs),
            artifacts=artifacts,
            counts=dict(counts),
            quarantined=_total(batch.quarantined for batch in all_batches),
            results=results,
        )
    )


def _ratings(folder: StepFolder, artifacts: dict[str, list[Any]]) -> pa.Table:
    parts = [pq.read_table(folder.path / part.path, partitioning=None) for part in artifacts["ratings"]]
    return pa.concat_tables(part.cast(contracts.RATINGS) for part in parts)


def _total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for reasons in counts:
        total.update(reasons)
    return dict(sorted(total.items()))
