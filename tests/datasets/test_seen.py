"""Image files that change between a run and the next: their slice is new work, and no other; plans look at no image."""

from __future__ import annotations

import csv
import http.server
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filter_here
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from command import save_model, save_triplets

from pipeline.cli import main
from pipeline.commands import run as run_command
from pipeline.report import page
from stages.config import FlowConfig
from stages.context import Context
from stages.datasets import readers
from stages.datasets.config import EditsInput, ReferenceJsonEdits, TableEdits, TripletEdits, WorldConfig, WorldEdits
from stages.datasets.io.locations import Sizes
from stages.datasets.seen import as_they_are, seen
from stages.datasets.slices import Slice
from stages.engine import unit_log
from stages.engine.rundir import RunDir, StepFolder
from stages.engine.units import UnitRecord
from stages.filter import inspection
from stages.filter import step as filter
from stages.filter.selection.config import SelectionConfig

ROWS = [{"source": f"{n}-source.png", "instruction": f"cat {n}", "edited": f"{n}-edited.png"} for n in range(6)]


def plan(config: EditsInput) -> list[Slice]:
    return readers.plan(config, seed=0, world=None, unit_rows=2)


def as_triplets(folder: Path) -> EditsInput:
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return TripletEdits(dataset="triplets", path=str(folder / "mine.jsonl"))


def as_table(folder: Path) -> EditsInput:
    """Below another folder than the images, with a path in a list and one in an object."""
    (folder / "lists").mkdir()
    odd = [ROWS[0] | {"source": ["0-source.png"]}, ROWS[1] | {"edited": {"path": "1-edited.png"}}, *ROWS[2:]]
    (folder / "lists" / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in odd))
    return TableEdits(dataset="table", path=str(folder / "lists" / "mine.jsonl"), images=str(folder))


