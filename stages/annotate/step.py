"""Annotate: candidates go out to raters, ratings come back into one ledger.

``export`` writes the packet that annotators get, ``simulate`` lets the embedded world's raters fill it in, ``ingest`` validates delivered
files and appends them to the ledger. Files of people and of simulated raters take the same way. Ingest is additive: a further file is a
further batch, a file that is in the ledger already adds nothing. Unit of resume: one delivered file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from stages.annotate import simulate as simulated
from stages.annotate.config import AnnotateConfig
from stages.annotate.formats import page_database
from stages.annotate.formats import read as readers
from stages.annotate.packet import group_list, plan
from stages.annotate.packet import write as packet
from stages.annotate.page.roster import roster_of
from stages.annotate.ratings import imported_items as own_items
from stages.annotate.ratings import ledger, manifest, pseudonyms, slots
from stages.annotate.ratings.delivery import Delivery, Item
from stages.annotate.ratings.ledger import STEP, Addition, Batch
from stages.annotate.ratings.manifest import Manifest
from stages.annotate.ratings.validate import Checked, validate
from stages.context import Context
from stages.engine.rundir import Index


@dataclass(frozen=True)
class IngestResult:
    """``new`` and ``known`` are the files as batches of the ledger, new in it or there before; ``index`` is the ledger now."""

    index: Index
    new: list[Batch]
    known: list[Batch]
    warnings: list[str]


class Seen(NamedTuple):
    """Ids of the items that the ledger has."""

    candidates: set[str]
    sources: set[str]


def export(context: Context, limit: int | None = None, groups: str | Path | None = None) -> Path:
    """Write ``annotate/export/`` for the first ``limit`` groups of the seeded order (all without it), or for those that the file ``groups``
    lists; returns the folder. ``annotate/plan.json``, written beside it, says which groups overlap, calibrate and are gold. A listed group
    that the ledger has ratings of is rated again, by one further person.

    A smaller export is the beginning of a larger one; gold groups are always in it. Raises ``ValueError`` when generate is not done, for
    a list with unknown groups, and for a gold file that does not suffice.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"--limit {limit}: give the number of groups to export, at least 1")
    generate, work, config = context.run.step("generate"), _generated(context), context.flow.annotate.plan
    gold = plan.read_gold(context.flow.annotate, work)
    order = list(work.sampled) if groups is None else group_list.read(groups, work)
    wanted = set(order[:limit])
    chosen = [*order[:limit], *(group for group in work.sampled if group in gold and group not in wanted)]
    folder = context.run.step(STEP).path
    packet.write(folder / "export", generate, work, chosen)
    again = groups is not None and context.run.step(STEP).index() is not None
    rated = slots.raters_of(ledger.current(context.run.step(STEP))) if again else {}
    plan.write(folder / "plan.json", plan.draw(work, chosen, config, gold, seed=context.flow.seed, rated=rated))
    return folder / "export"


def simulate(context: Context) -> list[Path]:
    """Write ``annotate/simulated/<rater>.csv`` and return the files, which ``ingest`` takes."""
    config = context.flow.annotate.simulate
    if config is None:
        raise ValueError("annotate.simulate is not configured: add it to let simulated raters rate, or ingest the files of people")
    target = context.run.step(STEP).path / "simulated"
    return simulated.write(target, context.run.step("generate"), _generated(context), config=config, seed=context.flow.seed)


