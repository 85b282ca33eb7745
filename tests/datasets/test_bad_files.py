"""One bad row costs one row: files that are no images, places that cannot be read, rows that grow without limit."""

from __future__ import annotations

import http.server
import io
import json
import math
import os
import socket
import stat
import tarfile
import threading
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from reward.inputs import jpeg_scan
from reward.inputs.decoding import decode
from reward.inputs.sample import ImageError
from stages.datasets import bounds, table
from stages.datasets import readers as edits
from stages.datasets.config import EditRewardDataEdits, ShareGPT4oEdits, TableEdits, TripletEdits, WebdatasetEdits
from stages.datasets.editreward_data import SCORES
from stages.datasets.io import files, image_files
from stages.datasets.io.text_tables import MOST_LEVELS
from stages.datasets.slices import Edit, Request
from stages.engine import tar
from stages.engine.contracts import Quarantined
from stages.filter import inspection


def encoded(seed: int = 0, kind: str = "JPEG", **how: Any) -> bytes:
    """A picture with structure, so that its scan is long."""
    down, across = np.mgrid[0:96, 0:128]
    waves = [np.sin(down / (3 + seed + channel)) * np.cos(across / (5 - channel)) for channel in range(3)]
    buffer = io.BytesIO()
    Image.fromarray((127 + 120 * np.stack(waves, axis=2)).astype(np.uint8)).save(buffer, kind, **how)
    return buffer.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sound picture and files that are none."""
    (tmp_path / "sound.jpg").write_bytes(encoded())
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "page.jpg").write_bytes(b"\xef\xbb\xbf\n <!DOCTYPE html>\n<html><body>403 Forbidden")
    (tmp_path / "text.jpg").write_bytes(b"{}")
    os.mkfifo(tmp_path / "pipe.jpg")
    os.mknod(tmp_path / "socket", stat.S_IFSOCK | 0o600)
    with (tmp_path / "huge.jpg").open("wb") as file:
        file.truncate(100 << 30)
    with zipfile.ZipFile(tmp_path / "whole.zip", "w") as archive:
        archive.writestr("a.jpg", encoded(1))
    whole = (tmp_path / "whole.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 255
    (tmp_path / "flipped.zip").write_bytes(flipped)
    scan = bytearray(encoded(2))
    scan[len(scan) // 2 : len(scan) // 2 + 600] = bytes(600)
    (tmp_path / "scan.jpg").write_bytes(scan)
    return tmp_path


def bad_rows(folder: Path) -> dict[str, str]:
    """Reason by edited image."""
    return {
        "empty.jpg": "empty-file",
        "page.jpg": "html-file",
        "text.jpg": "unsupported-format",
        "pipe.jpg": "not-a-file",
        "/dev/zero": "not-a-file",
        "/proc/self/mem": "empty-file",
        "/proc/kmsg": "empty-file",
        f"zip://a.jpg::{folder}/pipe.jpg": "not-a-file",
        f"tar://a.jpg::file://{folder}/pipe.jpg": "not-a-file",
        f"simplecache::{folder}/socket": "not-a-file",
        "zip://a.jpg::/dev/zero": "not-a-file",
        "tar://a.jpg::/proc/self/mem": "broken-archive",
        f"zip://a.jpg::file:///dev/zero::{folder}/whole.zip": "not-a-file",
        f"zip://a.jpg::{folder}/pipe.jpg::zip://b.zip::{folder}/whole.zip": "not-a-file",
        f"zip://a.jpg::dir://pipe.jpg::{folder}": "not-a-file",
        f"dir://pipe.jpg::{folder}": "not-a-file",
        f"simplecache://{folder}/pipe.jpg::file://{folder}": "not-a-file",
        "huge.jpg": "too-large",
        "scan.jpg": "damaged-image",
        "absent.jpg": "missing-image",
        "a\0b.jpg": "missing-image",
        f"zip://a.jpg::{folder}/cut.zip": "broken-archive",
        f"zip://a.jpg::{folder}/flipped.zip": "broken-archive",
        f"zip://b.jpg::{folder}/whole.zip": "missing-image",
        f"zip://a.jpg::{folder}/none.zip": "missing-image",
        "warp://bucket/a.jpg": "unknown-location",
        "gs://bucket/a.jpg": "unknown-location",
        "github://a.jpg": "unknown-location",
        "hdfs://host/a.jpg": "unknown-location",
        "s3://bucket/a.jpg": "unknown-location",
        "zip://a.jpg::s3://bucket/a.zip": "unknown-location",
    }


def inspected(config: TripletEdits | TableEdits) -> tuple[list[dict[str, Any]], dict[str, Quarantined]]:
    """Rows that are left, and the others by id; as the filter's workers find them, in one unit."""
    (piece,) = edits.plan(config, seed=0, world=None, unit_rows=1000)
    output = inspection.make_work()(piece)
    assert output.rows_in == output.rows_out + len(output.quarantine)
    return output.tables["inspected"].to_pylist(), {row.row_id: row for row in output.quarantine}


