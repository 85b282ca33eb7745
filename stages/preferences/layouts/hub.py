"""Layout ``hub``: a data set folder for the Hugging Face Hub, with Parquet files and a card. Nothing is uploaded.

Out: three configurations, each with its splits, so that every image is stored once: ``pairs`` (candidate ids, labels and scores),
``candidates`` (edited image, editor, mean scores) and ``sources`` (image and instruction). Image columns use the Hub's image feature.
``README.md`` describes the columns, the origin of the pairs, and their statistics. Load with ``datasets.load_dataset(FOLDER, "pairs")``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stages.engine.contracts import IMAGE
from stages.preferences.layouts import hub_card
from stages.preferences.layouts.content import AT_ONCE, Content

ROWS_WITH_IMAGES = 2_000
ROWS = 200_000
"""Rows in one file."""

Column = tuple[str, str]
"""Name, and the Hub's name of the type."""


def write(folder: Path, content: Content, licence: str) -> tuple[dict[str, int], dict[str, int]]:
    """Write the folder; returns the pairs by split, and an empty mapping because nothing is left out."""
    splits = sorted(set(content.split_of.values()))
    columns = columns_of(content.dimensions)
    kinds = {
        "pairs": (_pairs, content.pairs),
        "candidates": (_candidates, content.candidates.values()),
        "sources": (_sources, content.sources.values()),
    }
    counts = {name: dict.fromkeys(splits, 0) for name in kinds}
    for name, (make, rows) in kinds.items():
        for split in splits:
            wanted = [row for row in rows if content.split_of[row["source_id"]] == split]
            counts[name][split] = _write(folder / name, split, columns[name], make(content, wanted), len(wanted))
    (folder / "README.md").write_text(hub_card.card(content, counts, columns, licence), encoding="utf-8")
    return counts["pairs"], {}


def columns_of(dimensions: Sequence[str]) -> dict[str, list[Column]]:
    """The columns of every configuration."""
    sides: list[Column] = [(f"{side}_{dimension}", "float64") for dimension in dimensions for side in ("a", "b")]
    labels: list[Column] = [("label", "string"), *((f"label_{dimension}", "string") for dimension in dimensions)]
    return {
        "pairs": [
            *(
                (name, "string")
                for name in ("pair_id", "source_id", "candidate_a", "candidate_b", "editor_a", "editor_b", "instruction", "task")
            ),
            *labels,
            *sides,
            ("gap", "float64"),
            ("origin", "string"),
            ("raters", "int32"),
        ],
        "candidates": [
            *((name, "string") for name in ("candidate_id", "source_id", "editor")),
            ("image", "image"),
            *((dimension, "float64") for dimension in dimensions),
        ],
        "sources": [
            ("source_id", "string"),
            ("image", "image"),
            *((name, "string") for name in ("instruction", "language", "task", "dataset")),
        ],
    }


def _pairs(content: Content, rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        source = content.sources[row["source_id"]]
        made = {name: row[name] for name in ("pair_id", "source_id", "candidate_a", "candidate_b", "label", "gap", "origin", "raters")}
        made |= {"instruction": source["instruction"], "task": source["task"]}
        made |= {f"editor_{side}": content.candidates[row[f"candidate_{side}"]]["editor"] for side in ("a", "b")}
        for entry in row["dimensions"]:
            made |= {f"{side}_{entry['dimension']}": entry[f"score_{side}"] for side in ("a", "b")}
            made[f"label_{entry['dimension']}"] = entry["label"]
        yield made


def _candidates(content: Content, rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    wanted = {row["candidate_id"]: row for row in rows}
    for name, data in content.images("candidates", "candidate_id", wanted):
        yield wanted[name] | {"image": {"bytes": data, "path": None}} | wanted[name]["scores"]


def _sources(content: Content, rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    wanted = {row["source_id"]: row for row in rows}
    for name, data in content.images("sources", "source_id", wanted):
        yield wanted[name] | {"image": {"bytes": data, "path": None}}


def _write(folder: Path, split: str, columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], count: int) -> int:
    """Write ``count`` rows, a few at a time, into files with the Hub's names."""
    folder.mkdir(exist_ok=True)
    schema = _schema(columns)
    most = ROWS_WITH_IMAGES if "image" in dict(columns) else ROWS
    files = max(1, -(-count // most))
    source, written = iter(rows), 0
    for number in range(files):
        with pq.ParquetWriter(folder / f"{split}-{number:05d}-of-{files:05d}.parquet", schema, compression="zstd") as writer:
            capacity = min(most, count - written)
            while batch := list(islice(source, min(capacity, AT_ONCE))):
                writer.write_table(pa.Table.from_pylist([{name: row[name] for name, _ in columns} for row in batch], schema=schema))
                capacity, written = capacity - len(batch), written + len(batch)
    assert written == count, f"{folder.name} has {written} rows, expected {count}"
    return written


def _schema(columns: Sequence[Column]) -> pa.Schema:
    """Arrow types, with the features in the metadata of the `datasets` library."""
    types = {"string": pa.string(), "float64": pa.float64(), "int32": pa.int32(), "image": IMAGE}
    features = {name: {"_type": "Image"} if kind == "image" else {"dtype": kind, "_type": "Value"} for name, kind in columns}
    return pa.schema(
        [(name, types[kind]) for name, kind in columns], metadata={"huggingface": json.dumps({"info": {"features": features}})}
    )
