"""Shards, and the filter step around them: real photographs in, byte-equal members out, whatever the order of the work; damage is found.

The step runs on its real units of work, in this process and in any order; the model is the real class with random weights.
"""

from __future__ import annotations

import datetime
import io
import json
import os
import pickle
import shutil
import tarfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import webdataset
from filter_here import MINI, context, in_process, needs_shared, use
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pipeline.report.page import build
from reward.model.origin import Origin
from stages.context import Context
from stages.datasets import readers as edits
from stages.datasets.config import ShareGPT4oEdits
from stages.engine import hashed_files, storage, tables
from stages.engine.contracts import SCORES, SELECTION
from stages.engine.rundir import Index, RunDir, StepFolder
from stages.filter import known as known_of
from stages.filter import shard_rows, shard_sets
from stages.filter import step as filter
from stages.filter.schemas import INSPECTED, OF_INSPECTED, SCORED
from stages.filter.selection import rule as selection
from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.scored_rows import ScoredRows
from stages.scoring.rows import scorer_revision
from stages.shards import exports, lease, sample_index
from stages.shards import format as shards
from stages.shards import read as shard_reading
from stages.shards.config import ShardsConfig
from stages.shards.verify import verify


@pytest.fixture
def work_log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs units in this process; the list holds the keys of those that were done."""
    log: list[str] = []
    use(monkeypatch, log)
    return log


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reward model of the demo's size with random weights."""
    import torch

    from reward import RewardModel, RewardModelConfig

    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("reward") / "model"
    RewardModel.from_config(RewardModelConfig(), ["put a red cat on the seat"]).save(path)
    return path


def shard_bytes(folder: str | Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir()) if path.name != hashed_files.NAME}


