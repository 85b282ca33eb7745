"""Imported items: candidates that come with the rating files of a data set instead of a generate step.

In: the items of the deliveries. Out: the rating task of their union, and tables of sources and candidates without images.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

import pyarrow as pa

from stages.annotate.ratings.delivery import Delivery, ImportedDataset, ImportedItem
from stages.annotate.ratings.rating_task import RatingTask
from stages.engine import contracts
from stages.engine.ids import settings_hash


def dataset_of(deliveries: Sequence[Delivery]) -> ImportedDataset | None:
    """The data set of all files; None where they rate the candidates of the run. Raises ``ValueError`` for a mixture."""
    found = {delivery.dataset.name if delivery.dataset else "ratings of the run": delivery for delivery in deliveries}
    if len(found) > 1:
        first, second = [f"{delivery.file} ({name})" for name, delivery in found.items()][:2]
        raise ValueError(f"{first} and {second} rate different items; ingest them into separate runs")
    return deliveries[0].dataset


def imported_task(dataset: ImportedDataset, items: Iterable[ImportedItem], rubric_version: str) -> RatingTask:
    """Rating task of the union of the items."""
    sampled: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for item in items:
        sampled[item.source_id][item.candidate_id] = None
    return RatingTask(
        inputs={dataset.name: settings_hash(dataset.name, list(dataset.dimensions), dataset.scale.levels)},
        dimensions=dataset.dimensions,
        scale=dataset.scale,
        rubric_version=rubric_version,
        group_of={candidate: group for group, candidates in sampled.items() for candidate in candidates},
        sampled={group: tuple(candidates) for group, candidates in sampled.items()},
    )


def items_of(sources: pa.Table, candidates: pa.Table) -> list[ImportedItem]:
    """Inverse of :func:`tables`."""
    of_source = {row["source_id"]: row for row in sources.to_pylist()}
    items = []
    for row in candidates.to_pylist():
        source = of_source[row["source_id"]]
        uid = json.loads(source["metadata"])["uid"]
        items.append(ImportedItem(row["candidate_id"], row["source_id"], source["task"], uid, row["editor"], source["instruction"]))
    return items


def tables(dataset: ImportedDataset, items: Iterable[ImportedItem], known: Iterable[str]) -> dict[str, pa.Table]:
    """The items as tables ``sources`` and ``candidates`` without images, each id once. known: ids of sources that the ledger has."""
    sources = {
        item.source_id: {
            "source_id": item.source_id,
            "dataset": dataset.name,
            "split": dataset.split,
            "group": item.source_id,
            "image": None,
            "instruction": item.instruction,
            "language": "",
            "task": item.task,
            "benchmark": "",
            "licence": "",
            "metadata": json.dumps({"uid": item.uid}),
        }
        for item in items
    }
    for source_id in known:
        sources.pop(source_id, None)
    candidates = {
        item.candidate_id: contracts.candidate(candidate_id=item.candidate_id, source_id=item.source_id, editor=item.editor)
        for item in items
    }
    rows = {"sources": sources, "candidates": candidates}
    return {name: contracts.table(name, list(by_id.values())) for name, by_id in rows.items()}
