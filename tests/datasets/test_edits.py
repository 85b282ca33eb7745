"""Readers of delivered edits: the real ShareGPT-4o-Image layout with its damage, a user's own triplets, the world's noisy set."""

from __future__ import annotations

import io
import json
import pickle
import random
import shutil
import struct
import tarfile
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import SHARED
from PIL import Image

from reward.inputs.decoding import decode
from stages.datasets import readers as edits
from stages.datasets import webdataset
from stages.datasets.config import EditsInput, ShareGPT4oEdits, TripletEdits, WorldConfig, WorldEdits
from stages.datasets.io.blocks import Block, Spans, cut_blocks
from stages.datasets.io.cells import by_characters
from stages.datasets.io.locations import digest
from stages.datasets.slices import Request
from stages.engine import storage, tar
from stages.engine.contracts import EDITS, Quarantined
from stages.engine.ids import content_id
from stages.filter import inspection

MINI, TRIPLETS = SHARED / "sharegpt4o-mini", SHARED / "triplets"
steady = settings(deadline=None, derandomize=True)
needs_shared = pytest.mark.skipif(not MINI.exists(), reason=f"real data set {MINI} is not here")


def everything(config: EditsInput, unit_rows: int = 16) -> list[edits.Edit | Quarantined]:
    return [entry for piece in edits.plan(config, seed=0, world=WorldConfig(), unit_rows=unit_rows) for entry in edits.load(piece)]


def split(entries: list[edits.Edit | Quarantined]) -> tuple[list[edits.Edit], list[Quarantined]]:
    return [e for e in entries if isinstance(e, edits.Edit)], [e for e in entries if isinstance(e, Quarantined)]


def sharegpt(path: Path | str) -> ShareGPT4oEdits:
    return ShareGPT4oEdits(dataset="sharegpt4o", path=str(path))


def picture(colour: int, form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((12, 16, 3), colour, np.uint8)).save(buffer, form)
    return buffer.getvalue()


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Two sound records in ShareGPT-4o-Image's layout."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    records = [{"input_prompt": f"edit {n}", "input_image": ["image/a.png"], "output_image": f"image/{n}.png"} for n in range(2)]
    (folder / "text_and_image_to_image.json").write_text(json.dumps(records))
    write_tar(folder / "text_and_image_to_image_part_0.tar", {"image/a.png": picture(0), "image/0.png": picture(1)})
    write_tar(folder / "text_and_image_to_image_part_1.tar", {"./image/1.png": picture(2)})
    return folder


@needs_shared
def test_real_data_set_has_59_sound_records_and_four_damaged_ones_each_with_its_reason() -> None:
    sound, bad = split(everything(sharegpt(MINI)))
    assert len(sound) == 59
    assert {(row.position, row.reason) for row in bad} == {
        ("text_and_image_to_image.json[10]", "no-source"),
        ("text_and_image_to_image.json[26]", "empty-instruction"),
        ("text_and_image_to_image.json[33]", "missing-image"),
        ("text_and_image_to_image.json[61]", "undecodable-image"),
    }
    assert "image/v2v_90001.png" in next(row.message for row in bad if row.reason == "missing-image")
    assert len({edit.sample_id for edit in sound}) == 59
    assert Counter(edit.language for edit in sound)["cn"] == 5


@needs_shared
def test_images_are_the_members_bytes() -> None:
    members: dict[str, bytes] = {}
    for path in sorted(MINI.glob("*.tar")):
        with tarfile.open(path) as archive:
            members |= {m.name: archive.extractfile(m).read() for m in archive.getmembers() if m.isreg()}
    sound, _ = split(everything(sharegpt(MINI)))
    records = json.loads((MINI / "text_and_image_to_image.json").read_text())
    for edit in sound:
        record = records[int(edit.position.split("[")[1][:-1])]
        assert edit.source == members[record["input_image"][0]]
        assert edit.edited == members[record["output_image"]]
        assert edit.instruction == record["input_prompt"]