@pytest.fixture(scope="session")
def scored(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A run of the filter step over the real photographs, killed before it took up the shards; copy it."""
    if not MINI.exists():
        pytest.skip(f"real data set {MINI} is not here")
    made = context(tmp_path_factory.mktemp("scored") / "run", model)
    with pytest.MonkeyPatch.context() as patch:
        use(patch, [])
        patch.setattr(shard_sets, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            filter.run(made)
    return made.run.path


@pytest.fixture(scope="session")
def filtered(tmp_path_factory: pytest.TempPathFactory, scored: Path, model: Path) -> tuple[Context, Index]:
    """The same run, finished."""
    made = context(copy_of(scored, tmp_path_factory.mktemp("filtered")), model)
    with pytest.MonkeyPatch.context() as patch:
        use(patch, [])
        return made, filter.run(made)


def copy_of(scored: Path, folder: Path, name: str = "run") -> Path:
    shutil.copytree(scored, folder / name)
    return folder / name


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def folder_of(made: Context, name: str = "selected") -> Path:
    return made.run.step("filter").path / "shards" / name


def test_counts_balance_and_every_damaged_record_has_its_reason(filtered: tuple[Context, Index]) -> None:
    made, index = filtered
    assert index.counts == {"in": 63, "out": 59, "quarantined": 4, "gated": 0}
    assert index.quarantined == {"empty-instruction": 1, "missing-image": 1, "no-source": 1, "undecodable-image": 1}
    step = made.run.step("filter")
    assert step.read("quarantine").num_rows == 4
    scores = step.read("scores", schema=SCORED)
    assert step.read("scores").schema == SCORES and scores.num_rows == 59
    assert scores["number"].to_pylist() == sorted(scores["number"].to_pylist())
    assert [f"text_and_image_to_image.json[{number}]" for number in scores["number"].to_pylist()] == scores["position"].to_pylist()
    assert all(path.startswith("image/v2v_") for name in ("source", "edited") for path in scores[f"{name}_path"].to_pylist())
    inspected = {row["sample_id"]: row for row in step.read("inspected", schema=INSPECTED).to_pylist()}
    assert all(inspected[row["sample_id"]].items() >= {name: row[name] for name in OF_INSPECTED}.items() for row in scores.to_pylist())
    assert set(scores["scorer_revision"].to_pylist()) == {index.results["scorer_revision"]}
    assert index.results["selections"]["selected"] == {"rule": "top", "count": 20, "share": 0.33898}
    assert index.results["selections"]["random"]["count"] == 25
    assert set(index.results["scores"]) == {"overall", "instruction_following", "visual_quality"}


def test_stored_scores_are_the_models(filtered: tuple[Context, Index], model: Path) -> None:
    from reward import EditSample, RewardModel, score

    made, _ = filtered
    row = made.run.step("filter").read("scores").to_pylist()[17]
    slices = edits.plan(made.flow.filter.input, seed=0, world=None, unit_rows=99)
    edit = next(e for e in edits.load(slices[0]) if isinstance(e, edits.Edit) and e.sample_id == row["sample_id"])
    (result,) = score(model=RewardModel.load(model), samples=[EditSample(edit.source, edit.instruction, edit.edited)])
    assert row["overall_mean"] == pytest.approx(result.overall_mean, abs=2e-5)
    assert {entry["dimension"]: entry["mean"] for entry in row["dimensions"]} == pytest.approx(result.mean, abs=2e-5)


def test_examples_are_the_ends_with_their_images(filtered: tuple[Context, Index]) -> None:
    step = filtered[0].run.step("filter")
    rows = sorted(step.read("scores").to_pylist(), key=lambda row: (-row["overall_mean"], row["sample_id"]))
    uncertain = sorted(rows, key=lambda row: (-row["overall_sigma"], row["sample_id"]))
    examples = step.read("examples").to_pylist()
    around = rows[8:32]  # the selection keeps 20: the last 12 kept and the first 12 that are not
    assert {row["sample_id"] for row in examples} == {row["sample_id"] for row in rows[:12] + rows[-12:] + uncertain[:12] + around}
    assert all(row["source"]["bytes"].startswith(b"\xff\xd8\xff") for row in examples)


def originals() -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    for path in sorted(MINI.glob("*.tar")):
        with tarfile.open(path) as archive:
            members |= {m.name: archive.extractfile(m).read() for m in archive.getmembers() if m.isreg()}
    return members


def test_members_are_the_original_bytes_read_by_webdataset(filtered: tuple[Context, Index]) -> None:
    made, _ = filtered
    step = made.run.step("filter")
    members, records = originals(), json.loads((MINI / "text_and_image_to_image.json").read_text())
    urls = [str(path) for path in sorted(folder_of(made).glob("*.tar"))]
    assert [Path(url).name for url in urls] == ["shard-000000.tar", "shard-000001.tar", "shard-000002.tar"]
    samples = list(webdataset.WebDataset(urls, shardshuffle=False))
    top = pq.read_table(step.path / "selections" / "selected.parquet").to_pylist()
    assert sorted(sample["__key__"] for sample in samples) == sorted(row["sample_id"] for row in top)
    scored = {row["sample_id"]: row for row in step.read("scores").to_pylist()}
    inspected = {row["sample_id"]: row for row in step.read("inspected", schema=INSPECTED).to_pylist()}
    gated, marked = step.read("gated").to_pylist(), 0
    for sample in samples:
        facts = json.loads(sample["json"])
        record = records[int(facts["position"].split("[")[1][:-1])]
        assert sample["source.jpg"] == members[record["input_image"][0]]
        assert sample["edited.jpg"] == members[record["output_image"]]
        assert facts["instruction"] == record["input_prompt"]
        assert facts["sample_id"] == sample["__key__"] and facts["dataset"] == "sharegpt4o"
        assert facts["id"] == record["output_image"]
        assert facts["files"] == {"source": record["input_image"][0], "edited": record["output_image"]}
        found = inspected[facts["sample_id"]]
        assert facts["measures"] == {name: found[name] for name in known_of.MEASURES} and found["edited_width"] > 0
        caught = {row["gate"]: row["value"] for row in gated if row["sample_id"] == facts["sample_id"]}
        assert facts["flags"] == [*caught] and {name: entry["value"] for name, entry in facts["gates"].items()} == caught
        marked += bool(caught)
        assert facts["scores"]["overall"]["mean"] == scored[facts["sample_id"]]["overall_mean"]
        assert facts["selection"]["rank"] == next(row["rank"] for row in top if row["sample_id"] == facts["sample_id"])
    assert marked


def test_the_fine_tune_step_reads_them(filtered: tuple[Context, Index]) -> None:
    from stages.finetune.small import samples_of

    loaded = samples_of(shard_reading.folder_in(filtered[0], "random"), 32)
    assert loaded.source.shape == (25, 32, 32, 3) and len(set(loaded.sample_ids)) == 25
    assert list(loaded.sample_ids) == pq.read_table(folder_of(filtered[0], "random") / "samples.parquet")["sample_id"].to_pylist()


def test_members_have_no_clock_owner_or_machine_in_them(filtered: tuple[Context, Index]) -> None:
    with tarfile.open(folder_of(filtered[0]) / "shard-000000.tar") as archive:
        infos = archive.getmembers()
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode, m.type) for m in infos} == {(0, 0, 0, "", "", 0o644, b"0")}
    assert [m.name.split(".", 1)[1] for m in infos[:3]] == ["source.jpg", "edited.jpg", "json"]
    assert all(m.name.split(".")[0] == infos[0].name.split(".")[0] for m in infos[:3])


def test_samples_are_shuffled_by_a_seed_or_kept_best_first(filtered: tuple[Context, Index], tmp_path: Path, work_log: list[str]) -> None:
    made, _ = filtered
    order = pq.read_table(folder_of(made) / "samples.parquet")["rank"].to_pylist()
    assert sorted(order) == list(range(20)) and order != sorted(order)
    shutil.copytree(made.run.path, tmp_path / "run")
    kept = context(tmp_path / "run", Path(made.flow.filter.model), force=True, shards={"samples_per_shard": 8, "shuffle_seed": None})
    filter.run(kept)
    assert pq.read_table(folder_of(kept) / "samples.parquet")["rank"].to_pylist() == list(range(20))
    assert len(work_log) == 3 + 4  # shards only: no edit was scored again


def test_any_order_of_work_and_a_rerun_give_the_same_bytes(
    filtered: tuple[Context, Index], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, index = filtered
    log: list[str] = []
    use(monkeypatch, log, backwards=True)
    again = context(tmp_path / "elsewhere", model, workers=7)
    assert filter.run(again) == index
    assert again.run.artifact_hashes() == made.run.artifact_hashes()
    done = len(log)
    assert filter.run(again) == index and len(log) == done


@needs_shared
@pytest.mark.parametrize("stop_after", [0, 3])
def test_an_interrupted_run_continues_to_the_same_bytes(
    filtered: tuple[Context, Index], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    made, _ = filtered
    again = context(tmp_path / "run", model)
    log: list[str] = []
    for _ in range(20):
        use(monkeypatch, log, stop_after=stop_after + 1)
        try:
            filter.run(again)
            break
        except KeyboardInterrupt:
            continue
    assert again.run.artifact_hashes() == made.run.artifact_hashes()
    assert len(log) == len(set(log)) == 4 + 4 + 3 + 4  # slices inspected and scored, shards of 20 and of 25: nothing twice


def stopped_after_two_shards(folder: Path, scored: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    again = context(copy_of(scored, folder), model)
    use(monkeypatch, [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_sets, "run_units", partial(in_process, log=[], backwards=False, stop_after=2))
        with pytest.raises(KeyboardInterrupt):
            filter.run(again)
    return again


def test_a_shard_that_got_lost_between_two_attempts_is_written_again(
    filtered: tuple[Context, Index], scored: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, again = filtered[0], stopped_after_two_shards(tmp_path, scored, model, monkeypatch)
    written = sorted(folder_of(again).glob("*.tar"))
    assert [path.name for path in written] == ["shard-000000.tar", "shard-000001.tar"]
    written[0].unlink()
    written[1].write_bytes(written[1].read_bytes()[:-1] + b"x")
    filter.run(again)
    assert again.run.artifact_hashes() == made.run.artifact_hashes()


@pytest.mark.parametrize("how", ["cut", "a folder", "another table", "its footer"])
def test_a_shards_own_record_that_is_damaged_costs_the_shard(
    filtered: tuple[Context, Index], scored: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    made, again = filtered[0], stopped_after_two_shards(tmp_path, scored, model, monkeypatch)
    record, *_ = (again.run.path / "filter" / "units").glob("*/shard.parquet")
    data = record.read_bytes()
    record.unlink()
    if how == "a folder":
        record.mkdir()
    elif how == "cut":
        record.write_bytes(data[: len(data) // 2])
    elif how == "its footer":
        footer = int.from_bytes(data[-8:-4], "little")
        record.write_bytes(data[: -8 - footer] + b"\xff" * footer + data[-8:])
    else:
        pq.write_table(pa.table({"name": ["x"]}), record)
    filter.run(again)
    assert again.run.artifact_hashes() == made.run.artifact_hashes()


def shards_of(
    step: StepFolder, rule: SelectionConfig, slices: Sequence[edits.Slice], folder: Path, config: ShardsConfig | None = None
) -> dict[str, bytes]:
    """Write the shards of a selection by their units of work alone, each sent to another process."""
    target, config = StepFolder(folder / "filter", "filter"), config or ShardsConfig(samples_per_shard=6)
    with tables.opened(folder) as database:
        rows = ScoredRows.of(database, step, step.require().artifacts)
        made = {"s": folder / "s.parquet"}
        storage.publish_rows(made["s"], SELECTION, selection.select(rows, rule).rows)
        sets = shard_sets.assign(target, config, made, rows, slices, {"s": {}}, folder / "planned")
    work = shard_sets.make_work()
    for unit in sets[0].units:
        work(pickle.loads(pickle.dumps(unit.payload)))
    return shard_bytes(sets[0].folder)


@needs_shared
def test_how_the_data_set_was_cut_does_not_change_a_shard(filtered: tuple[Context, Index], tmp_path: Path) -> None:
    step = filtered[0].run.step("filter")
    rule = SelectionConfig(name="s", rule="random", count=30, seed=4)
    plans = {n: edits.plan(ShareGPT4oEdits(dataset="sharegpt4o", path=str(MINI)), seed=0, world=None, unit_rows=n) for n in (1, 7, 64)}
    written = [shards_of(step, rule, plan, tmp_path / str(n)) for n, plan in plans.items()]
    assert len(written[0]) == 5
    assert written[0] == written[1] == written[2]


@needs_shared
def test_a_shard_holds_no_more_bytes_of_images_than_it_may(filtered: tuple[Context, Index], tmp_path: Path) -> None:
    step = filtered[0].run.step("filter")
    slices = edits.plan(filtered[0].flow.filter.input, seed=0, world=None, unit_rows=16)
    limit = int(np.quantile(step.read("scores", schema=SCORED)["image_bytes"], 0.95))
    written = shards_of(step, SelectionConfig(name="s", rule="all"), slices, tmp_path, ShardsConfig(bytes_per_shard=limit))
    sizes = []
    for name in sorted(written):
        with tarfile.open(tmp_path / "filter" / "shards" / "s" / name) as archive:
            sizes.append([member.size for member in archive.getmembers() if not member.name.endswith(".json")])
    assert sum(map(len, sizes)) == 2 * 59 and all(sum(shard) <= limit or len(shard) == 2 for shard in sizes)
    assert any(len(shard) > 2 for shard in sizes) and any(sum(shard) > limit for shard in sizes)


@given(
    image_bytes=st.lists(st.integers(1, 100), max_size=60),
    samples_per_shard=st.integers(1, 9),
    bytes_per_shard=st.one_of(st.none(), st.integers(1, 300)),
)
def test_shards_are_as_full_as_their_limits_allow(image_bytes: list[int], samples_per_shard: int, bytes_per_shard: int | None) -> None:
    config = ShardsConfig(samples_per_shard=samples_per_shard, bytes_per_shard=bytes_per_shard)
    cuts = list(shard_rows.cuts(np.array(image_bytes, np.int64), config))
    assert [first for first, _ in cuts] == [0, *(last for _, last in cuts)][: len(cuts)]
    assert sum(last - first for first, last in cuts) == len(image_bytes)
    for first, last in cuts:
        size = sum(image_bytes[first:last])
        assert 1 <= last - first <= samples_per_shard
        assert bytes_per_shard is None or size <= bytes_per_shard or last == first + 1
        full = last - first == samples_per_shard or last == len(image_bytes)
        assert full or (bytes_per_shard is not None and size + image_bytes[last] > bytes_per_shard)


def damaged_copy(made: Context, folder: Path) -> Path:
    shutil.copytree(folder_of(made), folder / "selected")
    return folder / "selected"


def test_sound_shards_have_no_problems(filtered: tuple[Context, Index]) -> None:
    for name in ("selected", "random"):
        assert verify(str(folder_of(filtered[0], name))) == []


@pytest.mark.parametrize("part", ["source.jpg", "edited.jpg", "json"])
def test_a_flipped_bit_is_found_in_its_member(filtered: tuple[Context, Index], tmp_path: Path, part: str) -> None:
    folder = damaged_copy(filtered[0], tmp_path)
    path = folder / "shard-000001.tar"
    with tarfile.open(path) as archive:
        member = next(m for m in archive.getmembers()[9:] if m.name.endswith(part))
    data = bytearray(path.read_bytes())
    data[member.offset_data + member.size // 2] ^= 4
    path.write_bytes(bytes(data))
    assert verify(str(folder)) == [f"shard-000001.tar: {member.name} at byte {member.offset_data} was changed: its sha256 differs"]


def test_a_flipped_bit_anywhere_is_found(filtered: tuple[Context, Index], tmp_path: Path) -> None:
    folder = damaged_copy(filtered[0], tmp_path)
    path = folder / "shard-000002.tar"
    sound = path.read_bytes()
    rng = np.random.default_rng(0)
    with tarfile.open(path) as archive:
        headers = [m.offset + at for m in archive.getmembers()[:4] for at in (0, 101, 130, 257)]
    for offset in [*rng.integers(0, len(sound), 20).tolist(), *headers, len(sound) - 1]:
        data = bytearray(sound)
        data[offset] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(data))
        problems = verify(str(folder))
        assert problems and all(problem.startswith("shard-000002.tar") for problem in problems), offset


def test_bytes_that_are_in_no_member_are_found_with_their_place(filtered: tuple[Context, Index], tmp_path: Path) -> None:
    folder = damaged_copy(filtered[0], tmp_path)
    path = folder / "shard-000001.tar"
    sound = path.read_bytes()
    with tarfile.open(path) as archive:
        members = archive.getmembers()
    padded = next(member for member in members if member.size % 512)
    after = padded.offset_data + padded.size
    path.write_bytes(sound[:after] + b"x" + sound[after + 1 :])
    (problem,) = verify(str(folder))
    assert problem.startswith(f"shard-000001.tar has bytes other than zero after {padded.name} at byte {after}")
    end = members[-1].offset_data + -(-members[-1].size // 512) * 512
    for more in (b"x", bytes(512)):
        path.write_bytes(sound[: end + 1024] + more)
        (problem,) = verify(str(folder))
        assert problem.startswith(f"shard-000001.tar does not end as an archive does at byte {end}")


def test_a_sound_header_with_another_time_is_found(filtered: tuple[Context, Index], tmp_path: Path) -> None:
    """Its checksum is right, and no member has changed: only the tar's own sha256 differs."""
    folder = damaged_copy(filtered[0], tmp_path)
    path = folder / "shard-000001.tar"
    with tarfile.open(path) as archive:
        info = archive.getmembers()[3]
    info.mtime = 1
    data = bytearray(path.read_bytes())
    data[info.offset : info.offset_data] = info.tobuf(tarfile.USTAR_FORMAT)
    path.write_bytes(bytes(data))
    assert [problem.split(": ")[0] for problem in verify(str(folder))] == ["shard-000001.tar"]


@pytest.mark.parametrize("where", ["inside a member", "between members", "in the end mark", "at once"])
def test_a_truncated_tar_is_found_with_its_place(filtered: tuple[Context, Index], tmp_path: Path, where: str) -> None:
    folder = damaged_copy(filtered[0], tmp_path)
    path = folder / "shard-000000.tar"
    with tarfile.open(path) as archive:
        member = archive.getmembers()[4]
    size = {
        "inside a member": member.offset_data + 700,
        "between members": member.offset,
        "in the end mark": path.stat().st_size - 600,
        "at once": 0,
    }[where]
    path.write_bytes(path.read_bytes()[:size])
    problems = verify(str(folder))
    assert len(problems) == 1
    if where == "inside a member":
        assert problems == [f"shard-000000.tar was cut short at byte {size}, inside {member.name} (after 4 of 24 whole members)"]
    elif where == "between members":
        assert problems == [f"shard-000000.tar was cut short at byte {size}, between members (after 4 of 24 whole members)"]
    else:
        assert problems[0].startswith("shard-000000.tar ")


def rebuilt(path: Path, keep: Callable[[tarfile.TarInfo], int]) -> None:
    """Write a tar again with each member as many times as ``keep`` says."""
    buffer = io.BytesIO()
    with tarfile.open(path) as archive, tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as target:
        for info in archive.getmembers():
            data = archive.extractfile(info).read()
            for _ in range(keep(info)):
                target.addfile(info, io.BytesIO(data))
    content = buffer.getvalue().rstrip(b"\0")
    content += bytes(-len(content) % 512 + 1024)
    path.write_bytes(content)


def test_a_missing_member_and_a_doubled_one_are_named(filtered: tuple[Context, Index], tmp_path: Path) -> None:
    folder = damaged_copy(filtered[0], tmp_path)
    path = folder / "shard-000001.tar"
    with tarfile.open(path) as archive:
        gone, twice = archive.getmembers()[7].name, archive.getmembers()[3].name
    rebuilt(path, lambda info: 0 if info.name == gone else 2 if info.name == twice else 1)
    problems = verify(str(folder))
    assert any(f"{twice} at byte" in problem and "occurs twice" in problem for problem in problems)
    assert f"shard-000001.tar lacks {gone.rsplit('.', 1)[0]}" in problems
    assert len(problems) == 2


def test_missing_and_foreign_files_are_named(filtered: tuple[Context, Index], tmp_path: Path) -> None:
    folder = damaged_copy(filtered[0], tmp_path)
    (folder / "shard-000001.tar").unlink()
    (folder / "shard-000009.tar").write_bytes(b"")
    assert verify(str(folder)) == ["shard-000009.tar is not listed in index.json", "shard-000001.tar is missing"]
    os.mkfifo(folder / "shard-000001.tar")
    assert verify(str(folder))[0] == "shard-000001.tar is no file: a folder or a device is there"
    table = pq.read_table(folder / "samples.parquet")
    pq.write_table(table.slice(1), folder / "samples.parquet")
    assert "samples.parquet was changed: its sha256 differs from index.json" in verify(str(folder))
    (folder / "samples.parquet").unlink()
    assert "samples.parquet is missing" in verify(str(folder))
    (folder / "samples.parquet").mkdir()
    assert "samples.parquet is no file: a folder or a device is there" in verify(str(folder))
    (folder / "index.json").write_text("{")
    assert f"{folder}/index.json is not valid JSON" in verify(str(folder))[0]
    (folder / "index.json").unlink()
    assert "has no index.json: it was not finished" in verify(str(folder))[0]
    assert verify(str(folder / "nowhere"))


def test_swapped_shards_are_found(filtered: tuple[Context, Index], tmp_path: Path) -> None:
    folder = damaged_copy(filtered[0], tmp_path)
    one, two = folder / "shard-000000.tar", folder / "shard-000001.tar"
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    assert any("is not listed in samples.parquet" in problem for problem in verify(str(folder)))


def test_a_damaged_shard_alone_is_written_again(filtered: tuple[Context, Index], tmp_path: Path, work_log: list[str]) -> None:
    made, index = filtered
    shutil.copytree(made.run.path, tmp_path / "run")
    again = context(tmp_path / "run", Path(made.flow.filter.model))
    (folder_of(again) / "shard-000001.tar").write_bytes(b"")
    (folder_of(again, "random") / "index.json").write_text("{")
    assert filter.run(again) == index
    assert again.run.artifact_hashes() == made.run.artifact_hashes()


def test_shards_go_to_a_url(
    filtered: tuple[Context, Index], scored: Path, model: Path, tmp_path: Path, work_log: list[str], bucket: str
) -> None:
    target = f"{bucket}/shards"
    made = context(copy_of(scored, tmp_path), model, shards={"samples_per_shard": 8, "target": target})
    index = filter.run(made)
    assert [name for name in index.files if name.startswith("shards/selected")] == ["shards/selected/index.json"]
    assert verify(f"{target}/selected") == []
    local = shard_bytes(folder_of(filtered[0]))
    assert {name: storage.read_bytes(f"{target}/selected/{name}") for name in local} == local
    assert shard_reading.folder_in(made, "selected") == f"{target}/selected"
    done = len(work_log)
    assert filter.run(made) == index and len(work_log) == done
    filesystem, path = storage.locate(f"{target}/selected/shard-000002.tar")
    filesystem.rm(path)
    assert filter.run(made) == index and verify(f"{target}/selected") == []
    broken = bytearray(local["shard-000001.tar"])
    broken[700] ^= 1
    storage.publish_bytes(f"{target}/selected/shard-000001.tar", bytes(broken))
    assert any(problem.startswith("shard-000001.tar: ") for problem in verify(f"{target}/selected"))
    assert exports.export(f"{target}/random", str(tmp_path / "files"), "imagefolder")[0] == index.results["selections"]["random"]["count"]


def test_finished_shards_of_other_content_are_not_replaced_unasked(
    model: Path, filtered: tuple[Context, Index], scored: Path, tmp_path: Path, work_log: list[str]
) -> None:
    target = {"samples_per_shard": 8, "target": str(tmp_path / "shards")}
    filter.run(context(copy_of(scored, tmp_path, "one"), model, shards=target))
    before = shard_bytes(tmp_path / "shards" / "selected")
    other = {"shards": target, "selections": [{"name": "selected", "rule": "top", "count": 5}]}
    with pytest.raises(ValueError, match="contains finished shards of other content"):
        filter.run(context(copy_of(scored, tmp_path, "two"), model, **other))
    assert shard_bytes(tmp_path / "shards" / "selected") == before
    filter.run(context(tmp_path / "two", model, force=True, **other))
    assert sorted(shard_bytes(tmp_path / "shards" / "selected")) == ["index.json", "samples.parquet", "shard-000000.tar"]
    assert verify(str(tmp_path / "shards" / "selected")) == []


def test_another_selection_needs_no_scoring_and_changes_nothing_finished(
    filtered: tuple[Context, Index], tmp_path: Path, work_log: list[str]
) -> None:
    made, index = filtered
    shutil.copytree(made.run.path, tmp_path / "run")
    again = context(tmp_path / "run", Path(made.flow.filter.model))
    best = SelectionConfig(name="best", rule="top", count=5)
    with pytest.raises(ValueError, match="has no selection best"):
        filter.write_shards(again, best)
    assert filter.select(again, best) == 5
    assert filter.select(again, SelectionConfig(name="selected", rule="top", count=20)) == 20
    table, top = (pq.read_table(again.run.step("filter").path / "selections" / f"{name}.parquet") for name in ("best", "selected"))
    assert table["sample_id"].to_pylist() == top["sample_id"].to_pylist()[:5] and work_log == []
    assert len(list(webdataset.WebDataset([f"{filter.write_shards(again, best)}/shard-000000.tar"], shardshuffle=False))) == 5
    assert filter.run(again) == index and len(work_log) == 1
    assert filter.select(again, best) == 5
    with pytest.raises(ValueError, match="selection best exists with another rule or size"):
        filter.select(again, SelectionConfig(name="best", rule="top", count=6))
    with pytest.raises(ValueError, match="selection selected is one of the configuration's"):
        filter.select(again, SelectionConfig(name="selected", rule="top", count=6))
    with pytest.raises(ValueError, match="count 60 is more than the 59"):
        filter.select(again, SelectionConfig(name="more", rule="random", count=60))


def pictures() -> Iterator[bytes]:
    for n in range(100):
        buffer = io.BytesIO()
        Image.fromarray(np.full((24, 24, 3), 2 * n, np.uint8)).save(buffer, ("PNG", "WEBP", "JPEG")[n % 3])
        yield buffer.getvalue()


@pytest.fixture
def own(tmp_path: Path) -> dict[str, str]:
    """A user's triplets: nine edits, of which the fourth and the last repeat the second and the first under other names."""
    rows = []
    for n, data in zip(range(9), pictures(), strict=False):
        (tmp_path / f"{n}.img").write_bytes(data)
        rows.append({"id": f"row {n}", "source": "0.img", "instruction": f"edit {n}", "edited": f"{n}.img"})
    for copy, first in ((3, 1), (8, 0)):
        (tmp_path / f"{copy}.img").write_bytes((tmp_path / f"{first}.img").read_bytes())
        rows[copy] |= {"instruction": f"edit {first}"}
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"dataset": "triplets", "path": str(tmp_path / "own.jsonl")}


