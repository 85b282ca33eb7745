"""Validation: every rating of a file is accepted, a duplicate, or quarantined with a reason. All formats use it.

In: a :class:`Delivery`, the rating task, the ratings of the ledger. Out: rows of the ``ratings`` contract and of the quarantine; with the
duplicates they add up to the ratings of the file. A file is refused as a whole (``ValueError``) if it belongs to another project, declares
another scale, or all its raters used another scale. Row checks cannot find the last case: on a scale from 0, the scores 1 to 3 look valid.

Reasons for single rows: annotator-empty, annotator-invalid, submission-invalid, id-too-long, submission-of-another, time-before-export,
annotator-on-another-scale, dimension-unknown, group-unknown, candidate-unknown,
candidate-of-another-group, candidate-not-sampled, score-empty, score-not-a-number, score-not-whole, score-out-of-scale, time-unreadable,
time-without-offset, time-in-the-future, round-unknown, seconds-invalid, seconds-ambiguous, rubric-unknown, comment-invalid, conflict,
older-revision (:mod:`stages.annotate.ratings.revisions`). Reasons that the formats add: field-count, not-json; unrateable (our page);
cancelled, changed-by-another, ground-truth, empty-submission, not-one-choice, control-unknown (Label Studio); not-submitted,
responses-incomplete, control-unknown (Argilla); item-unnamed (:mod:`stages.annotate.formats.published_pairs`); edit-set-aside,
pair-of-two-sources (:mod:`stages.annotate.ratings.published_edits`); annotator-not-listed (:mod:`stages.annotate.formats.pseudonyms`).
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from stages.annotate.ratings.delivery import Cell, Delivery, ExistingRating, RawRating, spelled
from stages.annotate.ratings.rating_task import PRODUCTION, RANKING, ROUNDS, RatingTask, Scale
from stages.annotate.ratings.revisions import Revisions
from stages.annotate.ratings.suggest import Closest, did_you_mean
from stages.engine.contracts import Quarantined
from stages.engine.ids import content_id

CLOCK_TOLERANCE = timedelta(minutes=5)
LONGEST_COMMENT = 10_000
LONGEST_ID = 200
"""Characters of a pseudonym, and of the ids of groups, candidates and submissions."""
DAY = 86_400

Problem = tuple[str, str]
"""reason and message."""

_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_THOUSANDS = re.compile(r"[1-9]\d{0,2},\d{3}", re.ASCII)
"""Texts whose comma is a decimal comma in one country and a sign of thousands in another."""
_UNSAFE = "it has invisible characters, or begins as a formula of a spreadsheet does; give a plain text"
_PAGE_SUBMISSION = re.compile(r"[0-9a-f]{32}")
"""Ids that the rating page gives; those of other tools may be shared by several people."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True)
class Checked:
    """Result of a validation: ratings of the file = accepted + duplicates + quarantine."""

    accepted: list[dict[str, Any]]
    quarantine: list[Quarantined]
    duplicates: int
    warnings: list[str]


def validate(
    delivery: Delivery,
    task: RatingTask,
    existing: MutableMapping[Cell, ExistingRating],
    *,
    batch: str,
    now: datetime | None,
    revisions: Revisions | None = None,
    exported: datetime | None = None,
    rubrics: Collection[str] = (),
) -> Checked:
    """Check a delivery against the task and the ``existing`` ratings of the ledger; accepted ratings are added to ``existing``.

    batch: submission id of rows that have none. now: ratings later than this are quarantined; exported: time of the first export, those of
    this project before it are quarantined; None: no such bound. revisions: histories of ledger and delivery. rubrics: versions that were
    exported.
    """
    _refuse_other_project(delivery, task)
    _refuse_other_spellings(delivery, existing)
    commas = {row.seconds for row in delivery.rows if "," in row.seconds and not math.isnan(number(row.seconds))}
    decimal = not all(map(_THOUSANDS.fullmatch, commas))
    other_scale = _on_another_scale(delivery, task.scale)
    groups, candidates = Closest(task.sampled), Closest(task.group_of)
    accepted: list[dict[str, Any]] = []
    quarantine = [
        Quarantined(_row_id(delivery, "broken", place), delivery.at(number), *problem)
        for place, (number, *problem) in enumerate(delivery.invalid)
    ]
    duplicates = 0
    owners = {rating.submission: cell[2] for cell, rating in existing.items() if _PAGE_SUBMISSION.fullmatch(rating.submission)}
    for place, row in enumerate(delivery.rows):
        problem = (
            _problem(row, task, other_scale, groups, candidates, now, means=delivery.means)
            or (None if decimal else _thousands_problem(row.seconds))
            or _rubric_problem(row, task, rubrics)
            or _export_problem(row, exported)
            or _submission_problem(row, owners, revisions)
        )
        if problem is None:
            rating = _rating(row, task, batch)
            cell = (rating["candidate_id"], rating["dimension"], rating["annotator"], rating["round"])
            new = ExistingRating(rating["score"], rating["rated_at"], rating["submission"])
            if revisions is not None and revisions.replaced(new.submission):
                problem = "older-revision", f"{row.annotator_id} has revised group {row.group_id} since; the ledger has the later one"
            else:
                before = existing.setdefault(cell, new)
                if before is new:
                    accepted.append(rating)
                    continue
                if before.score == new.score:
                    duplicates += 1
                    continue
                problem = _conflict(cell, before, new)
        quarantine.append(Quarantined(_row_id(delivery, "rating", place), delivery.at(row.number), *problem))
    assert delivery.ratings == len(accepted) + duplicates + len(quarantine), f"rows of {delivery.file} do not balance"
    return Checked(accepted, quarantine, duplicates, [*delivery.warnings, *_similar_annotators(delivery)])


