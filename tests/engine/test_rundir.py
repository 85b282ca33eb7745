"""Run directories: atomic publishing, what counts as done, changed settings, the lock, storage."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.engine import contracts, hashed_files, storage
from stages.engine.ids import content_id, settings_hash
from stages.engine.rundir import RunDir
from stages.engine.units import publish_unit


def publish(run: RunDir, settings: dict, *, score: float = 1.0, force: bool = False) -> bool:
    folder = run.step("step")
    draft, done = folder.begin(settings=settings, inputs={"before": "abc"}, force=force)
    if done:
        assert done == folder.require()
        return False
    rows = [{"sample_id": "x", "rank": 0, "stratum": "", "score": score, "rule": "top"}]
    parts = publish_unit(folder.path, settings_hash(settings), {"selection": contracts.table("selection", rows)})
    sha256 = storage.publish_json(folder.path / "statistics.json", settings)
    folder.publish(draft, artifacts={"selection": [parts["selection"]]}, files={"statistics.json": sha256})
    return True


def test_done_changed_and_forced(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    assert publish(run, {"top": {"count": 10}}) is True
    assert publish(run, {"top": {"count": 10}}) is False
    with pytest.raises(ValueError, match=r"step step .* made with other settings \(top.count: 10 then, 20 now\); repeat with --force"):
        publish(run, {"top": {"count": 20}})
    before = run.step("step").require().fingerprint
    assert publish(run, {"top": {"count": 20}}, force=True) is True
    assert run.step("step").require().fingerprint != before
    assert len(list((tmp_path / "run" / "step" / "units").iterdir())) == 1  # what the index no longer lists is gone
    with pytest.raises(ValueError, match="another version of its input before"):
        run.step("step").begin(settings={"top": {"count": 20}}, inputs={"before": "def"}, force=False)


def test_damage_is_found_and_redone(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    publish(run, {})
    (tmp_path / "run" / "step" / "statistics.json").write_text("{}")
    folder = run.step("step")
    assert folder.damage(folder.require()) is None or folder.damage(folder.require()) == "statistics.json"
    (tmp_path / "run" / "step" / "statistics.json").write_text('{"changed": 1}')
    assert folder.damage(folder.require()) == "statistics.json"
    assert publish(run, {}) is True


def test_a_file_is_hashed_again_when_its_size_or_times_change_and_by_verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDir(tmp_path / "run")
    publish(run, {})
    folder = run.step("step")
    index, path = folder.require(), folder.path / "statistics.json"
    read: list[str] = []
    sound_hash = storage.sha256_of
    monkeypatch.setattr(storage, "sha256_of", lambda path: [read.append(Path(path).name), sound_hash(path)][1])

    def damage() -> str | None:
        """As another process would find it."""
        hashed_files._folders.clear()
        read.clear()
        return folder.damage(index)

    assert (damage(), damage()) == (None, None) and "statistics.json" in read, "written a moment ago: a later change could share its time"
    monkeypatch.setattr(hashed_files, "SETTLED", -(10**9))
    assert (damage(), damage(), read) == (None, None, []), "hashed once"
    memory = folder.path / hashed_files.NAME
    memory.write_bytes(memory.read_bytes() + b"torn")
    os.utime(path)
    assert damage() is None and read == ["statistics.json"], "another time"
    assert damage() is None and read == [], "what follows a torn write is read"
    sound, kept = path.read_bytes(), path.stat()
    path.write_bytes(sound[:-2] + bytes([sound[-2] ^ 1]) + sound[-1:])
    os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert damage() == "statistics.json", "the time of the inode tells it"
    flipped = path.stat()
    monkeypatch.setattr(hashed_files, "_state", lambda _: (kept.st_size, kept.st_mtime_ns, kept.st_ctime_ns))
    assert flipped.st_size == kept.st_size and folder.has("statistics.json", index.files["statistics.json"]), "as the disk's own flip looks"
    with hashed_files.all_anew():
        assert damage() == "statistics.json"
    assert damage() == "statistics.json", "what was remembered before is gone"


def test_a_folder_is_hashed_once_while_its_files_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    whole = storage.sha256_of
    monkeypatch.setattr(storage, "sha256_of", lambda path: read.append(Path(path).name) or whole(path))
    for name in ("a", "b"):
        (tmp_path / name).write_text("one")
    before = storage.tree_hashes(tmp_path)
    assert storage.tree_hashes(tmp_path) == before and read == ["a", "b"]
    storage.publish_bytes(tmp_path / "b", b"two")
    assert storage.tree_hashes(tmp_path)["b"] != before["b"] == storage.tree_hashes(tmp_path)["a"] and read == ["a", "b", "b"]


def test_leftovers_of_a_crash_are_removed_at_the_next_start(tmp_path: Path) -> None:
    folder = RunDir(tmp_path).step("step")
    leftover = folder.path / "units" / f"{storage.TEMPORARY}x"
    leftover.mkdir(parents=True)
    (folder.path / f"{storage.TEMPORARY}y").write_text("half")
    folder.begin(settings={}, inputs={}, force=False)
    assert not leftover.exists() and not list(folder.path.glob(f"{storage.TEMPORARY}*"))


def test_a_busy_run_directory_is_refused_and_a_dead_holder_is_not(tmp_path: Path) -> None:
    holder = (
        "import sys, time; from stages.engine.rundir import RunDir\nwith RunDir(sys.argv[1]): print('held', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", holder, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    with pytest.raises(ValueError, match=f"in use by process {process.pid}"), RunDir(tmp_path):
        pass
    process.kill()
    process.wait()
    with RunDir(tmp_path) as run:
        assert str(os.getpid()) in (run.path / ".lock").read_text()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    storage.publish_bytes(path, b"old")
    with pytest.raises(TypeError):
        storage.publish_bytes(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_other_file_systems() -> None:
    fsspec.filesystem("memory").store.clear()
    sha256 = storage.publish_bytes("memory://bucket/a/b.bin", b"abc")
    assert storage.read_bytes("memory://bucket/a/b.bin") == b"abc" and storage.sha256_of("memory://bucket/a/b.bin") == sha256
    with pytest.raises(ValueError, match="must be on a"):
        RunDir("s3://bucket/run")


def test_tables_are_read_before_the_index_is_there(tmp_path: Path) -> None:
    folder = RunDir(tmp_path / "dataset=a").step("step")
    rows = [{"sample_id": name, "rank": 0, "stratum": "", "score": 1.0, "rule": "top"} for name in "ab"]
    parts = [
        publish_unit(folder.path, key, {"selection": contracts.table("selection", [row])})["selection"]
        for key, row in zip("kl", rows, strict=True)
    ]
    assert folder.read_table("selection", parts[::-1]).to_pylist() == rows[::-1]
    some = folder.read_table("selection", parts, ["score", "sample_id"])
    assert some.schema.names == ["score", "sample_id"] and some.schema.metadata == contracts.SELECTION.metadata
    assert folder.read_table("selection", [], ["rank"]).schema.names == ["rank"]
    path = folder.path / parts[0].path
    with pytest.raises(ValueError, match=f"{re.escape(str(path))} has no column flags, as another version made it; run its step again"):
        storage.read_table(path, ["rank", "flags"])


def test_scores_of_dimensions_go_into_rows_and_back() -> None:
    scores = {
        "visual_quality": {"mean": 1.0, "sigma": 0.5, "likert": None},
        "instruction_following": {"mean": 2.0, "sigma": 0.1, "likert": 3.0},
    }
    entries = contracts.dimension_scores(scores)
    assert pa.array([entries], pa.list_(contracts.DIMENSION_SCORE)).to_pylist() == [entries]
    assert contracts.scores_by_dimension(entries) == scores and list(contracts.scores_by_dimension(entries)) == list(scores)


def test_a_step_that_is_not_done_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="step filter is not done in"):
        RunDir(tmp_path).step("filter").read("scores")


@given(st.lists(st.one_of(st.text(), st.binary(), st.integers(), st.none(), st.booleans()), max_size=4), st.lists(st.text(), max_size=4))
def test_ids_tell_parts_apart(parts: list, others: list) -> None:
    assert content_id("a", *parts) == content_id("a", *parts)
    assert content_id("a", *parts) != content_id("b", *parts)
    assert (content_id("a", *others) == content_id("a", *parts)) == (list(map(repr, others)) == list(map(repr, parts)))
    assert content_id("a", "xy", "z") != content_id("a", "x", "yz")


def test_only_a_directory_that_a_command_made_and_left_empty_goes_again(tmp_path: Path) -> None:
    made, there, used = tmp_path / "made", tmp_path / "there", tmp_path / "used"
    there.mkdir()
    (there / "config.yaml").write_text("name: mine")
    for path in (made, there, used):
        with RunDir(path):
            (path / "config.yaml").touch()
            if path is used:
                (path / "generate").mkdir()
                (path / "generate" / "units.jsonl").touch()
    assert not made.exists() and (there / "config.yaml").read_text() == "name: mine" and (used / "generate").is_dir()