@pytest.mark.usefixtures("no_credentials")
@pytest.mark.parametrize("kind", ["triplets", "table"])
def test_a_bad_image_costs_its_row(folder: Path, kind: str) -> None:
    """The sizes of the files are asked for as well."""
    expected = bad_rows(folder)
    rows = [{"source": "sound.jpg", "instruction": "x", "edited": name, "id": f"b{n}"} for n, name in enumerate(expected)]
    rows += [{"source": "sound.jpg", "instruction": "x", "edited": f"zip://a.jpg::{folder}/whole.zip", "id": "sound"}]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = str(folder / "rows.jsonl")
    sound, bad = inspected(TripletEdits(dataset="triplets", path=path) if kind == "triplets" else TableEdits(dataset="table", path=path))
    assert [row["row_id"] for row in sound] == ["sound"]
    assert {f"b{n}": reason for n, reason in enumerate(expected.values())} == {row_id: row.reason for row_id, row in bad.items()}
    assert "HTML page" in bad["b1"].message and "page.jpg" in bad["b1"].message
    assert max(len(row.message) for row in bad.values()) < 300, "what reads hdfs:// lists every folder that it looked into"
    said = dict(zip(expected, (bad[f"b{n}"].message for n in range(len(expected))), strict=True))
    assert "extra" not in said["hdfs://host/a.jpg"], "no extra of this package reads it"
    assert "this machine has no credentials for it" in said["s3://bucket/a.jpg"]


@pytest.mark.usefixtures("no_credentials")
def test_an_archive_on_a_server_that_does_not_answer_is_not_called_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(image_files.time, "sleep", waited.append)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        given = {"ENDPOINT_URL": f"http://127.0.0.1:{unused.getsockname()[1]}", "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x"}
        for name, value in ({"MAX_ATTEMPTS": "1", "DEFAULT_REGION": "us-east-1"} | given).items():
            monkeypatch.setenv(f"AWS_{name}", value)
        with pytest.raises(OSError, match=r"could not be read in 5 tries in 15 seconds \(Could not connect"):
            image_files.read("zip://a.jpg::s3://bucket/a.zip", "it")
    assert waited == [1, 2, 4, 8]


