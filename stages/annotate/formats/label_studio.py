"""Label Studio's JSON export (not JSON_MIN or CSV, which lose who changed what): a list of tasks with their annotations.

In: tasks made by our export or in its layout (:mod:`stages.annotate.formats.questions`). Out: one rating per answered control. The
community edition neither validates answers nor protects them from other raters. Invalid rows are therefore: an annotation that somebody
else changed (``changed-by-another``), one that is marked as ground truth or was skipped, one without answers, a control that belongs to no
candidate, and an answer that is not exactly one choice. A text area is the comment of all answers. Predictions are not read. The annotator
is ``completed_by``, a number or an e-mail address (:mod:`stages.annotate.formats.pseudonyms`). ``lead_time``, the wall clock time of an
annotation, is divided by the number of its answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from stages.annotate.formats.files import RatingFile, plain
from stages.annotate.formats.questions import asked, delivery
from stages.annotate.ratings.delivery import Delivery, InvalidRow, RawRating

FORMAT = "label-studio"

_LEADING_NUMBER = re.compile(r"([+-]?\d+(?:[.,]\d+)?)\s.*", re.DOTALL)


def recognises(file: RatingFile) -> bool:
    """Whether the first record is a task of the JSON export."""
    return _is_task(file.first_record)


def _is_task(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("annotations"), list) and isinstance(record.get("data"), dict)


def parse(file: RatingFile) -> Delivery:
    """The ratings of an export. Raises ``ValueError`` when a record is not a task, or when no task has an annotation."""
    records, name = file.records, file.name
    found: list[RawRating | InvalidRow] = []
    for number, task in records.records:
        if not _is_task(task):
            raise ValueError(
                f"{name} task {number} has no data and annotations; export the project as JSON (not JSON_MIN) from Label Studio"
            )
        for annotation in task["annotations"]:
            found += _ratings(number, task["data"], annotation)
    return delivery(file, FORMAT, "task", found, empty=f"none of its {len(records.records)} tasks has an annotation")


def _ratings(number: int, data: Mapping[str, Any], annotation: Any) -> Iterator[RawRating | InvalidRow]:
    if not isinstance(annotation, dict) or not isinstance(annotation.get("result"), list):
        yield InvalidRow(number, "not-json", "an annotation is not an object with a list of results; is the export complete?")
        return
    who, changed = _person(annotation.get("completed_by")), _person(annotation.get("updated_by"))
    label = f"annotation {plain(annotation.get('id'))}"
    answers = [answer if isinstance(answer, dict) else {} for answer in annotation["result"]]
    if annotation.get("was_cancelled"):
        yield InvalidRow(number, "cancelled", f"{label} was skipped by its annotator")
        return
    if not answers:
        yield InvalidRow(number, "empty-submission", f"{label} has no answers")
        return
    comment = " ".join(filter(None, map(_text, answers)))
    answers = [answer for answer in answers if answer.get("type") != "textarea"]
    for answer in answers:
        if annotation.get("ground_truth"):
            yield InvalidRow(number, "ground-truth", f"{label} is marked as ground truth; only annotators' answers are ratings")
        elif changed and changed != who:
            yield InvalidRow(
                number, "changed-by-another", f"{label} was last changed by somebody else than who made it; ask that person to rate again"
            )
        else:
            yield _rating(number, data, annotation, answer, label, who=who, comment=comment, of=len(answers))


def _rating(
    number: int,
    data: Mapping[str, Any],
    annotation: Mapping[str, Any],
    answer: Mapping[str, Any],
    label: str,
    *,
    who: str,
    comment: str,
    of: int,
) -> RawRating | InvalidRow:
    """One answer of an annotation that has ``of`` ratings."""
    control, place = plain(answer.get("from_name")), plain(answer.get("to_name"))
    question = asked(control, data)
    if question is None or (place.startswith("edit_") and place.removeprefix("edit_") != control.rpartition("_")[2]):
        message = f"{label}: the control {control!r} on {place!r} is for no candidate of the task; label with the exported configuration"
        return InvalidRow(number, "control-unknown", message)
    value = answer.get("value")
    given = value.get("choices", value.get("rating")) if isinstance(value, dict) else None
    if isinstance(given, list):
        if len(given) != 1:
            return InvalidRow(number, "not-one-choice", f"{label}: {control} has {len(given)} choices; a rating is exactly one")
        given = given[0]
    candidate, dimension = question
    seconds = annotation.get("lead_time")
    return RawRating(
        number,
        group_id=plain(data.get("group_id")),
        candidate_id=candidate,
        dimension=dimension,
        annotator_id=who,
        score=_score(plain(given)),
        rated_at=plain(annotation.get("updated_at") or annotation.get("created_at")),
        round=plain(data.get("round")),
        seconds=f"{seconds / of:.3f}" if isinstance(seconds, int | float) else "",
        comment=comment,
        rubric_version=plain(data.get("rubric_version")),
        submission=plain(annotation.get("unique_id") or annotation.get("id")),
        project=plain(data.get("project")),
    )


def _text(answer: Mapping[str, Any]) -> str:
    """Text of a text area."""
    value = answer.get("value")
    text = value.get("text") if isinstance(value, dict) and answer.get("type") == "textarea" else None
    return " ".join(map(plain, text)) if isinstance(text, list) else plain(text)


def _score(choice: str) -> str:
    """The score of a choice, which may have its name behind it: ``4 Very good``."""
    match = _LEADING_NUMBER.fullmatch(choice.strip())
    return match[1] if match else choice.strip()


def _person(value: Any) -> str:
    """Id of a person; the export has a number, or an object with an e-mail address and a number."""
    if isinstance(value, dict):
        return plain(value.get("email") or value.get("id"))
    return plain(value)
