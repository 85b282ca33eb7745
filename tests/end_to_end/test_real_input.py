"""Real input through the filter on a Ray cluster: real photographs with damage, a user's own folder; and ratings that other people made.

The reward model has random weights: the scores mean nothing, the path is what is tested.
"""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import webdataset
from command import hashes, pipeline, refusal, save_model
from paths import ROOT
from PIL import Image

from stages.config import FlowConfig
from stages.contamination import references
from stages.context import Context
from stages.engine import storage
from stages.engine.cluster import Cluster
from stages.engine.rundir import RunDir
from stages.filter import step as filter

pytestmark = pytest.mark.slow

MINI = "sharegpt4o-mini"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("reward") / "model")


def context(run: Path, data: Path, model: Path, cluster: Cluster, workers: int) -> Context:
    settings = {
        "input": {"dataset": "sharegpt4o", "path": str(data / MINI)},
        "model": str(model),
        "selections": [{"name": "selected", "rule": "top", "count": 20}],
        "shards": {"samples_per_shard": 10},
        "unit_rows": 16,
        "workers": workers,
        "inspect_workers": workers,
    }
    return Context(RunDir(run), FlowConfig.model_validate({"name": "mini", "filter": settings}), cluster)


@pytest.fixture(scope="module")
def filtered(shared_data: Path, model: Path, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Context:
    """The real photographs, filtered by one actor."""
    made = context(tmp_path_factory.mktemp("mini") / "run", shared_data, model, cluster, 1)
    filter.run(made)
    return made


def originals(folder: Path) -> dict[str, bytes]:
    """Every image of the delivered tars by its name, as Python's own tar reader finds it."""
    members: dict[str, bytes] = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as archive:
            for member in archive.getmembers():
                file = archive.extractfile(member)
                if file is not None:
                    members[member.name] = file.read()
    return members


def test_59_are_scored_and_4_set_aside_each_with_its_reason(filtered: Context) -> None:
    step = filtered.run.step("filter")
    index = step.require()
    assert index.counts == {"in": 63, "out": 59, "quarantined": 4, "gated": 0}
    assert index.quarantined == {"empty-instruction": 1, "missing-image": 1, "no-source": 1, "undecodable-image": 1}
    assert step.read("scores").num_rows == 59
    quarantine = step.read("quarantine").to_pylist()
    assert len({row["position"] for row in quarantine}) == 4 and all(row["message"] for row in quarantine)


def test_the_selection_is_the_20_best(filtered: Context) -> None:
    step = filtered.run.step("filter")
    scores = {row["sample_id"]: row["overall_mean"] for row in step.read("scores").to_pylist()}
    selected = pq.read_table(step.path / "selections" / "selected.parquet").to_pylist()
    assert [row["rank"] for row in selected] == list(range(20))
    assert [row["score"] for row in selected] == sorted(scores.values(), reverse=True)[:20]
    assert all(scores[row["sample_id"]] == row["score"] for row in selected)


def test_webdataset_reads_back_the_delivered_bytes(filtered: Context, shared_data: Path) -> None:
    members = originals(shared_data / MINI)
    records = json.loads((shared_data / MINI / "text_and_image_to_image.json").read_text())
    urls = sorted(str(path) for path in filtered.run.path.glob("filter/shards/selected/*.tar"))
    assert len(urls) == 2
    samples = list(webdataset.WebDataset(urls, shardshuffle=False))
    assert len({sample["__key__"] for sample in samples}) == 20
    for sample in samples:
        facts = json.loads(sample["json"])
        record = records[int(re.fullmatch(r".*\[(\d+)\]", facts["position"])[1])]
        (source,) = [data for name, data in sample.items() if name.startswith("source.")]
        (edited,) = [data for name, data in sample.items() if name.startswith("edited.")]
        assert source == members[record["input_image"][0]] and edited == members[record["output_image"]]
        assert facts["instruction"] == record["input_prompt"]
    assert "sound" in pipeline("shards", "verify", Path(urls[0]).parent).output


def test_four_actors_and_a_rerun_give_the_same_bytes(
    filtered: Context, shared_data: Path, model: Path, cluster: Cluster, tmp_path: Path
) -> None:
    expected = filtered.run.artifact_hashes()
    four = context(tmp_path / "run", shared_data, model, cluster, 4)
    filter.run(four)
    assert four.run.artifact_hashes() == expected
    log = (filtered.run.path / "filter" / "units.jsonl").read_bytes()
    filter.run(filtered)
    assert filtered.run.artifact_hashes() == expected and (filtered.run.path / "filter" / "units.jsonl").read_bytes() == log


def test_the_photographs_of_the_repository_end_in_the_training_loop_of_the_documents(
    model: Path, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = pipeline("run", "filter", "--config", "photographs", f"filter.model={model}").output
    assert "in 9 out 9 quarantined 0" in said and "selected 4" in said and Path("runs/photographs/report.html").exists()
    flagged = RunDir("runs/photographs").step("filter").read("gated")
    assert sorted(flagged["gate"].to_pylist()) == ["redrawn", "unchanged"]
    assert "sound" in pipeline("shards", "verify", "runs/photographs/filter/shards/selected").output
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (loop,) = (block for block in blocks if "DataLoader" in block)
    exec(loop.replace("num_workers=2", "num_workers=0"), {})  # this process has a cluster: it must not fork
    assert capsys.readouterr().out.startswith("torch.Size([4, 3, 256, 256]) torch.Size([4, 3, 256, 256]) (")


def test_a_users_own_folder_works_the_same(shared_data: Path, model: Path, cluster: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(shared_data / "triplets", folder)
    rows = [json.loads(line) for line in (folder / "triplets.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = [json.dumps({"source": row["source"], "instruction": row["instruction"], "edited": row["candidate"]}) for row in rows]
    lines += [json.dumps({"source": rows[0]["source"], "instruction": " ", "edited": rows[0]["candidate"]}), "{not json", lines[3]]
    (folder / "mine.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    config = tmp_path / "mine.yaml"
    config.write_text(
        f"name: mine\nfilter:\n  input: {{dataset: triplets, path: {folder}/mine.jsonl}}\n  model: {model}\n"
        "  selections: [{name: third, rule: top, fraction: 0.3333}]\n  workers: 1\n  unit_rows: 31\n"
    )
    said = pipeline("run", "filter", "--config", config, "--run", tmp_path / "run").output
    assert "in 62 out 59 quarantined 3" in said and "third 20" in said
    step = RunDir(tmp_path / "run").step("filter")
    assert step.require().quarantined == {"bad-line": 1, "duplicate": 1, "empty-instruction": 1}
    shards = tmp_path / "run" / "filter" / "shards" / "third"
    samples = list(webdataset.WebDataset([str(path) for path in sorted(shards.glob("*.tar"))], shardshuffle=False))
    assert len(samples) == 20
    for sample in samples:
        row = rows[int(re.fullmatch(r"mine\.jsonl\[(\d+)\]", json.loads(sample["json"])["position"])[1])]
        (edited,) = [data for name, data in sample.items() if name.startswith("edited.")]
        assert edited == (folder / row["candidate"]).read_bytes()


def test_imagenhub_raters_are_ingested_and_their_agreement_printed(shared_data: Path, tmp_path: Path) -> None:
    files = sorted((shared_data / "imagenhub" / "ImagenHub_Mask-Guided_IE").glob("*.tsv"))
    assert len(files) == 3
    config = tmp_path / "imagenhub.yaml"
    config.write_text("name: imagenhub\n")
    command = ["annotate", "ingest", "--config", config, "--run", tmp_path / "run", "--format", "imagenhub"]
    command += [argument for file in files for argument in ("--file", file)]
    said = pipeline(*command).output
    for file in files:
        assert re.search(rf"{re.escape(file.name)} +new +1,432 +1,432\n", said)  # 179 images x 4 editors x 2 dimensions
    agreement = said[said.index("inter-rater agreement") :]
    assert re.search(r"0\.\d{3} \[0\.\d{3}, 0\.\d{3}\]", agreement)
    published = storage.read_json(tmp_path / "run" / "annotate" / "index.json")["results"]["agreement"]
    alphas = {
        dimension: round(statistics["alpha_ordinal"]["value"], 4) for dimension, statistics in published.items() if dimension != "overall"
    }
    assert alphas == {"semantic_consistency": 0.7005, "perceptual_quality": 0.6073}  # as recomputed from the files with public tools
    before = hashes(tmp_path / "run")
    assert said.count(" new ") == 3 and pipeline(*command).output.count(" known ") == 3
    assert hashes(tmp_path / "run") == before


def test_edits_in_a_benchmark_or_in_training_data_are_listed_and_dropped(
    shared_data: Path, model: Path, cluster: Cluster, tmp_path: Path
) -> None:
    """Edits of ten sources that a folder of images holds, some of them in another encoding, and of one that the model was trained on."""
    folder = shared_data / "triplets"
    rows = [json.loads(line) for line in (folder / "triplets.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = list({row["group"]: row for row in rows}.values())[:20]
    lines = [json.dumps({"source": r["source"], "instruction": r["instruction"], "edited": r["candidate"], "id": r["id"]}) for r in rows]
    (tmp_path / "bench").mkdir()
    for number, row in enumerate(rows[:10]):
        with Image.open(folder / row["source"]) as source:
            if number % 2:
                source.convert("RGB").resize((300, 300)).save(tmp_path / "bench" / f"{number}.jpg", quality=50)
            else:
                shutil.copy(folder / row["source"], tmp_path / "bench" / f"{number}{Path(row['source']).suffix}")
    (tmp_path / "bench" / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    shutil.copytree(model, tmp_path / "model")
    references.publish_training(tmp_path / "model", [("seen", (folder / rows[15]["source"]).read_bytes(), "another instruction")])
    table = tmp_path / "mine.jsonl"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    config = tmp_path / "mine.yaml"
    config.write_text(
        f"name: mine\nfilter:\n  input: {{dataset: table, path: {table}, images: {folder}}}\n  model: {tmp_path}/model\n"
        "  selections: [{name: everything, rule: all}]\n  workers: 1\n  inspect_workers: 2\n  unit_rows: 8\n"
        f"  contamination:\n    references:\n      - {{name: bench, input: {{dataset: images, path: {tmp_path}/bench}}}}\n"
    )
    said = pipeline("run", "filter", "--config", config, "--run", tmp_path / "kept").output
    assert "in 20 out 20 quarantined 0" in said
    step = RunDir(tmp_path / "kept").step("filter")
    hits = step.read("contamination").to_pylist()
    counted = {"bench": 10, "training": 1}
    assert {name: sum(hit["reference"] == name and hit["counted"] for hit in hits) for name in counted} == counted
    assert [sum(hit["match"] == match for hit in hits) for match in ("exact image", "near image")] == [6, 5]
    found = step.require().results["contamination"]
    assert (found["samples"], found["dropped"], found["training"]) == (11, 0, "named by the model")
    assert found["references"]["bench"] == {
        "items": 10, "unreadable": 1, "exact image": 5, "near image": 5, "instruction": 0, "samples": 10,
    }  # fmt: skip
    assert storage.read_json(step.path / "shards" / "everything" / "index.json")["contamination"] == {
        "action": "keep", "training": "named by the model", "items": {"training": 1, "bench": 10}, "samples": 11,
    }  # fmt: skip
    assert step.read("unreadable_references")["reason"].to_pylist() == ["undecodable-image"]
    (tmp_path / "broken").mkdir()
    shutil.copy(tmp_path / "bench" / "cut.png", tmp_path / "broken")
    broken = f"filter.contamination.references=[{{name: broken, input: {{dataset: images, path: {tmp_path}/broken}}}}]"
    said = refusal("run", "filter", "--config", config, "--run", tmp_path / "no", broken)
    assert "none of the 1 items of broken can be read (the first: " in said
    dropping = ["filter.contamination.action=drop", "filter.contamination.training=false", "--force"]
    pipeline("report", "--run", tmp_path / "kept")
    page = re.sub(r"<[^>]+>", " ", (tmp_path / "kept" / "report.html").read_text(encoding="utf-8"))
    assert "11 edits count as contaminated; they were flagged and kept." in page
    assert re.search(r"bench\s+10\s+1\s+5\s+5\s+0\s+10", page)
    before = hashes(tmp_path / "kept")
    said = pipeline("run", "filter", "--config", config, "--run", tmp_path / "kept", *dropping).output
    assert "in 20 out 10 quarantined 0 gated 10" in said
    known = {hit["sample_id"] for hit in hits if hit["reference"] == "bench"}
    assert not known & set(step.read("scores")["sample_id"].to_pylist()) and step.read("inspected", ["sample_id"]).num_rows == 20
    index = storage.read_json(step.path / "shards" / "everything" / "index.json")
    assert index["contamination"] == {"action": "drop", "training": "off", "items": {"bench": 10}, "samples": 0} and index["rows"] == 10
    pipeline("run", "filter", "--config", config, "--run", tmp_path / "kept", "--force")
    assert hashes(tmp_path / "kept") == before
    pipeline("select", "--run", tmp_path / "kept", "--name", "few", "--rule", "top", "--count", "5", "--shards")
    assert storage.read_json(step.path / "shards" / "few" / "index.json")["contamination"]["items"] == {"training": 1, "bench": 10}
