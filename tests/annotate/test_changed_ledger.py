"""A ledger that was changed after its ingest is refused by every step that reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rated_run import make_run, rating_task_of, ratings_of, write_csv

from stages.annotate import step as annotate
from stages.annotate.active import step as next_annotations
from stages.annotate.bench import step as build_bench
from stages.annotate.consensus import step as consensus
from stages.annotate.quality import step as annotation_qc
from stages.context import Context
from stages.preferences import step as preferences


def all_good(path: Path) -> None:
    """Every score of a batch becomes 4."""
    table = pq.read_table(path, partitioning=None)
    fours = pa.array([4.0] * table.num_rows, table.schema.field("score").type)
    pq.write_table(table.set_column(table.column_names.index("score"), table.schema.field("score"), fours), path)


READERS: dict[str, Callable[[Context], Any]] = {
    "export": lambda context: annotate.export(context, limit=1, round="pilot"),
    "next": lambda context: next_annotations.run(context, count=1, strategy="random"),
    "consensus": lambda context: consensus.run(context, "mean"),
    "bench": build_bench.run,
    "quality": annotation_qc.run,
    "preferences": preferences.run,
}


def test_every_reader_names_the_batch_of_a_changed_file(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run", groups=6, simulate=None)
    work = rating_task_of(context)
    files = [write_csv(tmp_path / f"{name}.csv", ratings_of(work, name)) for name in ("ann", "bob")]
    annotate.ingest(context, files)
    readers = READERS | {"ingest": lambda context: annotate.ingest(context, [write_csv(tmp_path / "cat.csv", ratings_of(work, "cat"))])}
    annotation_qc.run(context)
    folder = context.run.step("annotate")
    path = folder.path / folder.require().artifacts["ratings"][1].path
    kept = path.read_bytes()
    all_good(path)
    for name, read in readers.items():
        with pytest.raises(ValueError, match=r"is damaged: units/.*ratings\.parquet \(batch bob\.csv\) is missing or changed"):
            pytest.fail(f"{name} read {read(context)}")
    path.write_bytes(kept)
    decided = context.run.step("annotation-qc")
    all_good(decided.path / decided.require().artifacts["ratings"][0].path)
    with pytest.raises(ValueError, match=r"the quality decision in .* is damaged: .* run `pipeline annotate qc` again"):
        preferences.run(context)
    annotation_qc.run(context)
    assert preferences.run(context).counts["out"] == 6


def test_a_ledger_without_its_index_is_not_begun_anew_from_some_of_its_files(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run", groups=6, simulate=None)
    work = rating_task_of(context)
    files = [write_csv(tmp_path / f"{name}.csv", ratings_of(work, name)) for name in ("ann", "bob", "cat")]
    annotate.ingest(context, files)
    folder = context.run.step("annotate")
    index = folder.path / "index.json"
    whole = index.read_text()
    for damaged in (whole[:-20], "{}", "[]"):
        index.write_text(damaged)
        with pytest.raises(ValueError, match=r"index\.json .*restore this file from a backup; or delete it, not the folder, .*"):
            annotation_qc.run(context)
    index.unlink()
    with pytest.raises(ValueError, match=r"lost its index\.json, and of its 3 batches 2 are not of the files given .* all files"):
        annotate.ingest(context, files[:1])
    assert len(list((folder.path / "units").iterdir())) == 3 and not index.exists()
    annotate.ingest(context, files)
    assert index.read_text() == whole, "all files again give the same ledger"
    index.unlink()
    annotate.ingest(replace(context, force=True), files[:1])
    assert folder.require().counts["out"] == 48


def test_a_batch_that_an_old_index_does_not_list_is_refused_and_taken_in_again(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run", groups=6, simulate=None)
    work = rating_task_of(context)
    files = [write_csv(tmp_path / f"{name}.csv", ratings_of(work, name)) for name in ("ann", "bob", "cat")]
    folder = context.run.step("annotate")
    annotate.ingest(context, files[:1])
    old = (folder.path / "index.json").read_text()
    annotate.ingest(context, files[1:])
    whole = (folder.path / "index.json").read_text()
    annotation_qc.run(context)
    (folder.path / "index.json").write_text(old)  # as after a kill, or from a backup
    unlisted = r"that its index\.json does not list \(first units/\w+\); .* run it again with the same files; .* restore the newer one"
    for name, read in READERS.items():
        with pytest.raises(ValueError, match=unlisted):
            pytest.fail(f"{name} read {read(context)}")
    with pytest.raises(ValueError, match=unlisted):
        annotate.ingest(context, files[1:2])  # not all of them
    (folder.path / "units" / ".partial-x").mkdir()
    (folder.path / "units" / ".partial-x" / "ratings.parquet").touch()
    assert len(annotate.ingest(context, files[1:]).new) == 2
    assert (folder.path / "index.json").read_text() == whole
    assert annotation_qc.run(context).counts["in"] == 3 * 48
