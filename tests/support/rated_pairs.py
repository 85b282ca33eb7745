"""Copies of rated data sets in their published layouts: TIGER-Lab/EditReward-Data as Parquet files, made of photographs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from photographs import edited_photographs

from stages.engine.contracts import IMAGE
from stages.engine.ids import uniform

IMAGES = ("source_img", "left_output_image", "right_output_image")
FOLLOW, QUALITY = "instruction_following_score", "quality_aesthetic_score"


def rated_photographs(count: int) -> list[dict[str, Any]]:
    """A row per edit, four of each photograph, with its key, its name and whole scores from 1 to 4."""
    rows = []
    for number, row in enumerate(edited_photographs(count)):
        name = f"{row['editor']}/{number}.png"
        scores = {score: float(1 + int(4 * uniform(score, name))) for score in (FOLLOW, QUALITY)}
        rows.append({**row, "key": f"key-{number // 4}", "img_rel": name, **scores})
    return rows


def pairs_of(edits: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """All pairs of edits with the same key, in the columns of the data card."""
    rows = []
    for key, same in groupby(edits, key=lambda edit: edit["key"]):
        for pair, (left, right) in enumerate(combinations(list(same), 2)):
            row: dict[str, Any] = {"key": key, "unique_key": f"{key}-{pair}", "pair_index": pair, "instruction": left["instruction"]}
            row |= {"source_img": left["source"], "vote_type": "tie", "metadata_index": len(rows)}
            for side, edit in (("left", left), ("right", right)):
                row |= {f"{side}_output_image": edit["edited"], f"{side}_img_rel": edit["img_rel"], f"{side}_model": edit["editor"]}
                row |= {f"{side}_{score}": edit[score] for score in (FOLLOW, QUALITY)}
                row[f"{side}_overall_score"] = edit[FOLLOW] + edit[QUALITY]
            rows.append(row)
    return rows


def write_pairs(folder: Path, pairs: Sequence[Mapping[str, Any]], files: int = 2) -> Path:
    """The pairs in Parquet files under the Hub's names; returns the folder."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    each = -(-len(pairs) // files)
    for number in range(files):
        part = pairs[number * each : (number + 1) * each]
        columns = {name: [row[name] for row in part] for name in part[0]}
        images = {name: pa.array([{"bytes": data, "path": None} for data in columns[name]], IMAGE) for name in IMAGES}
        path = folder / "data" / f"train-{number:05d}-of-{files:05d}.parquet"
        pq.write_table(pa.table(columns | images), path, row_group_size=7)
    return folder