@needs_shared
def test_rows_do_not_depend_on_how_the_data_set_is_cut() -> None:
    rows = [[e.row(with_images=True) for e in split(everything(sharegpt(MINI), unit_rows))[0]] for unit_rows in (1, 7, 500)]
    assert rows[0] == rows[1] == rows[2]
    pa.Table.from_pylist(rows[0], schema=EDITS)


@needs_shared
def test_a_plan_carries_no_images_and_names_content_rather_than_place(tmp_path: Path) -> None:
    shutil.copytree(MINI, tmp_path / "copy")
    plans = [edits.plan(sharegpt(path), seed=0, world=None, unit_rows=16) for path in (MINI, tmp_path / "copy", f"{MINI}/")]
    prints = [[piece.fingerprint for piece in plan] for plan in plans]
    assert prints[0] == prints[1] == prints[2]
    assert len(set(prints[0])) == 4
    assert len(pickle.dumps(plans[0])) < 63 * 100


def test_reads_through_a_url(tiny: Path, bucket: str) -> None:
    for file in tiny.iterdir():
        storage.publish_bytes(f"{bucket}/tiny/{file.name}", file.read_bytes())
    remote, local = everything(sharegpt(f"{bucket}/tiny")), everything(sharegpt(tiny))
    assert remote == local and len(local) == 2


def test_a_record_changes_only_the_fingerprint_of_its_slice(tiny: Path) -> None:
    before = [p.fingerprint for p in edits.plan(sharegpt(tiny), seed=0, world=None, unit_rows=1)]
    records = json.loads((tiny / "text_and_image_to_image.json").read_text())
    records[1]["input_prompt"] = "another edit"
    (tiny / "text_and_image_to_image.json").write_text(json.dumps(records))
    after = [p.fingerprint for p in edits.plan(sharegpt(tiny), seed=0, world=None, unit_rows=1)]
    assert before[0] == after[0] and before[1] != after[1]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("text", "bad-record"),
        ({"input_prompt": "x", "input_image": "image/a.png", "output_image": "image/0.png"}, "bad-record"),
        ({"input_prompt": None, "input_image": ["image/a.png"], "output_image": "image/0.png"}, "bad-record"),
        ({"input_prompt": "x", "input_image": [{}], "output_image": "image/0.png"}, "bad-record"),
        ({"input_prompt": "\ud800", "input_image": ["image/a.png"], "output_image": "image/0.png"}, "bad-record"),
        ({"input_prompt": " \n", "input_image": ["image/a.png"], "output_image": "image/0.png"}, "empty-instruction"),
        ({"input_prompt": "x", "input_image": ["image/a.png", "image/0.png"], "output_image": "image/0.png"}, "several-sources"),
        ({"input_prompt": "x", "input_image": ["image/z.png"], "output_image": "image/0.png"}, "missing-image"),
    ],
)
def test_a_bad_record_costs_only_itself(tiny: Path, record: object, reason: str) -> None:
    path = tiny / "text_and_image_to_image.json"
    path.write_text(json.dumps([*json.loads(path.read_text()), record]))
    sound, bad = split(everything(sharegpt(tiny)))
    assert len(sound) == 2
    assert [(row.position, row.reason) for row in bad] == [("text_and_image_to_image.json[2]", reason)]


def cut_short(folder: Path, size: int) -> None:
    path = folder / "text_and_image_to_image_part_0.tar"
    path.write_bytes(path.read_bytes()[:size])


def join_tars(folder: Path) -> None:
    """As `cat` does, with which readers drop all but the first archive."""
    first, second = sorted(folder.glob("*.tar"))[:2]
    first.write_bytes(first.read_bytes() + second.read_bytes())
    second.unlink()


