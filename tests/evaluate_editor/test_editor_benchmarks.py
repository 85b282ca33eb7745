"""Published benchmarks from local copies, folders of other people's edits, and judging them, without Ray."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import gedit_copy
import numpy as np
import pyarrow as pa
import pytest
from judge_server import MODEL, JudgeServer, instruction_in, is_quality, scored, serving
from PIL import Image

from stages.config import FlowConfig
from stages.engine import storage
from stages.evaluate_editor import generation, judging
from stages.evaluate_editor.evaluation import evaluate, preservation
from stages.evaluate_editor.items.gedit_bench import TASKS, GEditBench
from stages.evaluate_editor.items.imgedit_bench import ImgEditBench
from stages.evaluate_editor.items.item import Item, UnreadableItem
from stages.evaluate_editor.systems import COPY, System

FLOW = FlowConfig(name="x")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gedit_copy.write(tmp_path_factory.mktemp("gedit") / "data", gedit_copy.rows())


def bench(path: Path, **settings: Any) -> GEditBench:
    return GEditBench.model_validate({"name": "gedit-bench", "path": str(path), **settings})


def test_items_of_a_language_with_their_images(copy: Path) -> None:
    english, both = bench(copy), bench(copy, languages=["zh", "en"])
    assert english.count(FLOW) == 22 and both.count(FLOW) == 44 and both.languages == ("cn", "en")
    items = [item for first in (0, 16, 32) for item in both.read(FLOW, first, min(16, 44 - first))]
    assert [item.language for item in items] == ["cn"] * 22 + ["en"] * 22
    assert {item.item_id for item in items[:22]} == {item.item_id for item in items[22:]} and {item.task for item in items} == set(TASKS)
    for item in items:
        assert isinstance(item, Item) and item.image.shape == (32, 48, 3)  # input_image, not input_image_raw
        expected = np.asarray(Image.open(io.BytesIO(gedit_copy.png(int(item.item_id[1:])))))
        assert (item.image == expected).all() and item.item_id[1:].lstrip("0") in item.instruction.replace("do", "")
    assert both.columns() == [
        ("CN full", "cn", ""),
        ("CN intersection", "cn", "intersection"),
        ("EN full", "en", ""),
        ("EN intersection", "en", "intersection"),
    ]


def test_the_intersection_and_what_changes_the_identity(copy: Path, tmp_path: Path) -> None:
    part = bench(copy, subset="intersection")
    assert part.count(FLOW) == 11 and all(item.subsets == ("intersection",) for item in part.read(FLOW, 0, 11))
    assert part.columns() == [("EN intersection", "en", "intersection")]
    assert any("22 of 606 in en" in remark for remark in bench(copy).remarks(FLOW)) and len(part.remarks(FLOW)) == 2
    moved = gedit_copy.write(tmp_path / "elsewhere", gedit_copy.rows())
    assert bench(copy).identity(FLOW) == bench(moved).identity(FLOW) != part.identity(FLOW)
    other = gedit_copy.rows()
    other[0]["instruction"] = "something else"
    assert bench(gedit_copy.write(tmp_path / "other", other)).identity(FLOW) != bench(copy).identity(FLOW)


def changed(number: int, **values: Any) -> list[dict[str, Any]]:
    entries = gedit_copy.rows()
    entries[number] |= values
    return entries


@pytest.mark.parametrize(
    ("entries", "settings", "message"),
    [
        (gedit_copy.rows(languages=("en",)), {"languages": ["cn"]}, r"languages: .* has no items in cn; it has 22 in en"),
        (changed(0, task_type="subject_add"), {}, "there is no task 'subject_add' in GEdit-Bench; its tasks are background_change"),
        (changed(0, instruction_language="fr"), {}, "instruction_language should be en or cn, it is 'fr'"),
        (changed(1, instruction_language="zh", key="../x"), {"languages": ["en"]}, "the key should be a text that can name a file"),
        (changed(2, key="k000"), {}, "has the item k000 in en 2 times"),
        (changed(0, key="../x"), {}, "the key should be a text that can name a file"),
        (changed(0, instruction=" "), {}, "has no instruction"),
        (
            [row | {"Intersection_exist": False} for row in gedit_copy.rows()],
            {"subset": "intersection"},
            "no item of .* is in the intersection",
        ),
        ([], {}, "has no items"),
    ],
)
def test_a_copy_that_is_not_right_is_refused(tmp_path: Path, entries: list, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bench(gedit_copy.write(tmp_path / "data", entries), **settings).identity(FLOW)


def test_files_that_are_not_there_or_not_whole(tmp_path: Path, copy: Path) -> None:
    with pytest.raises(ValueError, match=r"evaluate_editor\.items\.path: there is no"):
        bench(tmp_path / "none").count(FLOW)
    (tmp_path / "data").mkdir()
    name = "train-00000-of-00002.parquet"
    (tmp_path / "data" / name).write_bytes((copy / name).read_bytes()[:-9])
    with pytest.raises(ValueError, match="is not a whole Parquet file"):
        bench(tmp_path / "data").count(FLOW)


def test_a_source_that_cannot_be_read_is_missing_for_everybody(tmp_path: Path) -> None:
    broken = changed(0, input_image={"bytes": gedit_copy.png(0)[:60], "path": None})
    broken[2]["input_image"] = None
    items = bench(gedit_copy.write(tmp_path / "data", broken)).read(FLOW, 0, 22)
    unreadable = [item for item in items if isinstance(item, UnreadableItem)]
    assert sorted(item.item_id for item in unreadable) == ["k000", "k001"] and all(item.message for item in unreadable)


def test_imgedit_bench(tmp_path: Path) -> None:
    images = tmp_path / "singleturn"
    (images / "animal").mkdir(parents=True)
    (images / "animal" / "1.png").write_bytes(gedit_copy.png(1))
    records = {
        "7": {"id": "animal/1.png", "prompt": "add a hat", "edit_type": "add"},
        "9": {"id": "animal/2.png", "prompt": "x", "edit_type": "style"},
    }
    (tmp_path / "basic.json").write_text(json.dumps(records))
    items = ImgEditBench(name="imgedit-bench", path=str(tmp_path / "basic.json"), images_in=str(images))
    first, second = items.read(FLOW, 0, items.count(FLOW))
    assert isinstance(first, Item) and (first.item_id, first.task, first.instruction) == ("7", "add", "add a hat")
    assert items.edit_paths(first) == ("7.png", "")
    assert isinstance(second, UnreadableItem) and "animal/2.png" in second.message
    (tmp_path / "wrong.json").write_text(json.dumps({"7": {"id": "animal/1.png", "prompt": "add a hat"}}))
    with pytest.raises(ValueError, match="item 7: there is no edit_type"):
        ImgEditBench(name="imgedit-bench", path=str(tmp_path / "wrong.json"), images_in=str(images)).count(FLOW)


def others(folder: Path, items: GEditBench, left_out: str = "") -> None:
    """Somebody's edits in the published layout: inverted, at another size."""
    for item in items.read(FLOW, 0, items.count(FLOW)):
        assert isinstance(item, Item)
        if item.item_id != left_out:
            target = folder / items.edit_paths(item)[0]
            target.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(255 - item.image).resize((96, 64)).save(target)


