"""Memory and time of planning and reading large data sets of edits, and of comparing them with references; on files made here.

    python benchmarks/readers.py
    python benchmarks/readers.py --rows 1000000

Held and peak are what Python allocates while the plan is made, and unit while the rows of one unit are fetched (tracemalloc; NumPy's
arrays count, Arrow's buffers do not); read is the most that Arrow holds while all rows are fetched. Images are 2,000 bytes of nothing,
where nothing else is said: rows are many, not large. The time of a plan, fingerprints of its slices included, is the least of three. Look:
what a resumed step takes to see whether the image files that rows name are as they were, the least of three.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import tarfile
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stages.contamination import match
from stages.datasets import readers as edits
from stages.datasets.config import EditsInput, ReferenceJsonEdits, ShareGPT4oEdits, TableEdits, TripletEdits, WebdatasetEdits
from stages.datasets.io.locations import Sizes
from stages.datasets.seen import seen
from stages.engine import contracts, tables, tar

IMAGE = bytes(2000)
LARGE = 200_000
IMAGES = 5000
"""Image files that rows name in turn, so that no two neighbours name the same."""
UNIT_ROWS = 500
Made = tuple[str, EditsInput, int]
"""Title, configuration and number of rows."""
COMPARED = ((46_539, 10_000), (46_539, 170_000))
"""Edits of ShareGPT-4o-Image; items of several benchmarks, and of EditReward-Data's pairs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--only", choices=sorted(DATA_SETS), help="one kind of data set, and no references")
    options = parser.parse_args()
    columns = ("plan, µs of a core per row", "look, µs", "held, bytes per row", "peak, MB", "unit, MB", "fetch, CPU s", "read at once, kB")
    print(f"| data set | rows | {' | '.join(columns)} |\n{'| --- ' * (len(columns) + 2)}|")
    for kind in [options.only] if options.only else DATA_SETS:
        with tempfile.TemporaryDirectory() as folder:
            title, config, rows = DATA_SETS[kind](Path(folder), options.rows)
            print(f"| {title} | {rows:,} | {' | '.join(measured(config))} |", flush=True)
    if options.only:
        return
    print("\n| edits | items | distance | CPU s |\n| --- | --- | --- | --- |")
    for count, items in COMPARED:
        compare(count, items)