def ingest(
    context: Context, files: Sequence[str | Path], format: readers.Format = "auto", pseudonym_list: str | Path | None = None
) -> IngestResult:
    """Validate files and append them to the ledger, one batch per file, all or none.

    Files of a data set that brings its own items (ImagenHub, EditReward-Data) need no generate step. pseudonym_list: who the annotators
    are, see :mod:`stages.annotate.ratings.pseudonyms`. Raises ``ValueError`` for a file that is refused as a whole, and where the ledger
    holds
    ratings of other candidates, on another scale or of otherwise simulated raters; ``--force`` then starts a new ledger.
    """
    if not files:
        raise ValueError("no file of ratings was given; name at least one")
    folder = context.run.step(STEP)
    people = pseudonyms.read(pseudonym_list) if pseudonym_list is not None else None
    deliveries = [pseudonyms.apply(readers.read(file, format), people) for file in files]
    dataset = own_items.dataset_of(deliveries)
    brought = [item for delivery in deliveries for item in delivery.items]
    rubric = context.flow.annotate.rubric_version
    work = own_items.manifest(dataset, brought, rubric) if dataset else _generated(context)
    simulate = context.flow.annotate.simulate
    settings = work.settings | {"simulate": simulate.model_dump(mode="json") if simulate else None, "seed": context.flow.seed}
    index = ledger.open_ledger(folder, inputs=work.inputs, settings=settings, force=context.force)
    old_items = ledger.items(folder, index)
    if dataset:
        work = own_items.manifest(dataset, [*old_items, *brought], rubric)
        tasks = {item.source_id: item.task for item in [*old_items, *brought]}
    else:
        tasks = _tasks(context)
    said, history = ledger.said(folder, index), ledger.history(folder, index)
    held = {batch.key: batch for batch in ledger.batches(index)}
    seen = Seen({item.candidate_id for item in old_items}, {item.source_id for item in old_items})
    known: list[Batch] = []
    additions: list[Addition] = []
    for delivery in deliveries:
        key = ledger.batch_key(delivery, work)
        if key in held:
            known.append(held[key])
            continue
        new = history.add(delivery.revisions)
        superseded = history.withdraw(said)
        checked = validate(delivery, work, said, batch=key, now=datetime.now(UTC), revisions=history)
        held[key] = _batch(key, delivery, checked, superseded)
        additions.append(Addition(held[key], checked, _item_tables(delivery, seen), new))
    if index is None or additions:
        index = ledger.append(folder, index, work, additions, settings=settings, tasks=tasks)
    fresh = {addition.batch.key for addition in additions}
    warnings = [warning for addition in additions for warning in addition.checked.warnings] + slots.warnings(said, work)
    warnings += [text for delivery in deliveries if ledger.batch_key(delivery, work) in fresh for text in _off_roster(delivery, context)]
    return IngestResult(index, [addition.batch for addition in additions], known, warnings)


def _generated(context: Context) -> Manifest:
    config: AnnotateConfig = context.flow.annotate
    return manifest.from_generate(context.run.step("generate"), config, seed=context.flow.seed)


def _tasks(context: Context) -> dict[str, str]:
    columns = context.run.step("generate").read("sources", ["source_id", "task"]).columns
    return dict(zip(*(column.to_pylist() for column in columns), strict=True))


def _off_roster(delivery: Delivery, context: Context) -> list[str]:
    """Sentences about ratings of the page's database by people whose link is revoked, or who are not on this run's roster if it has one."""
    known = {person.pseudonym: person for person in roster_of(context.run).people}
    if delivery.format != page_database.FORMAT or not known:
        return []
    rated = Counter(row.annotator_id for row in delivery.rows)
    revoked = sorted(name for name in rated if name in known and known[name].revoked)
    unknown = sorted(rated.keys() - known.keys())
    found = []
    for names, why in ((revoked, "whose link the roster has revoked"), (unknown, "who is not on the roster of this run")):
        if names:
            ratings = sum(rated[name] for name in names)
            found.append(
                f"{delivery.file}: {ratings} ratings are of {', '.join(names)}, {why}; they count like all others, and "
                "`pipeline annotate qc` leaves out whom annotate.quality.exclude names"
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


def _item_tables(delivery: Delivery, seen: Seen) -> dict[str, pa.Table]:
    """Tables of the items that a file is the first to bring; adds them to ``seen``."""
    first: list[Item] = [item for item in delivery.items if item.candidate_id not in seen.candidates]
    if not first:
        return {}
    found = own_items.tables(delivery.format, first, seen.sources)
    seen.candidates.update(item.candidate_id for item in first)
    seen.sources.update(item.source_id for item in first)
    return found


def run(context: Context) -> Index:
    """Ratings inside the whole flow: simulated where the configuration says so, otherwise they must have been ingested.

    Raises ``ValueError`` with the commands to use where there are none.
    """
    if context.flow.annotate.simulate is None:
        index = context.run.step(STEP).index()
        if index is None:
            raise ValueError(
                "there are no ratings yet: `pipeline annotate export` writes the work for the raters, "
                "`pipeline annotate ingest` reads what they return"
            )
        return index
    export(context)
    ingest(context, simulate(context))
    return context.run.step(STEP).require()