def _row_id(delivery: Delivery, kind: str, place: int) -> str:
    """Id of the rating, or invalid row, at index ``place`` of a file."""
    return content_id("delivered", delivery.sha256, delivery.file, kind, place)


def _problem(
    row: RawRating,
    task: RatingTask,
    other_scale: Mapping[str, str],
    groups: Closest,
    candidates: Closest,
    now: datetime | None,
    *,
    means: bool,
) -> Problem | None:
    """The first problem of a row, or None. means: as in :class:`Delivery`."""
    for what in ("annotator_id", "group_id", "candidate_id", "submission"):
        if len(text := getattr(row, what)) > LONGEST_ID:
            return "id-too-long", f"{what} {text[:20]!r}... has {len(text):,} characters; an id has at most {LONGEST_ID}"
    if not row.annotator_id:
        return "annotator-empty", "annotator_id is empty; give the rater's pseudonym"
    if _is_unsafe(row.annotator_id):
        return "annotator-invalid", f"annotator_id {row.annotator_id!r}: {_UNSAFE}"
    if _is_unsafe(row.submission):
        return "submission-invalid", f"submission {row.submission!r}: {_UNSAFE}"
    if row.annotator_id in other_scale:
        return "annotator-on-another-scale", other_scale[row.annotator_id]
    return (
        _dimension_problem(row.dimension, task.dimensions)
        or _item_problem(row, task, groups, candidates)
        or score_problem(row.score, _scale(row, task), between=means)
        or _time_problem(row.rated_at, now)
        or _rest_problem(row)
    )


@lru_cache(maxsize=4096)
def _is_unsafe(text: str) -> bool:
    """Whether an id has invisible characters, or would be run as a formula by a spreadsheet."""
    return text.startswith(("=", "+", "-", "@")) or any(unicodedata.category(character) in ("Cc", "Cf") for character in text)


def _thousands_problem(seconds: str) -> Problem | None:
    """The problem of a time in a file that does not show whether a comma is a decimal comma: none of its times is like 4,5 or 0,125."""
    if not _THOUSANDS.fullmatch(seconds):
        return None
    plain, point = seconds.replace(",", ""), seconds.replace(",", ".")
    return "seconds-ambiguous", f"seconds {seconds!r} may be {plain} or {point}; write one of these"


def _export_problem(row: RawRating, exported: datetime | None) -> Problem | None:
    """The problem of a rating that names this project and is older than its export."""
    if exported is None or not row.project or not row.rated_at or datetime.fromisoformat(row.rated_at) >= exported - CLOCK_TOLERANCE:
        return None
    return (
        "time-before-export",
        f"rated_at {row.rated_at!r} is before the export ({exported.isoformat()}); check the clock",
    )


def clock_warnings(delivery: Delivery, now: datetime, exported: datetime | None) -> list[str]:
    """A warning about times in the page's database that show that the server's clock was wrong. Nobody can correct them, so they count."""
    odd = sorted({row.rated_at for row in delivery.rows if _time_problem(row.rated_at, now) or _export_problem(row, exported)})
    if not odd:
        return []
    return [
        f"{delivery.file}: the server's clock was wrong: ratings of {odd[0]} to {odd[-1]} are before the export or have not come yet; they "
        "count like all others; set the clock"
    ]