def test_values_that_are_none_cost_their_row(folder: Path) -> None:
    """Bytes that are a text, as a table saved as JSON has them; a name of a column, and of the table itself, that is no Unicode."""
    sound = {"source": "sound.jpg", "instruction": "x", "edited": "sound.jpg"}
    cells = [{"bytes": "iVBOR", "path": None}, {"bytes": [137, 80]}, {"bytes": 7}]
    rows = [sound | {"id": f"b{n}", "source": cell} for n, cell in enumerate(cells)]
    rows += [sound | {"id": "odd", "\ud800": 1}, sound | {"id": "typed", "source": {"bytes": None, "path": "sound.jpg"}}]
    name = os.fsdecode(b"caf\xe9.jsonl")
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    found, bad = inspected(TableEdits(dataset="table", path=str(folder / name)))
    assert [row["row_id"] for row in found] == ["odd", "typed"] and found[0]["position"] == "caf?.jsonl[3]"
    assert {row.reason for row in bad.values()} == {"bad-row"} and sorted(bad) == ["b0", "b1", "b2"]
    assert "the bytes of the source image are no bytes" in bad["b0"].message
    (piece,) = edits.plan(TableEdits(dataset="table", path=str(folder / name)), seed=0, world=None, unit_rows=9)
    assert next(json.loads(row.metadata) for row in edits.fetch(piece) if isinstance(row, Edit)) == {"\\ud800": 1}


@pytest.mark.parametrize("ending", ["jsonl", "json", "tar"])
def test_a_value_that_is_there_twice_is_not_dropped_silently(folder: Path, ending: str) -> None:
    """A key of the record costs the row; one inside of a passed-on column is said in its place. So are names that are no Unicode."""
    sound = '"source": "sound.jpg", "instruction": "x", "edited": "sound.jpg"'
    texts = [f'{{{sound}, "note": 1, "note": 2}}', f'{{{sound}, "a": {{"b": 1, "b": 2}}}}', f'{{{sound}, "\\udce8": 1, "\\udce9": 2}}']
    path = folder / f"rows.{ending}"
    config: TableEdits | WebdatasetEdits = TableEdits(dataset="table", path=str(path))
    if ending == "tar":
        config = WebdatasetEdits(dataset="webdataset", path=str(path))
        with tarfile.open(path, "w") as archive:
            for number, text in enumerate(texts[:2]):
                for field, data in (("source.jpg", encoded()), ("edited.jpg", encoded()), ("json", text.encode())):
                    info = tarfile.TarInfo(f"{number}.{field}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    else:
        path.write_text("\n".join(texts) if ending == "jsonl" else f"[{','.join(texts)}]")
    (piece,) = edits.plan(config, seed=0, world=None, unit_rows=9)
    first, *others = edits.fetch(piece)
    assert isinstance(first, Quarantined) and "cannot be read: it has 2 values of the key 'note'" in first.message
    columns = [json.loads(row.metadata) for row in others if isinstance(row, Edit)]
    assert columns[0]["a"] == {"unreadable": "it has 2 values of the key 'b'"}
    assert ending == "tar" or columns[1] == {"\\udce8": 1, "\\udce9": 2}


def test_odd_members_of_a_tar_cost_nobody_else(tmp_path: Path) -> None:
    """Hidden files, as macOS puts them before each file and in folders; names that are no UTF-8; numbers that JSON has not."""
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.USTAR_FORMAT) as archive:

        def add(name: str, data: bytes) -> None:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))

        for key in ("0", "in/1", os.fsdecode(b"caf\xe9")):
            head, _, base = key.rpartition("/")
            text = b'{"instruction": "x", "score": NaN, "big": 1e999, "seed": 3}'
            for field, data in (("source.jpg", encoded()), ("edited.jpg", encoded(1)), ("JSON", text)):
                add(f"{head}/._{base}.{field}" if head else f"._{base}.{field}", b"Mac OS X")
                add(f"{key}.{field}", data)
        add("in/.DS_Store", b"x")
        add("in/._2", b"x")
    config = WebdatasetEdits(dataset="webdataset", path=str(tmp_path / "a.tar"), source="source", edited="edited", text="JSON")
    (piece,) = edits.plan(config, seed=0, world=None, unit_rows=9)
    found = [row for row in edits.fetch(piece) if isinstance(row, Edit)]
    assert [(row.row_id, row.source_path) for row in found] == [(key, f"{key}.source.jpg") for key in ("0", "in/1", "caf?")]
    assert json.loads(found[0].metadata) == {"big": "inf", "score": "nan", "seed": 3} and found[0].instruction == "x"
    assert len(inspection.make_work()(piece).tables["inspected"]) == 3


