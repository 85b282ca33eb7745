"""Rated data sets in their published layouts: candidates and ratings of the same files meet, up to pairs, their export and the report."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from command import pipeline, refusal
from filter_here import NoCluster, use
from paths import ROOT
from photographs import encoded, photograph
from rated_pairs import FOLLOW, QUALITY, pairs_of, rated_photographs, write_pairs
from rated_run import rating_task_of, ratings_of, write_csv

from pipeline.report import page as report
from stages.annotate import step as annotate
from stages.config import FlowConfig
from stages.context import Context
from stages.engine.contracts import DIMENSIONS
from stages.engine.ids import content_id, uniform
from stages.engine.rundir import Index, RunDir
from stages.evaluate_reward.leaks import training_sources
from stages.generate import step as generate
from stages.preferences import step as preferences
from stages.preferences.export_pairs import export_pairs
from stages.preferences.groups import load_groups

EDITS = rated_photographs(12)
SCORES = dict(zip(DIMENSIONS, (FOLLOW, QUALITY), strict=True))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Units run in this process; their keys are listed as they are done."""
    found: list[str] = []
    use(monkeypatch, found)
    return found


def context(run: Path, candidates: Mapping[str, Any], *, force: bool = False, contamination: Any = None, **changes: Any) -> Context:
    made = {"candidates": dict(candidates), "annotate": 12, "unit_sources": 20} | changes
    flow = FlowConfig.model_validate({"name": "x", "generate": made, "preferences": {"contamination": contamination}})
    return Context(RunDir(run), flow, NoCluster(), force)  # ty: ignore[invalid-argument-type]


def copy(folder: Path, pairs: Sequence[Mapping[str, Any]] | None = None) -> dict[str, Any]:
    return {"dataset": "editreward-data", "path": str(write_pairs(folder, pairs_of(EDITS) if pairs is None else pairs))}


def trained_on(asked: Context, *files: Path) -> Index:
    """Generate, ingest and preferences; returns the index of the last."""
    generate.run(asked)
    annotate.ingest(asked, files)
    return preferences.run(asked)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def labels(run: Path) -> dict[tuple[str, frozenset[str]], dict[str, Any]]:
    """By source and the two edits, as hashes: split, and per dimension and overall the better edit (None: a tie; both: opposed rows)."""
    folder = RunDir(run).step("generate")
    image = {row["candidate_id"]: digest(row["image"]["bytes"]) for row in folder.read("candidates").to_pylist()}
    source = {row["source_id"]: digest(row["image"]["bytes"]) for row in folder.read("sources").to_pylist()}
    found: dict[tuple[str, frozenset[str]], dict[str, Any]] = {}
    for row in RunDir(run).step("preferences").read("pairs").to_pylist():
        sides = {"a": image[row["candidate_a"]], "b": image[row["candidate_b"]], "tie": None}
        entry = found.setdefault((source[row["source_id"]], frozenset((sides["a"], sides["b"]))), {"split": row["split"], "overall": set()})
        entry |= {one["dimension"]: sides[one["label"]] for one in row["dimensions"]}
        entry["overall"].add(sides[row["label"]])
    return found


def better(left: float, right: float, names: tuple[str, str]) -> str | None:
    return None if left == right else names[left < right]