def append(folder: Path, name: str, data: bytes, **headers: str) -> None:
    with tarfile.open(folder / "text_and_image_to_image_part_0.tar", "a", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo(name)
        info.size, info.pax_headers = len(data), headers
        archive.addfile(info, io.BytesIO(data))


def add_again(folder: Path) -> None:
    """As `tar --append` does with a file that changed."""
    append(folder, "image/a.png", b"x")


def add_sparse(folder: Path) -> None:
    """A byte, and seven of a hole that the archive has not: reading eight would read the next header."""
    append(folder, "b.png", b"x", **{"GNU.sparse.size": "8", "GNU.sparse.map": "0,1"})


def flip_header(folder: Path) -> None:
    path = folder / "text_and_image_to_image_part_0.tar"
    data = bytearray(path.read_bytes())
    data[1024 + 3] ^= 1  # the second member's header
    path.write_bytes(bytes(data))


def test_a_record_with_a_key_twice_is_set_aside(tiny: Path) -> None:
    path = tiny / "text_and_image_to_image.json"
    path.write_text(path.read_text().replace('"input_prompt": "edit 0"', '"input_prompt": "edit 0", "input_prompt": "edit 1"'))
    sound, bad = split(everything(sharegpt(tiny)))
    assert [edit.instruction for edit in sound] == ["edit 1"] and sound[0].row_id == "image/1.png"
    assert [(row.reason, row.message) for row in bad] == [
        ("bad-record", "the record cannot be read: it has 2 values of the key 'input_prompt'")
    ]


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda folder: shutil.rmtree(folder), "there is no folder .*tiny"),
        (lambda folder: (folder / "text_and_image_to_image.json").unlink(), "has no text_and_image_to_image.json"),
        (lambda folder: [path.unlink() for path in folder.glob("*.tar")], "has no text_and_image_to_image_part_"),
        (
            lambda folder: (folder / "text_and_image_to_image.json").write_text("{}"),
            "should be a JSON list of records, it begins with {",
        ),
        (lambda folder: (folder / "text_and_image_to_image.json").write_text("[]"), "it is an empty list"),
        (lambda folder: (folder / "text_and_image_to_image.json").write_text("[1,"), "is not valid JSON"),
        (lambda folder: cut_short(folder, 512 + 40), "part_0.tar is not a whole tar archive .*download it again"),
        (lambda folder: cut_short(folder, 1024), "part_0.tar was cut short at byte 1024; download it again"),
        (flip_header, "part_0.tar has a damaged header at byte 1024; download it again"),
        (join_tars, "part_0.tar goes on after its end at byte 2048: a header is damaged, or it is several archives .*; download it again"),
        (
            lambda folder: shutil.copy(folder / "text_and_image_to_image_part_0.tar", folder / "text_and_image_to_image_part_2.tar"),
            "image/a.png is in .*part_0.tar and in .*part_2.tar",
        ),
        (add_again, "image/a.png is twice in .*part_0.tar; download that tar again, or write it anew"),
        (
            add_sparse,
            r"part_0.tar has the sparse file b.png \(of tar's --sparse\), which is not read here; download it again, or write it anew",
        ),
    ],
)
def test_a_data_set_that_cannot_be_read_is_one_sentence(tiny: Path, damage: object, sentence: str) -> None:
    assert callable(damage)
    damage(tiny)
    with pytest.raises(ValueError, match=sentence):
        edits.plan(sharegpt(tiny), seed=0, world=None, unit_rows=16)


def test_a_file_instead_of_a_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match=r"has no text_and_image_to_image\.json"):
        edits.plan(sharegpt(tmp_path / "file"), seed=0, world=None, unit_rows=16)


def triplet_file(folder: Path, lines: list[str]) -> TripletEdits:
    path = folder / "mine.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return TripletEdits(dataset="triplets", path=str(path))


