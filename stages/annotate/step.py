"""Step annotate: export candidates to raters, ingest their ratings into the ledger.

``export`` writes the packet for annotators, ``simulate`` lets the toy world's raters fill it in, ``ingest`` validates files and appends
them to the ledger. Files of people and of simulated raters are handled alike. Each file is one batch; ingesting the same content again adds
nothing. Unit of resume: one file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from stages.annotate import simulate as simulated
from stages.annotate.config import SimulatedRaters
from stages.annotate.formats import page_database, pseudonyms
from stages.annotate.formats import read as formats
from stages.annotate.formats.files import PARQUET
from stages.annotate.packet import group_list, plan, rubric
from stages.annotate.packet import write as packet
from stages.annotate.page import server_lock
from stages.annotate.page.roster import folder_of, roster_of
from stages.annotate.ratings import imported_items, ledger, published_edits, swapped
from stages.annotate.ratings.delivery import Delivery, ImportedItem
from stages.annotate.ratings.groups import incomplete_warnings, raters_of
from stages.annotate.ratings.ledger import Addition, Batch
from stages.annotate.ratings.rating_task import ADJUDICATION, BENCHMARK, PILOT, RANKING, RatingTask, generated_task
from stages.annotate.ratings.validate import Checked, clock_warnings, validate
from stages.context import Context
from stages.datasets.io.files import find
from stages.engine import contracts, steps, storage
from stages.engine.rundir import Index

STEP = steps.ANNOTATE
ROUNDS = (PILOT, ADJUDICATION, BENCHMARK, RANKING)
"""Rounds for which groups can be exported; the others follow from the plan and from what was rated."""
FIRST_EXPORT = "first-export.json"
"""Time of the first export by project. It is no part of the packet, which is the same wherever it is made."""


@dataclass(frozen=True)
class IngestResult:
    """index: of the ledger; new: batches that this ingest added; known: batches of files that the ledger had already."""

    index: Index
    new: list[Batch]
    known: list[Batch]
    warnings: list[str]


def export(
    context: Context, limit: int | None = None, groups: str | Path | None = None, *, round: str | None = None, replace: bool = False
) -> Path:
    """Add groups to the packet ``annotate/export/`` and to the plan ``annotate/plan.json``; returns the packet's folder.

    limit: the first groups of the seeded order, default all; a smaller export is the beginning of a larger one. groups: file that lists
    the groups instead; they are assigned first, and a listed group that has ratings in the ledger gets one further rater. Gold groups are
    always in the packet. round: a round of its own for these groups (:data:`ROUNDS`); adjudication takes its cells from the list. replace:
    start a new packet and plan. A running server takes added groups up by itself; it asks for the old packet as long as it runs, so
    replacing one is refused. Raises ``ValueError`` also when generate is not done, for a list with unknown groups, for a rubric that does
    not fit, and for a gold file with too few groups.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"--limit {limit}: give the number of groups to export, at least 1")
    folder, rating_task, config = context.run.step(steps.ANNOTATE), generated_task(context), context.flow.annotate.plan
    texts = rubric.read(context.flow.annotate.rubrics, rating_task)
    gold = plan.read_gold(context.flow.annotate, rating_task)
    order = list(rating_task.sampled) if groups is None else group_list.read(groups, rating_task)
    listed = order[:limit]
    wanted = set(listed)
    chosen = [*listed, *(group for group in rating_task.sampled if group in gold and group not in wanted)]
    if round == ADJUDICATION and groups is None:
        raise ValueError("--round adjudication needs --groups with the adjudicate.csv that `pipeline annotate qc` wrote")
    disputed = group_list.disputed(groups, rating_task) if groups is not None and round == ADJUDICATION else {}
    ratings = ledger.current(folder) if (groups is not None or round) and folder.index() is not None else None
    rated = raters_of(ratings) if ratings is not None else {}
    path = folder.path / "plan.json"
    target = folder.path / "export"
    adds = not replace and plan.belongs_to(path, rating_task) and packet.is_of(target, rating_task)
    before = plan.read(path) if adds else None
    if before is None and path.exists() and server_lock.is_held(folder_of(context.run)):
        raise ValueError(
            f"`pipeline annotate serve` uses the packet in {folder.path}, which this export would replace; stop it first"
            + ("" if replace else ", or use another --run: the packet is of other candidates, other dimensions or another scale")
        )
    added = {group: rated[group] for group in listed if group in rated}
    first = listed if groups is not None or round is not None else ()
    _note_first_export(folder.path, rating_task)
    every = packet.write(target, context.run.step(steps.GENERATE), rating_task, chosen, texts, replace=before is None)
    settings = {"seed": context.flow.seed, "rated": added, "first": first, "before": before, "round": round, "disputed": disputed}
    plan.write(path, plan.draw(rating_task, every, config, gold, **settings))
    return target