def test_scores_of_editreward_data_become_the_labels_of_its_pairs(tmp_path: Path, log: list[str]) -> None:
    """By the shipped configuration and its commands, on a copy with nine damaged rows."""
    pairs = pairs_of(EDITS)
    pairs[0] |= {f"left_{FOLLOW}": 5.0 - pairs[0][f"left_{FOLLOW}"]}  # first here, so another score than in all later pairs
    pairs += [pairs[7], {**pairs[6], "right_model": "", "right_img_rel": "new.png"}, {**pairs[6], "left_img_rel": ""}]
    folder, run = write_pairs(tmp_path / "data", pairs), tmp_path / "run"
    shipped = ("--config", ROOT / "configs" / "editreward-data.yaml", "--run", run, f"generate.candidates.path={folder}")
    said = pipeline("run", "generate", *shipped, "generate.unit_sources=20").output
    assert "in 50 out 48 quarantined 2" in said  # missing-image name and no editor
    said = pipeline("annotate", "ingest", "--run", run, "--file", folder).output
    assert "conflict" in said and "item-unnamed" in said and "edit-set-aside" in said
    ledger = RunDir(run).step("annotate").index()
    assert ledger is not None
    assert ledger.counts == {"in": 75 * 4, "out": 48 * 2, "duplicates": 300 - 96 - 6, "quarantined": 6}
    assert ledger.quarantined == {"conflict": 2, "item-unnamed": 2, "edit-set-aside": 2}
    pipeline("run", "preferences", "--run", run)
    found = labels(run)
    assert len(found) == 72
    by_key: dict[str, list[dict[str, Any]]] = {}
    for edit in EDITS:
        by_key.setdefault(edit["key"], []).append(dict(edit))
    by_key["key-0"][0][FOLLOW] = 5.0 - by_key["key-0"][0][FOLLOW]
    for edits in by_key.values():
        for number, a in enumerate(edits):
            for b in edits[number + 1 :]:
                names = digest(a["edited"]), digest(b["edited"])
                entry = found[digest(a["source"]), frozenset(names)]
                for dimension, score in SCORES.items():
                    assert entry[dimension] == better(a[score], b[score], names)
    groups = [*load_groups(RunDir(run), "train"), *load_groups(RunDir(run), "validation")]
    assert sorted(len(group.candidate_ids) for group in groups) == [4] * 12
    figures = json.loads((run / "preferences" / "statistics.json").read_text())["made_elsewhere"]
    assert figures["compared"] == {"in_files": 72, "pairs": 72, "both": 72}
    assert sum(entry[DIMENSIONS[0]]["tie"] for entry in figures["labels"].values()) == sum(e[DIMENSIONS[0]] is None for e in found.values())
    assert {name: sum(counts.values()) for name, counts in figures["editors"].items()} == {
        "flux-kontext": 24,
        "qwen-edit": 12,
        "step1x": 12,
    }
    page = Path(pipeline("report", "--run", run).output.removeprefix("report: ").strip()).read_text()
    assert "Of 12 source images 0 have a near duplicate" in page and "All pairs of a complete group are used: 72, of which 72" in page
    assert "edit-set-aside" in page and "No training source counts as contaminated" not in page


def test_the_training_json_comes_back_as_it_went_out(tmp_path: Path, log: list[str]) -> None:
    """Two raters per edit, so that scores are means; splits and labels stay, and pairs that the layout cannot say are found again."""
    first = context(tmp_path / "first", copy(tmp_path / "data"))
    generate.run(first)
    annotate.ingest(first, [tmp_path / "data", write_csv(tmp_path / "ann.csv", ratings_of(rating_task_of(first)))])
    preferences.run(first)
    before = labels(tmp_path / "first")
    exported = export_pairs(first.run, "reference-json", tmp_path / "pairs")
    assert exported.left_out["no preferred side"] > 0
    paths = {"path": str(tmp_path / "pairs" / "train.json"), "validation": str(tmp_path / "pairs" / "validation.json")}
    files = [Path(path) for path in paths.values()]
    assert sum(len(json.loads(path.read_text())) for path in files) == sum(exported.pairs.values()) > 40
    index = trained_on(context(tmp_path / "second", {"dataset": "reference-json", **paths}), *files)
    after = labels(tmp_path / "second")
    assert index.quarantined == {} and after == before, "every edit is in a pair with a preferred side, so nothing is lost"
    assert {entry["split"] for entry in after.values()} == {"train", "validation"}
    figures = json.loads((tmp_path / "second" / "preferences" / "statistics.json").read_text())["made_elsewhere"]["compared"]
    assert figures == {"in_files": 72 - exported.left_out["no preferred side"], "pairs": 72, "both": figures["in_files"]}


def near(number: int) -> bytes:
    """Another file of the photograph, on the other side of the split than the first if the bytes decided."""

    def held_out(data: bytes) -> bool:
        return uniform("split", content_id("group", data)) < 0.1

    expected = not held_out(EDITS[4 * number]["source"])
    whole = photograph(number)
    for side in range(80, 200):
        data = encoded(whole.resize((side, side)), "JPEG")
        if held_out(data) == expected:
            return data
    raise AssertionError("no copy was found")


def test_near_duplicates_of_a_source_are_in_its_split(tmp_path: Path, log: list[str]) -> None:
    copies = [{**edit, "source": near(1), "key": "copy", "instruction": "something else"} for edit in EDITS[4:8]]
    rows = pairs_of([*EDITS, *copies])

    def made(name: str, pairs: Sequence[Mapping[str, Any]], distance: int | None) -> tuple[Index, dict[str, tuple[str, str]]]:
        asked = context(tmp_path / name, copy(tmp_path / f"{name}-data", pairs), split_distance=distance)
        index = generate.run(asked)
        return index, {row["instruction"]: (row["split"], row["group"]) for row in asked.run.step("generate").read("sources").to_pylist()}

    index, found = made("near", rows, 8)
    assert index.results["near_duplicates"] == {"images": 13, "merged": 2, "groups": 1, "largest": 2, "across_declared_splits": 0}
    assert found["something else"] == found[EDITS[4]["instruction"]]
    bytes_only, apart = made("bytes", rows, None)
    assert apart["something else"][0] != apart[EDITS[4]["instruction"]][0] and bytes_only.results["near_duplicates"]["merged"] == 0
    merged = {"something else", EDITS[4]["instruction"]}
    assert {name: entry for name, entry in found.items() if name not in merged} == {n: e for n, e in apart.items() if n not in merged}
    assert made("backwards", rows[::-1], 8)[1] == found


