"""What generate found out about source images that are near duplicates of each other, in words."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline import words


def sentences(found: Mapping[str, int]) -> list[str]:
    """Sentences on the counts of :func:`stages.generate.split.groups_of`."""
    near = {name: words.count(count) for name, count in found.items()}
    said = [f"Of {near['images']} source images {near['merged']} have a near duplicate."]
    if found["groups"]:
        said.append(f"They are {near['groups']} groups, the largest of {near['largest']} images, and each group is in one split.")
    if found["across_declared_splits"]:
        across = near["across_declared_splits"]
        said.append(f"{across} source images have a near duplicate in another split that the data set declares.")
    return said
