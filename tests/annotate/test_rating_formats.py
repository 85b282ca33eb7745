"""Formats of other tools and of our page: each gives the ratings that were made in it, and sets aside what is none, with the reason."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rated_run import make_run, rating_task_of, ratings_of, write_csv

from pipeline.commands.print_ratings import ingested
from pipeline.report.published import Published
from stages.annotate import step as annotate
from stages.annotate.formats import editreward_data, page_database
from stages.annotate.formats import read as readers
from stages.annotate.quality import step as annotation_qc
from stages.annotate.ratings.accepted import accepted_ratings
from stages.annotate.ratings.rating_task import RatingTask
from stages.context import Context
from stages.engine import storage
from stages.preferences import step as preferences

IF, VQ = "instruction_following", "visual_quality"


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return make_run(tmp_path / "run")


@pytest.fixture
def work(context: Context) -> RatingTask:
    return rating_task_of(context)


def ledger(context: Context) -> dict[tuple[str, str, str], dict[str, Any]]:
    rows = context.run.step("annotate").read("ratings").to_pylist()
    return {(row["annotator"], row["candidate_id"], row["dimension"]): row for row in rows}


def reasons(context: Context) -> Counter[str]:
    return Counter(row["reason"] for row in context.run.step("annotate").read("quarantine").to_pylist())


def scores(work: RatingTask, annotator: str) -> dict[tuple[str, str, str], int]:
    return {(annotator, row["candidate_id"], row["dimension"]): row["score"] for row in ratings_of(work, annotator)}


def dump(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


# --- Label Studio ---------------------------------------------------------------------------------------------------------------------


def annotation(work: RatingTask, group: str, who: Any, number: int, **changes: Any) -> dict[str, Any]:
    """A submitted annotation of a whole group, with the fields of a JSON export that matter."""
    given = {(row["candidate_id"], row["dimension"]): row["score"] for row in ratings_of(work, str(who), [group])}
    result = [
        {
            "from_name": f"{dimension}_{place}",
            "to_name": f"edit_{place}",
            "type": "choices",
            "origin": "manual",
            "value": {"choices": [str(given[candidate, dimension])]},
        }
        for place, candidate in enumerate(work.sampled[group])
        for dimension in work.dimensions
    ]
    made = {
        "id": number,
        "unique_id": f"annotation-{number}",
        "completed_by": who,
        "updated_by": who,
        "created_at": "2025-03-31T14:00:00.000000Z",
        "updated_at": "2025-03-31T14:05:00.000000Z",
        "lead_time": 80.0,
        "was_cancelled": False,
        "ground_truth": False,
        "result": result,
    }
    return made | changes


def tasks(work: RatingTask, annotations: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "data": {"group_id": group, "project": work.project, **{f"cid{place}": c for place, c in enumerate(work.sampled[group])}},
            "annotations": annotations.get(group, []),
            "predictions": [{"result": [{"from_name": "visual_quality_0", "value": {"choices": ["1"]}}]}],
        }
        for number, group in enumerate(work.sampled, start=1)
    ]


def test_label_studio_ratings_arrive_and_again_add_nothing(context: Context, work: RatingTask, tmp_path: Path) -> None:
    comment = {"from_name": "comment", "to_name": "instruction", "type": "textarea", "value": {"text": ["blurred", "edges"]}}
    made = {group: [annotation(work, group, 7, n), annotation(work, group, 9, 100 + n)] for n, group in enumerate(work.sampled)}
    first = next(iter(work.sampled))
    made[first][0]["result"].append(comment)
    path = dump(tmp_path / "project-1.json", tasks(work, made))
    result = annotate.ingest(context, [path])
    assert result.new[0].format == "label-studio"
    assert result.index.counts == {"in": 96, "out": 96, "duplicates": 0, "quarantined": 0} and result.warnings == []
    found = ledger(context)
    assert {key: row["score"] for key, row in found.items()} == scores(work, "7") | scores(work, "9")
    example = found["7", work.sampled[first][0], IF]
    assert example["comment"] == "blurred edges" and example["seconds"] == 10.0 and example["submission"] == "annotation-0"
    assert annotate.ingest(context, [path]).new == []


def test_what_label_studio_lets_through_is_set_aside(context: Context, work: RatingTask, tmp_path: Path) -> None:
    groups = list(work.sampled)
    nine, unknown, misplaced, double, missing = (annotation(work, groups[0], f"p{n}", n) for n in range(5))
    nine["result"][0]["value"]["choices"] = ["9"]
    unknown["result"][0]["from_name"] = "visual_quality_6"
    misplaced["result"][0]["to_name"] = "edit_3"
    double["result"][0]["value"]["choices"] = ["1", "4"]
    del missing["result"][0]
    words = annotation(work, groups[1], "p9", 9)
    words["result"][0]["value"]["choices"] = ["4 Very good"]
    made = {
        groups[0]: [nine, unknown, misplaced, double, missing],
        groups[1]: [
            annotation(work, groups[1], "p1", 10, updated_by="p2"),
            annotation(work, groups[1], "p2", 11, ground_truth=True),
            annotation(work, groups[1], "p3", 12, was_cancelled=True),
            annotation(work, groups[1], "p4", 13, result=[]),
            words,
        ],
    }
    result = annotate.ingest(context, [dump(tmp_path / "export.json", tasks(work, made))])
    expected = {"score-out-of-scale": 1, "control-unknown": 2, "not-one-choice": 1, "changed-by-another": 8, "ground-truth": 8}
    assert result.index.quarantined == dict(sorted((expected | {"cancelled": 1, "empty-submission": 1}).items()))
    assert result.index.counts == {"in": 65, "out": 43, "duplicates": 0, "quarantined": 22}
    assert "5 incompletely rated groups give no pairs until the rest is ingested, " in result.warnings[0]
    assert ledger(context)["p9", work.sampled[groups[1]][0], IF]["score"] == 4
    positions = {row["position"] for row in context.run.step("annotate").read("quarantine").to_pylist()}
    assert positions == {"export.json task 1", "export.json task 2"}


def test_label_studio_files_that_are_none(context: Context, work: RatingTask, tmp_path: Path) -> None:
    sound = tasks(work, {})
    for value, message in (
        (sound, "none of its 6 tasks has an annotation"),
        (
            [*tasks(work, {next(iter(work.sampled)): [annotation(work, next(iter(work.sampled)), 1, 1)]}), {"id": 3}],
            "task 7 has no data and annot",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            annotate.ingest(context, [dump(tmp_path / "a.json", value)])
    with pytest.raises(ValueError, match="is not JSON, as this format is"):
        annotate.ingest(context, [write_csv(tmp_path / "a.csv", ratings_of(work))], "label-studio")
    other = tasks(work, {next(iter(work.sampled)): [annotation(work, next(iter(work.sampled)), 1, 1)]})
    other[0]["data"]["project"] = "another"
    with pytest.raises(ValueError, match="project another"):
        annotate.ingest(context, [dump(tmp_path / "b.json", other)])


# --- pseudonyms -----------------------------------------------------------------------------------------------------------------------


def test_names_become_pseudonyms_before_anything_is_written(context: Context, work: RatingTask, tmp_path: Path) -> None:
    groups = list(work.sampled)
    people = ({"id": 1, "email": "anna@example.org"}, {"id": 2, "email": "ben@example.org"}, {"id": 3, "email": "eve@example.org"})
    made = {groups[0]: [annotation(work, groups[0], person, n) for n, person in enumerate(people)]}
    path = dump(tmp_path / "export.json", tasks(work, made))
    with pytest.raises(ValueError, match=r"export\.json task 1: an annotator is an e-mail address; give a list .* --pseudonyms") as error:
        annotate.ingest(context, [path])
    assert "anna" not in str(error.value)
    people_list = write_csv(
        tmp_path / "people.csv", [{"name": "anna@example.org", "pseudonym": "r1"}, {"name": "ben@example.org", "pseudonym": "r2"}]
    )
    result = annotate.ingest(context, [path], pseudonym_list=people_list)
    assert result.index.quarantined == {"annotator-not-listed": 8}
    assert {who for who, _, _ in ledger(context)} == {"r1", "r2"}
    for file in (context.run.path / "annotate").rglob("*"):
        assert not file.is_file() or not any(name in file.read_bytes() for name in (b"anna", b"ben@", b"eve@"))
    # somebody who delivers with the pseudonym is the same person
    again = annotate.ingest(context, [write_csv(tmp_path / "r1.csv", ratings_of(work, "r1", groups[1:2]))], pseudonym_list=people_list)
    assert again.new[0].accepted == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("who,pseudonym\na,r1\n", "expected the columns name and pseudonym"),
        ("name,pseudonym\na,\n", "line 2: expected a name and a pseudonym"),
        ("name,pseudonym\na,r@x.org\n", "not an e-mail address"),
        ("name,pseudonym\na,r1\na,r2\n", "line 3: the person of this line has another pseudonym"),
        ("name,pseudonym\nAda,r1\nADA,r2\n", "line 3: the person of this line has another pseudonym"),
        ("name,pseudonym\nAda,r1\nBen,R1\n", "line 3: pseudonym R1 is r1 above; spell one pseudonym in one way"),
    ],
)
def test_a_list_of_pseudonyms_that_is_not_sound(context: Context, work: RatingTask, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "people.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        annotate.ingest(context, [write_csv(tmp_path / "a.csv", ratings_of(work))], pseudonym_list=tmp_path / "people.csv")


# --- Argilla --------------------------------------------------------------------------------------------------------------------------


def argilla_records(work: RatingTask, status: Sequence[str] = ("submitted", "submitted")) -> list[dict[str, Any]]:
    """What `records.to_list(flatten=True)` gives for groups with a rating question per candidate and dimension, rated by two."""
    records = []
    for number, group in enumerate(work.sampled):
        record: dict[str, Any] = {"id": str(number), "status": "completed", "_server_id": f"server-{number}", "group_id": group}
        record |= {f"cid{place}": candidate for place, candidate in enumerate(work.sampled[group])}
        for place, candidate in enumerate(work.sampled[group]):
            for short, dimension in (("if", IF), ("vq", VQ)):
                key = f"{short}{place}.responses"
                record[key] = [scores(work, who)[who, candidate, dimension] for who in ("user-a", "user-b")]
                record |= {f"{key}.users": ["user-a", "user-b"], f"{key}.status": list(status)}
        records.append(record | {"if0.suggestion": 1, "if0.suggestion.score": None})
    return records


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_flat_argilla_records(context: Context, work: RatingTask, tmp_path: Path, suffix: str) -> None:
    records = argilla_records(work)
    path = tmp_path / f"records.{suffix}"
    path.write_text(json.dumps(records) if suffix == "json" else "\n".join(map(json.dumps, records)))
    result = annotate.ingest(context, [path])
    assert result.new[0].format == "argilla" and result.index.counts["out"] == 96 and result.warnings == []
    assert {key: row["score"] for key, row in ledger(context).items()} == scores(work, "user-a") | scores(work, "user-b")


def test_drafts_and_damage_in_argilla_records(context: Context, work: RatingTask, tmp_path: Path) -> None:
    records = argilla_records(work, ("submitted", "draft"))
    records[0]["if0.responses.status"] = None
    records[1]["if7.responses"] = [3]
    records[1] |= {"if7.responses.users": ["user-a"], "if7.responses.status": ["submitted"]}
    result = annotate.ingest(context, [dump(tmp_path / "records.json", records)])
    assert result.index.quarantined == {"control-unknown": 1, "not-submitted": 47, "responses-incomplete": 1}
    assert result.index.counts["out"] == 47


def test_nested_argilla_records_count_when_they_are_completed(context: Context, work: RatingTask, tmp_path: Path) -> None:
    records = []
    for number, group in enumerate(work.sampled):
        for candidate in work.sampled[group]:
            responses = {d: [{"value": scores(work, "u")["u", candidate, d], "user_id": "u"}] for d in work.dimensions}
            record = {"id": candidate, "fields": {"edit": "x"}, "metadata": {"group_id": group, "candidate_id": candidate}}
            records.append(record | {"responses": responses, "suggestions": {}, "status": "completed" if number else "pending"})
    result = annotate.ingest(context, [dump(tmp_path / "records.json", records)])
    assert result.index.quarantined == {"not-submitted": 8} and result.index.counts["out"] == 40
    assert all(row["score"] == scores(work, "u")[key] for key, row in ledger(context).items())


# --- EditReward-Data ------------------------------------------------------------------------------------------------------------------


def editreward_pairs(keys: Sequence[str] = ("s1", "s2")) -> list[dict[str, Any]]:
    """All pairs of three candidates per source, in the data set's columns, with images in them."""
    edits = [("m-a", "a.png", 4.0, 2.0), ("m-b", "b.png", 1.0, 3.0), ("m-c", "c.png", 4.0, 3.0)]
    image = {"bytes": b"\x89PNG\r\n\x1a\n not read", "path": None}
    rows = []
    for key in keys:
        for left, right in ((0, 1), (0, 2), (2, 1)):
            row: dict[str, Any] = {"key": key, "unique_key": f"{key}-{len(rows)}", "pair_index": len(rows), "instruction": f"edit {key}"}
            row |= {
                "source_img": image,
                "left_output_image": image,
                "right_output_image": image,
                "vote_type": "leftvote",
                "metadata_index": 1,
            }
            for side, place in (("left", left), ("right", right)):
                model, name, follow, quality = edits[place]
                row |= {f"{side}_model": model, f"{side}_img_rel": name, f"{side}_overall_score": follow + quality}
                row |= {f"{side}_instruction_following_score": follow, f"{side}_quality_aesthetic_score": quality}
            rows.append(row)
    return rows


