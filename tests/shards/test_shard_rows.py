"""The samples of every shard of a selection: which, in which order, with what is known of them, whatever fits into memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from stages.engine import contracts, storage, tables
from stages.filter import known, shard_rows
from stages.shards.config import ShardsConfig
from tests.support.selecting import completed, rows_of

EDITS = 200
CHOSEN = 83
REST = {"same_instruction": False, "others": 0, "counted": True}


def artifacts() -> dict[str, pa.Table]:
    """Scored edits between others that were inspected only, with flags and matches of some."""
    rng = np.random.default_rng(3)
    ids = [f"{number:08x}" * 3 for number in rng.permutation(EDITS)]
    places = np.sort(rng.permutation(2 * EDITS)[:EDITS])
    scores = [
        {
            "sample_id": sample_id,
            "scorer_revision": "r",
            "dimensions": [{"dimension": "visual_quality", "mean": float(place), "sigma": 1.0, "likert": None}],
            "overall_mean": float(place),
            "overall_sigma": 1.0,
            "change_from_source": 2.0,
            "task": "colour",
            "language": "en",
            "flags": ["drift"][: place % 2],
        }
        for sample_id, place in zip(ids, places.tolist(), strict=True)
    ]
    gated = [
        {"sample_id": sample_id, "gate": gate, "value": float(number), "threshold": 0.5, "action": "flag"}
        for gate in ("drift", "size")
        for number, sample_id in enumerate(ids)
        if rng.random() < 0.3
    ]
    matches = [
        {"sample_id": ids[number], "reference": name, "item": str(number), "match": "near image", "distance": 2} | REST
        for name in ("one", "other")
        for number in rng.permutation(EDITS)[:40].tolist()
    ]
    beside = {"number": places, "position": [f"rows[{place}]" for place in places], "image_bytes": rng.integers(1, 100, EDITS)}
    table = contracts.table("scores", scores)
    for name, column in {**beside, **{name: places.astype(np.int32) for name in known.MEASURES}}.items():
        table = table.append_column(name, pa.array(column))
    return {
        "scores": completed(table),
        "gated": contracts.table("gated", gated),
        "contamination": contracts.table("contamination", matches),
    }


def planned(folder: Path, config: ShardsConfig, made: dict[str, pa.Table], chosen: pa.Table) -> list[pa.Table]:
    storage.publish_rows(folder / "chosen", contracts.SELECTION, chosen.to_batches(max_chunksize=9))
    rows = rows_of(made)
    shards = list(shard_rows.of_shards(rows, folder / "chosen", config, folder / "arranged"))
    assert not [*(folder / "arranged").glob("*")]
    return shards


@pytest.mark.parametrize(("together", "batch"), [(shard_rows.TOGETHER, tables.BATCH_ROWS), (7, 16), (20, 200), (1, 5)])
@pytest.mark.parametrize("seed", [None, 5])
def test_shards_have_every_chosen_sample_with_what_is_known_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int, batch: int, seed: int | None
) -> None:
    monkeypatch.setattr(shard_rows, "TOGETHER", together)
    monkeypatch.setattr(tables, "BATCH_ROWS", batch)
    made = artifacts()
    columns = [*contracts.SCORES.names, *shard_rows.LOCATION]
    scores = made["scores"].select(columns).to_pylist()
    picked = np.random.default_rng(1).permutation(EDITS)[:CHOSEN].tolist()
    chosen = pa.Table.from_pylist(
        [
            {"sample_id": scores[place]["sample_id"], "rank": rank, "stratum": f"s{rank % 3}", "score": rank / 7, "rule": "top"}
            for rank, place in enumerate(picked, 1)
        ],
        contracts.SELECTION,
    )
    shards = planned(tmp_path, ShardsConfig(samples_per_shard=10, shuffle_seed=seed), made, chosen)
    assert [shard.num_rows for shard in shards] == [10] * 8 + [3]
    found = [row for shard in shards for row in shard.to_pylist()]

    of = {scores[place]["sample_id"]: place for place in picked}
    assert {row["sample_id"] for row in found} == set(of)
    assert (seed is None) == ([row["rank"] for row in found] == list(range(1, CHOSEN + 1)))
    for row, expected in zip(sorted(found, key=lambda row: row["rank"]), chosen.to_pylist(), strict=True):
        assert row == expected | scores[of[row["sample_id"]]] | {"known": row["known"]}
        assert json.loads(row["known"]) == known_of(row, made)


def known_of(row: dict[str, Any], made: dict[str, pa.Table]) -> dict[str, Any]:
    (measured,) = (entry for entry in made["scores"].to_pylist() if entry["sample_id"] == row["sample_id"])
    flagged = [entry for entry in made["gated"].to_pylist() if entry["sample_id"] == row["sample_id"]]
    matches = [entry for entry in made["contamination"].to_pylist() if entry["sample_id"] == row["sample_id"]]
    return {
        "measures": {name: measured[name] for name in known.MEASURES},
        "gates": {entry["gate"]: {"value": entry["value"], "threshold": entry["threshold"]} for entry in flagged},
        "contamination": [{name: entry[name] for name in known.OF_CONTAMINATION} for entry in matches],
    }


def test_the_order_of_shards_depends_on_ids_and_the_seed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = artifacts()
    ids = made["scores"]["sample_id"].to_pylist()
    rows = [{"sample_id": sample_id, "rank": rank, "stratum": "", "score": 0.0, "rule": "all"} for rank, sample_id in enumerate(ids, 1)]
    chosen = pa.Table.from_pylist(rows, contracts.SELECTION)
    orders = []
    for seed, together in ((5, 1000), (5, 13), (6, 13)):
        monkeypatch.setattr(shard_rows, "TOGETHER", together)
        shards = planned(tmp_path, ShardsConfig(shuffle_seed=seed), made, chosen)
        orders.append([row for shard in shards for row in shard["sample_id"].to_pylist()])
    assert orders[0] == orders[1] and orders[0] != orders[2] and sorted(orders[0]) == sorted(orders[2])


def test_a_selection_of_nothing_has_no_shard(tmp_path: Path) -> None:
    assert planned(tmp_path, ShardsConfig(), artifacts(), contracts.SELECTION.empty_table()) == []