def _submission_problem(row: RawRating, owners: MutableMapping[str, str], revisions: Revisions | None) -> Problem | None:
    """The problem of a submission of the rating page under another person's name. owners: annotator by submission, completed here."""
    if not _PAGE_SUBMISSION.fullmatch(row.submission):
        return None
    owner = (revisions.owner(row.submission) if revisions is not None else None) or owners.setdefault(row.submission, row.annotator_id)
    if owner == row.annotator_id:
        return None
    return (
        "submission-of-another",
        f"submission {row.submission} is by {owner}, not by {row.annotator_id}; correct annotator_id",
    )


def _scale(row: RawRating, task: RatingTask) -> Scale:
    """The scale of the task, or of ranks in a ranking."""
    return Scale(1, len(task.sampled[row.group_id])) if row.round.lower() == RANKING else task.scale


@lru_cache
def _dimension_problem(text: str, dimensions: tuple[str, ...]) -> Problem | None:
    if spelled(text) in dimensions:
        return None
    return "dimension-unknown", f"there is no dimension {text!r}{did_you_mean(text, dimensions)}; dimensions are {', '.join(dimensions)}"


def _item_problem(row: RawRating, task: RatingTask, groups: Closest, candidates: Closest) -> Problem | None:
    group = task.group_of.get(row.candidate_id)
    if row.group_id not in task.sampled:
        return "group-unknown", f"there is no group {row.group_id!r} in this project{groups.to(row.group_id)}"
    if group is None:
        return "candidate-unknown", f"there is no candidate {row.candidate_id!r} in this project{candidates.to(row.candidate_id)}"
    if group != row.group_id:
        return "candidate-of-another-group", f"candidate {row.candidate_id} belongs to group {group}, not to {row.group_id}"
    if row.candidate_id not in task.sampled[group]:
        return "candidate-not-sampled", f"candidate {row.candidate_id} of group {group} was not sampled for annotation"
    return None


@lru_cache(maxsize=4096)
def number(text: str) -> float:
    """A number with a decimal point or comma, or NaN for other texts."""
    return float(text.replace(",", ".")) if _NUMBER.fullmatch(text) else math.nan


@lru_cache(maxsize=4096)
def score_problem(text: str, scale: Scale, *, between: bool = False) -> Problem | None:
    """The problem of a score, or None. between: whether it may lie between the levels of the scale."""
    if not text or text.lower() in ("nan", "null", "none", "na", "n/a"):
        return "score-empty", f"the score is empty; give one of {scale}"
    score = number(text)
    if math.isnan(score):
        return "score-not-a-number", f"score {text!r} is not a number; give one of {scale}"
    if not scale.minimum <= score <= scale.maximum:
        return "score-out-of-scale", f"score {text} is outside the scale {scale}"
    if not between and score not in scale.levels:
        return "score-not-whole", f"score {text} lies between the levels of the scale {scale}"
    return None


def _time_problem(text: str, now: datetime | None) -> Problem | None:
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return "time-unreadable", f"rated_at {text!r} is not an ISO 8601 time such as 2025-03-31T14:05:00+02:00"
    if time.tzinfo is None:
        return "time-without-offset", f"rated_at {text!r} has no offset from UTC; write it as in 2025-03-31T14:05:00+02:00"
    if now is not None and time > now + CLOCK_TOLERANCE:
        return "time-in-the-future", f"rated_at {text!r} has not come yet; check the clock and the time zone"
    return None


def _rubric_problem(row: RawRating, task: RatingTask, exported: Collection[str]) -> Problem | None:
    """The problem of a rating by a rubric that is not the task's and was not exported before."""
    if row.rubric_version in ("", task.rubric_version, *exported):
        return None
    return "rubric-unknown", f"rubric version {row.rubric_version!r} is not the project's, which is {task.rubric_version!r}"


def _rest_problem(row: RawRating) -> Problem | None:
    if row.round and row.round.lower() not in ROUNDS:
        return "round-unknown", f"there is no round {row.round!r}{did_you_mean(row.round, ROUNDS)}; rounds are {', '.join(ROUNDS)}"
    if row.seconds and not 0 <= number(row.seconds) <= DAY:
        return "seconds-invalid", f"seconds {row.seconds!r} is not a number from 0 to {DAY}"
    if len(row.comment) > LONGEST_COMMENT or _CONTROL.search(row.comment):
        return "comment-invalid", f"the comment has control characters or more than {LONGEST_COMMENT} characters"
    return None


