"""Pairs encoded once: what is encoded again, what is set aside, what is refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from edit_shards import sharded_run
from filter_here import in_process
from PIL import Image
from tiny_editing import TinyEncoders, drawn_images

from finetune import families
from finetune.config import SamplingConfig
from finetune.precompute.encode import encode_pair, fitted, ratio_difference
from finetune.precompute.entry import pair_bytes, read_pair
from stages.config import FlowConfig
from stages.context import Context
from stages.engine.rundir import RunDir
from stages.finetune import cache, encoding, step
from stages.finetune.arm_rows import arm_rows, distinct, held_out_rows
from stages.finetune.config import EncodeConfig

EDITOR: Any = {"family": "step1x-edit-v1.0", "directory": "/nowhere", "sampling": {"side": 48}}


def context(run: RunDir, arms: tuple[str, ...] = ("full",), **changes: Any) -> Context:
    flow = {
        "name": "test",
        "world": {"size": 32},
        "filter": {"input": {"dataset": "world-edits", "count": 10}, "selections": [{"name": arm, "rule": "all"} for arm in arms]},
        "finetune": {"editor": EDITOR, "arms": arms, "encode": {"unit_pairs": 2}, "training": {"batch_size": 4}} | changes,
    }
    cluster: Any = SimpleNamespace(gpus=0, share_of_a_gpu=lambda _: 0.0)
    return Context(run, FlowConfig.model_validate(flow), cluster)


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of the encoders, which tests may change."""
    current = ["encoders 1"]
    monkeypatch.setattr(families, "encoders_identity", lambda _: current[0])
    monkeypatch.setattr(families, "open_encoders", lambda *_: TinyEncoders())
    monkeypatch.setattr("stages.engine.run_units.node_id", lambda: "here")
    return current


def encoded(
    given: Context, monkeypatch: pytest.MonkeyPatch, *, bound: float = 0.02, side: int = 48, **how: Any
) -> tuple[cache.Cache, list[str]]:
    """The cache of all arms after encoding, and the names of the units that were done."""
    done: list[str] = []
    monkeypatch.setattr(encoding, "run_units", partial(in_process, **({"log": done, "backwards": False} | how)))
    config = EncodeConfig(unit_pairs=2, ratio_difference=bound)
    finetune: Any = given.flow.finetune
    editor = finetune.editor.model_copy(update={"sampling": SamplingConfig(side=side)})
    name = encoding.encoding_of(editor)
    rows = distinct([arm_rows(given, arm, name) for arm in finetune.arms])
    return encoding.encode(given, given.run.step("finetune"), editor, config, name, rows), done