def as_csv(folder: Path) -> EditsInput:
    with open(folder / "mine.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ROWS[0])
        writer.writeheader()
        writer.writerows(ROWS)
    return TableEdits(dataset="table", path=str(folder / "mine.csv"))


def as_pairs(folder: Path) -> EditsInput:
    """Each edit beside a file that is not there."""
    pairs = [
        {"path_src": row["source"], "prompt": row["instruction"], "path1": row["edited"], "path2": "none.png", "model1": "a", "model2": "b"}
        for row in ROWS
    ]
    (folder / "train.json").write_text(json.dumps(pairs))
    return ReferenceJsonEdits(dataset="reference-json", path=str(folder / "train.json"))


@pytest.mark.parametrize("written", [as_triplets, as_table, as_csv, as_pairs])
def test_a_changed_image_is_new_work_for_its_slice(tmp_path: Path, written: Callable[[Path], EditsInput]) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    save_triplets(folder, 6, side=16)
    (folder / "5-edited.png").rename(folder / "later.png")
    config, step = written(folder), StepFolder(tmp_path / "run", "filter")
    slices = plan(config)
    assert not any(piece.changed for piece in as_they_are(step, slices, inspection.unit_key)), "nothing was read"

    def read(pieces: list[Slice]) -> None:
        step.path.mkdir(exist_ok=True)
        with open(step.path / "units.jsonl", "a") as file:
            for piece in pieces:
                file.write(unit_log.line(UnitRecord(inspection.unit_key(piece), {}, 2, 2, seen=seen(piece, Sizes()))))

    def changed() -> list[int]:
        there = as_they_are(step, plan(config), inspection.unit_key)
        assert [[*piece.rows] for piece in there] == [[*piece.rows] for piece in slices]
        new = [piece.fingerprint != before.fingerprint for piece, before in zip(there, slices, strict=True)]
        return [slices[number].rows[0][0] for number in range(len(slices)) if new[number]]

    read(slices)
    assert changed() == []
    of_2, of_5 = (4, 10) if written is as_pairs else (2, 4)  # first rows of the slices with these images
    image = (folder / "2-source.png").read_bytes()
    (folder / "2-source.png").write_bytes(image + b"more")
    assert changed() == [of_2]
    (folder / "later.png").rename(folder / "5-edited.png")
    assert changed() == [of_2, of_5]
    now = as_they_are(step, plan(config), inspection.unit_key)
    read([piece for piece in now if piece.changed])
    assert [piece.fingerprint for piece in as_they_are(step, plan(config), inspection.unit_key)] == [piece.fingerprint for piece in now]
    (folder / "2-source.png").write_bytes(image)
    (folder / "5-edited.png").unlink()
    assert changed() == [], "as at first"


@pytest.mark.parametrize("written", [as_triplets, as_csv, as_pairs])
def test_a_plan_does_not_depend_on_images(tmp_path: Path, written: Callable[[Path], EditsInput]) -> None:
    config = written(tmp_path)
    without = [piece.fingerprint for piece in plan(config)]
    save_triplets(tmp_path, 6, side=16)
    assert [piece.fingerprint for piece in plan(written(tmp_path))] == without


def test_images_in_parquet_and_behind_web_servers_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text(
        json.dumps({"source": "https://nowhere.invalid/a.png", "instruction": "x", "edited": "b.png"}) + "\n"
    )
    (piece,) = plan(TableEdits(dataset="table", path=str(tmp_path / "mine.jsonl")))
    before = seen(piece, Sizes())
    (tmp_path / "b.png").write_bytes(b"there now")
    assert before and seen(piece, Sizes()) not in ("", before)
    mistyped, right = (
        seen(plan(TableEdits(dataset="table", path=str(tmp_path / "mine.jsonl"), images=f"https://{host}.invalid"))[0], Sizes())
        for host in ("mistyped", "right")
    )
    assert mistyped != right, "what was set aside with one is read again with the other"
    pq.write_table(pa.table({"source": ["b.png"], "instruction": ["x"], "edited": ["b.png"]}), tmp_path / "mine.parquet")
    drawn = readers.plan(WorldEdits(dataset="world-edits", count=10), seed=0, world=WorldConfig(), unit_rows=9)
    assert {seen(piece, Sizes()) for piece in (*plan(TableEdits(dataset="table", path=str(tmp_path / "mine.parquet"))), *drawn)} == {""}


def test_images_of_a_server_are_listed(bucket: str, tmp_path: Path) -> None:
    as_csv(tmp_path)
    save_triplets(tmp_path, 6, side=16)
    system = fsspec.filesystem(bucket.split(":")[0])
    system.put([str(path) for path in sorted(tmp_path.glob("*.*"))], f"{bucket}/seen/")
    slices = plan(TableEdits(dataset="table", path=f"{bucket}/seen/mine.csv"))
    local = plan(TableEdits(dataset="table", path=str(tmp_path / "mine.csv")))
    sizes, here = Sizes(), Sizes()
    assert [seen(piece, sizes) for piece in slices] == [seen(piece, here) for piece in local]
    system.rm(f"{bucket}/seen/3-source.png")
    system.invalidate_cache()
    new = Sizes()
    assert [seen(piece, new) == seen(piece, sizes) for piece in slices] == [True, False, True]


@pytest.fixture
def own(tmp_path: Path) -> Callable[..., Context]:
    """Runs, by name, over the triplets in the folder."""
    model, no_cluster = save_model(tmp_path / "model"), filter_here.NoCluster()

    def context(name: str, *, force: bool = False) -> Context:
        settings = {
            "input": {"dataset": "table", "path": str(tmp_path / "mine.jsonl")},
            "model": str(model),
            "selections": [{"name": "selected", "rule": "top", "count": 4}],
            "gates": {
                name: {"action": "off"} for name in ("size", "unrelated", "drift", "redrawn", "near_duplicate", "upscaled", "unchanged")
            },
            "unit_rows": 4,
            "prepare_workers": 0,
        }
        flow = FlowConfig.model_validate({"name": "mine", "filter": settings})
        return Context(RunDir(tmp_path / name), flow, no_cluster, force)  # ty: ignore[invalid-argument-type]

    return context


@pytest.fixture
def run(tmp_path: Path, own: Callable[..., Context], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, list[dict[str, Any]]]]:
    """Runs the filter here: its index, and the records of the units that it did."""

    def started(name: str, *, force: bool = False) -> tuple[Any, list[dict[str, Any]]]:
        filter_here.use(monkeypatch, [])
        log = tmp_path / name / "filter" / "units.jsonl"
        before = len(log.read_text().splitlines()) if log.exists() else 0
        index = filter.run(own(name, force=force))
        return index, [json.loads(line) for line in log.read_text().splitlines()[before:]]

    return started