def write_pairs(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        dump(path, [{name: value for name, value in row.items() if "image" not in name and "source_img" not in name} for row in rows])
    return path


@pytest.mark.parametrize("suffix", ["parquet", "json"])
def test_editreward_data_brings_its_items(tmp_path: Path, suffix: str) -> None:
    context = make_run(tmp_path / "run")
    (context.run.path / "generate" / "index.json").unlink()
    path = write_pairs(tmp_path / f"train.{suffix}", editreward_pairs())
    result = annotate.ingest(context, [path])
    assert result.new[0].format == "editreward-data"
    assert result.index.counts == {"in": 24, "out": 12, "duplicates": 12, "quarantined": 0} and result.warnings == []
    found = [(row["dimension"], row["score"]) for row in ledger(context).values()]
    assert Counter(found) == {(IF, 4.0): 4, (IF, 1.0): 2, (VQ, 2.0): 2, (VQ, 3.0): 4}
    step = context.run.step("annotate")
    assert {row["instruction"] for row in step.read("sources").to_pylist()} == {"edit s1", "edit s2"}
    assert Counter(row["editor"] for row in step.read("candidates").to_pylist()) == {"m-a": 2, "m-b": 2, "m-c": 2}
    assert result.index.results["annotators"] == 1
    assert annotate.ingest(context, [path]).new == []


def test_editreward_data_in_several_files_and_with_faults(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run")
    (context.run.path / "generate" / "index.json").unlink()
    rows = editreward_pairs()
    rows[5] |= {"left_instruction_following_score": 2.0, "right_img_rel": ""}
    files = [write_pairs(tmp_path / f"train-{n}.parquet", part) for n, part in enumerate((rows[:2], rows[2:]))]
    result = annotate.ingest(context, files)
    assert result.index.quarantined == {"conflict": 1, "item-unnamed": 2}
    assert result.index.counts == {"in": 24, "out": 12, "duplicates": 9, "quarantined": 3}
    step = context.run.step("annotate")
    assert len(step.read("sources")) == 2 and len(step.read("candidates")) == 6, "a source in two files is there once"
    assert all(entry["items_rated_twice"] == 0 for entry in result.index.results["agreement"].values() if "items_rated_twice" in entry)
    with pytest.raises(ValueError, match="lacks the column key of EditReward-Data"):
        readers.read(write_pairs(tmp_path / "cut.json", [{n: v for n, v in rows[0].items() if n != "key"}]))
    table = write_csv(tmp_path / "a.csv", ratings_of(rating_task_of(make_run(tmp_path / "other"))))
    with pytest.raises(ValueError, match="rate different items; ingest them into separate runs"):
        annotate.ingest(context, [files[0], table])
    assert set(editreward_data.COLUMNS) <= set(editreward_pairs()[0])


# --- our page -------------------------------------------------------------------------------------------------------------------------

PAGE = """
CREATE TABLE submissions (
  submission_id, annotator, group_id, revision, round, flag, comment, seconds, submitted_at, rubric_version, scale_min, scale_max, project,
  wall_seconds, changes, content);
CREATE TABLE scores (submission_id, candidate_id, dimension, score, position);
CREATE VIEW latest AS SELECT *, max(revision) FROM submissions WHERE round IN ('calibration', 'production') GROUP BY annotator, group_id;
CREATE VIEW ratings AS SELECT l.*, s.candidate_id, s.dimension, s.score, s.position FROM latest l JOIN scores s USING (submission_id)
  WHERE l.flag IS NULL;
CREATE VIEW unrateable AS SELECT * FROM latest WHERE flag IS NOT NULL;
"""
"""The columns and views that :mod:`stages.annotate.formats.page_database` reads."""


def submit(
    database: Path, work: RatingTask, group: str, who: str, revision: int, score: int | None, last: int | None = None, **changes: Any
) -> None:
    """A submission with one score for all cells, or another one for the last cell."""
    row = {"submission_id": f"{who}-{group}-{revision}", "annotator": who, "group_id": group, "revision": revision, "round": "production"}
    row |= {"flag": None, "comment": "", "seconds": 4.5, "submitted_at": "2025-03-31T14:05:00+00:00", "rubric_version": "v1"}
    row |= {"scale_min": 1, "scale_max": 4, "project": work.project, "wall_seconds": 6.0, "changes": 0, "content": ""} | changes
    with sqlite3.connect(database) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            connection.executescript(PAGE)
        connection.execute(f"INSERT INTO submissions VALUES ({', '.join('?' * len(row))})", list(row.values()))
        cells = [(candidate, dimension) for candidate in work.sampled[group] for dimension in work.dimensions] if score else []
        for number, (candidate, dimension) in enumerate(cells, start=1):
            given = last if last is not None and number == len(cells) else score
            connection.execute("INSERT INTO scores VALUES (?, ?, ?, ?, ?)", (row["submission_id"], candidate, dimension, given, 1))
        page_database.seal(connection, row["submission_id"])
    connection.close()


def test_the_page_database_gives_latest_revisions_and_flags(context: Context, work: RatingTask, tmp_path: Path) -> None:
    database, groups = tmp_path / "submissions.sqlite", list(work.sampled)
    submit(database, work, groups[0], "annotator-01", 1, 2)
    submit(database, work, groups[0], "annotator-01", 2, 3)
    submit(database, work, groups[1], "annotator-01", 1, None, flag="source-broken", comment="half of it is grey")
    submit(database, work, groups[2], "annotator-01", 1, 4, round="training")
    result = annotate.ingest(context, [database])
    assert result.new[0].format == "page" and result.index.counts == {"in": 9, "out": 8, "duplicates": 0, "quarantined": 1}
    assert {row["score"] for row in ledger(context).values()} == {3.0}
    (held,) = context.run.step("annotate").read("quarantine").to_pylist()
    assert held["reason"] == "unrateable" and "source-broken: half of it is grey" in held["message"]
    before = storage.tree_hashes(context.run.path)
    open_elsewhere = sqlite3.connect(database)
    open_elsewhere.execute("BEGIN IMMEDIATE")
    assert annotate.ingest(context, [database]).new == [] and storage.tree_hashes(context.run.path) == before
    open_elsewhere.close()
    submit(database, work, groups[3], "annotator-01", 1, 1)
    later = annotate.ingest(context, [database])
    assert (later.new[0].accepted, later.new[0].duplicates) == (8, 8)


def test_a_database_that_grew_after_its_ingest_was_killed_is_taken_in(context: Context, work: RatingTask, tmp_path: Path) -> None:
    database, (first, second, *_) = tmp_path / "submissions.sqlite", work.sampled
    annotate.ingest(context, [write_csv(tmp_path / "table.csv", ratings_of(work, "ada", [first]))])
    index = context.run.step("annotate").path / "index.json"
    before = index.read_text()
    submit(database, work, first, "ben", 1, 2)
    annotate.ingest(context, [database])
    index.write_text(before)  # as a kill would have left it
    submit(database, work, second, "ben", 1, 3)
    (batch,) = annotate.ingest(context, [database]).new
    assert batch.accepted == 16 and annotation_qc.run(context).counts["in"] == 24


def test_a_revision_after_its_ingest_replaces_what_was_said_and_keeps_it_in_the_ledger(
    context: Context, work: RatingTask, tmp_path: Path
) -> None:
    database, old, (first, second, third, *_) = tmp_path / "submissions.sqlite", tmp_path / "copy.sqlite", work.sampled
    cells = 4 * 2
    submit(database, work, first, "annotator-01", 1, 2)
    submit(database, work, second, "annotator-01", 1, 1)
    annotate.ingest(context, [database])
    copy = sqlite3.connect(old)
    with sqlite3.connect(database) as connection:
        connection.backup(copy)
    copy.close()

    earlier = "2025-03-31T13:05:00+00:00"  # the clock of the server was set back
    submit(database, work, first, "annotator-01", 2, 2, last=4, submitted_at=earlier)
    submit(database, work, second, "annotator-01", 2, None, flag="unsafe")
    revised = annotate.ingest(context, [database])
    (batch,) = revised.new
    assert (batch.accepted, batch.duplicates, batch.quarantined, batch.superseded) == (cells, 0, {"unrateable": 1}, 2 * cells)
    assert revised.index.counts == {"in": 3 * cells + 1, "out": 3 * cells, "duplicates": 0, "quarantined": 1}
    assert re.search(r" superseded\n.*\nsubmissions.sqlite +new .* 16 *\n", ingested(revised))

    def counting(of: Context) -> dict[str, list[float]]:
        groups: dict[str, list[float]] = {}
        for row in accepted_ratings(of.run)[0].to_pylist():
            groups.setdefault(row["source_id"], []).append(row["score"])
        return {group: sorted(scores) for group, scores in groups.items()}

    latest = {first: [2.0] * (cells - 1) + [4.0]}
    assert counting(context) == latest, "the flagged group has no scores any more"
    assert len(context.run.step("annotate").read("ratings")) == 3 * cells, "and nothing has left the ledger"
    assert Published(context.run).ratings().num_rows == cells  # ty: ignore[unresolved-attribute]
    decided = annotation_qc.run(context)
    assert decided.counts["in"] == cells and counting(context) == latest
    assert preferences.run(context).counts["out"] == 1
    assert annotate.ingest(context, [database, old]).new == [], "both are in the ledger"

    submit(old, work, third, "annotator-02", 1, 3)  # an old copy that went on elsewhere
    (batch,) = annotate.ingest(context, [old]).new
    assert (batch.accepted, batch.quarantined, batch.superseded) == (cells, {"older-revision": 2 * cells}, 0)
    shutil.rmtree(context.run.step("annotation-qc").path)
    assert counting(context) == latest | {third: [3.0] * cells}
    submit(database, work, second, "annotator-01", 3, 4)  # the flag was a mistake
    (batch,) = annotate.ingest(context, [database]).new
    assert (batch.accepted, batch.duplicates, batch.superseded) == (cells, cells, 0)
    assert counting(context) == latest | {second: [4.0] * cells, third: [3.0] * cells}
    other = make_run(tmp_path / "other")
    annotate.ingest(other, [database, old])
    assert counting(other) == counting(context), "in whatever order they come"
    by_table = ratings_of(work, "annotator-02", [third], score=1)
    (batch,) = annotate.ingest(context, [write_csv(tmp_path / "table.csv", by_table)]).new
    assert (batch.accepted, batch.quarantined) == (0, {"conflict": cells}), "a table knows no revisions"


CHANGES = {
    "UPDATE scores SET score = 4 WHERE rowid = 2": "ada",
    "UPDATE submissions SET annotator = 'cyd' WHERE annotator = 'ben'": "ben",
    "UPDATE submissions SET flag = NULL WHERE flag IS NOT NULL": "cyd",
    "DELETE FROM scores WHERE rowid = 1": "ada",
    "DELETE FROM submissions WHERE annotator = 'ada'": "ben",
    "UPDATE scores SET score = x'00' WHERE rowid = 1": "ada",
    "UPDATE submissions SET submitted_at = 'now' WHERE annotator = 'ben'": "ben",
    "INSERT INTO submissions SELECT 'new', 'dan', group_id, 1, round, flag, comment, seconds, submitted_at, rubric_version, scale_min, "
    "scale_max, project, wall_seconds, changes, content FROM submissions WHERE annotator = 'ada'": "new",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_database_that_somebody_changed_is_refused(context: Context, work: RatingTask, tmp_path: Path, change: str) -> None:
    database, groups = tmp_path / "submissions.sqlite", list(work.sampled)
    submit(database, work, groups[0], "ada", 1, 2)
    submit(database, work, groups[1], "ben", 1, 3)
    submit(database, work, groups[2], "cyd", 1, None, flag="unsafe")
    with sqlite3.connect(database) as connection:
        connection.execute(change)
    with pytest.raises(
        ValueError, match=rf"submissions\.sqlite: submission {CHANGES[change]}.* is not as the page stored it, or one before"
    ):
        annotate.ingest(context, [database])
    assert context.run.step("annotate").index() is None


def test_databases_that_are_not_the_pages(context: Context, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    (tmp_path / "damaged.sqlite").write_bytes(other.read_bytes()[:60])
    for path in (other, tmp_path / "damaged.sqlite"):
        with pytest.raises(ValueError, match="cannot be read as the rating page's database"):
            annotate.ingest(context, [path])
