"""Argilla's records, as ``dataset.records.to_list(flatten=True)`` gives them, written as JSON or JSON Lines; or as ``to_json`` writes them.

In: records with the questions and data of :mod:`stages.annotate.formats.questions`; ``group_id`` and candidates are metadata or fields.
Out: one rating per submitted response. The flat layout has a status per response: drafts and discarded responses become invalid rows. The
nested layout has a status per record only: responses of records that are not ``completed`` become invalid rows. Neither layout has times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stages.annotate.formats.files import RatingFile, plain
from stages.annotate.formats.questions import asked, delivery
from stages.annotate.ratings.delivery import Delivery, InvalidRow, RawRating

FORMAT = "argilla"

_RESPONSES = ".responses"


def recognises(file: RatingFile) -> bool:
    """Whether the first record has Argilla's responses."""
    return _has_responses(file.first_record)


def _has_responses(record: Mapping[str, Any]) -> bool:
    """Whether a record has responses, flat or nested."""
    return isinstance(record.get("responses"), dict) or any(key.endswith(_RESPONSES) for key in record)


def parse(file: RatingFile) -> Delivery:
    """The ratings of the records. Raises ``ValueError`` when a record is not one of Argilla's, or when no record has a response."""
    records, name = file.records, file.name
    found: list[RawRating | InvalidRow] = []
    for number, record in records.records:
        if not _has_responses(record):
            raise ValueError(f"{name} {records.counts_in} {number} has no responses; write it with Argilla's records.to_list(flatten=True)")
        found += _nested(number, record) if isinstance(record.get("responses"), dict) else _flat(number, record)
    return delivery(file, FORMAT, records.counts_in, found, empty=f"none of its {len(records.records)} records has a response")


def _flat(number: int, record: Mapping[str, Any]) -> Iterator[RawRating | InvalidRow]:
    for key, values in record.items():
        if not key.endswith(_RESPONSES) or values is None:
            continue
        question = key.removesuffix(_RESPONSES)
        users, states = record.get(f"{key}.users"), record.get(f"{key}.status")
        if not all(isinstance(part, list) and len(part) == len(values) for part in (values, users, states)):
            message = f"{question}: {key}.users and {key}.status do not say who submitted each response"
            yield InvalidRow(number, "responses-incomplete", message)
            continue
        for value, user, status in zip(values, users or [], states or [], strict=True):
            yield _rating(number, record, record, question, value, user, status)


def _nested(number: int, record: Mapping[str, Any]) -> Iterator[RawRating | InvalidRow]:
    fields, metadata = (part if isinstance(part, dict) else {} for part in (record.get("fields"), record.get("metadata")))
    status = "submitted" if record.get("status") == "completed" else "of a record that is not completed"
    for question, responses in record["responses"].items():
        for response in responses if isinstance(responses, list) else [responses]:
            given = response if isinstance(response, dict) else {}
            yield _rating(number, record, {**fields, **metadata}, question, given.get("value"), given.get("user_id"), status)


def _rating(
    number: int, record: Mapping[str, Any], data: Mapping[str, Any], question: str, value: Any, user: Any, status: Any
) -> RawRating | InvalidRow:
    if status != "submitted":
        return InvalidRow(
            number, "not-submitted", f"{question}: the response is {status or 'without status'}; only submitted responses are ratings"
        )
    found = asked(question, data)
    if found is None:
        return InvalidRow(number, "control-unknown", f"the record has no candidate for the question {question!r}")
    return RawRating(
        number,
        group_id=plain(data.get("group_id")),
        candidate_id=found[0],
        dimension=found[1],
        annotator_id=plain(user),
        score=plain(value),
        round=plain(data.get("round")),
        rubric_version=plain(data.get("rubric_version")),
        submission=plain(record.get("_server_id") or record.get("id")),
        project=plain(data.get("project")),
    )
