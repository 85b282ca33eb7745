"""Layout ``reference-json``: the training JSON of the public EditReward code, one record per pair with the preferred image first.

Out: ``train.json`` and ``validation.json`` and the images that they name. Keys and their order are those of the public layout; dim1 is
instruction following and dim2 visual quality. The public loader opens the paths without a root folder, and takes another sample when a file
is missing: start it in the exported folder, or export with a path prefix. ``tie_case`` marks the two rows of an overall tie with opposite
orders. A pair without a preferred side cannot be represented and is counted.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from stages.engine import images
from stages.engine.contracts import DIMENSIONS
from stages.engine.ids import ID_DIGITS
from stages.preferences.layouts.content import Content


def write(folder: Path, content: Content, path_prefix: str) -> tuple[dict[str, int], dict[str, int]]:
    """Write the folder; returns the pairs by split, and the rows left out by reason.

    Raises ``ValueError`` for ratings of other dimensions than the layout's two.
    """
    if tuple(content.dimensions) != DIMENSIONS:
        raise ValueError(
            f"reference-json supports {' and '.join(DIMENSIONS)}, the pairs of this run have {' and '.join(content.dimensions)}; use hub"
        )
    copied = {**_copied(folder, content, "sources", "source_id"), **_copied(folder, content, "candidates", "candidate_id")}
    paths = {name: path_prefix + path for name, path in copied.items()}
    records: dict[str, list[dict[str, Any]]] = {split: [] for split in sorted(set(content.split_of.values()))}
    left_out: Counter[str] = Counter()
    for row in content.pairs:
        if row["label"] == "tie":
            left_out["no preferred side"] += 1
        else:
            records[row["split"]].append(_record(row, content, paths))
    for split, rows in records.items():
        (folder / f"{split}.json").write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return {split: len(rows) for split, rows in records.items()}, dict(left_out)


def _record(row: dict[str, Any], content: Content, paths: dict[str, str]) -> dict[str, Any]:
    sides = ("a", "b") if row["label"] == "a" else ("b", "a")
    names = [row[f"candidate_{side}"] for side in sides]
    record: dict[str, Any] = {
        "prompt": content.sources[row["source_id"]]["instruction"],
        "choice_dist": None,
        "confidence": None,
        "path_src": paths[row["source_id"]],
        "path1": paths[names[0]],
        "path2": paths[names[1]],
        "model1": content.candidates[names[0]]["editor"],
        "model2": content.candidates[names[1]]["editor"],
    }
    for place, side in enumerate(sides, start=1):
        for dimension, entry in enumerate(row["dimensions"], start=1):
            record[f"model{place}_dim{dimension}_score"] = _number(entry[f"score_{side}"])
        record[f"model{place}_overall_score"] = _number(row[f"overall_{side}"])
    return record | {"tie_case": row["origin"] != "plain"}


def _number(score: float) -> int | float:
    """Whole scores as whole numbers, as single ratings are in the public files."""
    return int(score) if score == int(score) else score


def _copied(folder: Path, content: Content, artifact: str, key: str) -> dict[str, str]:
    """Copy the images, named by content hash; returns the path of each row's image by id."""
    wanted = content.sources if artifact == "sources" else content.candidates
    (folder / "images").mkdir(exist_ok=True)
    paths = {}
    for name, data in content.images(artifact, key, wanted):
        path = f"images/{hashlib.sha256(data).hexdigest()[:ID_DIGITS]}.{images.extension(data) or 'img'}"
        (folder / path).write_bytes(data)
        paths[name] = path
    assert paths.keys() == wanted.keys(), f"{artifact} without an image"
    return paths