@pytest.mark.skipif(not TRIPLETS.exists(), reason=f"real data set {TRIPLETS} is not here")
def test_a_folder_of_real_triplets(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (TRIPLETS / "triplets.jsonl").read_text().splitlines()]
    lines = [
        json.dumps(
            {
                "id": r["id"],
                "source": f"{TRIPLETS}/{r['source']}",
                "instruction": r["instruction"],
                "edited": f"{TRIPLETS}/{r['candidate']}",
                "set": r["set"],
            }
            | ({"language": r["lang"]} if "lang" in r else {})
        )
        for r in rows
    ]
    sound, bad = split(everything(triplet_file(tmp_path, lines)))
    assert (len(sound), bad) == (59, [])
    assert [edit.row_id for edit in sound] == [row["id"] for row in rows]
    assert sound[0].source == (TRIPLETS / rows[0]["source"]).read_bytes()
    assert json.loads(sound[0].metadata) == {"set": "magicbrush"}
    assert [edit.language for edit in sound] == [by_characters(edit.instruction) for edit in sound]


def test_bad_triplets_cost_only_themselves(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture(1))
    (tmp_path / "b.png").write_bytes(picture(2))
    (tmp_path / "cut.png").write_bytes(picture(3)[:-30])
    (tmp_path / "c.gif").write_bytes(picture(3, "GIF"))
    (tmp_path / "folder").mkdir()
    good = {"source": "a.png", "instruction": "make it brighter", "edited": "b.png"}
    lines = {
        json.dumps(good | {"id": "1", "task": "colour", "licence": "CC0"}): None,
        "{not json": "bad-line",
        "": None,
        "[1]": "bad-line",
        json.dumps(good | {"id": "1"}): "duplicate-id",
        json.dumps(good | {"instruction": "  "}): "empty-instruction",
        json.dumps({"source": "a.png", "edited": "b.png"}): "empty-instruction",
        json.dumps(good | {"source": 3}): "bad-row",
        json.dumps(good | {"task": ["x"]}): "bad-row",
        json.dumps(good | {"edited": "absent.png"}): "missing-image",
        json.dumps(good | {"edited": "folder"}): "missing-image",
        json.dumps(good | {"edited": "b.png/c.png"}): "missing-image",
        json.dumps(good | {"edited": "x" * 300}): "missing-image",
        json.dumps(good | {"edited": "nul\0"}): "missing-image",
        json.dumps(good | {"edited": "cut.png"}): "undecodable-image",
        json.dumps(good | {"edited": "c.gif"}): "unsupported-format",
        json.dumps(good | {"instruction": "\udc00"}): "bad-line",
    }
    sound, bad = split(everything(triplet_file(tmp_path, list(lines)), unit_rows=3))
    assert [row.reason for row in bad] == [reason for reason in lines.values() if reason]
    assert [(edit.row_id, edit.task, edit.licence, edit.position) for edit in sound] == [("1", "colour", "CC0", "mine.jsonl[0]")]
    assert bad[2].message == "line 5 has the id '1' of line 1"
    assert bad[4].message == "line 7: there is no instruction among the keys 'source', 'edited'"


@pytest.mark.parametrize("kind", ["triplets", "sharegpt4o"])
def test_a_plan_is_spans_and_its_rows_can_be_dropped(tmp_path: Path, tiny: Path, kind: str) -> None:
    """600 rows in units of 250, some blank, some with an earlier id; every third row is dropped, and one unit as a whole."""
    config: EditsInput
    if kind == "triplets":
        (tmp_path / "a.png").write_bytes(picture(1))
        row = {"source": "a.png", "edited": "a.png"}
        lines = [json.dumps(row | {"id": n % 590, "instruction": f"edit {n}"}) + "\n" * (1 + n % 2) for n in range(600)]
        config = triplet_file(tmp_path, lines)
    else:
        record = json.loads((tiny / "text_and_image_to_image.json").read_text())[1]
        records = [record | {"input_prompt": f"edit {n}"} for n in range(590)] + [record | {"output_image": "image/absent.png"}] * 10
        (tiny / "text_and_image_to_image.json").write_text(json.dumps(records))
        config = sharegpt(tiny)
    plan = edits.plan(config, seed=0, world=None, unit_rows=250)
    assert [len(piece.rows) for piece in plan] == [250, 250, 100]
    assert all(isinstance(piece.rows, Spans) and len(piece.rows.spans) == 1 for piece in plan)
    rows = [list(edits.fetch(piece)) for piece in plan]
    sound, bad = split([entry for unit in rows for entry in unit])
    assert [edit.instruction for edit in sound] == [f"edit {n}" for n in range(590)] and len(bad) == 10
    if kind == "triplets":
        assert bad[9].message == "line 1498 has the id '9' of line 23"
    numbers = np.array([n for n in range(600) if n % 3 and not 250 <= n < 500])
    kept = [inspection.rows_of(piece, numbers) for piece in (plan[0], plan[2])]
    assert [number for piece in kept for number, _ in piece.rows] == numbers.tolist()
    assert [list(edits.fetch(piece)) for piece in kept] == [
        [entry for n, entry in enumerate(unit) if n % 3 != gap] for unit, gap in [(rows[0], 0), (rows[2], 1)]
    ]
    assert kept[0].rows[-1] == list(kept[0].rows)[-1] and inspection.rows_of(plan[1], np.arange(600)) is plan[1]


