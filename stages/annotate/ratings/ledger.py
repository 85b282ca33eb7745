"""The ledger: all accepted ratings of a run, in batches in the order of ingest. It is append-only.

A batch is one file: its ratings, its quarantine and, for the rating page, its revision history, published as one folder under
``annotate/units``. :func:`current` returns the ratings that no later revision has replaced. The step's index lists the batches and is
published last, so a crash leaves the ledger unchanged, and a batch that the next ingest of the same files takes in. Ingesting the same
content twice adds nothing. Every step that reads the ledger compares its files with the index first, and refuses a batch that is not in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stages.annotate.agreement import alpha as agreement
from stages.annotate.ratings import revisions
from stages.annotate.ratings.delivery import Cell, Delivery, ExistingRating, ImportedItem, Revision
from stages.annotate.ratings.imported_items import items_of
from stages.annotate.ratings.rating_task import RANKING, RatingTask
from stages.annotate.ratings.validate import Checked
from stages.engine import contracts, storage
from stages.engine.ids import settings_hash
from stages.engine.rundir import Index, StepFolder
from stages.engine.units import publish_unit


@dataclass(frozen=True)
class Batch:
    """One ingested file. ``ratings`` = ``accepted`` + ``duplicates`` + quarantined rows, which are counted by reason.

    superseded: earlier ratings that this batch replaced.
    """

    key: str
    file: str
    sha256: str
    format: str
    ratings: int
    accepted: int
    duplicates: int
    quarantined: dict[str, int] = field(default_factory=dict)
    superseded: int = 0


@dataclass(frozen=True)
class Addition:
    """A new batch: its validated rows, tables of its imported items or of the pairs that it compares, and its new revisions."""

    batch: Batch
    checked: Checked
    more: Mapping[str, pa.Table]
    revisions: Sequence[Revision] = ()


def batch_key(delivery: Delivery, rating_task: RatingTask) -> str:
    """Hash of a delivery's content and of the task that it is for."""
    name = delivery.file if delivery.named else ""
    return settings_hash(delivery.sha256, delivery.format, name, rating_task.inputs, rating_task.settings)


def open_ledger(
    folder: StepFolder, *, inputs: Mapping[str, str], settings: Mapping[str, Any], given: Mapping[str, Collection[str]], force: bool
) -> Index | None:
    """The ledger's index, or None for a new ledger. given: keys of the batches to append, each with its submissions.

    Raises ``ValueError`` when the ledger has other inputs or settings or a damaged file, and when it has batches that neither its index
    lists nor the given ones contain; with ``force`` a new ledger is started instead.
    """
    index = folder.index()
    problem = _problem(folder, index, inputs, settings) if index else None
    problem = problem or _unlisted(folder, index, given)
    if problem is None:
        return index
    if force:
        return None
    raise ValueError(f"the ledger in {folder.path} {problem}, or start a new ledger from the files given with --force")


def _unlisted(folder: StepFolder, index: Index | None, given: Mapping[str, Collection[str]]) -> str | None:
    """What to do about batches that no index lists, and that are not given, so that the next index would remove them. Or None.

    A page database that has grown since its ingest was killed is another batch, which contains the submissions of that one.
    """
    listed = {batch.key for batch in batches(index)}
    submissions = {name for key, names in given.items() if key not in listed for name in names}
    there = {path.parent.name for path in folder.path.glob("units/[!.]*/ratings.parquet")} - listed
    lost = [batch for batch in sorted(there - given.keys()) if not _is_contained(folder.path / "units" / batch, submissions)]
    if not lost:
        return None
    if index is None:
        return (
            f"has lost its index.json, and of its {len(there)} batches {len(lost)} are not of the files given (first units/{lost[0]}); "
            "restore index.json from a backup, or ingest all files of ratings again in one command"
        )
    return (
        f"has batches that its index.json does not list (first units/{lost[0]}); if `pipeline annotate ingest` was killed, run it again "
        "with the same files; if index.json is an old one, restore the newer one; if the batch should not count, move it out of units"
    )


def _is_contained(batch: Path, submissions: Collection[str]) -> bool:
    path = batch / "revisions.parquet"
    return path.exists() and set(storage.read_table(path, ["submission"])["submission"].to_pylist()) <= set(submissions)


def _problem(folder: StepFolder, index: Index, inputs: Mapping[str, str], settings: Mapping[str, Any]) -> str | None:
    """Why batches cannot be appended and what to do, or None."""
    if index.inputs.keys() != inputs.keys():
        return f"contains ratings of {' and '.join(index.inputs)}, not of {' and '.join(inputs)}; use another --run"
    if index.inputs != dict(inputs):
        return "was made for other candidates; use another --run"
    changed = [name for name, value in settings.items() if index.settings[name] != value]
    if changed:
        name = changed[0]
        return f"was made with {name} {index.settings[name]}, not with {settings[name]}; restore that setting or use another --run"
    return _damage(folder, index)