@pytest.mark.parametrize("dataset", ["webdataset", "sharegpt4o"])
def test_a_member_of_a_tar_that_is_too_large_is_not_read(tmp_path: Path, dataset: str) -> None:
    with open(tmp_path / "text_and_image_to_image_part_0.tar", "wb") as file:
        for name, data in (("0.source.png", b"x"), ("0.edited.png", None), ("0.json", b'{"instruction": "x"}')):
            file.write(tar.header(name, len(data) if data else 600 << 20))
            if data:
                file.write(data + tar.padding(len(data)))
            else:
                file.seek(600 << 20, 1)  # a hole, which takes no room on the disk
        file.write(tar.END)
    record = {"input_prompt": "x", "input_image": ["0.source.png"], "output_image": "0.edited.png"}
    (tmp_path / "text_and_image_to_image.json").write_text(json.dumps([record]))
    config = (
        ShareGPT4oEdits(dataset="sharegpt4o", path=str(tmp_path))
        if dataset == "sharegpt4o"
        else WebdatasetEdits(dataset="webdataset", path=str(tmp_path), source="source", edited="edited", text="json")
    )
    (piece,) = edits.plan(config, seed=0, world=None, unit_rows=9)
    tracemalloc.start()
    (row,) = edits.fetch(piece)
    assert isinstance(row, Quarantined) and (row.reason, row.message.partition("0.edited.png")[2]) == (
        "too-large",
        " has more than 512 MiB",
    )
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()


def test_a_quote_that_is_not_closed_makes_no_edit_of_two_rows(folder: Path) -> None:
    for number in range(5):
        (folder / f"{number}.jpg").write_bytes(encoded(number))
    lines = ["source,instruction,edited", "0.jpg,x,0.jpg", '1.jpg,"y,1.jpg', '2.jpg,"z",2.jpg', "3.jpg,x,3.jpg", '4.jpg,"x,4.jpg']
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    config = TableEdits(dataset="table", path=str(folder / "rows.csv"))
    found, bad = inspected(config)
    assert [row["row_id"] for row in found] == ["0", "2"]
    assert [row.reason for row in bad.values()] == ["bad-line"] * 2 and "in 2 lines: is a quote not closed?" in bad["1"].message
    (folder / "rows.csv").write_bytes("\r".join(lines).encode())
    with pytest.raises(ValueError, match=r"rows\.csv: its first line is no header \(.*\); end lines with line feeds"):
        edits.plan(config, seed=0, world=None, unit_rows=9)


def test_rows_without_end_cost_themselves(folder: Path) -> None:
    sound = {"source": "sound.jpg", "instruction": "x", "edited": "sound.jpg"}
    deep = "[" * 100_000 + "]" * 100_000
    lines = [
        json.dumps(sound | {"id": "one"}),
        f'{{"source": "sound.jpg", "x": {deep}}}',
        '{"source": "sound.jpg", "x": ' + "[" * MOST_LEVELS + "]" * MOST_LEVELS + "}",
        json.dumps(sound | {"id": "two", "instruction": "é" * (bounds.INSTRUCTION_CHARACTERS + 1)}),
        json.dumps(sound | {"id": "three", "instruction": "y", "notes": "long " * 4000, "b": 1} | {f"c{n}": "z" * 4000 for n in range(30)}),
    ]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    left, bad = inspected(TripletEdits(dataset="triplets", path=str(folder / "rows.jsonl")))
    assert [row["row_id"] for row in left] == ["one", "three"]
    assert {row_id: row.reason for row_id, row in bad.items()} == {"1": "bad-line", "2": "bad-line", "two": "too-long"}
    (piece,) = edits.plan(TripletEdits(dataset="triplets", path=str(folder / "rows.jsonl")), seed=0, world=None, unit_rows=9)
    (kept,) = [entry for entry in edits.fetch(piece) if isinstance(entry, Edit) and entry.row_id == "three"]
    columns = json.loads(kept.metadata)
    assert len(kept.metadata) < bounds.COLUMNS_CHARACTERS + 100 and columns["b"] == 1
    assert columns[bounds.LEFT_OUT] == 32 - (len(columns) - 1) and columns["c0"] == "z" * 4000
    listed = f'[{{"a": {deep}, "b": "]}}"}}, {json.dumps(sound)}]'  # in a list the parser must find the end of the record
    (folder / "rows.json").write_text(listed)
    left, bad = inspected(TableEdits(dataset="table", path=str(folder / "rows.json")))
    assert len(left) == 1 and [row.reason for row in bad.values()] == ["bad-line"]


