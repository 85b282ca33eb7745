"""Export, simulated raters, formats, validation and the ledger."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rated_run import EDITORS, candidates, drawn, make_run, rating_task_of, ratings_of, write_csv

from stages.annotate import step as annotate
from stages.annotate.config import AnnotateConfig, SimulatedRaters
from stages.annotate.formats import imagenhub
from stages.annotate.formats import read as readers
from stages.annotate.ratings.delivery import COLUMNS
from stages.annotate.ratings.rating_task import RatingTask, Scale
from stages.annotate.ratings.validate import score_problem, validate
from stages.context import Context
from stages.engine import storage
from stages.engine.rundir import StepFolder

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return make_run(tmp_path / "run")


@pytest.fixture
def work(context: Context) -> RatingTask:
    return rating_task_of(context)


def ledger(context: Context) -> list[dict[str, Any]]:
    return context.run.step("annotate").read("ratings").to_pylist()


def quarantine(context: Context) -> list[dict[str, Any]]:
    return context.run.step("annotate").read("quarantine").to_pylist()


# --- export ---------------------------------------------------------------------------------------------------------------------------


def test_export_holds_what_is_to_be_rated_and_nothing_that_unblinds(context: Context, work: RatingTask) -> None:
    folder = annotate.export(context)
    groups = [json.loads(line) for line in (folder / "groups.jsonl").read_text().splitlines()]
    images = {row["candidate_id"]: row["image"]["bytes"] for number in range(6) for row in candidates(number)}
    sampled = {row["candidate_id"] for number in range(6) for row in drawn(number)}
    assert {candidate["candidate_id"] for group in groups for candidate in group["candidates"]} == sampled
    for group in groups:
        assert "größer" in group["instruction"]
        for candidate in group["candidates"]:
            data = (folder / candidate["image"]).read_bytes()
            assert data == images[candidate["candidate_id"]]
            assert Path(candidate["image"]).stem == hashlib.sha256(data).hexdigest()[:24]
            assert candidate["image"].endswith(".png" if data.startswith(b"\x89PNG") else ".jpg")
    text = "".join(path.read_text() for path in folder.glob("*.*"))
    for secret in (*EDITORS, "quill", "revision-7", "world", "seed", "visual_quality_flaw"):
        assert secret not in text
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["project"] == work.project
    assert {name: storage.sha256_of(folder / name) for name in manifest["images"]} == manifest["images"]
    assert "Very good" in (folder / "RUBRIC.md").read_text()


def test_candidates_are_not_shown_in_the_order_of_the_editors(tmp_path: Path) -> None:
    work = rating_task_of(make_run(tmp_path / "run", groups=200))
    place = {row["candidate_id"]: row["editor"] for number in range(200) for row in candidates(number)}
    first = Counter(place[sampled[0]] for sampled in work.sampled.values())
    assert min(first.values()) > 30, "an editor that always stands first would be recognised"


def test_export_is_the_same_everywhere_and_a_limit_is_its_beginning(tmp_path: Path) -> None:
    whole = annotate.export(make_run(tmp_path / "a"))
    again = annotate.export(make_run(tmp_path / "b"))
    assert storage.tree_hashes(whole) == storage.tree_hashes(again)
    groups = (whole / "groups.jsonl").read_text().splitlines()
    rows = (whole / "ratings-template.csv").read_text().splitlines()
    part = annotate.export(make_run(tmp_path / "c"), limit=2)
    assert (part / "groups.jsonl").read_text().splitlines() == groups[:2]
    assert (part / "ratings-template.csv").read_text().splitlines() == rows[: 1 + 2 * 4 * 2]
    with pytest.raises(ValueError, match="--limit 0"):
        annotate.export(make_run(tmp_path / "d"), limit=0)


@pytest.mark.parametrize(
    "layout",
    [
        "group_id\n{}\n{}\n",
        "{}\n\n{}\n",
        "reason;Group_ID\nx;{}\ny;{}\n",
        "sep=;\r\ngroup_id;reason\r\n{};x\r\n{};y\r\n",
        "\ufeff{}\tx\n{}\ty\n",
    ],
)
def test_lists_of_groups_as_spreadsheets_write_them(tmp_path: Path, layout: str) -> None:
    context = make_run(tmp_path / "run")
    groups = list(rating_task_of(context).sampled)[3:5]
    listed = tmp_path / "list.csv"
    listed.write_text(layout.format(*groups), encoding="utf-8", newline="")
    folder = annotate.export(context, groups=listed)
    assert [json.loads(line)["group_id"] for line in (folder / "groups.jsonl").read_text().splitlines()] == groups
    listed.write_text(layout.format(groups[0], "nobody"), encoding="utf-8", newline="")
    with pytest.raises(ValueError, match=r"--groups .*list\.csv line [2-4]: there is no group 'nobody'"):
        annotate.export(context, groups=listed)
    queue = f"group_id;candidate_id;dimension;scores_given\n{groups[0]};nobody;visual_quality;1 4\n"
    listed.write_text(queue)
    with pytest.raises(ValueError, match=r"list\.csv line 2: there is no candidate 'nobody'"):
        annotate.export(context, groups=listed, round="adjudication")
    listed.write_text(queue.replace("1 4", "1;4"))
    with pytest.raises(ValueError, match=r"--groups .*list\.csv line 2: the row has 5 fields"):
        annotate.export(context, groups=listed, round="adjudication")


def test_export_leaves_an_equal_packet_alone_and_restores_a_lost_image(context: Context) -> None:
    folder = annotate.export(context)
    before = storage.tree_hashes(folder)
    (folder / "my notes.txt").write_text("kept")
    annotate.export(context)
    next((folder / "images").iterdir()).unlink()
    annotate.export(context)
    (folder / "my notes.txt").unlink()
    assert storage.tree_hashes(folder) == before


def test_export_needs_the_rubric_of_its_version_and_scale(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no rubric 'v9'.*there is v1"):
        annotate.export(make_run(tmp_path / "a", rubric_version="v9"))
    with pytest.raises(ValueError, match="describes the scores 1, 2, 3, 4 of instruction_following, the scale has 1, 2, 3, 4, 5"):
        annotate.export(make_run(tmp_path / "b", scale_max=5))


def test_a_scale_ends_at_its_bounds_and_a_dimension_is_named_once() -> None:
    for scale in ({"scale_step": 0.09}, {"scale_step": 0.7}, {"scale_step": 5}, {"scale_min": 4, "scale_max": 1}, {"scale_max": 1}):
        with pytest.raises(ValueError, match=r"annotate\.scale_step .* does not lead from annotate\.scale_min"):
            AnnotateConfig.model_validate(scale)
    with pytest.raises(ValueError, match=r"annotate\.dimensions has a dimension twice"):
        AnnotateConfig(dimensions=("visual_quality", "visual_quality"))
    assert AnnotateConfig(scale_max=5, scale_step=0.1).scale_step == 0.1


def test_a_filled_in_template_is_ingested(context: Context, work: RatingTask) -> None:
    lines = (annotate.export(context) / "ratings-template.csv").read_text().splitlines()
    filled = [lines[0], *(line.replace(",,,,", ",ann,3,2025-03-31T10:00:00Z,", 1) for line in lines[1:])]
    path = context.run.path / "mine.csv"
    path.write_text("\n".join(filled) + "\n")
    result = annotate.ingest(context, [path])
    assert result.index.counts == {"in": 48, "out": 48, "duplicates": 0, "quarantined": 0}
    assert result.warnings == []


# --- simulated raters -----------------------------------------------------------------------------------------------------------------


def test_simulated_raters_rate_whole_groups_and_pass_the_validator(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run", groups=150)
    files = annotate.simulate(context)
    result = annotate.ingest(context, files)
    assert result.index.counts["out"] == result.index.counts["in"]
    assert result.warnings == [], "every group was rated whole"
    slots = {(row["source_id"], row["annotator"]) for row in ledger(context)}
    raters = Counter(Counter(group for group, _ in slots).values())
    assert set(raters) == {1, 2}
    assert 50 <= raters[2] <= 100, "half of the groups have a second rater"
    assert len({annotator for _, annotator in slots}) == 6


def test_simulated_files_are_the_same_everywhere_and_their_clock_advances(tmp_path: Path) -> None:
    first, second = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    files = annotate.simulate(first)
    assert [path.read_bytes() for path in files] == [path.read_bytes() for path in annotate.simulate(second)]
    lines = files[0].read_text().splitlines()
    times = [datetime.fromisoformat(line.split(",")[5]) for line in lines[1:]]
    assert times == sorted(times) and times[0].tzinfo is not None and times[0] > datetime(2025, 1, 6, tzinfo=UTC)
    other = annotate.simulate(make_run(tmp_path / "c", seed=1))
    assert other[0].read_bytes() != files[0].read_bytes()


def test_noise_by_flaw_changes_ratings_of_ambiguous_edits_most_and_is_another_setting(tmp_path: Path) -> None:
    even = make_run(tmp_path / "run", groups=40)
    by_flaw = make_run(tmp_path / "other", groups=40, simulate=SimulatedRaters(overlap=0.5, noise="by_flaw"))
    truth = {name: json.loads(text) for name, text in even.run.step("generate").column("candidates", "candidate_id", "metadata").items()}
    off: dict[str, list[float]] = {"half": [], "none": []}
    annotate.ingest(by_flaw, annotate.simulate(by_flaw))
    for row in ledger(by_flaw):
        level, flaw = (truth[row["candidate_id"]][row["dimension"] + ending] for ending in ("", "_flaw"))
        off.setdefault(flaw, []).append(abs(row["score"] - level))
    assert mean(off["half"]) > 4 * mean(off["none"]) > 0
    annotate.ingest(even, annotate.simulate(even))
    changed = replace(even, flow=by_flaw.flow)
    with pytest.raises(ValueError, match="by_flaw"):
        annotate.ingest(changed, annotate.simulate(changed))


def test_simulation_needs_its_configuration_and_ground_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"annotate\.simulate is not configured"):
        annotate.simulate(make_run(tmp_path / "a", simulate=None))
    monkeypatch.setattr("rated_run.candidates", lambda number: [row | {"metadata": "{}"} for row in candidates(number)])
    with pytest.raises(ValueError, match="no ground-truth quality"):
        annotate.simulate(make_run(tmp_path / "b"))


# --- formats --------------------------------------------------------------------------------------------------------------------------


def _write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Rows in the format that the name asks for."""
    if path.name == "semicolon.csv":
        return write_csv(path, rows, ";")
    if path.suffix == ".tsv":
        return write_csv(path, rows, "\t")
    if path.suffix == ".csv":
        write_csv(path, rows)
        if path.name == "bom.csv":
            path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=1))
    elif path.name == "times.parquet":
        pq.write_table(
            pa.Table.from_pylist(
                [row | {"rated_at": datetime.fromisoformat(row["rated_at"]), "score": float(row["score"])} for row in rows]
            ),
            path,
        )
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def _wide(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    merged: dict[str, dict[str, Any]] = {}
    for row in rows:
        shared = {name: value for name, value in row.items() if name not in ("dimension", "score")}
        merged.setdefault(row["candidate_id"], shared)[row["dimension"]] = row["score"]
    return list(merged.values())


NAMES = ("long.csv", "semicolon.csv", "tabs.tsv", "bom.csv", "lines.jsonl", "list.json", "table.parquet", "times.parquet")


@pytest.mark.parametrize(("name", "shape"), [*((name, "long") for name in NAMES), *((name, "wide") for name in NAMES[:-1])])
def test_every_format_gives_the_same_ratings(context: Context, work: RatingTask, tmp_path: Path, name: str, shape: str) -> None:
    rows = ratings_of(work)
    annotate.ingest(context, [_write(tmp_path / name, rows if shape == "long" else _wide(rows))])
    found = {(row["candidate_id"], row["dimension"]): row for row in ledger(context)}
    assert {key: row["score"] for key, row in found.items()} == {(row["candidate_id"], row["dimension"]): row["score"] for row in rows}
    example = found[rows[0]["candidate_id"], rows[0]["dimension"]]
    assert example["annotator"] == "ann" and example["round"] == "production" and example["rubric_version"] == "v1"
    assert (example["scale_min"], example["scale_max"]) == (1, 4)
    assert datetime.fromisoformat(example["rated_at"]) == datetime.fromisoformat(rows[0]["rated_at"])


def test_aliases_decimal_commas_and_spaces_are_read(context: Context, work: RatingTask, tmp_path: Path) -> None:
    rows = [
        row | {"score": f" {row['score']},0 ", "dimension": {"instruction_following": "IF", "visual_quality": "vq"}[row["dimension"]]}
        for row in ratings_of(work)
    ]
    index = annotate.ingest(context, [write_csv(tmp_path / "a.csv", rows, ";")]).index
    assert index.counts["out"] == len(rows)
    assert {row["dimension"] for row in ledger(context)} == set(work.dimensions)


def test_positions_count_lines_of_the_file(context: Context, work: RatingTask, tmp_path: Path) -> None:
    rows = ratings_of(work)
    rows[0]["comment"] = 'two\nlines, and "quotes"'
    rows[1] |= {"comment": "", "score": 7}
    path = write_csv(tmp_path / "a.csv", [row | {"comment": row.get("comment", "")} for row in rows])
    annotate.ingest(context, [path])
    (row,) = quarantine(context)
    assert row["position"] == "a.csv line 4", "line 1 has the names, lines 2 and 3 the first row"
    assert path.read_text().splitlines()[3].startswith(rows[1]["group_id"])
    assert ledger(context)[0]["comment"] == 'two\nlines, and "quotes"'


# --- files that are refused -----------------------------------------------------------------------------------------------------------

HEAD = "group_id,candidate_id,dimension,annotator_id,score\n"
REFUSED = {
    "latin1.csv": (HEAD.encode() + "g,c,if,Jörg,3\n".encode("latin-1"), r"latin1\.csv is not UTF-8 text \(byte 59 is 0xf6\)"),
    "utf16.csv": (HEAD.encode("utf-16"), r"not UTF-8 text but UTF-16"),
    "sheet.xlsx": (b"PK", r"\.csv, .*not from '\.xlsx'"),
    "nothing.csv": (b"", "nothing.csv is empty"),
    "header.csv": (HEAD.encode(), "has no ratings"),
    "missing.csv": (
        b"group_id,candidate_id,dimension,rater,score\ng,c,if,a,3\n",
        "lacks the column annotator_id .it has group_id, candidate_id",
    ),
    "close.csv": (b"group_id,candidate,dimension,annotator_id,score\ng,c,if,a,3\n", "lacks the column candidate_id .*is 'candidate' meant"),
    "twice.csv": (b"group_id,candidate_id,dimension,annotator_id,score,Score\ng,c,if,a,3,3\n", "the column score twice"),
    "hub.tsv": (b"uid\tGlide\nx\t[0,1]\n", "read with the format imagenhub"),
    "open.csv": (HEAD.encode() + b'g,c,if,a,"3\n', r"open\.csv line 2 is not CSV"),
    "cut.json": (b'[{"group_id": "g", "score"', r"cut\.json line 1 column 27 is not JSON"),
    "object.json": (b'{"ratings": []}', "contains a JSON dict; expected a list"),
    "scalars.json": (b"[1, 2]", "lacks the columns group_id, candidate_id, dimension, annotator_id, score .it has none"),
    "text.jsonl": (b"hello\nworld\n", r"text\.jsonl line 1: the line is not JSON"),
    "damaged.parquet": (b"PAR1 but no more", r"damaged\.parquet is not a valid Parquet file"),
    "scale.csv": (
        HEAD.replace("\n", ",scale_max\n").encode() + b"g,c,if,a,3,5\n",
        r"scale\.csv line 2: scale_max is 5, the project's scale is 1, 2, 3, 4",
    ),
    "project.csv": (
        HEAD.replace("\n", ",project\n").encode() + b"g,c,if,a,3,other\n",
        r"project\.csv line 2: the ratings belong to project other",
    ),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_file_is_refused_in_one_sentence_and_nothing_is_written(context: Context, work: RatingTask, tmp_path: Path, name: str) -> None:
    data, message = REFUSED[name]
    (tmp_path / name).write_bytes(data)
    sound = write_csv(tmp_path / "sound.csv", ratings_of(work))
    with pytest.raises(ValueError, match=message) as error:
        annotate.ingest(context, [sound, tmp_path / name])
    assert "\n" not in str(error.value)
    assert context.run.step("annotate").index() is None


def test_missing_files_and_folders_are_refused(context: Context, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, sentence in ((tmp_path / "absent.csv", "cannot be read"), (tmp_path / "empty", r"has no \*\.parquet or \*\.pq; name a file")):
        with pytest.raises(ValueError, match=sentence):
            annotate.ingest(context, [path])
    with pytest.raises(ValueError, match="no rating format 'table'; use one of auto, page, label-studio, "):
        annotate.ingest(context, [tmp_path / "absent.csv"], "table")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no file"):
        annotate.ingest(context, [])


def test_ratings_need_a_manifest(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run")
    path = write_csv(tmp_path / "a.csv", ratings_of(rating_task_of(context)))
    (context.run.path / "generate" / "index.json").unlink()
    with pytest.raises(ValueError, match="step generate is not done"):
        annotate.ingest(context, [path])


def test_lines_that_are_no_rows_are_quarantined(context: Context, work: RatingTask, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", ratings_of(work))
    path.write_text(path.read_text() + "one,field,more,than,six,columns,have\n")
    lines = tmp_path / "b.jsonl"
    lines.write_text("\n".join([*(json.dumps(row) for row in ratings_of(work, "bob")), "{cut", "[1]"]))
    result = annotate.ingest(context, [path, lines])
    assert [(row["reason"], row["position"]) for row in quarantine(context)] == [
        ("field-count", "a.csv line 50"),
        ("not-json", "b.jsonl line 49"),
        ("not-json", "b.jsonl line 50"),
    ]
    assert result.index.counts == {"in": 99, "out": 96, "duplicates": 0, "quarantined": 3}


# --- the ledger -----------------------------------------------------------------------------------------------------------------------


def test_the_same_file_again_adds_nothing(context: Context, work: RatingTask, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", ratings_of(work))
    annotate.ingest(context, [path])
    before = storage.tree_hashes(context.run.path)
    renamed = tmp_path / "same content.csv"
    renamed.write_bytes(path.read_bytes())
    result = annotate.ingest(context, [path, renamed])
    assert (len(result.new), len(result.known)) == (0, 2)
    assert storage.tree_hashes(context.run.path) == before


def test_a_larger_file_adds_what_is_new_without_force(context: Context, work: RatingTask, tmp_path: Path) -> None:
    groups = list(work.sampled)
    annotate.ingest(context, [write_csv(tmp_path / "a.csv", ratings_of(work, groups=groups[:2]))])
    first = ledger(context)
    result = annotate.ingest(context, [write_csv(tmp_path / "b.jsonl.csv", ratings_of(work, groups=groups))])
    assert result.index.counts == {"in": 64, "out": 48, "duplicates": 16, "quarantined": 0}
    assert ledger(context)[:16] == first, "earlier batches stay as they are, in front"
    assert [batch["duplicates"] for batch in result.index.results["batches"]] == [0, 16]
    assert len({row["rating_id"] for row in ledger(context)}) == 48


def test_a_contradiction_is_quarantined_and_a_second_round_is_not(context: Context, work: RatingTask, tmp_path: Path) -> None:
    rows = ratings_of(work, score=2)
    annotate.ingest(context, [write_csv(tmp_path / "a.csv", rows)])
    changed = [row | {"score": 3, "rated_at": "2025-04-01T08:00:00Z"} for row in rows[:1]]
    annotate.ingest(context, [write_csv(tmp_path / "b.csv", changed)])
    (row,) = quarantine(context)
    assert row["reason"] == "conflict"
    for part in ("2 at 2025-03-31T14:05:00+02:00, which counts", "3 at 2025-04-01T08:00:00Z", "round production"):
        assert part in row["message"]
    assert [row["score"] for row in ledger(context)] == [2.0] * 48
    result = annotate.ingest(context, [write_csv(tmp_path / "c.csv", [row | {"round": "reannotation"} for row in changed])])
    assert result.index.counts["out"] == 49
    inside = write_csv(tmp_path / "d.csv", [rows[0] | {"annotator_id": "bob"}, rows[0] | {"annotator_id": "bob", "score": 4}])
    assert annotate.ingest(context, [inside]).new[0].quarantined == {"conflict": 1}


def test_one_call_or_two_give_the_same_ledger(tmp_path: Path) -> None:
    both, single = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    files = [write_csv(tmp_path / f"{name}.csv", ratings_of(rating_task_of(both), name)) for name in ("r1", "r2")]
    annotate.ingest(both, files)
    for file in files:
        annotate.ingest(single, [file])
    assert storage.tree_hashes(both.run.path) == storage.tree_hashes(single.run.path)


def test_a_crash_before_the_index_leaves_the_ledger_and_a_rerun_completes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crashed, undisturbed = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    files = [write_csv(tmp_path / f"{name}.csv", ratings_of(rating_task_of(crashed), name)) for name in ("r1", "r2")]
    annotate.ingest(undisturbed, files)
    annotate.ingest(crashed, files[:1])
    with monkeypatch.context() as patch:
        patch.setattr(StepFolder, "publish", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            annotate.ingest(crashed, files[1:])
    assert len(list((crashed.run.path / "annotate" / "units").iterdir())) == 2, "the batch is there, the index does not list it"
    assert len(ledger(crashed)) == 48
    annotate.ingest(crashed, files[1:])
    assert storage.tree_hashes(crashed.run.path) == storage.tree_hashes(undisturbed.run.path)


def _forced(context: Context) -> Context:
    return Context(context.run, context.flow, context.cluster, force=True)


def test_a_ledger_takes_no_ratings_of_other_work(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run")
    annotate.ingest(context, [write_csv(tmp_path / "a.csv", ratings_of(rating_task_of(context)))])
    other = make_run(tmp_path / "run", groups=7)
    path = write_csv(tmp_path / "b.csv", ratings_of(rating_task_of(other)))
    with pytest.raises(ValueError, match=r"was made for other candidates; use another --run, or start a new ledger .* --force"):
        annotate.ingest(other, [path])
    assert len(ledger(other)) == 48
    annotate.ingest(_forced(other), [path])
    assert len(ledger(other)) == 56


def test_a_ledger_keeps_its_scale_and_its_kind_of_raters(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run")
    path = write_csv(tmp_path / "a.csv", ratings_of(rating_task_of(context)))
    annotate.ingest(context, [path])
    with pytest.raises(ValueError, match=r"was made with scale \[1\.0, .* 4\.0\], not with \[1\.0, .* 5\.0\]; restore that setting"):
        annotate.ingest(make_run(tmp_path / "run", scale_max=5), [path])
    with pytest.raises(ValueError, match=r"was made with simulate .*0\.5.*, not with None"):
        annotate.ingest(make_run(tmp_path / "run", simulate=None), [path])


def test_a_damaged_ledger_is_not_built_upon(context: Context, work: RatingTask, tmp_path: Path) -> None:
    files = [write_csv(tmp_path / f"{name}.csv", ratings_of(work, name)) for name in ("r1", "r2")]
    annotate.ingest(context, files[:1])
    part = context.run.step("annotate").require().artifacts["ratings"][0]
    (context.run.path / "annotate" / part.path).write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"is damaged: units/.*ratings\.parquet \(batch .*\) is missing or changed; restore that file"):
        annotate.ingest(context, files[1:])
    assert annotate.ingest(_forced(context), files).index.counts["out"] == 96


def test_a_file_of_which_every_row_is_bad_is_kept_as_quarantine(context: Context, work: RatingTask, tmp_path: Path) -> None:
    result = annotate.ingest(context, [write_csv(tmp_path / "a.csv", ratings_of(work, score=9)[:2])])
    assert result.index.counts == {"in": 2, "out": 0, "duplicates": 0, "quarantined": 2}
    assert len(quarantine(context)) == 2 and ledger(context) == []


# --- ImagenHub ------------------------------------------------------------------------------------------------------------------------


def hub_files(shared_data: Path, task: str = "*") -> list[Path]:
    return sorted((shared_data / "imagenhub").glob(f"ImagenHub_{task}/*.tsv"))


def empty_run(path: Path) -> Context:
    context = make_run(path)
    (context.run.path / "generate" / "index.json").unlink()
    return context


def test_imagenhub_files_are_ingested_without_a_generate_step(tmp_path: Path, shared_data: Path) -> None:
    context = empty_run(tmp_path / "run")
    result = annotate.ingest(context, hub_files(shared_data), "imagenhub")
    items = (150 * 2 + 179 * 4 + 102 * 3 + 154 * 3 + 150 * 5 + 197 * 5, 3, 2)  # uid x editors, raters, dimensions
    assert result.index.counts == {"in": items[0] * 6, "out": items[0] * 6, "duplicates": 0, "quarantined": 0}
    assert result.warnings == []
    rows = ledger(context)
    assert {row["score"] for row in rows} == {0.0, 0.5, 1.0} and {(row["scale_min"], row["scale_max"]) for row in rows} == {(0.0, 1.0)}
    assert {row["dimension"] for row in rows} == set(imagenhub.DIMENSIONS)
    folder = context.run.step("annotate")
    brought = folder.read("candidates").to_pylist()
    assert len(brought) == items[0] and {row["candidate_id"] for row in brought} == {row["candidate_id"] for row in rows}
    assert len(folder.read("sources")) == 150 + 179 + 102 + 154 + 150 + 197
    assert annotate.ingest(context, hub_files(shared_data), "imagenhub").new == []


def test_imagenhub_files_may_come_one_by_one(tmp_path: Path, shared_data: Path) -> None:
    single, both = empty_run(tmp_path / "a"), empty_run(tmp_path / "b")
    files = hub_files(shared_data, "Mask*")
    annotate.ingest(both, files, "imagenhub")
    for file in files:
        annotate.ingest(single, [file], "imagenhub")
    assert storage.tree_hashes(single.run.path) == storage.tree_hashes(both.run.path)


def test_imagenhub_and_generated_ratings_do_not_share_a_ledger(context: Context, work: RatingTask, tmp_path: Path) -> None:
    annotate.ingest(context, [write_csv(tmp_path / "a.csv", ratings_of(work))])
    path = tmp_path / "Mask-Guided_IE_rater1.tsv"
    path.write_text("uid\tGlide\nx.jpg\t[0, 1]\n")
    with pytest.raises(ValueError, match="contains ratings of generate, not of imagenhub; use another --run"):
        annotate.ingest(context, [path], "imagenhub")


def test_a_damaged_imagenhub_file(tmp_path: Path) -> None:
    context = empty_run(tmp_path / "run")
    path = tmp_path / "Task_rater2.tsv"
    path.write_text("uid\tGlide\tSDXL\nx.jpg\t[0, 0.5]\t[0.25,1]\ny.jpg\t[1,\t[2,1]\nz.jpg\t[1,1]\n")
    result = annotate.ingest(context, [path], "imagenhub")
    assert [(row["reason"], row["position"]) for row in quarantine(context)] == [
        ("field-count", "Task_rater2.tsv line 4"),
        ("score-not-whole", "Task_rater2.tsv line 2"),
        ("score-not-a-number", "Task_rater2.tsv line 3"),
        ("score-not-a-number", "Task_rater2.tsv line 3"),
        ("score-out-of-scale", "Task_rater2.tsv line 3"),
    ]
    assert result.index.counts == {"in": 9, "out": 4, "duplicates": 0, "quarantined": 5}
    assert {row["annotator"] for row in ledger(context)} == {"Task/rater2"}
    for name, text, message in (
        ("ratings.tsv", "uid\tGlide\nx\t[0,1]\n", "named <task>_rater<number>"),
        ("T_rater1.tsv", "\nid\tA\n", "line 1: expected 'uid'"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=message):
            annotate.ingest(context, [tmp_path / name], "imagenhub")


# --- properties -----------------------------------------------------------------------------------------------------------------------

WORK = RatingTask(
    inputs={"generate": "x"},
    dimensions=("instruction_following", "visual_quality"),
    scale=Scale(1, 4),
    rubric_version="v1",
    group_of={"a0": "A", "a1": "A", "a2": "A", "b0": "B"},
    sampled={"A": ("a1", "a0"), "B": ("b0",)},
)
JUNK = st.text(max_size=8) | st.sampled_from(["1", "4", "5", "if", "vq", "A", "B", "a0", "a2", "b0", "2025-01-01T00:00:00Z", "production"])
SOUND = {
    "group_id": st.sampled_from(["A", "B"]),
    "candidate_id": st.sampled_from(["a0", "a1", "a2", "b0"]),
    "dimension": st.sampled_from(["if", "visual_quality"]),
    "annotator_id": st.sampled_from(["ann", "bob"]),
    "score": st.integers(1, 4).map(str),
}
ROWS = st.lists(
    st.fixed_dictionaries(
        {column: SOUND.get(column, st.just("")) | JUNK for column in COLUMNS if not column.startswith(("scale", "project"))}
    )
)


@given(ROWS.filter(bool))
@settings(max_examples=150, deadline=None)
def test_rows_balance_and_what_is_accepted_is_sound(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, str]]) -> None:
    path = tmp_path_factory.getbasetemp() / "rows.json"
    path.write_text(json.dumps(rows))
    delivery = readers.read(path)
    try:
        checked = validate(delivery, WORK, {}, batch="batch", now=NOW)
    except ValueError as error:
        assert "another scale was used" in str(error)
        return
    assert len(rows) == len(checked.accepted) + checked.duplicates + len(checked.quarantine)
    cells = [(row["candidate_id"], row["dimension"], row["annotator"], row["round"]) for row in checked.accepted]
    assert len(set(cells)) == len(cells)
    for row in checked.accepted:
        assert row["candidate_id"] in WORK.sampled[row["source_id"]] and row["dimension"] in WORK.dimensions and row["annotator"]
        assert row["score"] in (1, 2, 3, 4)
    assert len({row.row_id for row in checked.quarantine}) == len(checked.quarantine)


@given(
    st.binary(max_size=300),
    st.sampled_from(["csv", "tsv", "jsonl", "json", "parquet", "sqlite"]),
    st.sampled_from((readers.AUTO, *readers.FORMATS)),
)
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes, suffix: str, format: str) -> None:
    path = tmp_path_factory.getbasetemp() / f"T_rater1.{suffix}"
    path.write_bytes(data)
    try:
        readers.read(path, format)
    except ValueError as error:
        assert path.name in str(error)


@given(st.floats() | st.integers())
def test_a_score_is_sound_exactly_when_it_is_a_level(score: float) -> None:
    for scale in (Scale(1, 4), Scale(0, 1, 0.5)):
        assert (score_problem(str(score), scale) is None) == (score in scale.levels)
