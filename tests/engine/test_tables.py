"""Tables that do not fit in memory: their batches, and figures of values that come in several."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stages.engine import storage, tables


@pytest.mark.parametrize("rows", [1, 300, 700, 5000])
def test_batches_are_all_rows_in_their_order(tmp_path: Path, rows: int) -> None:
    """Whether a batch is smaller than a row group of the file or as large as many, and for files of one group."""
    numbers = pa.table({"number": np.arange(3001), "text": [str(number) for number in range(3001)]})
    for name, group in (("groups", 256), ("uneven", 100), ("one", 3001)):
        pq.write_table(numbers, tmp_path / name, row_group_size=group)
        batches = list(storage.read_batches(tmp_path / name, rows, ["number"]))
        assert pa.Table.from_batches(batches) == numbers.select(["number"])
        assert max(map(len, batches)) <= rows
    storage.publish_rows(tmp_path / "published", numbers.schema, numbers.to_batches(max_chunksize=7))
    found = pa.Table.from_batches(list(storage.read_batches(tmp_path / "published", rows, ["text", "number"])))
    assert found.select(["number", "text"]) == numbers


@pytest.mark.parametrize("different", [3, 9000])
def test_quantiles_are_those_of_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, different: int) -> None:
    """Of few values that are often equal, and of values that come in several batches."""
    monkeypatch.setattr(tables, "BATCH_ROWS", 2048)
    values = np.random.default_rng(0).integers(0, different, 20_001) / 7
    values[::9] = np.nan
    schema = pa.schema([("value", pa.float64())])
    with tables.opened(tmp_path) as database:
        database.keep("given", [pa.record_batch([pa.array(values, from_pandas=True)], schema=schema)], schema)
        known = values[~np.isnan(values)]
        levels = (0.0, 0.05, 0.5, 0.95, 1.0)
        assert database.quantiles("value", "given", levels) == pytest.approx(np.quantile(known, levels), rel=1e-12)
        assert database.quantiles("value", "(FROM given WHERE value IS NULL)", levels) == []


@pytest.mark.parametrize(("folder", "other"), [("run[1]", "run1"), ("run*", "run1"), ("run?", "run1"), ("[a-", "a"), ("run{1,2}", "run1")])
def test_a_folder_whose_name_is_a_pattern_gives_its_own_rows(tmp_path: Path, folder: str, other: str) -> None:
    for name in (folder, other):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"name": [name]}), tmp_path / name / "rows.parquet")
    with tables.opened(tmp_path) as database:
        database.view("given", [tmp_path / folder / "rows.parquet"], pa.schema([("name", pa.string())]))
        assert database.table("FROM given")["name"].to_pylist() == [folder]


STOPPED = """
import os, signal, threading
from stages.engine import tables
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell are started deaf to it
with tables.opened() as database:
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        while True:
            database.number("SELECT count(*) FROM range(200_000_000) WHERE hash(range) % 7 = 1")
    except KeyboardInterrupt:
        print("stopped")
"""


def test_ctrl_c_in_the_middle_of_a_query_is_ctrl_c() -> None:
    done = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0 and "stopped" in done.stdout, done.stderr

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([1])], names=["a"])
        raise KeyboardInterrupt

    with tables.opened() as database, pytest.raises(KeyboardInterrupt):
        database.keep("kept", rows(), pa.schema([("a", pa.int64())]))