def test_a_long_column_is_cut_with_a_mark(folder: Path) -> None:
    row = {"source": "sound.jpg", "instruction": "x", "edited": "sound.jpg", "notes": "ab" * 5000}
    (folder / "rows.jsonl").write_text(json.dumps(row))
    (piece,) = edits.plan(TripletEdits(dataset="triplets", path=str(folder / "rows.jsonl")), seed=0, world=None, unit_rows=9)
    (edit,) = edits.fetch(piece)
    assert isinstance(edit, Edit)
    assert json.loads(edit.metadata) == {"notes": {"cut": json.dumps("ab" * 5000)[: bounds.COLUMN_CHARACTERS], "characters": 10_002}}


def test_a_damaged_page_of_a_table_is_named(tmp_path: Path) -> None:
    image = {"bytes": encoded(), "path": None}
    rows = [{"source": image, "instruction": f"x {n}", "edited": image} for n in range(6)]
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=3, compression="zstd")
    data, begin = bytearray(path.read_bytes()), pq.read_metadata(path).row_group(1).column(0).dictionary_page_offset
    data[begin : begin + 300] = bytes(300)
    path.write_bytes(data)
    (piece,) = edits.plan(TableEdits(dataset="table", path=str(path)), seed=0, world=None, unit_rows=9)
    with pytest.raises(ValueError, match=r"rows\.parquet: its row group 1 cannot be read \(.*\); download it again$") as error:
        list(edits.fetch(piece))
    assert "\n" not in str(error.value)


def test_a_pipe_in_place_of_a_table_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet is no regular file"):
        table.plan(TableEdits(dataset="table", path=str(tmp_path)), Request(9, "filter.input"))
    with pytest.raises(FileNotFoundError):
        files.opened(str(tmp_path / "none.tar"))


class Server(http.server.BaseHTTPRequestHandler):
    """Fails the first requests for an image with 503; another image is forbidden, a third never there, and a fourth elsewhere for ever."""

    failures = 3

    def do_GET(self) -> None:
        code = {"/forbidden.jpg": 403, "/down.jpg": 503, "/busy.jpg": 200, "/loop.jpg": 302}.get(self.path, 404)
        if self.path == "/busy.jpg" and Server.failures:
            Server.failures -= 1
            code = 503
        data = encoded() if code == 200 else b""
        self.send_response(code)
        self.send_header("Location", "/loop.jpg")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET

    def log_message(self, *_: Any) -> None: ...


def test_what_is_the_networks_fault_is_tried_again_and_then_ends_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(image_files.time, "sleep", waited.append)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    assert image_files.read(f"{base}/busy.jpg", "it") == encoded() and waited and Server.failures == 0
    waited.clear()
    for url in (f"{base}/forbidden.jpg", f"{base}/absent.jpg", f"{base}/loop.jpg"):
        fault = image_files.read(url, "it")
        assert isinstance(fault, image_files.Fault) and fault.reason == "missing-image" and not waited
    with pytest.raises(OSError, match=r"the source image a \(http.*/down\.jpg\) could not be read in 5 tries in 15 seconds .*run again"):
        image_files.read(f"{base}/down.jpg", "the source image a")
    assert waited == [1, 2, 4, 8]
    server.shutdown()
    server.server_close()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match="could not be read in 5 tries"):
            image_files.read(f"http://127.0.0.1:{unused.getsockname()[1]}/a.jpg", "it")