def test_later_duplicates_are_set_aside_whatever_the_order_of_work(
    own: dict[str, str], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"input": own, "unit_rows": 3, "selections": [{"name": "full", "rule": "all"}]}
    indexes = []
    for backwards in (False, True):
        log: list[str] = []
        use(monkeypatch, log, backwards=backwards)
        made = context(tmp_path / f"run {backwards}", model, **changes)
        indexes.append(filter.run(made))
        step = made.run.step("filter")
        assert [(row["position"], row["reason"]) for row in step.read("quarantine").to_pylist()] == [
            ("own.jsonl[3]", "duplicate"),
            ("own.jsonl[8]", "duplicate"),
        ]
        assert "those of own.jsonl[1]" in step.read("quarantine")["message"][0].as_py()
        assert step.read("scores", schema=SCORED)["number"].to_pylist() == [*range(3), *range(4, 8)]
        assert indexes[-1].counts == {"in": 9, "out": 7, "quarantined": 2, "gated": 0}
        done = len(log)
        changed = context(made.run.path, model, force=True, **(changes | {"selections": [{"name": "few", "rule": "top", "count": 2}]}))
        filter.run(changed)
        assert len(log) == done + 1  # the new shard; nothing is scored again, duplicates or not
    assert indexes[0] == indexes[1]
    samples = list(webdataset.WebDataset(str(folder_of(made, "full") / "shard-000000.tar"), shardshuffle=False))
    assert {name for sample in samples for name in sample if name.startswith("edited.")} == {"edited.png", "edited.webp", "edited.jpg"}