def test_an_image_that_is_gone_after_scoring_is_named_with_its_row(
    tmp_path: Path, run: Callable[..., Any], own: Callable[..., Context]
) -> None:
    rows = [json.loads(line) for line in save_triplets(tmp_path, 12).read_text().splitlines()]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row | {"id": f"row {n}"}) + "\n" for n, row in enumerate(rows)))
    (tmp_path / "4-edited.png").rename(tmp_path / "elsewhere.png")
    run("own")
    config = SelectionConfig(name="another", rule="all")
    assert filter.select(own("own"), config) == 11
    (tmp_path / "5-edited.png").rename(tmp_path / "other.png")
    with pytest.raises(ValueError, match=r"mine\.jsonl\[5\] changed since .* \(id row 5: .* 5-edited\.png cannot be read .*\); restore"):
        filter.write_shards(own("own"), config)
    (tmp_path / "other.png").rename(tmp_path / "5-edited.png")
    (tmp_path / "elsewhere.png").rename(tmp_path / "4-edited.png")  # it was set aside, so there is no sample to name
    with pytest.raises(ValueError, match="the edits are not those that were scored; restore them, or run the filter step again"):
        filter.write_shards(own("own"), config)
    (tmp_path / "4-edited.png").unlink()
    assert Path(filter.write_shards(own("own"), config)).is_dir()


def test_a_repaired_image_is_scored_in_the_next_run_and_nothing_else(tmp_path: Path, run: Callable[..., Any]) -> None:
    save_triplets(tmp_path, 12)
    (tmp_path / "5-edited.png").rename(tmp_path / "elsewhere.png")
    index, _ = run("mended")
    assert index.counts == {"in": 12, "out": 11, "quarantined": 1, "gated": 0} and index.quarantined == {"missing-image": 1}
    assert run("mended") == (index, []), "it is done"
    (tmp_path / "elsewhere.png").rename(tmp_path / "5-edited.png")
    with pytest.raises(ValueError, match=r"was made with another version of its input edits; repeat with --force"):
        run("mended")
    mended, done = run("mended", force=True)
    assert mended.counts == {"in": 12, "out": 12, "quarantined": 0, "gated": 0}
    phases = [name for record in done for name in ("inspected", "scores") if name in record["parts"]]
    assert phases == ["inspected", "scores"] and [record["rows_in"] for record in done if "shard" not in str(record)] == [4, 4]
    run("fresh")
    steps = [RunDir(tmp_path / name).step("filter") for name in ("mended", "fresh")]
    tables = [[step.read(table) for table in ("edits", "scores")] for step in steps]
    assert tables[0] == tables[1]
    assert run("mended") == (mended, [])


class Server(http.server.BaseHTTPRequestHandler):
    """Sends the files of a folder."""

    folder = Path()

    def do_GET(self) -> None:
        path = self.folder / self.path.lstrip("/")
        data = path.read_bytes() if path.is_file() else b""
        self.send_response(200 if data else 404)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET

    def log_message(self, *_: Any) -> None: ...


def test_an_image_of_a_web_server_that_was_not_found_is_read_again_on_request(
    tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [json.loads(line) for line in save_triplets(tmp_path, 12).read_text().splitlines()]
    Server.folder = tmp_path
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    rows[5]["edited"] = f"http://127.0.0.1:{server.server_port}/5-edited.png"
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "5-edited.png").rename(tmp_path / "elsewhere.png")
    index, _ = run("retried")
    assert index.quarantined == {"missing-image": 1}
    (tmp_path / "elsewhere.png").rename(tmp_path / "5-edited.png")
    assert run("retried", force=True) == (index, []), "not by itself"

    monkeypatch.setattr(run_command, "run_steps", lambda *_: None)
    monkeypatch.setattr(page, "build", lambda _: "")
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nfilter: {input: {dataset: table, path: mine.jsonl}, selections: [{name: s, rule: all}]}\n"
    )
    arguments = ["run", "filter", "--config", str(tmp_path / "mine.yaml"), "--run", str(tmp_path / "retried"), "--retry-images"]
    assert "--retry-images needs --force as well" in CliRunner().invoke(main, arguments).output
    result = CliRunner().invoke(main, [*arguments, "--force"])
    assert result.exit_code == 0 and "filter: rows whose images are looked for again: 1\n" in result.output, result.output

    mended, done = run("retried", force=True)
    assert mended.counts == {"in": 12, "out": 12, "quarantined": 0, "gated": 0} and mended.inputs == index.inputs
    assert [record["rows_in"] for record in done if "inspected" in record["parts"]] == [4], "one slice"
    assert [record["rows_in"] for record in done if "scores" in record["parts"]] == [1], "what was scored stays"
    run("fresh")
    steps = [RunDir(tmp_path / name).step("filter") for name in ("retried", "fresh")]
    assert steps[0].read("edits") == steps[1].read("edits") and steps[0].read("scores")["sample_id"] == steps[1].read("scores")["sample_id"]
    server.shutdown()
    server.server_close()