class HttpError(Exception):
    """As the library behind gs:// raises it."""

    def __init__(self, code: int) -> None:
        super().__init__(f"Anonymous caller does not have storage.objects.get access, {code}")
        self.code = code


@pytest.mark.parametrize(
    ("error", "costs_row"), [(HttpError(401), True), (OSError("Forbidden: b/a.png\nno"), True), (HttpError(503), False)]
)
def test_what_may_not_be_read_costs_its_row_behind_gs_too(error: Exception, costs_row: bool) -> None:
    fault = image_files.fault_of(error, "gs://b/a.png", "it", last=True)
    assert (fault.reason if fault else None) == ("missing-image" if costs_row else None)


def test_a_host_without_an_address_costs_its_row_while_others_have_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the name does not exist, or its name servers do not answer. Without any host that has one the run must stop."""
    waited: list[float] = []
    monkeypatch.setattr(image_files.time, "sleep", waited.append)
    found, answer = {"huggingface.co"}, socket.EAI_NONAME
    numbers = socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)

    def getaddrinfo(host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        if str(host) not in found:
            raise socket.gaierror(answer, "Name or service not known")
        return [(*entry[:4], (entry[4][0], port)) for entry in numbers]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    urls = ("http://nowhere.example/a.jpg", "https://no where/a.jpg", "zip://a.jpg::http://nowhere.example/a.zip", "github://a:b@c/d.jpg")
    rows = [{"source": "sound.jpg", "instruction": "x", "edited": name} for name in ("sound.jpg", *urls)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sound, bad = inspected(TripletEdits(dataset="triplets", path=str(folder / "rows.jsonl")))
    assert len(sound) == 1 and {row.reason for row in bad.values()} == {"unknown-host"} and len(bad) == len(urls) and not waited
    assert bad["1"].message.startswith(f"the edited image {urls[0]}: its host has no address")

    found.clear()
    with pytest.raises(OSError, match=r"a \(http://nowhere.*\) could not be read in 5 tries .*not known\); see to disk or netw"):
        image_files.read(urls[0], "a")
    assert waited == [1, 2, 4, 8]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found.add("images.lab")  # a network of its own, which finds no public host
    monkeypatch.setattr(Server, "failures", 0)
    assert image_files.read(f"http://images.lab:{server.server_port}/busy.jpg", "b") == encoded()
    server.shutdown()
    server.server_close()
    waited.clear()
    answer = socket.EAI_AGAIN
    fault = image_files.read(urls[0], "a")
    assert isinstance(fault, image_files.Fault) and fault.reason == "unknown-host" and waited == [1, 2, 4, 8]


@pytest.mark.parametrize(
    "how", [{}, {"progressive": True}, {"restart_marker_blocks": 4}, {"quality": 95, "subsampling": 0}, {"quality": 20}]
)
def test_sound_scans_have_no_fault(how: dict[str, Any]) -> None:
    for seed in range(4):
        data = encoded(seed, **how)
        assert jpeg_scan.fault(data, decode(data), decode) is None
    assert jpeg_scan.fault(encoded(kind="PNG"), decode(encoded(kind="PNG")), decode) is None
    flat = io.BytesIO()
    Image.new("RGB", (200, 120), (128, 128, 128)).save(flat, "JPEG", **how)
    assert jpeg_scan.fault(flat.getvalue(), decode(flat.getvalue()), decode) is None


def test_plain_and_grey_scans_have_no_fault() -> None:
    """With tables of their own their blocks take few bits, and the last ones are beyond the picture's edges."""
    down, across = np.mgrid[0:160, 0:160]
    grey = Image.fromarray((127 + 120 * np.sin(down / 3) * np.cos(across / 5)).astype(np.uint8)).convert("RGB")
    pictures = [grey.crop((0, 0, side, side + 7)) for side in range(98, 148, 3)]
    pictures += [Image.new("RGB", (side, side), (255, 255, 255)) for side in range(15, 64, 7)]
    for number, picture in enumerate(pictures):
        for quality in (75, 95):
            buffer = io.BytesIO()
            picture.save(buffer, "JPEG", quality=quality, optimize=True)
            data = buffer.getvalue()
            assert jpeg_scan.fault(data, decode(data), decode) is None, (number, quality)