def test_benchmarks_that_know_training_sources_are_reported_before_training(tmp_path: Path, log: list[str]) -> None:
    data, bench = copy(tmp_path / "data"), tmp_path / "bench"
    bench.mkdir()
    generate.run(context(tmp_path / "run", data))
    sources = {row["source_id"]: row for row in RunDir(tmp_path / "run").step("generate").read("sources").to_pylist()}
    number = {name: int(row["instruction"].split()[2]) for name, row in sources.items()}
    known = {name for name, row in sources.items() if row["split"] == "train" and number[name] in range(2, 5)}
    assert len(known) >= 2
    held_out = next(name for name, row in sources.items() if row["split"] == "validation")
    for name in (*known, held_out):
        (bench / f"{number[name]}.png").write_bytes(encoded(photograph(number[name]).resize((128, 128))))
    (bench / "other.png").write_bytes(encoded(photograph(19)))
    compared = {"references": [{"name": "bench", "input": {"dataset": "images", "path": str(bench)}}]}
    log.clear()
    trained_on(context(tmp_path / "run", data, contamination={"references": []}), tmp_path / "data")
    assert log == []  # with nothing to compare with, no source is hashed
    kept = trained_on(context(tmp_path / "run", data, contamination=compared, force=True), tmp_path / "data")
    hits = RunDir(tmp_path / "run").step("preferences").read("contamination").to_pylist()
    assert {(hit["sample_id"], hit["item"]) for hit in hits} == {(name, f"{number[name]}.png") for name in known}
    summary = kept.results["contamination"]
    found = summary["references"]["bench"]
    assert (found["items"], found["near image"], found["exact image"], found["samples"]) == (len(known) + 2, len(known), 0, len(known))
    assert (summary["samples"], summary["dropped"], kept.counts) == (len(known), 0, {"in": 12, "out": 12, "quarantined": 0})
    assert summary["sources"] == sum(row["split"] == "train" for row in sources.values())
    log.clear()
    dropping = context(tmp_path / "run", data, contamination=compared | {"action": "drop"}, force=True)
    index = preferences.run(dropping)
    assert log == [] and index.quarantined == {"contamination": len(known)}
    assert index.counts == {"in": 12, "out": 12 - len(known), "quarantined": len(known)}
    assert not known & {row["source_id"] for row in dropping.run.step("preferences").read("pairs").to_pylist()}
    assert preferences.run(dropping) == index
    assert training_sources(dropping.run).splits.keys() == sources.keys() - known
    trained = dropping.run.step("train-reward")
    trained.publish(Index("train-reward", "key", {}, {"preferences": kept.fingerprint}))
    assert training_sources(dropping.run).splits.keys() == sources.keys()  # the model was trained before they were dropped
    trained.publish(Index("train-reward", "key", {}, {"preferences": index.fingerprint}))
    assert training_sources(dropping.run).splits.keys() == sources.keys() - known
    shutil.rmtree(trained.path)
    page = report.build(RunDir(tmp_path / "run")).read_text()
    assert f"{len(known)} training sources were dropped; their groups have no pairs" in page
    assert f"The first {len(known)} of {len(known)} matches that count" in page and all(name in page for name in known)
    (bench / "none.png").write_bytes(b"none")
    alone = [{"name": "none", "input": {"dataset": "images", "path": str(bench / "none.png")}}]
    with pytest.raises(ValueError, match=r"preferences\.contamination\.references: none of the 1 items of none can be read"):
        preferences.run(context(tmp_path / "run", data, contamination={"references": alone}, force=True))