@pytest.mark.parametrize(
    ("name", "sentence"), [("absent.jsonl", "there is no file"), (".", "cannot be read"), ("empty.jsonl", "has no rows")]
)
def test_a_triplet_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(ValueError, match=sentence):
        everything(TripletEdits(dataset="triplets", path=str(tmp_path / name)))


def test_picked_rows_are_the_wanted_ones_and_changed_content_is_noticed(tmp_path: Path) -> None:
    for n in range(7):
        (tmp_path / f"{n}.png").write_bytes(picture(n))
    config = triplet_file(tmp_path, [json.dumps({"source": "0.png", "instruction": f"edit {n}", "edited": f"{n}.png"}) for n in range(7)])
    slices = edits.plan(config, seed=0, world=None, unit_rows=3)
    piece = edits.pick(slices, [5, 0, 6])
    ids = [e.sample_id for e in split(list(edits.load(piece)))[0]]
    assert [edit.instruction for edit in edits.fetch_known(piece, ids)] == ["edit 5", "edit 0", "edit 6"]
    changed = bytearray((tmp_path / "6.png").read_bytes())
    changed[-20] ^= 1
    (tmp_path / "6.png").write_bytes(bytes(changed))
    with pytest.raises(ValueError, match=r"mine\.jsonl\[6\] changed since it was read"):
        list(edits.fetch_known(piece, ids))


def test_the_world_draws_the_same_set_every_time_and_knows_the_truth() -> None:
    config = WorldEdits(dataset="world-edits", count=300)
    sound, bad = split(everything(config, unit_rows=40))
    assert (len(sound), bad) == (300, [])
    assert sound == split(everything(config, unit_rows=300))[0]
    good = edits.good([edit.metadata for edit in sound])
    assert edits.knows_truth("world-edits") and not edits.knows_truth("sharegpt4o") and 0.4 < good.mean() < 0.6
    in_memory = edits.samples(config, seed=0, world=WorldConfig(), image_size=32)
    assert (in_memory.source[7] == np.asarray(decode(sound[7].source))).all()
    assert (in_memory.edited[7] == np.asarray(decode(sound[7].edited))).all()
    assert edits.samples(config, seed=0, world=WorldConfig(), image_size=16).source.shape == (300, 16, 16, 3)
    with pytest.raises(ValueError, match="section world"):
        edits.plan(config, seed=0, world=None, unit_rows=40)


@steady
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 7), st.randoms(use_true_random=False))
def test_spans_are_the_rows_that_are_left(sizes: list[int], unit_rows: int, draw: random.Random) -> None:
    blocks = [Block("file", 100 * n, rows, f"mark {n}") for n, rows in enumerate(sizes)]
    every = [("file", block.start, row, block.mark) for block in blocks for row in range(block.rows)]
    keep = np.array([draw.random() < 0.6 for _ in every])
    units = list(cut_blocks(blocks, unit_rows))
    assert [row for unit in units for row in unit] == list(enumerate(every))
    left = [unit.kept(keep).kept(keep) for unit in units]
    assert [row for unit in left for row in unit] == [(n, row) for n, row in enumerate(every) if keep[n]]
    for unit in left:
        rows = list(unit)
        assert [unit[n] for n in range(len(unit))] == rows and list(unit[1:]) == rows[1:] and (not rows or unit[-1] == rows[-1])


