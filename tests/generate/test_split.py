"""Which source images share a split, on hashes made by hand."""

from __future__ import annotations

import pyarrow as pa

from stages.generate.split import groups_of


def delivered(*rows: tuple[str, str, int, str]) -> pa.Table:
    """rows: source, image, hash, declared split."""
    names = ("source_id", "group", "source_phash", "split")
    columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    return pa.table(columns | {"source_phash": pa.array(columns["source_phash"], pa.uint64())})


def test_near_images_share_a_group_and_declared_splits_stay_and_are_counted() -> None:
    far = (1 << 64) - 1
    table = delivered(
        ("s1", "b", 0, ""), ("s2", "a", 1, ""), ("s3", "c", far, "train"), ("s4", "d", far - 1, ""), ("s5", "e", 0xFFFF << 16, "train"),
        ("s6", "e", 0xFFFF << 16, "validation"), ("s7", "unused", 3, ""),
    )  # fmt: skip
    groups, counts = groups_of(table, {"s1", "s2", "s3", "s4", "s5", "s6"}, 8)
    assert groups == {"s1": "a", "s2": "a"}
    assert counts == {"images": 5, "merged": 2, "groups": 1, "largest": 2, "across_declared_splits": 3}
    assert groups_of(table, {"s1", "s2", "s5", "s6"}, None)[1]["across_declared_splits"] == 1