def test_edits_of_others_are_judged_by_language_and_subset(copy: Path, tmp_path: Path) -> None:
    """Chinese instructions get less; one edit is not there, another is broken; both count and have no score."""
    sizes = []

    def answering(body: dict, before: int) -> Any:
        sizes.append(len(body["messages"][0]["content"]))
        return scored(9, 9) if is_quality(body) else scored(4, 8) if "请修改" in instruction_in(body) else scored(9, 8)

    items = {"name": "gedit-bench", "path": str(copy), "languages": ["en", "cn"]}
    others(tmp_path / "theirs", bench(copy, languages=["en", "cn"]), left_out="k003")
    (tmp_path / "theirs/fullset/motion_change/cn/k014.png").write_bytes(b"no image")
    with serving(answering) as server:
        flow = flow_of(items, server, tmp_path)
        config = flow.evaluate_editor
        assert config is not None
        edits, made = {}, []
        for system in (System(COPY, "copy", COPY), System("theirs", "folder", "", folder=str(tmp_path / "theirs"))):
            parts = []
            for first in range(0, 44, 16):
                count = min(16, 44 - first)
                output = generation.make_work(flow)(generation.Piece(system, first, count))
                path = tmp_path / f"{system.name}-{first}.parquet"
                storage.publish_bytes(path, storage.table_bytes(output.tables["benchmark_edits"]))
                made.append(output.tables["benchmark_edits"])
                parts.append(judging.make_work(flow, config.judge, tmp_path / "replies")(judging.JudgingPiece(str(path), first, count)))
            tables = [[part.tables[name] for part in parts] for name in ("verdicts", "subscores")]
            edits |= judging.judged_edits(*(pa.concat_tables(of_kind) for of_kind in tables))
    found = evaluate(edits, config, config.judge, 0)
    assert found["headline"] == "EN full" and list(found["columns"]) == ["EN full", "EN intersection", "CN full", "CN intersection"]
    theirs = {title: column["arms"]["theirs"] for title, column in found["columns"].items()}
    assert theirs["EN full"]["n"] == 21 and theirs["EN full"]["failures"] == {"missing": 1}
    assert theirs["EN full"]["thin_tasks"] == ["motion_change"] and theirs["EN full"]["overall"] is None
    assert theirs["CN full"]["failed"] == 2 and theirs["CN full"]["per_task"]["ps_human"] == 6.0
    copied = {title: column["arms"][COPY] for title, column in found["columns"].items()}
    assert copied["EN full"]["overall"] == pytest.approx(72**0.5) and copied["CN intersection"]["overall"] == 6.0
    assert copied["EN intersection"]["n"] == 11 and copied["EN full"]["over_editing"] == 8.0
    assert found["judge"]["name"] == MODEL and found["judge"]["snapshots"] == [MODEL] and found["cost"]["completion_tokens"] > 0
    assert found["differences"] == {
        "theirs": {"value": None, "low": None, "high": None, "note": "less than 90% of motion_change was judged for both"}
    }
    kept = preservation(pa.concat_tables(made))
    assert kept[COPY] == {"psnr": 60.0, "ssim": 1.0, "changed_share": 0.0, "n": 44, "measured": 44}
    assert kept["theirs"]["n"] == 41 and kept["theirs"]["changed_share"] > 0.5


def flow_of(items: dict, server: JudgeServer, folder: Path) -> FlowConfig:
    judge = {"name": "endpoint", "base_url": server.url, "model": MODEL, "backoff": 0.01}
    chosen = {"items": items, "judge": judge, "reference_arm": COPY, "bootstrap": 100, "edits": [{"name": "theirs", "path": str(folder)}]}
    return FlowConfig.model_validate({"name": "x", "evaluate_editor": chosen})