def _note_first_export(folder: Path, task: RatingTask) -> None:
    """Record the time of a first export; not where a plan is there and its record is lost: with a later time ratings would be set aside."""
    path = folder / FIRST_EXPORT
    times = storage.read_json(path) if path.exists() else {}
    if task.project not in times and (times or not (folder / "plan.json").exists()):
        storage.publish_json(path, times | {task.project: datetime.now(UTC).isoformat(timespec="seconds")})


def _exported(context: Context, task: RatingTask) -> datetime | None:
    """Time of the first export of a task; None where there was none, and for simulated raters, whose clock is not ours."""
    path = context.run.step(steps.ANNOTATE).path / FIRST_EXPORT
    times = storage.read_json(path) if path.exists() and context.flow.annotate.simulate is None else {}
    return datetime.fromisoformat(times[task.project]) if task.project in times else None


def is_exported(context: Context) -> bool:
    """Whether there are a packet and a plan of the run's candidates, of all groups or of some. Raises ``ValueError`` before generate."""
    folder, rating_task = context.run.step(steps.ANNOTATE).path, generated_task(context)
    return plan.belongs_to(folder / "plan.json", rating_task) and packet.belongs_to(folder / "export", rating_task)


def simulate(context: Context) -> list[Path]:
    """Write ``annotate/simulated/<rater>.csv`` and return the files for ``ingest``."""
    config = context.flow.annotate.simulate
    if config is None:
        raise ValueError("annotate.simulate is not configured: add it to let simulated raters rate, or ingest the files of people")
    target = context.run.step(steps.ANNOTATE).path / "simulated"
    return simulated.write(target, context.run.step(steps.GENERATE), generated_task(context), config=config, seed=context.flow.seed)


def ingest(
    context: Context, files: Sequence[str | Path], format: str = formats.AUTO, pseudonym_list: str | Path | None = None
) -> IngestResult:
    """Validate files and append them to the ledger, one batch per file; if one file is refused, none is appended.

    A folder among the files counts as its Parquet files. Data sets with imported items (ImagenHub, EditReward-Data, the training JSON) need
    no generate step; where ``generate.candidates`` made candidates of them, they rate these. format: a name of
    :data:`stages.annotate.formats.read.FORMATS`. pseudonym_list: see :mod:`stages.annotate.formats.pseudonyms`. Raises ``ValueError`` for a
    file that is refused as a whole, and when the ledger has other candidates, another scale or other settings of simulated raters, has
    lost its index, or has batches that its index does not list; with ``--force`` a new ledger is started instead.
    """
    if not files:
        raise ValueError("no file of ratings was given; name at least one")
    folder = context.run.step(steps.ANNOTATE)
    people = pseudonyms.read(pseudonym_list) if pseudonym_list is not None else None
    dimensions = context.flow.annotate.dimensions
    rated: pseudonyms.Rated = {}
    deliveries = [pseudonyms.apply(formats.read(file, format, dimensions), people, rated) for file in _listed(files)]
    if context.flow.generate is not None and context.flow.generate.candidates is not None:
        deliveries = published_edits.given_to_candidates(deliveries, context.run.step(steps.GENERATE))
    dataset = imported_items.dataset_of(deliveries)
    items = [item for delivery in deliveries for item in delivery.items]
    version = context.flow.annotate.rubric_version
    rating_task = imported_items.imported_task(dataset, items, version) if dataset else generated_task(context)
    simulate = context.flow.annotate.simulate
    settings = rating_task.settings | {"simulate": _simulated_settings(simulate), "seed": context.flow.seed}
    keys = [ledger.batch_key(delivery, rating_task) for delivery in deliveries]
    given = {key: [one.submission for one in delivery.revisions] for key, delivery in zip(keys, deliveries, strict=True)}
    index = ledger.open_ledger(folder, inputs=rating_task.inputs, settings=settings, given=given, force=context.force)
    old_items = ledger.items(folder, index)
    if dataset:
        rating_task = imported_items.imported_task(dataset, [*old_items, *items], version)
        kinds = {item.source_id: item.task for item in [*old_items, *items]}
    else:
        kinds = context.run.step(steps.GENERATE).column("sources", "source_id", "task")
    existing, history = ledger.existing_ratings(folder, index), ledger.history(folder, index)
    batches = {batch.key: batch for batch in ledger.batches(index)}
    known_items = {item.candidate_id: item for item in old_items}
    known: list[Batch] = []
    additions: list[Addition] = []
    warnings: list[str] = []
    for delivery, key in zip(deliveries, keys, strict=True):
        if key in batches:
            known.append(batches[key])
            continue
        new = history.add(delivery.revisions)
        superseded = history.withdraw(existing)
        now, exported = datetime.now(UTC), _exported(context, rating_task)
        by_page = delivery.format == page_database.FORMAT
        checked = validate(
            delivery,
            rating_task,
            existing,
            batch=key,
            now=None if by_page else now,
            revisions=history,
            exported=None if by_page else exported,
            rubrics=packet.rubric_versions(folder.path / "export"),
        )
        batches[key] = _batch(key, delivery, checked, superseded)
        tables = _item_tables(delivery, known_items) | _comparisons(delivery, rating_task)
        additions.append(Addition(batches[key], checked, tables, new))
        warnings += [*checked.warnings, *_roster_warnings(delivery, context)]
        if by_page:
            warnings += clock_warnings(delivery, now, exported)
        else:
            people_of_file = {row["annotator"] for row in checked.accepted}
            warnings += [f"{delivery.file}: {text}" for text in swapped.warnings(existing, people_of_file, rating_task.dimensions)]
    if index is None or additions:
        index = ledger.append(folder, index, rating_task, additions, settings=settings, tasks=kinds)
    warnings += incomplete_warnings(existing, rating_task)
    return IngestResult(index, [addition.batch for addition in additions], known, warnings)


