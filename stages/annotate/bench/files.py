"""Write tuples in the layout of TIGER-Lab/EditReward-Bench, which :mod:`reward.benchmarks.tiger_editreward_bench` reads.

In: tuples, the generate step. Out: ``2pair/``, ``3pair/``, ``4pair/``, each with one Parquet file with a row per comparison of two edits,
and the sha256 of every file. Images are copied as encoded bytes; memory contains those of one tuple size at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stages.annotate.bench.tuples import Tuple
from stages.engine import storage
from stages.engine.contracts import IMAGE
from stages.engine.rundir import StepFolder

LETTERS = "ABCD"
ROWS = 16
"""Rows of a row group; so many rows with images are in memory together."""


def write(folder: Path, tuples: Sequence[Tuple], generate: StepFolder, dimensions: Sequence[str]) -> dict[str, str]:
    """Write the files below ``folder``; returns their sha256 by relative path."""
    hashes = {}
    for size in sorted({found.size for found in tuples}):
        part = [found for found in tuples if found.size == size]
        name = f"{size}pair/train-00000-of-00001.parquet"
        (folder / f"{size}pair").mkdir(parents=True, exist_ok=True)
        with storage.publishing(folder / name) as file, pq.ParquetWriter(file, _schema(dimensions), compression="zstd") as writer:
            rows = _rows(part, generate, dimensions)
            while block := list(islice(rows, ROWS)):
                writer.write_table(pa.Table.from_pylist(block, schema=_schema(dimensions)), row_group_size=ROWS)
        hashes[name] = storage.sha256_of(folder / name)
    return hashes


def _schema(dimensions: Sequence[str]) -> pa.Schema:
    sides = [(f"{name}_{side}", pa.float64()) for name in ("score", *dimensions) for side in (1, 2)]
    return pa.schema(
        [
            ("id", pa.string()),
            ("dataset", pa.string()),
            ("num_candidates", pa.int64()),
            ("instruction", pa.string()),
            ("source_image", IMAGE),
            ("candidate_1", IMAGE),
            ("candidate_2", IMAGE),
            ("ranking", pa.string()),
            ("comparison_type", pa.string()),
            *sides,
            ("model_1", pa.string()),
            ("model_2", pa.string()),
        ]
    )


def _rows(tuples: Sequence[Tuple], generate: StepFolder, dimensions: Sequence[str]) -> Iterator[dict[str, Any]]:
    sources = _by_id(generate, "sources", "source_id", {found.group.source_id for found in tuples}, ("instruction", "image"))
    wanted = {found.group.candidates[place] for found in tuples for place in found.indices}
    candidates = _by_id(generate, "candidates", "candidate_id", wanted, ("editor", "image"))
    for number, found in enumerate(tuples, start=1):
        source = sources[found.group.source_id]
        for first, second in combinations(range(found.size), 2):
            a, b = found.indices[first], found.indices[second]
            sign = np.sign(np.round(found.group.consensus[a].sum() - found.group.consensus[b].sum(), 9))
            letters = (LETTERS[first], LETTERS[second])
            ranking = "=".join(letters) if sign == 0 else ">".join(letters if sign > 0 else letters[::-1])
            sides: dict[str, Any] = {}
            for side, place in ((1, a), (2, b)):
                scores = found.group.consensus[place]
                sides |= {f"score_{side}": float(scores.sum())}
                sides |= {f"{name}_{side}": float(score) for name, score in zip(dimensions, scores, strict=True)}
                sides |= {f"candidate_{side}": candidates[found.group.candidates[place]]["image"]}
                sides |= {f"model_{side}": candidates[found.group.candidates[place]]["editor"]}
            yield {
                "id": f"{number:04}_{'vs'.join(letters)}",
                "dataset": f"{found.size}pair",
                "num_candidates": found.size,
                "instruction": source["instruction"],
                "source_image": source["image"],
                "ranking": ranking,
                "comparison_type": "vs".join(letters),
                **sides,
            }


def _by_id(generate: StepFolder, artifact: str, key: str, wanted: Collection[str], columns: Sequence[str]) -> Mapping[str, Any]:
    return {row[key]: row for row in generate.rows(artifact, [key, *columns], ROWS) if row[key] in wanted}