def _conflict(cell: Cell, before: ExistingRating, new: ExistingRating) -> Problem:
    first, second = (f"{one.score:g} at {one.time or 'an unknown time'}" for one in (before, new))
    candidate, dimension, annotator, round = cell
    return "conflict", (
        f"{annotator} gave {dimension} of candidate {candidate} {first}, which counts, and {second} in the same round {round}; "
        "a deliberate second rating needs a round of its own such as reannotation"
    )


def _rating(row: RawRating, task: RatingTask, batch: str) -> dict[str, Any]:
    """A valid row of the contract. Its id is a hash of candidate, dimension, annotator, round, score, time and rubric."""
    score, round = number(row.score), row.round.lower() or PRODUCTION
    dimension, rubric = spelled(row.dimension), row.rubric_version or task.rubric_version
    scale = _scale(row, task)
    content = json.dumps([row.candidate_id, dimension, row.annotator_id, round, score, row.rated_at, rubric])
    return {
        "rating_id": content_id("rating", content),
        "source_id": row.group_id,
        "candidate_id": row.candidate_id,
        "annotator": row.annotator_id,
        "dimension": dimension,
        "score": score,
        "scale_min": scale.minimum,
        "scale_max": scale.maximum,
        "round": round,
        "submission": row.submission or batch,
        "rated_at": row.rated_at,
        "seconds": number(row.seconds) if row.seconds else None,
        "comment": row.comment,
        "rubric_version": rubric,
    }


def _refuse_other_project(delivery: Delivery, task: RatingTask) -> None:
    """Raise ``ValueError`` for a file of another project or with another declared scale."""
    for row in delivery.rows:
        if row.project and row.project != task.project:
            raise ValueError(
                f"{delivery.at(row.number)}: the ratings belong to project {row.project}, this run is project {task.project}; "
                "ingest them into the run from which they were exported"
            )
        bounds = {"scale_min": (row.scale_min, task.scale.minimum), "scale_max": (row.scale_max, task.scale.maximum)}
        for name, (text, bound) in bounds.items():
            if text and number(text) != bound and row.round.lower() != RANKING:
                place = delivery.at(row.number)
                raise ValueError(f"{place}: {name} is {text}, the project's scale is {task.scale}; convert the scores")


def _on_another_scale(delivery: Delivery, scale: Scale) -> dict[str, str]:
    """Messages for annotators with more than 2 % and at least 3 scores outside the scale; ``ValueError`` if these are all annotators."""
    scores: defaultdict[str, Counter[float]] = defaultdict(Counter)
    for row in delivery.rows:
        score = number(row.score)
        if not math.isnan(score) and row.round.lower() != RANKING:
            scores[row.annotator_id][score] += 1
    messages = {}
    for annotator, counts in scores.items():
        outside = sum(count for score, count in counts.items() if not scale.minimum <= score <= scale.maximum)
        if outside >= 3 and outside > 0.02 * counts.total():
            messages[annotator] = (
                f"{outside} of {counts.total()} scores of {annotator} are outside the scale {scale} (they go from {min(counts):g} to "
                f"{max(counts):g}): another scale was used, so that none of them can be trusted; convert them and deliver again"
            )
    if messages and messages.keys() == scores.keys():
        raise ValueError(f"{delivery.file}: {next(iter(messages.values()))}")
    return messages


def _refuse_other_spellings(delivery: Delivery, existing: Collection[Cell]) -> None:
    """Raise ``ValueError`` for an annotator whom the ledger, or the file above, spells with other capital letters: it would be a second
    person."""
    known = {annotator for _, _, annotator, _ in existing}
    spelt = {name.casefold(): name for name in known}
    for row in delivery.rows:
        name = row.annotator_id
        if name in known:
            continue
        if (other := spelt.setdefault(name.casefold(), name)) != name:
            raise ValueError(
                f"{delivery.at(row.number)}: annotator {name:.60} is {other:.60} in the ledger, or above in this file; spell one person in "
                "one way, and give two people pseudonyms that differ in more than capital letters"
            )
        known.add(name)


def _similar_annotators(delivery: Delivery) -> list[str]:
    """A warning for every set of annotator ids that differ only in spaces."""
    names: defaultdict[str, set[str]] = defaultdict(set)
    for name in {row.annotator_id for row in delivery.rows}:
        names["".join(name.split())].add(name)
    return [
        f"{delivery.file}: annotators {', '.join(map(repr, sorted(same)))} differ only in spaces; are they one person?"
        for _, same in sorted(names.items())
        if len(same) > 1
    ]
