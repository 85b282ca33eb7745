"""Argilla's records, as ``dataset.records.to_list(flatten=True)`` gives them, written as JSON or JSON Lines; or as ``to_json`` writes them.

In: records with the questions and data of :mod:`stages.annotate.formats.questions`; ``group_id`` and candidates are metadata or fields.
Out: one rating per submitted response. The flat layout says of every response whether it was submitted, is a draft or was discarded:
drafts and discarded ones are set aside. The nested layout says so only of the whole record, so responses are taken from records with the
status ``completed`` and set aside from others. Neither layout holds times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stages.annotate.formats.files import Records, plain
from stages.annotate.formats.questions import asked
from stages.annotate.ratings.delivery import Broken, Delivered, Delivery, separated

FORMAT = "argilla"

_RESPONSES = ".responses"


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether a record has Argilla's responses, flat or nested."""
    return isinstance(record.get("responses"), dict) or any(key.endswith(_RESPONSES) for key in record)


def parse(records: Records, name: str, sha256: str) -> Delivery:
    """The ratings of the records. Raises ``ValueError`` when a record is none of Argilla's, or there is no response at all."""
    found: list[Delivered | Broken] = []
    for number, record in records.records:
        if not recognises(record):
            raise ValueError(f"{name} {records.counts_in} {number} has no responses; write it with Argilla's records.to_list(flatten=True)")
        found += _nested(number, record) if isinstance(record.get("responses"), dict) else _flat(number, record)
    rows, broken = separated(found)
    broken = [*records.broken, *broken]
    if not rows and not broken:
        raise ValueError(f"{name} has no ratings: none of its {len(records.records)} records has a response")
    return Delivery(name, sha256, FORMAT, records.counts_in, rows, broken)


def _flat(number: int, record: Mapping[str, Any]) -> Iterator[Delivered | Broken]:
    for key, values in record.items():
        if not key.endswith(_RESPONSES) or values is None:
            continue
        question = key.removesuffix(_RESPONSES)
        users, states = record.get(f"{key}.users"), record.get(f"{key}.status")
        if not all(isinstance(part, list) and len(part) == len(values) for part in (values, users, states)):
            yield Broken(number, "responses-incomplete", f"{question}: {key}.users and {key}.status do not say who submitted each response")
            continue
        for value, user, status in zip(values, users or [], states or [], strict=True):
            yield _rating(number, record, record, question, value, user, status)


def _nested(number: int, record: Mapping[str, Any]) -> Iterator[Delivered | Broken]:
    fields, metadata = (part if isinstance(part, dict) else {} for part in (record.get("fields"), record.get("metadata")))
    status = "submitted" if record.get("status") == "completed" else "of a record that is not completed"
    for question, responses in record["responses"].items():
        for response in responses if isinstance(responses, list) else [responses]:
            given = response if isinstance(response, dict) else {}
            yield _rating(number, record, {**fields, **metadata}, question, given.get("value"), given.get("user_id"), status)


def _rating(
    number: int, record: Mapping[str, Any], data: Mapping[str, Any], question: str, value: Any, user: Any, status: Any
) -> Delivered | Broken:
    if status != "submitted":
        return Broken(
            number, "not-submitted", f"{question}: the response is {status or 'without status'}; only submitted responses are ratings"
        )
    found = asked(question, data)
    if found is None:
        return Broken(number, "control-unknown", f"the record has no candidate for the question {question!r}")
    return Delivered(
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
