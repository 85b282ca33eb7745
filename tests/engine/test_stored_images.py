"""Images by reference: the right bytes, few others read with them, one sentence where the file is not what it was."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rated_run import source

from stages.engine import contracts, storage, stored_images
from stages.engine.rundir import Index, RunDir, StepFolder
from stages.engine.stored_images import ImageReference, references
from stages.engine.units import publish_unit

IMAGES = [np.random.default_rng(number).bytes(300_000 + number) for number in range(40)]


def published(path: Path) -> StepFolder:
    """Two parts of sources with these images, of 27 and 13 rows."""
    folder = RunDir(path).step("generate")
    rows = [source(number, source_id=f"s{number}", image={"bytes": data, "path": None}) for number, data in enumerate(IMAGES)]
    parts = [
        publish_unit(folder.path, name, {"sources": contracts.table("sources", part)})["sources"]
        for name, part in (("one", rows[:27]), ("two", rows[27:]))
    ]
    folder.publish(Index("generate", "key", {}, {}, artifacts={"sources": parts}))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> StepFolder:
    return published(tmp_path_factory.mktemp("run"))


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """Counts what Arrow allocates in a test."""
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counting)
    yield counting
    pa.set_memory_pool(before)


def test_references_read_the_image_of_their_row(folder: StepFolder) -> None:
    found = references(folder, "sources", "source_id", {f"s{number}" for number in range(0, 40, 3)})
    assert list(found) == [f"s{number}" for number in range(0, 40, 3)]
    sent = pickle.loads(pickle.dumps(found))
    for name in reversed(found):  # out of order, also back into the first part
        assert sent[name].read() == found[name].read() == IMAGES[int(name[1:])]
    assert sent == found and len(set(found.values())) == len(found)


def test_an_image_is_read_with_few_others(folder: StepFolder, pool: pa.MemoryPool, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [pq.read_metadata(folder.path / part.path) for part in folder.require().artifacts["sources"]]
    assert [[found.row_group(number).num_rows for number in range(found.num_row_groups)] for found in groups] == [[13, 13, 1], [13]]
    monkeypatch.setattr(stored_images, "_NEWEST", stored_images._RowGroups(storage.ROW_GROUP_BYTES))
    found = references(folder, "sources", "source_id", {f"s{number}" for number in range(40)})
    assert (pool.max_memory() or 0) < storage.ROW_GROUP_BYTES  # the ids alone
    assert sum(len(reference.read()) for reference in found.values()) == sum(map(len, IMAGES))
    assert storage.ROW_GROUP_BYTES / 2 < pool.bytes_allocated() < 2.2 * storage.ROW_GROUP_BYTES


def test_small_rows_stay_together() -> None:
    table = contracts.table("sources", [source(number) for number in range(9000)])
    assert pq.read_metadata(pa.BufferReader(storage.table_bytes(table))).row_group(0).num_rows == storage.ROW_GROUP_ROWS == 8192


def flip(path: Path) -> None:
    """Damage the images and leave size and time as they were."""
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    data = bytearray(path.read_bytes())
    data[len(data) // 4 : len(data) // 2] = bytes(len(data) // 2 - len(data) // 4)
    path.write_bytes(data)
    os.utime(path, ns=times)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda path: path.unlink(), "was removed while its images were in use; restore it"),
        (
            lambda path: path.write_bytes(path.read_bytes() + b"x"),
            "was changed while its images were in use; leave the run directory alone",
        ),
        (lambda path: os.utime(path, ns=(1, 1)), "was changed while its images were in use"),
        (flip, r"is damaged \(.*\); repeat the step that wrote it"),
    ],
    ids=["removed", "longer", "written again", "damaged"],
)
def test_a_file_that_is_not_what_it_was_is_named(tmp_path: Path, change, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_images, "_NEWEST", stored_images._RowGroups(0))
    folder = published(tmp_path)
    reference: ImageReference = references(folder, "sources", "source_id", {"s30"})["s30"]
    assert reference.read() == IMAGES[30]
    change(Path(reference.file.path))
    monkeypatch.setattr(stored_images, "_NEWEST", stored_images._RowGroups(0))  # another process, which has read nothing yet
    with pytest.raises(ValueError, match=rf"^{reference.file.path} {sentence}"):
        reference.read()


def test_a_row_without_an_image_is_named(tmp_path: Path) -> None:
    folder = RunDir(tmp_path).step("generate")
    part = publish_unit(folder.path, "one", {"sources": contracts.table("sources", [source(0, source_id="s0", image=None)])})["sources"]
    folder.publish(Index("generate", "key", {}, {}, artifacts={"sources": [part]}))
    with pytest.raises(ValueError, match=r"units/one/sources\.parquet has no image in row 0 of row group 0; repeat the step"):
        references(folder, "sources", "source_id", {"s0"})["s0"].read()


def test_the_newest_row_group_stays_however_large(tmp_path: Path) -> None:
    folder, kept = published(tmp_path), stored_images._RowGroups(0)
    reference = references(folder, "sources", "source_id", {"s30"})["s30"]
    assert kept.images(reference.file, reference.row_group) is kept.images(reference.file, reference.row_group)
