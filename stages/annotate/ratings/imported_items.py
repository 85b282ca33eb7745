"""Items that rating files bring with them: data sets whose candidates no generate step of ours has made.

In: the items of the deliveries. Out: the manifest of their union, and tables of sources and candidates without images.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from stages.annotate.formats import editreward_data, imagenhub
from stages.annotate.ratings.delivery import Delivery, Item
from stages.annotate.ratings.manifest import Manifest, Scale
from stages.engine import contracts
from stages.engine.ids import settings_hash


@dataclass(frozen=True)
class Kind:
    """What a data set rates, on which scale, and the split that its sources belong to."""

    dimensions: tuple[str, ...]
    scale: Scale
    split: str


KINDS = {
    imagenhub.DATASET: Kind(imagenhub.DIMENSIONS, imagenhub.SCALE, "validation"),
    editreward_data.FORMAT: Kind(contracts.DIMENSIONS, Scale(1, 4), "train"),
}
"""Formats whose files bring their own items."""


def dataset_of(deliveries: Sequence[Delivery]) -> str | None:
    """The data set that all files belong to, None where they rate the candidates of the run. Raises ``ValueError`` for a mixture."""
    kinds = {delivery.format if delivery.format in KINDS else None: delivery.file for delivery in deliveries}
    if len(kinds) > 1:
        first, second = [f"{file} ({'ratings of the run' if kind is None else kind})" for kind, file in kinds.items()][:2]
        raise ValueError(f"{first} and {second} rate different items; ingest them into runs of their own")
    return next(iter(kinds))


def manifest(dataset: str, items: Iterable[Item], rubric_version: str) -> Manifest:
    """Manifest of the union of the items."""
    kind = KINDS[dataset]
    sampled: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for item in items:
        sampled[item.source_id][item.candidate_id] = None
    return Manifest(
        inputs={dataset: settings_hash(dataset, list(kind.dimensions), kind.scale.levels)},
        dimensions=kind.dimensions,
        scale=kind.scale,
        rubric_version=rubric_version,
        group_of={candidate: group for group, candidates in sampled.items() for candidate in candidates},
        sampled={group: tuple(candidates) for group, candidates in sampled.items()},
    )


def items_of(sources: pa.Table, candidates: pa.Table) -> list[Item]:
    """The items that :func:`tables` wrote."""
    of_source = {row["source_id"]: row for row in sources.to_pylist()}
    items = []
    for row in candidates.to_pylist():
        source = of_source[row["source_id"]]
        uid = json.loads(source["metadata"])["uid"]
        items.append(Item(row["candidate_id"], row["source_id"], source["task"], uid, row["editor"], source["instruction"]))
    return items


def tables(dataset: str, items: Iterable[Item], known: Iterable[str]) -> dict[str, pa.Table]:
    """The items as ``sources`` and ``candidates`` without images, each once; ``known``: ids of the sources that are there already."""
    sources = {
        item.source_id: {
            "source_id": item.source_id,
            "dataset": dataset,
            "split": KINDS[dataset].split,
            "group": item.source_id,
            "image": None,
            "instruction": item.instruction,
            "language": "",
            "task": item.task,
            "metadata": json.dumps({"uid": item.uid}),
        }
        for item in items
    }
    for source_id in known:
        sources.pop(source_id, None)
    candidates = {
        item.candidate_id: {
            "candidate_id": item.candidate_id,
            "source_id": item.source_id,
            "editor": item.editor,
            "editor_revision": "",
            "seed": 0,
            "settings_hash": "",
            "image": None,
            "status": "ok",
            "error": "",
            "annotate": True,
            "metadata": "{}",
        }
        for item in items
    }
    rows = {"sources": sources, "candidates": candidates}
    return {name: contracts.table(name, list(by_id.values())) for name, by_id in rows.items()}
