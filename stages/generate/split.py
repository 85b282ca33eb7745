"""Which source images are in one split: near duplicates are, so that nothing held out was trained on.

Two images are near duplicates when their perceptual hashes differ in few bits (:mod:`reward.likeness`); chains of them are one group. The
group is named by its smallest image, so neither the order of the rows nor their number decides the split. An image without near duplicates
is a group of its own. A split that the data set declares stays; near duplicates across declared splits, and of images without one, are
counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set

import pyarrow as pa

from stages.engine import tables
from stages.engine.near_hashes import join_near

HASHES = pa.schema([("image", pa.string()), ("hash", pa.uint64())])


def groups_of(delivered: pa.Table, used: Set[str], distance: int | None) -> tuple[dict[str, str], dict[str, int]]:
    """The split group of every source that shares one with another image, by source id; and counts of images.

    delivered: rows of that contract, of which the sources ``used`` count. distance: bits of 64 in which near duplicates may differ; None:
    no two images are. Counts: ``images``; ``merged``, those with a near duplicate; ``groups``, of merged images; ``largest``, images in
    the largest; ``across_declared_splits``, images that rows put, or that have a near duplicate, in another split that the data set
    declares, where a row without one counts as in a split of its own.
    """
    columns = (delivered[name].to_pylist() for name in ("source_id", "group", "source_phash", "split"))
    images: dict[str, tuple[int, set[str]]] = {}  # by group: hash, and the splits that rows declare, "" for none
    image_of: dict[str, str] = {}
    for source_id, image, phash, split in zip(*columns, strict=True):
        if source_id in used:
            images.setdefault(image, (phash, set()))[1].add(split)
            image_of[source_id] = image
    near: defaultdict[int | str, list[str]] = defaultdict(list)
    for image, cluster in _clusters({image: phash for image, (phash, _) in images.items()}, distance):
        near[cluster].append(image)
    free = [[image for image in cluster if images[image][1] == {""}] for cluster in near.values()]
    merged = [cluster for cluster in free if len(cluster) > 1]
    first = {image: min(cluster) for cluster in merged for image in cluster}
    counts = {
        "images": len(images),
        "merged": len(first),
        "groups": len(merged),
        "largest": max(map(len, merged), default=0),
        "across_declared_splits": sum(len(found) for found in near.values() if len(set[str]().union(*(images[i][1] for i in found))) > 1),
    }
    return {source_id: first[image] for source_id, image in image_of.items() if image in first}, counts


def _clusters(hashes: Mapping[str, int], distance: int | None) -> Iterable[tuple[str, int | str]]:
    """Every image with what names its cluster."""
    if distance is None:
        return ((image, image) for image in hashes)
    with tables.opened() as database:
        database.keep("images", [pa.record_batch([[*hashes], pa.array(hashes.values(), pa.uint64())], HASHES)], HASHES)
        join_near(database, "images", "hash", distance)
        return [(row["image"], row["hash"]) for batch in database.rows("SELECT * FROM images") for row in batch.to_pylist()]