def verified(folder: StepFolder) -> Index:
    """The ledger's index, with every listed file as it was ingested, and no batch beside them.

    Raises ``ValueError`` while nothing was ingested, and naming the file and its batch where one is missing, changed or not listed.
    """
    index = folder.require()
    problem = _damage(folder, index) or _unlisted(folder, index, {})
    if problem is not None:
        raise ValueError(f"the ledger in {folder.path} {problem}, or start a new ledger with `pipeline annotate ingest --force`")
    return index


def _damage(folder: StepFolder, index: Index) -> str | None:
    damaged = folder.damage(index)
    if damaged is None:
        return None
    batch = next((batch.file for batch in batches(index) if batch.key == PurePath(damaged).parent.name), None)
    return f"is damaged: {damaged} (batch {batch}) is missing or changed; restore that file from a backup"


def batches(index: Index | None) -> list[Batch]:
    """The batches of a ledger in their order."""
    return [Batch(**value) for value in index.results["batches"]] if index else []


def current(folder: StepFolder) -> pa.Table:
    """The ratings that count, in the order of the ledger. Raises ``ValueError`` as :func:`verified` does."""
    verified(folder)
    return _counting(folder)


def _counting(folder: StepFolder) -> pa.Table:
    return revisions.counting(folder.read("ratings"), folder.read("revisions"))


def history(folder: StepFolder, index: Index | None) -> revisions.Revisions:
    """All revisions in the ledger."""
    return revisions.read(folder.read("revisions")) if index else revisions.Revisions()


def existing_ratings(folder: StepFolder, index: Index | None) -> dict[Cell, ExistingRating]:
    """The rating that counts in every cell."""
    if index is None:
        return {}
    rows = _counting(folder).select(["candidate_id", "dimension", "annotator", "round", "score", "rated_at", "submission"])
    *cell, score, time, submission = (column.to_pylist() for column in rows.columns)
    return dict(zip(zip(*cell, strict=True), map(ExistingRating, score, time, submission), strict=True))


def items(folder: StepFolder, index: Index | None) -> list[ImportedItem]:
    """Items imported with earlier files."""
    return items_of(folder.read("sources"), folder.read("candidates")) if index and "sources" in index.artifacts else []


def append(
    folder: StepFolder,
    index: Index | None,
    rating_task: RatingTask,
    additions: Sequence[Addition],
    *,
    settings: Mapping[str, Any],
    tasks: Mapping[str, str],
) -> Index:
    """Publish new batches and then the index. tasks: kind of edit of every group, for agreement by kind."""
    all_batches = batches(index) + [addition.batch for addition in additions]
    all_settings = {**settings, "batches": [batch.key for batch in all_batches]}
    draft, _ = folder.begin(settings=all_settings, inputs=rating_task.inputs, force=True)
    artifacts = {name: list(parts) for name, parts in index.artifacts.items()} if index else {}
    for addition in additions:
        ratings = contracts.table("ratings", addition.checked.accepted)
        quarantine = contracts.table("quarantine", [asdict(row) for row in addition.checked.quarantine])
        tables = {"ratings": ratings, "quarantine": quarantine, **addition.more}
        if addition.revisions:
            tables["revisions"] = contracts.table("revisions", [one._asdict() for one in addition.revisions])
        parts = publish_unit(folder.path, addition.batch.key, tables)
        for name, part in parts.items():
            artifacts.setdefault(name, []).append(part)
    quarantined = sum((Counter(batch.quarantined) for batch in all_batches), Counter[str]())
    counts = {
        "in": sum(batch.ratings for batch in all_batches),
        "out": sum(batch.accepted for batch in all_batches),
        "duplicates": sum(batch.duplicates for batch in all_batches),
        "quarantined": quarantined.total(),
    }
    assert counts["in"] == counts["out"] + counts["duplicates"] + counts["quarantined"], f"the ledger does not balance: {counts}"
    superseded = sum(batch.superseded for batch in all_batches)
    counting = revisions.counting(*(folder.read_table(name, artifacts.get(name, [])) for name in ("ratings", "revisions")))
    assert counting.num_rows == counts["out"] - superseded, f"{counting.num_rows} ratings count of {counts}, {superseded} superseded"
    ledger, levels, seed = scores_only(counting), rating_task.scale.levels, settings["seed"]
    results: dict[str, Any] = {
        "batches": [asdict(batch) for batch in all_batches],
        "superseded": superseded,
        "annotators": len(set(ledger["annotator"].to_pylist())),
        "agreement": agreement.summary(ledger, levels, seed=seed),
        "agreement_by_task": agreement.by_task(ledger, tasks, levels, seed=seed),
    }
    return folder.publish(draft, artifacts=artifacts, counts=counts, quarantined=dict(sorted(quarantined.items())), results=results)


def scores_only(ratings: pa.Table) -> pa.Table:
    """Ratings without rankings, whose scores are ranks (:mod:`stages.annotate.consensus.rankings`)."""
    return ratings.filter(pc.not_equal(ratings["round"], RANKING))