def test_an_image_that_changed_after_scoring_stops_the_shards(
    own: dict[str, str], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = context(
        tmp_path / "run", model, input=own, unit_rows=3, selections=[{"name": "full", "rule": "all"}], shards={"samples_per_shard": 1}
    )
    log: list[str] = []
    use(monkeypatch, log, stop_after=3)
    with pytest.raises(KeyboardInterrupt):  # all three slices are scored, three of seven shards written
        filter.run(made)
    use(monkeypatch, log)
    image = tmp_path / "5.img"
    data = bytearray(image.read_bytes())
    data[-5] ^= 1
    image.write_bytes(bytes(data))
    with pytest.raises(ValueError, match=r"own\.jsonl\[5\] changed since it was read"):
        filter.run(made)
    assert not folder_of(made, "full").joinpath("index.json").exists()


def test_a_new_model_scores_again_and_an_absent_one_is_one_sentence(
    own: dict[str, str], model: Path, tmp_path: Path, work_log: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The new one says that it was trained on the toy data set, and every place says so of its scores of photographs."""
    changes: dict[str, Any] = {"input": own, "selections": [{"name": "full", "rule": "all"}]}
    filter.run(context(tmp_path / "run", model, **changes))
    assert "warning" not in capsys.readouterr().err
    shutil.copytree(model, tmp_path / "other")
    (tmp_path / "other" / "origin.json").write_text(Origin(domains=("toy",), data={"world": 9}, raters={"simulated": 6}).model_dump_json())
    assert scorer_revision(tmp_path / "other") != scorer_revision(model)
    with pytest.raises(ValueError, match="another version of its input reward model"):
        filter.run(context(tmp_path / "run", tmp_path / "other", **changes))
    other = context(tmp_path / "other run", tmp_path / "other", **changes)
    warning = filter.run(other).results["other-domain"]
    assert "trained on drawn scenes of the built-in toy data set and scores photographs" in warning
    assert f"warning: {warning}" in capsys.readouterr().err
    step = other.run.step("filter")
    assert all(flags[0] == "other-domain" for flags in step.read("scores")["flags"].to_pylist())
    assert json.loads((step.path / "shards" / "full" / "index.json").read_text())["other-domain"] == warning
    assert warning[1:] in build(other.run).read_text()
    with pytest.raises(ValueError, match="no reward model at"):
        filter.run(context(tmp_path / "run", tmp_path / "absent", **changes))
    with pytest.raises(ValueError, match="step train-reward is not done"):
        filter.run(context(tmp_path / "run", None, **changes))


def test_world_edits_know_how_good_each_selection_is(model: Path, tmp_path: Path, work_log: list[str]) -> None:
    changes = {"input": {"dataset": "world-edits", "count": 60}, "unit_rows": 20, "token_budget": 1024}
    index = filter.run(context(tmp_path / "run", model, **changes))
    assert index.counts == {"in": 60, "out": 60, "quarantined": 0, "gated": 0}
    assert 0.3 < index.results["good_share"] < 0.7
    assert 0 <= index.results["selections"]["random"]["good_share"] <= 1
    assert verify(str(tmp_path / "run" / "filter" / "shards" / "selected")) == []


def test_columns_of_a_table_reach_shards_and_exports_and_matches_are_marked(model: Path, tmp_path: Path, work_log: list[str]) -> None:
    rows = [
        {"source": {"bytes": picture(n), "path": f"in/{n}.png"}, "instruction": f"edit {n}", "edited": picture(n + 9), "id": f"row {n}"}
        | {"batch": n, "note": ["a", "b"], "mask": b"raw", "ratio": float("nan"), "day": datetime.date(2026, 11, 1)}
        for n in range(3)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "edits.parquet")
    (tmp_path / "known").mkdir()
    (tmp_path / "known" / "seen.png").write_bytes(picture(1))
    settings: dict[str, Any] = {
        "input": {"dataset": "table", "path": str(tmp_path / "edits.parquet")},
        "selections": [{"name": "full", "rule": "all"}, {"name": "clean", "rule": "all", "without_flags": ["contamination"]}],
        "contamination": {
            "references": [{"name": "bench", "input": {"dataset": "images", "path": str(tmp_path / "known")}}],
            "distance": None,
        },
    }
    made = context(tmp_path / "run", model, **settings)
    index = filter.run(made)
    assert index.results["flags"]["contamination"] == 1 and index.results["selections"]["clean"]["count"] == 2
    nothing = context(tmp_path / "nothing", model, **(settings | {"contamination": {}}))
    with pytest.raises(ValueError, match="no flag contamination, its gate is off, or it has no references"):
        filter.run(nothing)
    facts = {sample.facts["id"]: sample.facts for sample in shard_reading.samples(str(folder_of(made, "full")))}
    assert facts["row 0"]["metadata"] == {"batch": 0, "note": ["a", "b"], "ratio": "nan", "day": "2026-11-01"}
    assert facts["row 0"]["files"] == {"source": "in/0.png", "edited": None} and facts["row 0"]["contamination"] == []
    (match,) = facts["row 1"]["contamination"]
    assert (match["reference"], match["item"], match["match"], match["counted"]) == ("bench", "seen.png", "exact image", True)
    assert "contamination" in facts["row 1"]["flags"] and verify(str(folder_of(made, "full"))) == []
    said = storage.read_checked(folder_of(made, "full") / "index.json", "")
    forged = tmp_path / "forged"
    shutil.copytree(folder_of(made, "full"), forged)
    storage.publish_checked(forged / "index.json", said | {"contamination": said["contamination"] | {"samples": 0}})
    assert verify(str(forged)) == ["index.json says that 0 samples count as contaminated; 1 do by their JSON"]
    exports.export(str(folder_of(made, "full")), str(tmp_path / "out"), "omnigen2")
    lines = [json.loads(line) for line in (tmp_path / "out" / "samples.jsonl").read_text().splitlines()]
    assert {line["id"]: {key: value for key, value in line.items() if key != "images"} for line in lines} == facts
    assert all((tmp_path / "out" / line["images"]["edited"]).read_bytes().startswith(b"\x89PNG") for line in lines)


def picture(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(number).integers(0, 256, (48, 48, 3), np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def test_a_number_that_json_does_not_have_makes_no_shard(tmp_path: Path) -> None:
    """Readers write out those of passed-on columns; a gate that measures NaN would bring one."""
    facts = {"instruction": "x", "measures": {"own_gate": float("nan")}}
    sample = shards.Sample("a", picture(0), "0" * 64, picture(1), "1" * 64, facts)
    with pytest.raises(ValueError, match="JSON"):
        shards.write_shard(str(tmp_path), "shard-000000.tar", [sample])
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("part", ["rows", "instruction", "rank", "bytes"])
def test_every_figure_is_compared(filtered: tuple[Context, Index], tmp_path: Path, part: str) -> None:
    """Also where hashes and checksums were made anew."""
    folder = damaged_copy(filtered[0], tmp_path)
    index = storage.read_checked(folder / "index.json", "")
    if part in ("rows", "bytes"):
        index["shards"][0][part] += 1
        index["shards"][1][part] -= 1
        problem = "7 samples in shard-000001.tar, samples.parquet lists 8" if part == "rows" else "shard-000000.tar has "
    else:
        table = pq.read_table(folder / "samples.parquet")
        values = table[part].to_pylist()
        values[3] = values[3] * 2 + type(values[3])(1)
        table = table.set_column(table.schema.get_field_index(part), part, pa.array(values, table.schema.field(part).type))
        index["samples"]["sha256"] = storage.publish_bytes(folder / "samples.parquet", storage.table_bytes(table))
        problem = f"says {part} "
    storage.publish_checked(folder / "index.json", index)
    assert any(problem in found for found in verify(str(folder)))


def test_the_sample_index_is_read_shard_by_shard(filtered: tuple[Context, Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches that end within shards; one whose shards lie in another order than the index lists them is refused."""
    folder = damaged_copy(filtered[0], tmp_path)
    whole = [sample.sample_id for sample in shard_reading.samples(str(folder))]
    table = pq.read_table(folder / "samples.parquet")
    assert whole == table["sample_id"].to_pylist() and table.num_rows > 3
    monkeypatch.setattr(sample_index, "BATCH_ROWS", 3)
    assert verify(str(folder)) == [] and [sample.sample_id for sample in shard_reading.samples(str(folder))] == whole
    index = storage.read_checked(folder / "index.json", "")
    mixed = table.sort_by("sample_id")
    index["samples"]["sha256"] = storage.publish_bytes(folder / "samples.parquet", storage.table_bytes(mixed))
    storage.publish_checked(folder / "index.json", index)
    assert "samples.parquet lists samples in another order than index.json has the shards" in verify(str(folder))
    with pytest.raises(ValueError, match="in another order"):
        list(shard_reading.samples(str(folder)))


@pytest.mark.parametrize("kind", ["no Parquet", "no column", "another type", "no name"])
def test_a_sample_index_of_another_program_is_named(filtered: tuple[Context, Index], tmp_path: Path, kind: str) -> None:
    """Also where the index has its hash."""
    folder = damaged_copy(filtered[0], tmp_path)
    index = storage.read_checked(folder / "index.json", "")
    table = pq.read_table(folder / "samples.parquet")
    place = table.schema.get_field_index("shard")
    data, problem = {
        "no Parquet": (b"rank,sample_id\n", "samples.parquet is no Parquet file"),
        "no column": (storage.table_bytes(table.drop(["shard"])), "samples.parquet has no column shard"),
        "another type": (
            storage.table_bytes(table.set_column(place, "shard", table["shard"].cast(pa.large_string()))),
            "samples.parquet has large_string in column shard, which holds string",
        ),
        "no name": (
            storage.table_bytes(table.set_column(place, "shard", pa.nulls(len(table), pa.string()))),
            f"index.json says 0 samples in None, samples.parquet lists {len(table)}",
        ),
    }[kind]
    index["samples"]["sha256"] = storage.publish_bytes(folder / "samples.parquet", data)
    storage.publish_checked(folder / "index.json", index)
    assert problem in verify(str(folder))
    with pytest.raises(ValueError, match=r"samples\.parquet"):
        list(shard_reading.samples(str(folder)))


def test_a_lease_does_not_stay_after_a_kill_or_a_refusal(
    filtered: tuple[Context, Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run killed between publishing the index and giving the lease back gives it back later; a refused run changes no set and keeps
    no lease."""
    use(monkeypatch, [])
    shutil.copytree(filtered[0].run.path, tmp_path / "run")
    selections = [{"name": "first", "rule": "all"}, {"name": "second", "rule": "all"}]
    how: dict[str, Any] = {"shards": {"target": str(tmp_path / "out")}, "selections": selections}
    made = context(tmp_path / "run", Path(filtered[0].flow.filter.model), force=True, **how)
    with monkeypatch.context() as killed:
        killed.setattr(lease, "release", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            filter.run(made)
    assert (tmp_path / "out" / "first" / "index.json").exists() and (tmp_path / "out" / "first" / lease.NAME).exists()
    filter.run(made)
    assert not [*(tmp_path / "out").rglob(lease.NAME)]

    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    first, copy = (lease.owner_of(RunDir(tmp_path / name).step("filter")) for name in ("run", "copy"))
    lease.take(str(tmp_path / "out" / "shared"), first)
    with pytest.raises(ValueError, match=f"is being written by run {tmp_path}/run on "):
        lease.take(str(tmp_path / "out" / "shared"), copy)
    lease.release(str(tmp_path / "out" / "shared"), first)

    foreign = lease.Owner("b", "/runs/b", "there")
    lease.take(str(tmp_path / "out" / "second"), foreign)
    how["shards"]["samples_per_shard"] = 3
    other = context(tmp_path / "run", Path(filtered[0].flow.filter.model), force=True, **how)
    with pytest.raises(ValueError, match="second is being written by run /runs/b"):
        filter.run(other)
    assert (tmp_path / "out" / "first" / "index.json").exists(), "the first set is whole until both can be written"
    assert [path.parent.name for path in (tmp_path / "out").rglob(lease.NAME)] == ["second"]


def test_what_is_known_is_put_beside_its_sample_in_every_part() -> None:
    def rows(names: list[str], entries: list[tuple[Any, ...]]) -> Iterator[pa.RecordBatch]:
        for entry in entries:  # a batch ends within the rows of a sample
            yield pa.RecordBatch.from_pylist([dict(zip(names, entry, strict=True))])

    gates = known_of.by_place(rows(["place", *known_of.OF_GATES], [(3, "drift", 1.0, 0.5), (3, "size", 4.0, 0.5), (4, "drift", 2.0, 0.5)]))
    match = ("training", "x", "exact image", 0, True, 0, True)
    matches = known_of.by_place(rows(["place", *known_of.OF_CONTAMINATION], [(0, *match), (0, "second", *match[1:])]))
    measures = {name: pa.nulls(5, INSPECTED.field(name).type) for name in known_of.MEASURES}
    samples = pa.table(measures | {"place": range(5), "source_width": pa.array([2, 1, 4, 0, 3])})
    found = [json.loads(text) for first in (0, 2, 4) for text in known_of.texts(samples[first : first + 2], gates, matches).to_pylist()]
    assert [entry["measures"]["source_width"] for entry in found] == [2, 1, 4, 0, 3]
    values = [{gate: row["value"] for gate, row in entry["gates"].items()} for entry in found]
    assert values == [{}, {}, {}, {"drift": 1.0, "size": 4.0}, {"drift": 2.0}]
    assert [[entry["reference"] for entry in sample["contamination"]] for sample in found] == [["training", "second"], [], [], [], []]


def test_two_runs_never_write_one_set(
    filtered: tuple[Context, Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: str
) -> None:
    """A second run is refused while the first writes, and goes on with its own lease after a kill; who lost the lease publishes nothing."""
    target = f"{bucket}/shards"
    first, second = (lease.Owner(name, f"/runs/{name}", "here") for name in "ab")
    for place in (target, str(tmp_path / "local")):
        lease.take(place, first)
        lease.take(place, first)
        with pytest.raises(ValueError, match=r"is being written by run /runs/a on here: choose another target; .* delete .*/lease\.json"):
            lease.take(place, second)
        with pytest.raises(FileExistsError):
            lease._create(f"{place}/{lease.NAME}", b"x")
        storage.publish_bytes(f"{place}/{lease.NAME}", b"{")
        with pytest.raises(ValueError, match="because it is damaged"):
            lease.check(place, first)
        storage.locate(place)[0].rm(storage.locate(f"{place}/{lease.NAME}")[1])
        with pytest.raises(ValueError, match="was removed while this run wrote"):
            lease.check(place, first)
        lease.take(place, second)
        lease.release(place, second)
    shutil.copytree(filtered[0].run.path, tmp_path / "run")
    how: dict[str, Any] = {"shards": {"samples_per_shard": 8, "target": target}, "selections": [{"name": "full", "rule": "all"}]}
    made = context(tmp_path / "run", Path(filtered[0].flow.filter.model), force=True, **how)
    taken = shard_sets.shards.write_shard

    def stolen(*arguments: Any) -> Any:
        storage.publish_bytes(f"{target}/full/{lease.NAME}", json.dumps({"name": "b", "run": "/runs/b", "host": "there"}).encode())
        return taken(*arguments)

    use(monkeypatch, [])
    monkeypatch.setattr(shard_sets.shards, "write_shard", stolen)
    with pytest.raises(ValueError, match="full is being written by run /runs/b on there"):
        filter.run(made)
    filesystem, name = storage.locate(f"{target}/full")
    assert not filesystem.exists(f"{name}/index.json") and filesystem.exists(f"{name}/{lease.NAME}")
    monkeypatch.setattr(shard_sets.shards, "write_shard", taken)
    filesystem.rm(f"{name}/{lease.NAME}")
    filter.run(made)
    assert verify(f"{target}/full") == [] and not filesystem.exists(f"{name}/{lease.NAME}")