def parquet(folder: Path, rows: int) -> Made:
    with pq.ParquetWriter(folder / "t.parquet", SCHEMA, compression="none", use_dictionary=False) as writer:
        cell = {"bytes": IMAGE, "path": None}
        group = pa.Table.from_pylist([{"source": cell, "instruction": "x", "edited": cell}] * 1000, schema=SCHEMA)
        for _ in range(rows // 1000):
            writer.write_table(group)
    return "Parquet, images embedded, 1,000 rows per row group", TableEdits(dataset="table", path=f"{folder}/t.parquet"), rows


def images(folder: Path) -> None:
    for number in range(IMAGES):
        (folder / f"{number}.png").write_bytes(IMAGE)


def lines(folder: Path, rows: int) -> str:
    images(folder)
    with open(folder / "t.jsonl", "w") as file:
        for number in range(rows):
            names = {role: f"{(2 * number + which) % IMAGES}.png" for which, role in enumerate(("source", "edited"))}
            file.write(json.dumps({"id": number, "instruction": f"edit number {number}", **names}) + "\n")
    return f"{folder}/t.jsonl"


def table(folder: Path, rows: int) -> Made:
    return "JSON Lines, images as files", TableEdits(dataset="table", path=lines(folder, rows)), rows


def triplets(folder: Path, rows: int) -> Made:
    return "triplets: JSON Lines of paths", TripletEdits(dataset="triplets", path=lines(folder, rows)), rows


def reference_json(folder: Path, rows: int) -> Made:
    images(folder)
    with open(folder / "t.json", "w") as file:
        for number in range(rows // 2):
            first = 3 * number
            names = {key: f"{(first + which) % IMAGES}.png" for which, key in enumerate(("path_src", "path1", "path2"))}
            pair = {"prompt": f"edit number {number}", **names, "model1": "a", "model2": "b", "scores": [1, 2]}
            file.write(("," if number else "[") + json.dumps(pair) + "\n")
        file.write("]")
    config = ReferenceJsonEdits(dataset="reference-json", path=f"{folder}/t.json")
    return "reference-json: two edits of a source", config, rows // 2 * 2


def sharegpt4o(folder: Path, rows: int) -> Made:
    with tarfile.open(folder / "text_and_image_to_image_part_0.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        for number in range(rows // 10 + 1):
            add(archive, f"image/v2v_{number}.png", IMAGE)
    with open(folder / "text_and_image_to_image.json", "w") as file:
        for number in range(rows // 10):
            images = {"input_image": [f"image/v2v_{number}.png"], "output_image": f"image/v2v_{number + 1}.png"}
            file.write(("," if number else "[") + json.dumps({"input_prompt": f"edit number {number}", **images}) + "\n")
        file.write("]")
    return "ShareGPT-4o-Image: JSON and a tar", ShareGPT4oEdits(dataset="sharegpt4o", path=str(folder)), rows // 10


def webdataset(folder: Path, rows: int) -> Made:
    with tarfile.open(folder / "t.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        for number in range(rows // 10):
            for field, data in (("source.png", IMAGE), ("edited.png", IMAGE), ("json", b'{"instruction": "x"}')):
                add(archive, f"{number:09d}.{field}", data)
    return "webdataset tar", WebdatasetEdits(dataset="webdataset", path=f"{folder}/t.tar"), rows // 10


def large_webdataset(folder: Path, rows: int) -> Made:
    """The images are holes in the file: a plan does not read them."""
    with open(folder / "t.tar", "wb") as file:
        for number in range(rows // 10):
            for field, size in (("source.png", LARGE), ("edited.png", LARGE), ("json", 300)):
                file.write(tar.header(f"{number:09d}.{field}", size))
                file.seek(size + len(tar.padding(size)), 1)
        file.write(tar.END)
    config = WebdatasetEdits(dataset="webdataset", path=f"{folder}/t.tar")
    return "webdataset tar, images of 200 kB", config, rows // 10


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def measured(config: EditsInput) -> list[str]:
    times, looks = [], []
    for _ in range(3):
        begin = time.process_time()
        planned = edits.plan(config, seed=0, world=None, unit_rows=UNIT_ROWS)
        for piece in planned:
            assert piece.fingerprint
        times.append(time.process_time() - begin)
        begin, sizes = time.process_time(), Sizes()
        for piece in planned:
            seen(piece, sizes)
        looks.append(time.process_time() - begin)
    tracemalloc.start()
    plan = edits.plan(config, seed=0, world=None, unit_rows=UNIT_ROWS)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    tracemalloc.start()
    for _ in edits.fetch(plan[len(plan) // 2]):
        pass
    unit = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    before, most, begin = pa.total_allocated_bytes(), 0, time.process_time()
    for piece in plan:
        for _ in edits.fetch(piece):
            most = max(most, pa.total_allocated_bytes() - before)
    rows = sum(len(piece.rows) for piece in plan)
    fetched = time.process_time() - begin
    return [
        f"{1e6 * min(times) / rows:.1f}",
        f"{1e6 * min(looks) / rows:.1f}",
        f"{held / rows:.1f}",
        f"{peak / 1e6:.1f}",
        f"{unit / 1e6:.1f}",
        f"{fetched:.1f}",
        f"{most / 1e3:.0f}",
    ]


def compare(count: int, items: int) -> None:
    noise = np.random.default_rng(0)

    def hashed(rows: int, first: int) -> list[pa.Array]:
        names = [hashlib.sha256(str(first + number).encode()).hexdigest() for number in range(rows)]
        return [pa.array(names), pa.array(noise.integers(0, 2**64, rows, np.uint64)), pa.array([f"words {n % 3000}" for n in range(rows)])]

    inspected = pa.table([pa.array([f"s{n}" for n in range(count)]), *hashed(count, 0)], schema=pa.schema([*match.SOURCES][1:]))
    known = [pa.array(["x"] * items), pa.array([f"i{n}" for n in range(items)]), *hashed(items, count)]
    references = pa.table(known, schema=contracts.REFERENCES)
    for distance in (None, 4, 8):
        begin = time.process_time()
        with tables.opened() as database:
            database.keep("sources", tables.numbered(inspected.to_batches()), match.SOURCES)
            match.read(database, references.to_batches())
            match.find(database, distance, "image")
        print(
            f"| {count:,} | {items:,} | {'equal bytes' if distance is None else distance} | {time.process_time() - begin:.1f} |", flush=True
        )


SCHEMA = pa.schema([("source", contracts.IMAGE), ("instruction", pa.string()), ("edited", contracts.IMAGE)])
DATA_SETS = {
    function.__name__: function for function in (parquet, table, triplets, reference_json, sharegpt4o, webdataset, large_webdataset)
}

if __name__ == "__main__":
    main()
