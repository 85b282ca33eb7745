"""Benchmark items that occur among the sources of the run, and the benchmark's figures without them.

All sources of the run count, train and validation, since the validation half calibrates the model; but not those that preferences left out
because a benchmark has them. The training data of a pretrained
backbone are not known here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from reward.likeness import NEAR, words
from stages.contamination import compare, match, references
from stages.engine import contracts, steps, tables
from stages.engine.rundir import RunDir
from stages.engine.tables import numbered

if TYPE_CHECKING:
    from reward.benchmarks.items import BenchmarkEdit, Item
    from reward.benchmarks.result import BenchmarkResult

BATCH = 64
"""Images of a benchmark in memory at the same time."""


@dataclass(frozen=True)
class TrainingSources:
    """Sources that a model was trained on. ``images`` and ``texts``: tables of the contract ``references``, of the sources whose image
    decodes and of all. ``splits``: split by source id."""

    images: pa.Table
    texts: pa.Table
    splits: Mapping[str, str]


def training_sources(run: RunDir) -> TrainingSources:
    """The run's sources as hashes, read part by part; none for a model that was not trained in this run.

    Those that preferences left out count where the model was trained before they were.
    """
    folder, preferences = run.step(steps.GENERATE), run.step(steps.PREFERENCES)
    index = folder.index()
    paired, trained = preferences.index(), run.step(steps.TRAIN_REWARD).index()
    before = paired is None or (trained is not None and trained.inputs.get(steps.PREFERENCES) != paired.fingerprint)
    left_out = [] if before else preferences.read("quarantine", ["row_id", "reason"]).to_pylist()
    dropped = {row["row_id"] for row in left_out if row["reason"] == compare.NAME}
    rows = (
        row
        for part in (index.artifacts["sources"] if index is not None else ())
        for row in folder.read_table("sources", [part], ["source_id", "image", "instruction", "split"]).to_pylist()
        if row["source_id"] not in dropped
    )
    return hashed((row["source_id"], row["split"], (row["image"] or {}).get("bytes"), row["instruction"]) for row in rows)


def hashed(sources: Iterable[tuple[str, str, bytes | None, str]]) -> TrainingSources:
    """Sources as id, split, encoded image and instruction."""
    found, texts, splits = [], [], {}
    for source_id, split, data, instruction in sources:
        splits[source_id] = split
        texts.append(_text("training", source_id, instruction))
        row = references.row(references.TRAINING, source_id, data or b"", instruction)
        if isinstance(row, dict):
            found.append(row)
    return TrainingSources(contracts.table("references", found), contracts.table("references", texts), splits)


def leaks(items: Sequence[Item], training: TrainingSources, evaluate: Callable[[Sequence[Item]], BenchmarkResult]) -> dict[str, Any]:
    """Matches, and the figures with and without the items that match by image, or by image or instruction; JSON-able.

    The two kinds of match are counted separately, because instructions such as "remove the dog" are equal without any leak.
    """
    matches = find(items, training)
    images = [found for found in matches if found["kind"] != match.INSTRUCTION]
    effects = {name: effect(items, chosen, evaluate) for name, chosen in (("image", images), ("image or instruction", matches))}
    return {
        "training_sources": len(training.splits),
        "undecodable_training_sources": len(training.splits) - training.images.num_rows,
        "matches": matches,
        "effect": effects,
        "summary": ", ".join(f"{found['items']:,} by {name}" for name, found in effects.items()),
    }


def effect(
    items: Sequence[Item], matches: Sequence[Mapping[str, Any]], evaluate: Callable[[Sequence[Item]], BenchmarkResult]
) -> dict[str, Any]:
    """Each figure of the model on all items, and without those that match (None where no item is left); how many match."""
    known = {(found["kind"] == match.INSTRUCTION, found["benchmark"]) for found in matches}

    def matches_one(edit: BenchmarkEdit) -> bool:
        return (False, edit.source.content) in known or (True, edit.instruction) in known

    kept = [item for item in items if not matches_one(item.edits[0])]
    everything = evaluate(items)
    without = everything if len(kept) == len(items) else evaluate(kept) if kept else None
    rows = []
    for convention in ("published", "sound"):
        others = getattr(without.model, convention) if without else {}
        for name, figure in getattr(everything.model, convention).items():
            other = others.get(name)
            rows.append(
                {"convention": convention, "figure": name, "all": figure.to_json(), "without": None if other is None else other.to_json()}
            )
    return {"items": len(items) - len(kept), "rows": rows}


def find(items: Sequence[Item], training: TrainingSources) -> list[dict[str, Any]]:
    """Matches, images first; one per source image or instruction of the benchmark, with the nearest training source.

    ``benchmark``: content of the image, or the instruction. ``training_id``, ``split``: the nearest training source (of several the
    first). ``distance``: differing bits. ``others``: further training sources that match as well. ``items``: items of the benchmark with
    that image or instruction.
    """
    from reward.benchmarks.pictures import read

    edits = [edit for item in items for edit in item.edits[:1]]
    shown, asked = Counter(edit.source.content for edit in edits), Counter(edit.instruction for edit in edits)
    pictures = iter({edit.source.content: edit.source for edit in edits}.values())
    rows = []
    while batch := list(islice(pictures, BATCH)):
        rows += [references.row(references.TRAINING, content, data, "") for content, data in read(batch).items()]
    images = [row for row in rows if isinstance(row, dict)]
    by_image = _matches(images, training.images, NEAR)
    by_words = _matches([_text("benchmark", text, text) for text in asked], training.texts, None)
    places = {name: place for place, name in enumerate(shown)}
    return [
        {
            "kind": row["match"],
            "benchmark": row["sample_id"],
            "training_id": row["item"],
            "split": training.splits[row["item"]],
            "distance": row["distance"] or 0,
            "others": row["others"],
            "items": count[row["sample_id"]],
        }
        for hits, count in ((sorted(by_image, key=lambda row: places[row["sample_id"]]), shown), (by_words, asked))
        for row in hits
    ]


def _text(side: str, name: str, instruction: str) -> dict[str, Any]:
    """Row of the contract ``references`` that is compared by its words alone: rows of two sides never have the same content."""
    content = f"{side} {name}"
    return {"reference": references.TRAINING, "item": name, "source_sha256": content, "source_phash": 0, "instruction": words(instruction)}


def _matches(rows: list[dict[str, Any]], known: pa.Table, distance: int | None) -> list[dict[str, Any]]:
    asked = contracts.table("references", rows).drop_columns("reference").rename_columns(match.COMPARED)
    with tables.opened() as database:
        database.keep("sources", numbered(asked.to_batches()), match.SOURCES)
        match.read(database, known.to_batches())
        match.find(database, distance, "image")
        return [row for batch in match.hits(database) for row in batch.to_pylist()]