@steady
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=20), st.text(alphabet="ab[]1.", max_size=8))
def test_positions_give_their_row_numbers_back(numbers: list[int], name: str) -> None:
    column = pa.chunked_array([[edits.position(name, number) for number in numbers]])
    assert edits.numbers_of(column).tolist() == numbers


@steady
@given(st.dictionaries(st.text(alphabet="ab/.", min_size=1, max_size=30), st.binary(max_size=1500), max_size=5))
def test_tar_members_are_found_where_python_finds_them(members: dict[str, bytes]) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    with tarfile.open(fileobj=io.BytesIO(buffer.getvalue())) as archive:
        expected = [(m.name.removeprefix("./"), m.size) for m in archive.getmembers()]
    found = list(tar.scan(io.BytesIO(buffer.getvalue())))
    assert [(member.name, member.size) for member in found] == expected
    assert [buffer.getvalue()[m.offset : m.offset + m.size] for m in found] == list(members.values())


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    """Of any writer: long names, links, folders, owners that are not octal, signs in fields, broken and cut archives."""
    kinds = st.sampled_from([tarfile.REGTYPE] * 6 + [tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.CONTTYPE])
    names = st.text(alphabet="ab/.é", min_size=1, max_size=8) | st.just("long/" * 30 + "name")
    buffer = io.BytesIO()
    form = draw(st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
    contents = st.binary(max_size=600) | st.just(tar.header("inner", 512) * 3)
    common = draw(st.sampled_from([None, None, None, {"path": "the same"}])) if form == tarfile.PAX_FORMAT else None
    with tarfile.open(fileobj=buffer, mode="w", format=form, pax_headers=common) as archive:
        for name, kind, data in draw(st.lists(st.tuples(names, kinds, contents), max_size=8)):
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(data) if info.isreg() else 0, "x" if kind == tarfile.SYMTYPE else ""
            info.uid = draw(st.sampled_from([0, 0, 0, 1000, 8**7] if form != tarfile.USTAR_FORMAT else [0]))
            archive.addfile(info, io.BytesIO(data))
    whole = bytearray(buffer.getvalue())
    for _ in range(draw(st.integers(0, 2))):
        header = 512 * draw(st.integers(0, 12))
        place = header + draw(st.sampled_from([*range(98, 160), 329, 336, 344, 345, 400]))
        byte = draw(st.sampled_from([*b"0178 \0-_", 0x80, 0xFF]))
        if draw(st.booleans()) and whole[header + 148 : header + 149].isdigit():  # with the right checksum
            whole[place] = byte
            block = whole[header : header + 512]
            total = sum(block) - sum(block[148:156]) + 256
            whole[header + 148 : header + 156] = draw(st.sampled_from([b"%06o\0 ", b"%06o \0", b"%07o\0", b" %05o\0 "])) % total
        else:
            whole[place] = byte
    if draw(st.integers(0, 5)) == 0 and len(whole) >= 512:  # a size in base 256, of any sign, of a file or of a long name
        whole[124:136] = bytes([draw(st.sampled_from([0x80, 0xFF]))]) + draw(st.binary(min_size=11, max_size=11))
        whole[156:157] = draw(st.sampled_from([tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, b"Z"]))
        whole[148:156] = b"%06o\0 " % (sum(whole[:148]) + sum(whole[156:512]) + 256)
    return bytes(whole[: draw(st.sampled_from([len(whole)] * 3 + [len(whole) - 700, len(whole) // 2, len(whole) // 1024 * 512]))])


@steady
@given(archives(), st.sampled_from([0, 1 << 13]), st.integers(1, 3))
def test_members_of_a_whole_scan_are_those_that_tarfile_finds(data: bytes, near: int, run: int) -> None:
    def scanned(members: Callable[[BinaryIO], Iterable[tar.Member]]) -> list[object]:
        found: list[object] = []
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.seek(0)
            try:
                found.extend(members(file))
            except tar.Damaged as damage:
                found.append(str(damage))
        return found

    def together(file: BinaryIO) -> Iterable[tar.Member]:
        return (tar.Member(name, offset, size) for found in tar.scan_whole(file) for name, _, offset, size in zip(*found, strict=True))

    with mock.patch.object(tar, "_NEAR", near), mock.patch.object(tar, "_RUN", run):  # the rest is read in windows, if they may be near
        assert scanned(together) == scanned(tar.scan)


@pytest.mark.parametrize("size", [700, 20_000])
def test_a_member_that_is_cut_is_not_found(tmp_path: Path, size: int) -> None:
    """Headers near each other are read in windows, others one by one."""
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for number in range(6):
            info = tarfile.TarInfo(f"{number}.png")
            info.size = size
            archive.addfile(info, io.BytesIO(bytes(size)))
    with open(tmp_path / "a.tar", "r+b") as file:
        whole = list(tar.scan(file))
        file.truncate(whole[-1].offset + size // 2)
        file.seek(0)
        found: list[str] = []
        with pytest.raises(tar.Damaged, match="unexpected end of data"):
            found.extend(name for members in tar.scan_whole(file) for name in members.names)
    assert found == [member.name for member in whole[:-1]]


@steady
@given(st.lists(st.lists(st.integers(0, 700), min_size=1, max_size=3), max_size=20), st.integers(1, 7), st.integers(1, 7), st.booleans())
def test_blocks_of_a_webdataset_begin_where_their_samples_do(samples: list[list[int]], run: int, block: int, linked: bool) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(tar, "_RUN", run),
        mock.patch.object(tar, "_MANY", 700 * run),
        mock.patch.object(webdataset, "BLOCK_SAMPLES", block),
    ):
        with tarfile.open(f"{folder}/a.tar", "w") as archive:
            for number, sizes in enumerate(samples):
                for field, size in enumerate(sizes):
                    info = tarfile.TarInfo(f"{'x/y.z/' * (number % 2)}{number}.{field}.png")
                    info.size = size
                    archive.addfile(info, io.BytesIO(bytes(size)))
                    if linked:
                        info = tarfile.TarInfo("link")
                        info.type, info.linkname = tarfile.SYMTYPE, "other"
                        archive.addfile(info)
        digests = array("q")
        found = list(webdataset._blocks(folder, "a.tar", digests, Request(1, "filter.data")))
        assert [part.rows for part in found] == [len(samples[first : first + block]) for first in range(0, len(samples), block)]
        with open(f"{folder}/a.tar", "rb") as file:
            every = list(webdataset._samples(file, 0))
            for number, part in enumerate(found):
                assert list(webdataset._samples(file, part.start)) == every[number * block :]
                members = [member for _, of_sample in every[number * block :][:block] for _, member in of_sample]
                names, of_members = "\0".join(member.name for member in members), [member.size for member in members]
                assert part.mark == content_id("members", names.encode(), struct.pack(f"<{len(members)}q", *of_members))
        assert digests.tolist() == [digest(key) for key, _ in every] and [len(members) for _, members in every] == [len(s) for s in samples]


@pytest.mark.parametrize(
    ("text", "expected"), [("让她哭。", "cn"), ("Replace 'TRAIN' with '列车'", "cn"), ("Let her cry.", "en"), ("ça", "en"), ("", "en")]
)
def test_language_rule(text: str, expected: str) -> None:
    assert by_characters(text) == expected


def test_publishing_leaves_nothing_behind_when_it_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), storage.publishing(tmp_path / "a" / "file") as file:
        file.write(b"half")
        raise RuntimeError
    assert list((tmp_path / "a").iterdir()) == []
    with storage.publishing("memory://bucket/file") as file:
        file.write(b"whole")
    assert storage.read_bytes("memory://bucket/file") == b"whole"