def test_edits_and_scores_that_cannot_be_used_are_counted(tmp_path: Path, log: list[str]) -> None:
    edits = [dict(edit) for edit in EDITS]
    edits[1] |= {"edited": edits[0]["edited"]}  # equal bytes in a group: one candidate, whose second score is a conflict or the same
    edits[5] |= {"editor": " "}
    pairs = pairs_of(edits)
    pairs[60][f"left_{QUALITY}"] = 7.0
    other = edits[16]["source"], edits[16]["instruction"]
    moved = [row for row in pairs if row["key"] == "key-3" and "qwen-edit/14.png" in (row["left_img_rel"], row["right_img_rel"])]
    moved[0] |= {"source_img": other[0], "instruction": other[1]}  # the first pair of this edit has the source of key-4
    for row in moved:
        assert row["right_img_rel"] == "qwen-edit/14.png" or row is not moved[0]
    asked = context(tmp_path / "run", copy(tmp_path / "data", pairs))
    made = generate.run(asked)
    assert made.counts == {"in": 48, "out": 46, "quarantined": 2} and made.quarantined == {"duplicate": 1, "no-editor": 1}
    result = annotate.ingest(asked, [tmp_path / "data"])
    counts, reasons = result.index.counts, result.index.quarantined
    assert counts["in"] == 72 * 4 == counts["out"] + counts["duplicates"] + counts["quarantined"]
    assert reasons["edit-set-aside"] == 3 * 2 and reasons["score-out-of-scale"] == 1 and reasons["pair-of-two-sources"] == 3 * 4
    with pytest.raises(ValueError, match=r"scores of imported:EditReward-Data are outside the scale 1, 2, 3, 4 .*: another scale was used"):
        doubled = [{**row, f"left_{QUALITY}": 2 * row[f"left_{QUALITY}"]} for row in pairs]
        annotate.ingest(asked, [write_pairs(tmp_path / "doubled", doubled)])
    rated = preferences.run(asked)
    assert rated.counts["in"] == 12 == rated.counts["out"] + rated.counts["quarantined"]
    assert rated.quarantined["incomplete-group"] >= 1
    pairs = json.loads((tmp_path / "run" / "preferences" / "statistics.json").read_text())["made_elsewhere"]["compared"]
    assert pairs["in_files"] == 72 - 3 - 3 - 3, "two edits are one, three pairs have no editor, three have two sources"


def test_refusals(tmp_path: Path, log: list[str]) -> None:
    asked = context(tmp_path / "run", copy(tmp_path / "data"))
    with pytest.raises(ValueError, match="step generate is not done"):
        annotate.ingest(asked, [tmp_path / "data"])
    generate.run(asked)
    write_pairs(tmp_path / "other", [{**row, "key": f"other-{row['key']}"} for row in pairs_of(EDITS[:8])])
    with pytest.raises(ValueError, match=r"train-00000-of-00002\.parquet rates none of the candidates of this run; name the data set"):
        annotate.ingest(asked, [tmp_path / "other"])
    text = (tmp_path / "twice.csv").write_text
    names = ["key", "instruction", *(f"{side}_{name}" for side in ("left", "right") for name in ("img_rel", "model", FOLLOW, QUALITY))]
    text(",".join([*names, "key"]) + "\n" + ",".join(["x"] * 11) + "\n")
    with pytest.raises(ValueError, match=r"twice\.csv has 2 columns key; rename or remove all but one"):
        annotate.ingest(asked, [tmp_path / "twice.csv"])
    assert asked.run.step("annotate").index() is None


def test_the_training_json_and_its_faults(tmp_path: Path, log: list[str]) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for number, edit in enumerate(EDITS[:8]):
        (folder / f"{number}.img").write_bytes(edit["edited"])
        (folder / f"{edit['key']}.jpg").write_bytes(edit["source"])
    record = {"prompt": "brighter", "path_src": "key-0.jpg", "path1": "0.img", "path2": "1.img", "model1": "flux", "model2": "qwen"}
    record |= {f"model{number}_dim{place}_score": number + place for number in (1, 2) for place in (1, 2)}
    records = [record, {**record, "path2": "2.img"}, {**record, "path1": "gone.img"}, {**record, "path1": None}, [1]]

    def made(name: str, content: Any, run: str) -> Index:
        (folder / name).write_text(json.dumps(content))
        return generate.run(context(tmp_path / run, {"dataset": "reference-json", "path": str(folder / name)}))

    index = made("train.json", records, "run")
    assert index.counts == {"in": 6, "out": 3, "quarantined": 3} and index.quarantined == {"bad-record": 2, "missing-image": 1}
    messages = [row["message"] for row in RunDir(tmp_path / "run").step("generate").read("quarantine").to_pylist()]
    assert any("record 3: path1 should be a text, it is None" in message for message in messages)
    with pytest.raises(ValueError, match=r"key\.json has no key model2, which the training JSON has; it has prompt, path_src"):
        made("key.json", [{name: value for name, value in record.items() if name != "model2"}], "other")
    (folder / "2.img").write_bytes(EDITS[7]["edited"])
    with pytest.raises(ValueError, match=r"step generate in .* was made with"):
        made("train.json", records, "run")
    yaml = tmp_path / "x.yaml"
    yaml.write_text(f"name: x\ngenerate: {{candidates: {{dataset: reference-json, path: {folder}/none.json}}}}\n")
    assert "there is no file" in refusal("run", "generate", "--config", yaml, "--run", tmp_path / "none")