def test_only_what_changed_is_encoded_again(tmp_path: Path, identity: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    images = drawn_images(6)
    run = sharded_run(tmp_path / "run", images, {"full": range(6), "few": (1, 4, 5)})
    given = context(run, ("full", "few"))
    found, done = encoded(given, monkeypatch)
    assert len(found.places) == 12 and len(done) == 4  # six pairs and six null conditions, for both arms
    assert encoded(given, monkeypatch) == (found, [])
    source, edited, _ = images[2]
    changed = [*images[:2], (source, edited, "another instruction"), *images[3:]]
    again, done = encoded(context(sharded_run(tmp_path / "run", changed, {"full": range(6)})), monkeypatch)
    assert len(again.places) == 13 and len(done) == 1  # the new words; the source's null condition is there
    identity[0] = "encoders 2"
    other, done = encoded(context(sharded_run(tmp_path / "run", images, {"full": range(6)})), monkeypatch)
    assert len(done) == 4 and not other.places.keys() & found.places.keys()
    identity[0] = "encoders 1"
    bigger, done = encoded(given, monkeypatch, side=64)
    assert len(done) == 4 and not bigger.places.keys() & found.places.keys()
    assert encoded(given, monkeypatch)[1] == []


def test_a_kill_and_another_order_of_the_units_change_no_entry(
    tmp_path: Path, identity: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calm, stopped = (sharded_run(tmp_path / name, drawn_images(8), {"full": range(8)}) for name in ("calm", "stopped"))
    expected, done = encoded(context(calm), monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        encoded(context(stopped), monkeypatch, stop_after=2)
    found, rest = encoded(context(stopped), monkeypatch, backwards=True)
    assert len(rest) == len(done) - 2
    assert {key: place.sha256 for key, place in found.places.items()} == {key: place.sha256 for key, place in expected.places.items()}


def test_a_damaged_entry_is_encoded_again_and_refused_by_a_training(
    tmp_path: Path, identity: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = sharded_run(tmp_path / "run", drawn_images(4), {"full": range(4)})
    found, _ = encoded(context(run), monkeypatch)
    folder = run.step("finetune").path
    keys = [(key, key) for key in found.places]
    pairs = cache.CachedPairs(folder, cache.publish_pairs(folder, "all", keys, found))
    place = next(iter(found.places.values()))
    path = folder / place.file
    table = pq.read_table(path)
    values = table["entry"].to_pylist()
    values[0] = values[0][:-1] + bytes([values[0][-1] ^ 1])
    pq.write_table(table.set_column(table.schema.get_field_index("entry"), "entry", [values]), path)
    with pytest.raises(ValueError, match=rf"{path.name}: the entry in row 0 of row group 0 was changed; run the step again"):
        pairs.read(0)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"encoded\.parquet is missing or damaged"):
        pairs.read(0)
    again, done = encoded(context(run), monkeypatch)
    assert len(done) == 1 and {key: place.sha256 for key, place in again.places.items()} == {
        key: place.sha256 for key, place in found.places.items()
    }
    pairs.read(0)


def test_pairs_that_cannot_be_used_are_set_aside_with_a_reason(
    tmp_path: Path, identity: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the first pair of a source, whose other pair needs the null condition."""
    images = drawn_images(6)
    source, edited, words = images[0]
    images[0] = source, edited.resize((44, 40)), words
    images[1] = source, edited, "another edit of the same source"
    images[2] = images[2][0], Image.new("RGB", (2000, 4)), words
    images[4] = source, edited, "a third edit of it, in another shard"
    run = sharded_run(tmp_path / "run", images, {"full": range(6)})
    found, done = encoded(context(run), monkeypatch)
    assert sorted(aside.reason for aside in found.set_aside.values()) == ["aspect-ratio", "aspect-ratio"]
    assert "differ by 10.0%, more than 2.0%" in next(iter(found.set_aside.values())).message
    rows = arm_rows(context(run), "full", encoding.encoding_of(context(run).flow.finetune.editor))  # ty: ignore
    assert rows[0].null_key == rows[1].null_key == rows[4].null_key and rows[1].null_key in found.places
    tables = [pq.read_table(run.step("finetune").path / unit.parts[cache.TABLE].path, columns=["key"]) for unit in found.units]
    assert sum(table["key"].to_pylist().count(rows[0].null_key) for table in tables) == 1
    wider, done = encoded(context(run), monkeypatch, bound=0.2)
    assert len(done) == 1 and len(wider.places) == len(found.places) + 1
    assert isinstance(wider.outcome(rows[0].key, 0.2), cache.Place)
    assert isinstance(wider.outcome(rows[0].key, 0.02), cache.SetAside)  # an entry that a narrower bound refuses


def test_images_are_cut_and_not_stretched(tmp_path: Path) -> None:
    """A square of 30 pixels in an image of 100 x 60 stays a square; both images of a pair are cut alike."""
    pixels = np.zeros((60, 100, 3), np.uint8)
    pixels[15:45, 35:65] = 255
    image = Image.fromarray(pixels)
    placed = np.asarray(fitted(image, (64, 32)))[:, :, 0] > 127
    rows, columns = np.flatnonzero(placed.any(1)), np.flatnonzero(placed.any(0))
    assert abs(len(rows) - len(columns)) <= 1 and len(rows) == pytest.approx(30 * 0.64, abs=1)
    assert placed[:, ::-1].tolist() == placed.tolist()
    assert ratio_difference(image, image.resize((50, 30))) == 0
    assert ratio_difference(image, image.resize((100, 66))) == pytest.approx(0.1)


def test_an_entry_keeps_moments_and_condition_in_bf16() -> None:
    encoders = TinyEncoders()
    source, edited, words = drawn_images(1)[0]
    pair = encode_pair(encoders, source, edited, words, (48, 48))
    read = read_pair(pair_bytes(pair))
    assert torch.equal(read.target.mean, pair.target.mean.bfloat16()) and read.target.mean.dtype == torch.bfloat16
    assert torch.equal(read.reference.deviation, pair.reference.deviation.bfloat16())
    assert read.condition["words"].shape == pair.condition["words"].shape == (len(words) + 1, 4)
    assert pair_bytes(read) == pair_bytes(pair)


def test_held_out_pairs_share_no_source_with_an_arm(tmp_path: Path, identity: list[str]) -> None:
    images = drawn_images(12)
    images = [(images[number // 2][0], edited, f"{words} {number}") for number, (_, edited, words) in enumerate(images)]
    run = sharded_run(tmp_path / "run", images, {"full": range(12)})
    rows = arm_rows(context(run), "full", "encoding")
    for seed in range(3):
        held_out = held_out_rows(rows, 3, seed)
        sources = {row.source_sha256 for row in held_out}
        assert len(held_out) == 4 and len(sources) == 2
        assert sum(row.source_sha256 in sources for row in rows) == 4
    assert held_out_rows(rows, 3, 0) == held_out_rows(rows[::-1], 3, 0) != held_out_rows(rows, 3, 1)


def test_mistakes_are_refused_before_anything_is_loaded(tmp_path: Path, identity: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "open_encoders", lambda *_: pytest.fail("loaded"))
    monkeypatch.setattr(families, "model_identity", lambda _: "base")
    run = sharded_run(tmp_path / "run", drawn_images(6), {"full": range(6), "few": range(3)})
    with pytest.raises(ValueError, match=r"finetune\.arms: there is no selection 'best'; there are few, full"):
        step.run(context(run, ("full", "best")))
    with pytest.raises(ValueError, match=r"few has 3 pairs, fewer than finetune\.training\.batch_size 4"):
        step.run(context(run, ("full", "few")))
    with pytest.raises(ValueError, match=r"batch_size is 4, which workers \(3\) does not divide"):
        context(run, workers=3)
    with pytest.raises(ValueError, match="give either steps or epochs"):
        context(run, training={"epochs": 2})
    other = sharded_run(tmp_path / "other", drawn_images(6, seed=1), {"full": range(6)})
    monkeypatch.setattr("stages.shards.read.folder_in", lambda *_: str(other.path / "filter" / "shards" / "full"))
    with pytest.raises(ValueError, match="has shards of another run than"):
        step.run(context(run))
    monkeypatch.undo()
    monkeypatch.setattr(families, "encoders_identity", lambda _: "encoders 2")
    monkeypatch.setattr("stages.engine.disk.shutil.disk_usage", lambda _: SimpleNamespace(free=10_000_000))
    with pytest.raises(ValueError, match=r"6 encoded pairs take about 0\.\d GB, and the disk of \S+/finetune has 0\.0 GB free"):
        encoded(context(run), monkeypatch)
