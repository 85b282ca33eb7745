"""One rule for orientation, transparency, 16 bits and CMYK: gates, reward model, raters, report and editor see the same picture."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import CHROMIUM, browsing
from command import save_model
from odd_images import ODD
from PIL import Image

from pipeline.report.pictures import picture
from pipeline.report.triptychs import difference
from reward.inputs.batch import PreparedSample
from reward.inputs.decoding import decode, for_browser
from reward.inputs.images import resize
from stages.datasets import readers as edits
from stages.datasets.config import TripletEdits
from stages.engine import images
from stages.filter import inspection
from stages.filter.pair import Pair
from stages.finetune.small import samples_of
from stages.scoring.preparation import Ready, prepare
from stages.shards import format as shards

NAMES = list(ODD)


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[edits.Edit]]:
    """A model, and one edit per odd file: source is an ordinary file of the picture, edited the odd one."""
    folder = tmp_path_factory.mktemp("odd")
    save_model(folder / "model")
    rows = []
    for number, name in enumerate(NAMES):
        data, seen, _ = ODD[name]
        source, edited = f"{number}-source.png", f"{number}-edited.{images.extension(data)}"
        (folder / source).write_bytes(images.png(seen.astype(np.uint8)))
        (folder / edited).write_bytes(data)
        rows.append({"source": source, "instruction": f"put cat {number} on the seat", "edited": edited})
    (folder / "edits.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (piece,) = edits.plan(TripletEdits(dataset="triplets", path=str(folder / "edits.jsonl")), seed=0, world=None, unit_rows=50)
    return folder, [edit for edit in edits.fetch(piece) if isinstance(edit, edits.Edit)]


def test_gates_measure_the_upright_picture(delivered: tuple[Path, list[edits.Edit]]) -> None:
    assert len(delivered[1]) == len(NAMES)
    for name, edit in zip(NAMES, delivered[1], strict=True):
        pair = inspection.pair_of(edit)
        assert isinstance(pair, Pair)
        row = inspection.row_of(pair)
        assert (row["edited_width"], row["edited_height"]) == (row["source_width"], row["source_height"]) == (24, 16), name
        assert row["largest_change"] <= ODD[name][2] and row["edited_sha256"] == hashlib.sha256(ODD[name][0]).hexdigest()


def test_the_reward_model_is_shown_it(delivered: tuple[Path, list[edits.Edit]]) -> None:
    folder, found = delivered
    (piece,) = edits.plan(TripletEdits(dataset="triplets", path=str(folder / "edits.jsonl")), seed=0, world=None, unit_rows=50)
    made = prepare(folder / "model", piece)
    for number, shown in zip(made.order, made.shown, strict=True):
        assert isinstance(shown, PreparedSample)
        edited = np.concatenate([stack.flatten(0, 1).numpy() for stack in shown.stacks])[-1]  # the last frame, [height, width, 3]
        entry = made.entries[number]
        assert np.array_equal(edited, resize(decode(found[number].edited), (edited.shape[1], edited.shape[0])).numpy())
        assert isinstance(entry, Ready) and entry.change <= ODD[NAMES[number]][2]


def test_the_editor_trains_on_it_and_shards_keep_the_bytes(delivered: tuple[Path, list[edits.Edit]], tmp_path: Path) -> None:
    facts: dict[str, Any] = {"scores": {"overall": {"mean": 0.0, "sigma": 1.0}}, "selection": {"rank": 0}}
    samples = [
        shards.Sample(e.sample_id, e.source, e.source_sha256, e.edited, e.edited_sha256, facts | {"instruction": e.instruction})
        for e in delivered[1]
    ]
    written, table = shards.write_shard(str(tmp_path), shards.shard_name(0), samples)
    shards.publish(str(tmp_path), [written], table.to_reader(), {})
    loaded = samples_of(str(tmp_path), 16)
    assert loaded.instructions == [edit.instruction for edit in delivered[1]]
    for row, edit in enumerate(delivered[1]):
        expected = decode(edit.edited).resize((16, 16), Image.Resampling.BICUBIC)
        assert np.array_equal(loaded.edited[row], np.asarray(expected))
        assert np.abs(loaded.edited[row].astype(int) - loaded.source[row]).max() <= ODD[NAMES[row]][2] + 1
    assert ODD["JPEG turned by EXIF"][0] in (tmp_path / written.name).read_bytes()


def test_shards_that_the_editor_cannot_train_on_are_named(delivered: tuple[Path, list[edits.Edit]], tmp_path: Path) -> None:
    facts: dict[str, Any] = {"scores": {"overall": {"mean": 0.0, "sigma": 1.0}}, "selection": {"rank": 0}, "instruction": "x"}
    sound, broken = delivered[1][0], b"\x89PNG\r\n\x1a\n and no picture"
    sample = shards.Sample("one", sound.source, sound.source_sha256, broken, hashlib.sha256(broken).hexdigest(), facts)
    for name, samples, sentence in [
        ("empty", [], "contains no samples"),
        ("broken", [sample], "the edited image of sample one in .* cannot be decoded"),
    ]:
        written, table = shards.write_shard(str(tmp_path / name), shards.shard_name(0), samples)
        shards.publish(str(tmp_path / name), [written], table.to_reader(), {})
        with pytest.raises(ValueError, match=sentence):
            samples_of(str(tmp_path / name), 16)


@pytest.mark.parametrize("name", NAMES)
def test_the_report_shows_it(name: str) -> None:
    data, seen, tolerance = ODD[name]
    shown = picture(data, alt="a")
    assert shown.uri is not None and (shown.width, shown.height) == (24, 16)
    assert np.abs(np.asarray(Image.open(io.BytesIO(base64.b64decode(shown.uri.split(",")[1])))).astype(int) - seen).max() <= tolerance
    apart = difference(images.png(seen.astype(np.uint8)), data, "nothing")
    assert apart.uri is not None
    assert np.asarray(Image.open(io.BytesIO(base64.b64decode(apart.uri.split(",")[1])))).min() >= 255 - 3 * tolerance


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_raters_see_it_in_their_browser(tmp_path: Path) -> None:
    """What the packet holds of a file, drawn over grey as on the rating page."""
    draw = """(async () => {
        const image = new Image(); image.src = ADDRESS; await image.decode();
        const canvas = document.createElement("canvas"), context = canvas.getContext("2d");
        [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
        context.fillStyle = "#777"; context.fillRect(0, 0, canvas.width, canvas.height); context.drawImage(image, 0, 0);
        return [canvas.height, canvas.width, ...context.getImageData(0, 0, canvas.width, canvas.height).data];
    })()"""
    with browsing(tmp_path) as browser:
        tab = browser.tab()
        for name, (data, seen, tolerance) in ODD.items():
            shown = for_browser(data)
            kind = {"png": "png", "jpg": "jpeg", "webp": "webp"}[images.extension(shown) or ""]
            address = f"data:image/{kind};base64,{base64.b64encode(shown).decode()}"
            height, width, *values = tab.run(draw.replace("ADDRESS", json.dumps(address)))
            found = np.array(values).reshape(height, width, 4)[..., :3]
            assert found.shape == seen.shape and np.abs(found - seen).max() <= tolerance, name