@pytest.mark.parametrize("progressive", [False, True])
def test_a_scan_with_missing_or_foreign_data_is_damaged(progressive: bool) -> None:
    data = encoded(progressive=progressive)
    begin, end = max(jpeg_scan._scans(data), key=lambda span: span[1] - span[0])
    middle, found = (begin + end) // 2, list[bool]()
    for length in (60, 100, 300):
        for damaged in (data[:middle] + data[middle + length :], data[:middle] + bytes(length) + data[middle + length :]):
            try:
                picture = decode(damaged)
            except ImageError:
                continue
            found.append(jpeg_scan.fault(damaged, picture, decode) is not None)
    assert sum(found) >= 2  # of the others the number of blocks is right by chance, so they are valid files
    if not progressive:
        more = data[:end] + bytes(40) + data[end:]
        assert "more data" in (jpeg_scan.fault(more, decode(more), decode) or "")


def test_a_column_that_python_cannot_have_is_no_reason_to_stop(tmp_path: Path) -> None:
    texts = pa.array([b"\xff\xfe", b"sound"])
    texts = pa.Array.from_buffers(pa.string(), len(texts), texts.buffers())  # a writer that does not check
    far = pa.array([1 << 60, 0], pa.timestamp("us"))
    sound = {"source": [encoded()] * 2, "edited": [encoded(1)] * 2, "id": ["a", "b"]}
    pq.write_table(pa.table({**sound, "instruction": ["brighter"] * 2, "far": far, "note": texts}), tmp_path / "others.parquet")
    pq.write_table(pa.table({**sound, "instruction": texts}), tmp_path / "needed.parquet")

    def rows(name: str) -> list[Edit | Quarantined]:
        config = TableEdits(dataset="table", path=str(tmp_path / name))
        return [row for piece in edits.plan(config, seed=0, world=None, unit_rows=9) for row in edits.fetch(piece)]

    first, second = (json.loads(row.metadata) for row in rows("others.parquet") if isinstance(row, Edit))
    assert first["far"].keys() == first["note"].keys() == {"unreadable"}
    assert second == {"far": "1970-01-01 00:00:00", "note": "sound"}
    bad, good = rows("needed.parquet")
    assert isinstance(bad, Quarantined) and bad.reason == "bad-line" and "instruction" in bad.message
    assert isinstance(good, Edit) and good.instruction == "sound"

    scores = {f"{side}_{name}_score": [math.nan, 1.0] for side in ("left", "right") for name in SCORES}
    images = {"source_img": [{"bytes": encoded(), "path": None}] * 2}
    images |= {f"{side}_output_image": [{"bytes": encoded(1), "path": None}] * 2 for side in ("left", "right")}
    names = {"key": texts, "left_img_rel": ["a", "b"], "right_img_rel": ["c", "d"], "left_model": texts, "right_model": ["m", "m"]}
    (tmp_path / "pairs").mkdir()
    pq.write_table(pa.table({**images, **names, **scores, "instruction": ["x", "y"]}), tmp_path / "pairs" / "train-0.parquet")
    plan = edits.plan(EditRewardDataEdits(dataset="editreward-data", path=str(tmp_path / "pairs")), seed=0, world=None, unit_rows=9)
    of_pairs = [row for piece in plan for row in edits.fetch(piece)]
    assert [isinstance(row, Edit) for row in of_pairs] == [False, False, True, True]
    assert all("column key cannot be read" in row.message for row in of_pairs if isinstance(row, Quarantined))
