"""The catalogue of bad input: what is wrong with a file of ratings, and what becomes of it. One table; every case says what is ingested."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rated_run import make_run, rating_task_of, ratings_of, write_csv

from stages.annotate import step as annotate
from stages.annotate.ratings.rating_task import RatingTask

Rows = list[dict[str, Any]]
FUTURE = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
OPTIONAL = dict.fromkeys(("submission", "round", "seconds", "rubric_version", "comment", "project", "scale_min", "scale_max"), "")
INCOMPLETE = "1 incompletely rated groups give no pairs until the rest is ingested, .* 7 of 8 ratings"


@dataclass(frozen=True)
class Case:
    """A change of 48 sound ratings by ``ann``, and what is expected: quarantined by reason, duplicates, warnings, or the refusal."""

    change: Callable[[Rows, RatingTask], Rows]
    reasons: dict[str, int] = field(default_factory=dict)
    message: str = ""
    duplicates: int = 0
    warnings: tuple[str, ...] = ()
    refused: str = ""


def cell(reason: str, message: str, **change: Any) -> Case:
    """One row is changed, goes to the quarantine, and leaves its group incomplete."""
    return Case(lambda rows, work: [*rows[:3], rows[3] | change, *rows[4:]], {reason: 1}, message, warnings=(INCOMPLETE,))


def another_candidate(candidate: Callable[[Rows, RatingTask], str]) -> Callable[[Rows, RatingTask], Rows]:
    return lambda rows, work: [*rows[:3], rows[3] | {"candidate_id": candidate(rows, work)}, *rows[4:]]


def of_another_group(rows: Rows, work: RatingTask) -> str:
    return next(c for group, sampled in work.sampled.items() if group != rows[3]["group_id"] for c in sampled)


def not_sampled(rows: Rows, work: RatingTask) -> str:
    return next(c for c, group in work.group_of.items() if group == rows[3]["group_id"] and c not in work.sampled[group])


def mistyped(rows: Rows, work: RatingTask) -> str:
    sound = rows[3]["candidate_id"]
    return sound[:10] + ("x" if sound[10] != "x" else "y") + sound[11:]


def by(annotator: str, work: RatingTask, shift: int = 0) -> Rows:
    return [OPTIONAL | row | {"score": row["score"] + shift} for row in ratings_of(work, annotator)]


CASES: dict[str, Case] = {
    # the score
    "score empty": cell("score-empty", "the score is empty; give one of 1, 2, 3, 4", score=""),
    "score nan": cell("score-empty", "empty", score="NaN"),
    "score a word": cell("score-not-a-number", "score 'good' is not a number", score="good"),
    "score a truth value": cell("score-not-a-number", "not a number", score="true"),
    "score a list": cell("score-not-a-number", "not a number", score="[3]"),
    "score between levels": cell("score-not-whole", "score 2.5 lies between", score="2.5"),
    "score above the scale": cell("score-out-of-scale", "score 5 is outside the scale 1, 2, 3, 4", score="5"),
    "score below the scale": cell("score-out-of-scale", "outside", score="0"),
    "score infinite": cell("score-out-of-scale", "outside", score="1e400"),
    # whose and of what
    "dimension mistyped": cell("dimension-unknown", "is 'visual_quality' meant", dimension="visual_qualty"),
    "group unknown": cell("group-unknown", "no group 'nowhere'", group_id="nowhere"),
    "annotator empty": cell("annotator-empty", "annotator_id is empty", annotator_id=" "),
    "annotator a formula": cell("annotator-invalid", "begins as a formula", annotator_id="=HYPERLINK(1)"),
    "annotator with control characters": cell("annotator-invalid", "invisible characters", annotator_id="a\x07nn"),
    "annotator with invisible characters": cell("annotator-invalid", "invisible characters", annotator_id="an\u200bn"),
    "annotator without end": cell("id-too-long", "has 100,000 characters; an id has at most 200", annotator_id="n" * 100_000),
    "group without end": cell("id-too-long", "group_id 'gggggggggggggggggggg'... has", group_id="g" * 100_000),
    "candidate without end": cell("id-too-long", "candidate_id 'c", candidate_id="c" * 100_000),
    "submission without end": cell("id-too-long", "submission 's", submission="s" * 100_000),
    "submission a formula": cell("submission-invalid", "begins as a formula", submission="+1"),
    "submission of another person": Case(
        lambda rows, work: [
            *(row | {"submission": "a" * 32} for row in rows),
            *(row | {"submission": "a" * 32, "annotator_id": "bob"} for row in rows[:8]),
        ],
        {"submission-of-another": 8},
        f"submission {'a' * 32} is by ann, not by bob",
    ),
    "candidate mistyped": Case(another_candidate(mistyped), {"candidate-unknown": 1}, "meant", warnings=(INCOMPLETE,)),
    "candidate of another group": Case(
        another_candidate(of_another_group), {"candidate-of-another-group": 1}, "belongs to group", warnings=(INCOMPLETE,)
    ),
    "candidate not sampled": Case(another_candidate(not_sampled), {"candidate-not-sampled": 1}, "was not sampled", warnings=(INCOMPLETE,)),
    # when and how
    "time unreadable": cell("time-unreadable", "'yesterday' is not an ISO 8601 time", rated_at="yesterday"),
    "time without offset": cell("time-without-offset", "has no offset", rated_at="2025-03-31T14:05:00"),
    "time in the future": cell("time-in-the-future", "has not come yet", rated_at=FUTURE),
    "round unknown": cell("round-unknown", "is 'production' meant", round="produktion"),
    "seconds negative": cell("seconds-invalid", "not a number from 0 to 86400", seconds="-1"),
    "seconds a word": cell("seconds-invalid", "not a number", seconds="long"),
    "seconds more than a day": cell("seconds-invalid", "not a number", seconds="86401"),
    "seconds with a comma before three digits": cell("seconds-ambiguous", "may be 1234 or 1.234", seconds="1,234"),
    "seconds with decimal commas": Case(
        lambda rows, work: [rows[0] | {"seconds": "1,234"}, rows[1] | {"seconds": "4,5"}, *rows[2:]],
    ),
    "rubric unknown": cell("rubric-unknown", "'v0' is not the project's, which is 'v1'", rubric_version="v0"),
    "comment with control characters": cell("comment-invalid", "control characters", comment="bell \x07"),
    "comment too long": cell("comment-invalid", "more than 10000 characters", comment="x" * 10_001),
    # several rows together
    "a row twice": Case(lambda rows, work: [*rows, rows[5]], duplicates=1),
    "the whole file twice": Case(lambda rows, work: rows + rows, duplicates=48),
    "contradicting re-annotation": Case(
        lambda rows, work: [*rows, rows[5] | {"score": 1 + rows[5]["score"] % 4, "rated_at": "2025-04-01T08:00:00Z"}],
        {"conflict": 1},
        "which counts",
    ),
    "re-annotation in its round": Case(
        lambda rows, work: [*rows, *(row | {"round": "reannotation", "score": 2} for row in rows[:8])],
    ),
    "a dimension is missing": Case(
        lambda rows, work: [row for row in rows if row["dimension"] == work.dimensions[0] or row["group_id"] != rows[0]["group_id"]],
        warnings=(INCOMPLETE.replace("7 of 8", "4 of 8"),),
    ),
    "a candidate is missing": Case(
        lambda rows, work: [row for row in rows if row["candidate_id"] != rows[0]["candidate_id"]],
        warnings=(INCOMPLETE.replace("7 of 8", "6 of 8"),),
    ),
    "one annotator counts from 0": Case(
        lambda rows, work: rows + by("zero", work, -1), {"annotator-on-another-scale": 48}, "another scale was used"
    ),
    "annotators alike but for case": Case(
        lambda rows, work: [row | ({"annotator_id": "Ann"} if row["group_id"] == rows[0]["group_id"] else {}) for row in rows],
        refused=r"a\.csv line 10: annotator ann is Ann in the ledger, or above in this file; spell one person in one way",
    ),
    "annotators alike but for spaces": Case(
        lambda rows, work: [row | ({"annotator_id": "an n"} if row["group_id"] == rows[0]["group_id"] else {}) for row in rows],
        warnings=("annotators 'an n', 'ann' differ only in spaces",),
    ),
    "a column nobody reads": Case(lambda rows, work: [row | {"mood": "good"} for row in rows], warnings=("column 'mood' is not read",)),
    "swapped dimensions": Case(
        lambda rows, work: [
            row | {"annotator_id": name, "score": 1 + ((row["dimension"] == "visual_quality") != (name == "eve"))}
            for name in ("ann", "bob", "eve")
            for row in rows
        ],
        warnings=("a.csv: eve: the scores differ from the others' by 0.00 on average when .* exchanged, by 1.00 .*columns swapped",),
    ),
    # the file
    "a misspelt column": Case(
        lambda rows, work: [{("sconds" if k == "seconds" else k): v for k, v in row.items()} for row in rows],
        refused="column 'sconds' is not known; is 'seconds' meant",
    ),
    "everybody counts from 0": Case(
        lambda rows, work: by("zero", work, -1), refused=r"of 48 scores of zero are outside the scale 1, 2, 3, 4 .they go from 0 to 3"
    ),
    "another scale declared": Case(lambda rows, work: [rows[0], rows[1] | {"scale_max": "5"}, *rows[2:]], refused="scale_max is 5"),
    "of another project": Case(lambda rows, work: [rows[0] | {"project": "other"}, *rows[1:]], refused="project other"),
    "names instead of pseudonyms": Case(lambda rows, work: [rows[0] | {"annotator_id": "a@b.org"}, *rows[1:]], refused="e-mail address"),
    "a column is missing": Case(
        lambda rows, work: [{k: v for k, v in row.items() if k != "annotator_id"} for row in rows], refused="lacks the column annotator_id"
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input(tmp_path: Path, case: str) -> None:
    expected, context = CASES[case], make_run(tmp_path / "run")
    work = rating_task_of(context)
    rows = expected.change([OPTIONAL | row for row in ratings_of(work)], work)
    path = write_csv(tmp_path / "a.csv", rows)
    if expected.refused:
        with pytest.raises(ValueError, match=expected.refused) as error:
            annotate.ingest(context, [path])
        assert "\n" not in str(error.value) and context.run.step("annotate").index() is None, "nothing is written"
        return
    result = annotate.ingest(context, [path])
    held = sum(expected.reasons.values())
    assert result.index.quarantined == expected.reasons
    assert result.index.counts == {
        "in": len(rows),
        "out": len(rows) - held - expected.duplicates,
        "duplicates": expected.duplicates,
        "quarantined": held,
    }
    quarantine = context.run.step("annotate").read("quarantine").to_pylist()
    assert all(expected.message in row["message"] and row["position"].startswith("a.csv line ") for row in quarantine)
    if held == 1 and expected.warnings:
        assert quarantine[0]["position"] == "a.csv line 5"
    assert len(result.warnings) == len(expected.warnings)
    for warning, pattern in zip(result.warnings, expected.warnings, strict=True):
        assert re.search(pattern, warning), warning
    assert annotate.ingest(context, [path]).new == [], "the same file again adds nothing"


def test_two_people_with_one_pseudonym_and_times_before_the_export(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run", simulate=None)
    work = rating_task_of(context)
    first, second, *_ = work.sampled
    people = tmp_path / "people.csv"
    people.write_text("name,pseudonym\nAda,p1\nada@lab.org,p1\nBen,p1\n")
    alias = ratings_of(work, "Ada", [first]) + ratings_of(work, "ada@lab.org", [second])
    path = write_csv(tmp_path / "a.csv", alias + ratings_of(work, "Ben", [second]))
    with pytest.raises(
        ValueError, match=r"a\.csv line 18: this and a.csv line 10 rate the same, by two names with the pseudonym p1"
    ) as error:
        annotate.ingest(context, [path], pseudonym_list=people)
    assert "Ben" not in str(error.value)
    his = write_csv(tmp_path / "his.csv", ratings_of(work, "Ben", [second], round="Production"))  # everybody sends a file, as people do
    with pytest.raises(ValueError, match=r"his\.csv line 2: this and a\.csv line 10 rate the same, by two names"):
        annotate.ingest(context, [write_csv(path, alias), his], pseudonym_list=people)
    assert annotate.ingest(context, [write_csv(path, alias)], pseudonym_list=people).index.counts["out"] == 16, "one person, two names"

    annotate.export(context)
    rows = ratings_of(work, "cyd", [first], project=work.project, rated_at=(datetime.now(UTC) - timedelta(days=1)).isoformat())
    rows += ratings_of(work, "dan", [first], project=work.project, rated_at=datetime.now(UTC).isoformat())
    index = annotate.ingest(context, [write_csv(tmp_path / "b.csv", rows)]).index
    assert index.quarantined == {"time-before-export": 8} and index.counts["out"] == 24

    people.write_text("name,pseudonym\nJos\u00e9,p2\n")
    jose = ratings_of(work, "Jose\u0301", [first])  # as some programs spell it
    assert annotate.ingest(context, [write_csv(tmp_path / "c.csv", jose)], pseudonym_list=people).index.counts["out"] == 32
    for number, name in enumerate(("Ren\u00e9e", "Rene\u0301e")):
        index = annotate.ingest(context, [write_csv(tmp_path / f"d{number}.csv", ratings_of(work, name, [second]))]).index
    assert index.counts["out"] == 40, "no second rater"
    with pytest.raises(ValueError, match=r"e\.csv line 2: annotator REN\u00c9E is Ren\u00e9e in the ledger, or above in this file; spell"):
        annotate.ingest(context, [write_csv(tmp_path / "e.csv", ratings_of(work, "REN\u00c9E", [first]))])
    noted = context.run.path / "annotate" / "first-export.json"
    noted.unlink()  # the time of the export is not known any more
    annotate.export(context)
    assert not noted.exists()