def _simulated_settings(config: SimulatedRaters | None) -> dict[str, Any] | None:
    """Settings that the ledger belongs to."""
    return None if config is None else config.model_dump(mode="json")


def _roster_warnings(delivery: Delivery, context: Context) -> list[str]:
    """Warnings about ratings in the page's database by people with a revoked link, or who are not on this run's roster if it has one."""
    known = {person.pseudonym: person for person in roster_of(context.run).people}
    if delivery.format != page_database.FORMAT or not known:
        return []
    rated = Counter(row.annotator_id for row in delivery.rows)
    revoked = sorted(name for name in rated if name in known and known[name].revoked)
    unknown = sorted(rated.keys() - known.keys())
    found = []
    for names, why in ((revoked, "whose link is revoked"), (unknown, "not on the roster of this run")):
        if names:
            ratings = sum(rated[name] for name in names)
            found.append(
                f"{delivery.file}: {ratings} ratings are by {', '.join(names)} ({why}); they count like all others; to exclude them in "
                "`pipeline annotate qc`, add these names to annotate.quality.exclude"
            )
    return found


def _batch(key: str, delivery: Delivery, checked: Checked, superseded: int) -> Batch:
    reasons = Counter(row.reason for row in checked.quarantine)
    return Batch(
        key=key,
        file=delivery.file,
        sha256=delivery.sha256,
        format=delivery.format,
        ratings=delivery.ratings,
        accepted=len(checked.accepted),
        duplicates=checked.duplicates,
        quarantined=dict(sorted(reasons.items())),
        superseded=superseded,
    )


def _item_tables(delivery: Delivery, known: dict[str, ImportedItem]) -> dict[str, pa.Table]:
    """Tables of the imported items that the ledger does not have; adds them to ``known``, the items by candidate."""
    new = [item for item in delivery.items if item.candidate_id not in known]
    if delivery.dataset is None or not new:
        return {}
    tables = imported_items.tables(delivery.dataset, new, {item.source_id for item in known.values()})
    known.update((item.candidate_id, item) for item in new)
    return tables


def _comparisons(delivery: Delivery, task: RatingTask) -> dict[str, pa.Table]:
    """Table of the pairs that a file compares, where it rates the run's candidates."""
    if delivery.dataset is not None or not delivery.compared:
        return {}
    rows = [{"source_id": task.group_of[a], "candidate_a": a, "candidate_b": b} for a, b in delivery.compared]
    return {"comparisons": contracts.table("comparisons", rows)}


def _listed(files: Sequence[str | Path]) -> Iterator[str | Path]:
    """The files, and the Parquet files of those that are folders."""
    for file in files:
        if Path(file).is_dir():
            folder, names = find(str(file), suffixes=PARQUET, what="--file")
            yield from (f"{folder}/{name}" for name in names)
        else:
            yield file


def run(context: Context) -> Index:
    """Ratings inside the whole flow: simulated where the configuration says so, otherwise they must have been ingested.

    Raises ``ValueError`` with the commands to use where there are none.
    """
    if context.flow.annotate.simulate is None:
        index = context.run.step(STEP).index()
        if index is None:
            raise ValueError(
                "there are no ratings yet: `pipeline annotate export` writes the packet for the raters, "
                "`pipeline annotate ingest` reads what they return"
            )
        return index
    export(context)
    ingest(context, simulate(context))
    return context.run.step(STEP).require()
