"""Ids of the edits of published data sets that contain their own ratings.

The reader of the images (this folder) and the format of the ratings (stages/annotate/formats/) both take an edit's id from here, so that
the ratings of a file meet the candidates that were made from the same file.
"""

from __future__ import annotations

from typing import NamedTuple

from stages.engine.ids import content_id


class PublishedId(NamedTuple):
    """Ids of a source and of one of its edits, made of the data set's own names. They are not those of a run's candidates."""

    source: str
    candidate: str


def of_editreward_data(key: str, image: str) -> PublishedId:
    """An edit of TIGER-Lab/EditReward-Data: ``key`` of its source, and ``left_img_rel`` or ``right_img_rel``."""
    return PublishedId(content_id("EditReward-Data source", key), content_id("EditReward-Data candidate", key, image))


def of_reference_json(source: str, instruction: str, edited: str) -> PublishedId:
    """An edit of the public training JSON: ``path_src``, ``prompt``, and ``path1`` or ``path2``."""
    return PublishedId(
        content_id("reference-json source", source, instruction), content_id("reference-json candidate", source, instruction, edited)
    )
