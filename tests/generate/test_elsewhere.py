"""Candidates made elsewhere: every reader of edits fills a run, what cannot be used is set aside, and a run goes on to preferences."""

from __future__ import annotations

import csv
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import pipeline, refusal
from filter_here import NoCluster, use
from photographs import edited_photographs, encoded, photograph, write_images, write_table

from pipeline import config
from pipeline.planning.plan import plan
from pipeline.report.published import Published
from pipeline.report.synthetic import synthetic_parts
from stages.annotate.page import packet as packet_page
from stages.config import FlowConfig
from stages.context import Context
from stages.datasets.io.text_tables import header
from stages.engine.cluster import Cluster
from stages.engine.contracts import IMAGE
from stages.engine.rundir import Index, RunDir
from stages.generate import elsewhere
from stages.generate import step as generate
from stages.generate.elsewhere import DeliveredEdit, decide
from stages.preferences.groups import load_groups

ROWS = edited_photographs(5)
Row = Mapping[str, Any]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Units run in this process; their keys are listed as they are done."""
    return here(monkeypatch)


def here(monkeypatch: pytest.MonkeyPatch, **how: Any) -> list[str]:
    log: list[str] = []
    use(monkeypatch, log, **how)
    return log


def context(run: Path, candidates: Mapping[str, Any], cluster: Any = None, *, force: bool = False, **changes: Any) -> Context:
    settings = {"candidates": dict(candidates), "annotate": 3, "unit_sources": 3} | changes
    return Context(RunDir(run), FlowConfig.model_validate({"name": "x", "generate": settings}), cluster or NoCluster(), force)


def table(tmp_path: Path, rows: Sequence[Row] = ROWS) -> dict[str, Any]:
    return {"dataset": "table", "path": str(write_table(tmp_path / "photos" / "edits.csv", rows))}


def made(run: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    folder = RunDir(run).step("generate")
    drawn = {*folder.read("drawn")["candidate_id"].to_pylist()}
    candidates = [row | {"drawn": row["candidate_id"] in drawn} for row in folder.read("candidates").to_pylist()]
    return folder.read("sources").to_pylist(), candidates


def test_a_table_becomes_sources_and_candidates(tmp_path: Path, log: list[str]) -> None:
    asked = context(tmp_path / "run", table(tmp_path))
    index = generate.run(asked)
    sources, candidates = made(tmp_path / "run")
    assert index.counts == {"in": 20, "out": 20, "quarantined": 0}
    apart = {"images": 5, "merged": 0, "groups": 0, "largest": 0, "across_declared_splits": 0}
    assert index.results == {"candidates_per_source": 4, "annotated_per_source": 3, "smaller_groups": 0, "near_duplicates": apart}
    assert [(row["image"]["bytes"], row["instruction"]) for row in sources] == [(r["source"], r["instruction"]) for r in ROWS[::4]]
    assert [row["split"] for row in sources] == ["validation" if generate_split(row) else "train" for row in sources]
    assert [(row["image"]["bytes"], row["editor"], str(row["seed"])) for row in candidates] == [
        (row["edited"], row["editor"], row["seed"]) for row in ROWS
    ]
    for source in sources:
        group = [row for row in candidates if row["source_id"] == source["source_id"]]
        assert len(group) == 4 and sum(row["drawn"] for row in group) == 3
    assert len({row["editor"] + str(row["seed"]) for row in candidates if not row["drawn"]}) > 1
    assert {row["licence"] for row in candidates} == {"public domain"}
    assert len(log) == 7 + 2  # 20 edits read and 5 sources written, three at a time
    assert generate.run(asked) == index and len(log) == 9


def generate_split(source: Row) -> bool:
    from stages.engine.ids import uniform

    return uniform("split", source["group"]) < 0.1


def as_triplets(folder: Path) -> dict[str, Any]:
    folder.mkdir()
    lines = [json.dumps({**row, "seed": int(row["seed"])}) for row in write_images(folder, ROWS)]
    (folder / "edits.jsonl").write_text("\n".join(lines))
    return {"dataset": "triplets", "path": str(folder / "edits.jsonl")}


def as_parquet(folder: Path) -> dict[str, Any]:
    """Embedded images and other column names, as on the Hub; the rows of one editor after those of another."""
    folder.mkdir()
    rows = sorted(ROWS, key=lambda row: row["editor"])
    names = {"source": "before", "edited": "after", "instruction": "what", "editor": "model", "seed": "seed", "licence": "licence"}
    content = {new: [row[name] for row in rows] for name, new in names.items()}
    images = {name: pa.array([{"bytes": data, "path": None} for data in content[name]], IMAGE) for name in ("before", "after")}
    seeds = pa.array([float(seed) for seed in content["seed"]])  # as tables with empty cells say it
    pq.write_table(pa.table(content | images | {"seed": seeds}), folder / "train-00000.parquet", row_group_size=3)
    return {"dataset": "table", "path": str(folder), "columns": {k: v for k, v in names.items() if k != v}}


def as_tars(folder: Path) -> dict[str, Any]:
    folder.mkdir()
    with tarfile.open(folder / "0.tar", "w") as tar:
        for number, row in enumerate(ROWS):
            text = {name: row[name] for name in ("instruction", "editor", "seed", "licence")}
            for name, data in (("source.jpg", row["source"]), ("edited.img", row["edited"]), ("json", json.dumps(text).encode())):
                member = tarfile.TarInfo(f"{number:04}.{name}")
                member.size = len(data)
                tar.addfile(member, BytesIO(data))
    return {"dataset": "webdataset", "path": str(folder)}


def as_tars_of_groups(folder: Path) -> dict[str, Any]:
    """A sample per photograph with all its edits."""
    folder.mkdir()
    with tarfile.open(folder / "0.tar", "w") as tar:
        for number in range(0, len(ROWS), 4):
            group = ROWS[number : number + 4]
            text = {"instruction": group[0]["instruction"], "licence": group[0]["licence"]}
            text |= {name: [row[name] for row in group] for name in ("editor", "seed")}
            edits = [(f"edit{place}.img", row["edited"]) for place, row in enumerate(group)]
            for name, data in (("source.jpg", group[0]["source"]), *edits, ("json", json.dumps(text).encode())):
                member = tarfile.TarInfo(f"{number:04}.{name}")
                member.size = len(data)
                tar.addfile(member, BytesIO(data))
    return {"dataset": "webdataset", "path": str(folder), "edited": [f"edit{place}" for place in range(4)]}


def as_run(folder: Path) -> dict[str, Any]:
    generate.run(context(folder, as_tars(folder.with_name("tars"))))
    return {"dataset": "candidates", "path": str(folder)}


@pytest.mark.parametrize("layout", [as_triplets, as_parquet, as_tars, as_tars_of_groups, as_run])
def test_every_reader_gives_the_same_candidates(layout: Any, tmp_path: Path, log: list[str]) -> None:
    def ids(run: Path) -> tuple[set[tuple[Any, ...]], ...]:
        sources, candidates = made(run)
        names = ("candidate_id", "source_id", "editor", "seed", "drawn")
        licences = {row["licence"] for row in candidates}
        return {(row["source_id"], row["split"]) for row in sources}, {tuple(row[name] for name in names) for row in candidates}, licences

    generate.run(context(tmp_path / "expected", table(tmp_path)))
    generate.run(context(tmp_path / "run", layout(tmp_path / "data")))
    assert ids(tmp_path / "run") == ids(tmp_path / "expected")


def test_a_sample_without_one_of_its_edits_loses_that_edit_alone(tmp_path: Path, log: list[str]) -> None:
    given = as_tars_of_groups(tmp_path / "tars") | {"edited": ["edit0", "edit1", "edit3", "edit2.img"]}
    with tarfile.open(tmp_path / "tars" / "1.tar", "w") as tar:
        lists: list[dict[str, Any]] = [{}, {"editor": ["one", "two"]}]
        for number, more in enumerate(lists):
            content = {"source.jpg": ROWS[8]["source"], "json": json.dumps({"instruction": f"{number}"} | more).encode()}
            for name, data in (content | {f"edit{place}.img": ROWS[8 + place]["edited"] for place in range(3)}).items():
                member = tarfile.TarInfo(f"more{number}.{name}")
                member.size = len(data)
                tar.addfile(member, BytesIO(data))
    index = generate.run(context(tmp_path / "run", given))
    assert index.counts == {"in": 28, "out": 23, "quarantined": 5} and index.quarantined == {"missing-image": 2, "bad-sample": 3}
    fields = {row["editor"] for row in made(tmp_path / "run")[1]} - {row["editor"] for row in ROWS}
    assert fields == {"edit0", "edit1", "edit2.img"}
    with pytest.raises(ValueError, match=r"have no member edit9; the first has source\.jpg, edit0\.img"):
        generate.run(context(tmp_path / "other", given | {"edited": ["edit0", "edit9"]}))


def test_what_cannot_be_used_is_set_aside_with_its_row(tmp_path: Path, log: list[str]) -> None:
    """Rows that are wrong by themselves, and rows that are wrong beside others."""
    sound, other = ROWS[:4], ROWS[4:6]
    wrong = [
        {**ROWS[0], "editor": " "},
        {**ROWS[1], "seed": "one"},
        {**ROWS[2], "seed": str(2**64 - 1)},
        {**ROWS[3], "edited": b"\x89PNG\r\n\x1a\nno more"},
        {**ROWS[0], "source": ROWS[0]["source"][:200]},
        {**ROWS[0], "editor": "another"},  # the bytes of row 0
        {**ROWS[0], "edited": encoded(photograph(9))},  # editor and seed of row 0
        {**ROWS[8], "instruction": "nothing else is asked of this one"},
    ]
    index = generate.run(context(tmp_path / "run", table(tmp_path, [*sound, *wrong, *other])))
    assert index.counts == {"in": 14, "out": 6, "quarantined": 8}
    del index.results["near_duplicates"]
    assert index.results == {"candidates_per_source": "2 to 4", "annotated_per_source": "2 to 3", "smaller_groups": 1}
    found = {
        row["position"]: (row["reason"], row["message"]) for row in RunDir(tmp_path / "run").step("generate").read("quarantine").to_pylist()
    }
    assert {position: reason for position, (reason, _) in found.items()} == {
        "edits.csv[4]": "no-editor",
        "edits.csv[5]": "bad-seed",
        "edits.csv[6]": "bad-seed",
        "edits.csv[7]": "undecodable-image",
        "edits.csv[8]": "undecodable-image",
        "edits.csv[9]": "duplicate",
        "edits.csv[10]": "same-seed",
        "edits.csv[11]": "single-candidate",
    }
    assert found["edits.csv[5]"][1].startswith("the seed should be an integer from -2^63 to 2^63 - 1, ")
    assert found["edits.csv[6]"][1].endswith("it is '18446744073709551615'")
    assert found["edits.csv[9]"][1] == "source, instruction and edited image are those of edits.csv[0], by flux-kontext"
    assert "flux-kontext with seed 0 has another image for this source and instruction in edits.csv[0]" in found["edits.csv[10]"][1]
    assert sum(index.quarantined.values()) == len(found)


def delivered(*rows: tuple[str, str, int | None]) -> Iterator[DeliveredEdit]:
    """Edits of one source: image, editor, seed."""
    for number, (image, editor, seed) in enumerate(rows):
        yield DeliveredEdit(number, image, "photo", str(number), f"a[{number}]", editor, seed, 1)


def test_seeds_that_are_not_named_are_numbers_that_are_free() -> None:
    (group,), unusable = decide(delivered(("a", "one", None), ("b", "one", 0), ("c", "one", None), ("d", "two", None), ("e", "one", 2)))
    assert [(row.editor, row.seed) for row in group] == [("one", 1), ("one", 0), ("one", 3), ("two", 0), ("one", 2)] and not unusable


def test_an_edit_that_is_set_aside_makes_no_other_unusable() -> None:
    (group,), unusable = decide(delivered(("a", "one", 0), ("b", "one", 0), ("b", "one", 1), ("b", "two", 0)))
    assert [row.number for row in group] == [0, 2]
    assert [(row.position, row.reason) for row in unusable] == [("a[1]", "same-seed"), ("a[3]", "duplicate")]


def test_order_of_units_kills_and_workers_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [*ROWS[10:], *ROWS[:10], ROWS[3], {**ROWS[4], "edited": b"none"}]
    candidates = table(tmp_path, rows)
    here(monkeypatch)
    generate.run(context(tmp_path / "expected", candidates, workers=2))
    expected = RunDir(tmp_path / "expected").artifact_hashes()
    here(monkeypatch, backwards=True)
    generate.run(context(tmp_path / "backwards", candidates, workers=1))
    assert RunDir(tmp_path / "backwards").artifact_hashes() == expected
    done: list[str] = []
    for _ in range(10):  # at most two units of a phase, then the process is killed
        log = here(monkeypatch, stop_after=2)
        try:
            generate.run(context(tmp_path / "killed", candidates))
        except KeyboardInterrupt:
            done += log
            continue
        done += log
        break
    assert RunDir(tmp_path / "killed").artifact_hashes() == expected
    assert len(done) == len(set(done)) == 8 + 2


def test_another_draw_reads_no_edit_again_and_large_images_make_small_units(
    tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates = table(tmp_path)
    generate.run(context(tmp_path / "run", candidates))
    with pytest.raises(ValueError, match=r"was made with other settings \(generate.annotate: 3 then, 2 now\)"):
        generate.run(context(tmp_path / "run", candidates, annotate=2))
    log.clear()
    generate.run(context(tmp_path / "run", candidates, force=True, annotate=2))
    assert not log and sum(row["drawn"] for row in made(tmp_path / "run")[1]) == 10
    monkeypatch.setattr(elsewhere, "UNIT_BYTES", 1)
    index = generate.run(context(tmp_path / "run", candidates, force=True))
    assert len(log) == 5 == len(index.artifacts["sources"])  # each source is a unit


def test_a_data_set_that_changes_in_between_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = table(tmp_path)
    here(monkeypatch, stop_after=7)
    monkeypatch.setattr(elsewhere, "units", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        generate.run(context(tmp_path / "run", candidates))
    monkeypatch.undo()
    here(monkeypatch)
    other = next(row["edited"] for row in ROWS if len(row["edited"]) < len(ROWS[6]["edited"]))
    (tmp_path / "photos" / "edited" / "6.img").write_bytes(other.ljust(len(ROWS[6]["edited"]), b"\0"))  # of the same size
    with pytest.raises(ValueError, match=r"edits\.csv\[6\] changed since it was read as sample \w+ .*; restore the data set"):
        generate.run(context(tmp_path / "run", candidates))


def test_an_image_of_another_size_behind_the_same_table_is_noticed(tmp_path: Path, log: list[str]) -> None:
    candidates = table(tmp_path)
    generate.run(context(tmp_path / "run", candidates))
    (tmp_path / "photos" / "edited" / "6.img").write_bytes(encoded(photograph(9)))
    with pytest.raises(ValueError, match=r"step generate in .* was made with (an)?other"):
        generate.run(context(tmp_path / "run", candidates))
    log.clear()
    generate.run(context(tmp_path / "run", candidates, force=True))
    assert encoded(photograph(9)) in {row["image"]["bytes"] for row in made(tmp_path / "run")[1]}
    assert len(log) == 1 + 1, "its slice is read, its group written"


def test_refusals(tmp_path: Path, log: list[str]) -> None:
    def refused(rows: Sequence[Row], match: str, **changes: Any) -> None:
        with pytest.raises(ValueError, match=match):
            generate.run(context(tmp_path / "run", table(tmp_path, rows) | changes))

    without = [{name: value for name, value in row.items() if name != "editor"} for row in ROWS]
    refused(
        without,
        r"generate\.candidates: .*edits\.csv has no column editor; it has source, instruction, .* under generate\.candidates\.columns",
    )
    refused(ROWS, r"has no column seeds; ", columns={"seed": "seeds"})
    refused(
        [{**row, "editor": ""} for row in ROWS],
        r"no source has two candidates .*\(no-editor 20\); e\.g\. edits\.csv\[0\]: the row does not",
    )
    refused(ROWS[::4], r"no source has two candidates that can be compared \(single-candidate 5\); e\.g\. edits\.csv\[0\]: no other edit")


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet"])
def test_a_doubled_column_is_refused(form: str, tmp_path: Path) -> None:
    def run(names: Sequence[str]) -> None:
        path = tmp_path / f"edits.{form}"
        if form == "parquet":
            pq.write_table(pa.Table.from_arrays([pa.array(["x"])] * len(names), names=list(names)), path)
        else:
            with path.open("w", newline="") as file:
                csv.writer(file, delimiter="," if form == "csv" else "\t").writerows([names, ["x"] * len(names)])
            with path.open("rb") as file:
                assert header(file, path.name) == list(names)
        generate.run(context(tmp_path / "run", {"dataset": "table", "path": str(path)}))

    names = ["source", "instruction", "edited", "editor"]
    for twice, named in (("editor", "editor"), ("licence", "licence"), ("passed on", "passed on"), ("", "without a name")):
        with pytest.raises(ValueError, match=rf"edits\.{form} has 2 columns {named}; rename or remove all but one"):
            run([*names, "licence", "passed on", "", twice])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{candidates: {dataset: triplets, path: a}, editors: [{name: world/quill}]}", "leave out sources and editors, or candidates"),
        ("{candidates: {dataset: triplets, path: a}, sources: {dataset: world}}", "leave out sources and editors, or candidates"),
        ("{annotate: 5}", "generate: there are no candidates: name editors, or under candidates"),
        ("{candidates: {dataset: tabel, path: a}}", "generate.candidates"),
        ("{candidates: {dataset: table, path: a, columns: {edtor: x}}}", "generate.candidates.columns.edtor; did you mean editor?"),
    ],
)
def test_one_form_of_the_two(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(f"name: x\ngenerate: {text}\n")
    with pytest.raises(ValueError, match="line 2") as caught:
        config.load(tmp_path / "x.yaml")
    assert sentence in str(caught.value)


def test_the_plan_and_the_frozen_configuration(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(
        f"name: x\ngenerate:\n  candidates: {{dataset: table, path: {table(tmp_path)['path']}}}\n  annotate: 4\n"
    )
    loaded = config.load(tmp_path / "x.yaml")
    text = plan(loaded.flow, tmp_path / "none")
    assert "20 candidates made elsewhere, up to 4 of each source annotated" in text and "40 ratings" in text and "30 pairs" in text
    assert "the number of sources assumes 4 candidates of each" in text
    assert "sources: null  # default" in config.show(loaded)
    (tmp_path / "frozen.yaml").write_text(config.dump(loaded.flow))
    assert config.load(tmp_path / "frozen.yaml").flow == loaded.flow
    missing = config.load(tmp_path / "x.yaml", ["generate.candidates.path=nowhere.csv"])
    assert "cannot run yet: generate.candidates: there is no file nowhere.csv" in plan(missing.flow, tmp_path / "none")


def fill(template: Path, target: Path, annotator: str) -> Path:
    """Ratings of everything in the template, that differ by candidate."""
    with template.open(newline="") as file:
        rows = [row | {"annotator_id": annotator, "score": str(1 + int(row["candidate_id"][:6], 16) % 4)} for row in csv.DictReader(file)]
    with target.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return target


def test_from_a_folder_to_preferences(tmp_path: Path, log: list[str]) -> None:
    """Groups of four, of three and of two go through packet, ratings, quality control, pairs, their export and the report."""
    run, candidates = tmp_path / "run", table(tmp_path, [*ROWS[:15], *ROWS[16:18], ROWS[19]][1:])
    (tmp_path / "mine.yaml").write_text(f"name: mine\ngenerate:\n  candidates: {json.dumps(candidates)}\n")
    said = pipeline("run", "generate", "--config", tmp_path / "mine.yaml", "--run", run).output
    assert (
        "in 17 out 17 quarantined 0" in said
        and "3 to 4 candidates per source, 3 to 4 to annotate, 5 sources below generate.annotate" in said
    )
    assert "up to date" in pipeline("run", "generate", "--run", run).output
    packet = Path(pipeline("annotate", "export", "--run", run).output.removeprefix("exported for the raters: ").strip())
    groups = [json.loads(line) for line in (packet / "groups.jsonl").read_text().splitlines()]
    assert sorted(len(group["candidates"]) for group in groups) == [3, 3, 3, 4, 4]
    text = "".join(path.read_text() for path in packet.rglob("*") if path.suffix in {".jsonl", ".json", ".csv", ".xml"})
    assert not [editor for editor in ("flux", "qwen", "step1x", "edits.csv") if editor in text]
    assert {len(group.candidates) for group in packet_page.load(run / "annotate").groups.values()} == {3, 4}
    shown = {path.read_bytes() for path in (packet / "images").iterdir()}
    assert shown == {row[role] for row in made_rows(run) for role in ("source", "edited")}
    files = [fill(packet / "ratings-template.csv", tmp_path / f"{name}.csv", name) for name in ("ann", "ben")]
    pipeline("annotate", "ingest", "--run", run, *(word for file in files for word in ("--file", file)))
    pipeline("annotate", "qc", "--run", run)
    pipeline("run", "preferences", "--run", run)
    assert {len(group.candidates) for split in ("train", "validation") for group in load_groups(RunDir(run), split)} == {3, 4}
    statistics = json.loads((run / "preferences" / "statistics.json").read_text())
    assert sum(statistics["groups"].values()) == 5 and set(statistics["win_rates"]) == {"flux-kontext", "qwen-edit", "step1x"}
    pipeline("export", "pairs", "--run", run, "--format", "hub", "--target", tmp_path / "hub", "--licence", "cc0-1.0")
    assert "3 to 4 candidates per source" in pipeline("status", "--run", run).output
    page = Path(pipeline("report", "--run", run).output.removeprefix("report: ").strip()).read_text()
    assert "flux-kontext #1" in page and "toy data set" not in page


def made_rows(run: Path) -> Iterator[dict[str, bytes]]:
    sources, candidates = made(run)
    images = {row["source_id"]: row["image"]["bytes"] for row in sources}
    for row in candidates:
        yield {"source": images[row["source_id"]], "edited": row["image"]["bytes"]}


def test_the_report_names_toy_candidates_of_another_run(tmp_path: Path, log: list[str]) -> None:
    generate.run(context(tmp_path / "run", as_run(tmp_path / "data")))
    assert not synthetic_parts(Published(RunDir(tmp_path / "run")))
    toy = [{**row, "editor": f"world/{row['editor']}"} for row in ROWS]
    generate.run(context(tmp_path / "toy", table(tmp_path, toy)))
    assert [part.what for part in synthetic_parts(Published(RunDir(tmp_path / "toy")))] == [
        "the sources come from the built-in toy data set",
        "the candidates come from simulated editors with known flaws",
    ]


def test_simulated_raters_refuse_photographs(tmp_path: Path, log: list[str]) -> None:
    (tmp_path / "mine.yaml").write_text(
        f"name: mine\ngenerate: {{candidates: {json.dumps(table(tmp_path))}}}\nannotate: {{simulate: {{overlap: 0.5}}}}\n"
    )
    pipeline("run", "generate", "--config", tmp_path / "mine.yaml", "--run", tmp_path / "run")
    assert "simulated raters rate only edits of the toy world" in refusal("annotate", "simulate", "--run", tmp_path / "run")


def test_three_candidates_of_one_photograph(shared_data: Path, tmp_path: Path, log: list[str]) -> None:
    """Of 59 published triplets only one source has several edits with the same instruction."""
    candidates = {
        "dataset": "table",
        "path": str(shared_data / "triplets" / "triplets.jsonl"),
        "columns": {"edited": "candidate", "editor": "set"},
    }
    index = generate.run(context(tmp_path / "run", candidates, unit_sources=20))
    assert index.counts == {"in": 59, "out": 3, "quarantined": 56} and index.quarantined == {"single-candidate": 56}
    assert [(row["editor"], row["seed"]) for row in made(tmp_path / "run")[1]] == [("editreward", 0), ("editreward", 1), ("editreward", 2)]


def test_workers_of_a_cluster_make_the_same(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = table(tmp_path)
    index: Index = generate.run(context(tmp_path / "run", candidates, cluster, workers=2))
    here(monkeypatch)
    assert generate.run(context(tmp_path / "expected", candidates)) == index
    assert RunDir(tmp_path / "run").artifact_hashes() == RunDir(tmp_path / "expected").artifact_hashes()
