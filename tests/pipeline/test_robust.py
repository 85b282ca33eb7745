"""Faults of the machine: full disk, busy or impossible directories, input that disappears, damage, Ctrl-C, changed settings.

Each ends with one sentence, and the same command, repeated when the trouble is over, ends with the bytes of an undisturbed run.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import copied, finished, hashes, pipeline, refusal, save_triplets
from paths import ROOT

from stages.engine import storage
from stages.engine.rundir import RunDir
from stages.filter import shard_sets
from stages.finetune import small as finetune

pytestmark = pytest.mark.slow

PATIENCE = 300
"""Seconds that a process may take before a test gives it up."""


@pytest.fixture(scope="module")
def small(cluster: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(tmp_path_factory.getbasetemp())


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    path = tmp_path / "disk"
    path.mkdir()
    found = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(path)], capture_output=True, text=True)
    if found.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {found.stderr.strip()}")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def sound(run: Path) -> bool:
    """Whether all shards of a run pass verification."""
    return all("sound" in pipeline("shards", "verify", folder).output for folder in (run / "filter" / "shards").iterdir())


def times(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in sorted(folder.rglob("*")) if path.is_file()}


def leftovers(run: Path) -> list[Path]:
    return list(run.rglob(f"{storage.TEMPORARY}*"))


def test_a_full_disk(small: Path, tiny_disk: Path) -> None:
    run = tiny_disk / "run"
    command = ("run", "filter", "--config", small / "small.yaml", "--run", run)
    sentence = refusal(*command)
    assert sentence.startswith("the disk is full (") and str(tiny_disk) in sentence
    scored = {name: when for name, when in times(run / "filter" / "units").items() if not name.endswith("gated.parquet")}
    subprocess.run(["mount", "-o", "remount,size=8m", str(tiny_disk)], check=True)
    pipeline(*command)
    assert hashes(run) == hashes(small / "run") and sound(run) and not leftovers(run)
    assert len(scored) >= 9 and scored.items() <= times(run / "filter" / "units").items()  # 3 units inspected and scored before


def test_a_busy_run_directory(small: Path, tmp_path: Path) -> None:
    run = copied(small, tmp_path / "run")
    before = times(run / "filter")
    holder = (
        "import sys, time; from stages.engine.rundir import RunDir\nwith RunDir(sys.argv[1]): print('held', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", holder, str(run)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        for command in (["run", "filter"], ["select", "--name", "x", "--rule", "all"], ["annotate", "export"]):
            assert f"is in use by process {process.pid} on " in refusal(*command, "--run", run)
        assert "done" in pipeline("status", "--run", run).output  # looking is allowed
    finally:
        process.kill()
        process.wait()
    assert times(run / "filter") == before
    pipeline("run", "filter", "--run", run)


def test_directories_that_are_none(small: Path, tmp_path: Path) -> None:
    config, file = small / "small.yaml", tmp_path / "file"
    file.write_text("")
    command = ("run", "filter", "--config", config, "--run", tmp_path / "run")
    absent = tmp_path / "absent"
    for dataset, path, sentence in [
        ("sharegpt4o", file, f"filter.input: {file} has no text_and_image_to_image.json"),
        ("sharegpt4o", absent, f"filter.input: there is no folder {absent}"),
        ("sharegpt4o", tmp_path, f"filter.input: {tmp_path} has no text_and_image_to_image.json"),
        ("triplets", tmp_path, f"filter.input: {tmp_path} cannot be read because it is a folder; name a file in it"),
        ("triplets", absent, f"filter.input: there is no file {absent}"),
        ("triplets", file / "x.jsonl", "x.jsonl"),
        ("triplets", "nothing://x/y.jsonl", "nothing://x/y.jsonl cannot be opened (Protocol not known: nothing)"),
    ]:
        assert sentence in refusal(*command, f"filter.input={{dataset: {dataset}, path: '{path}'}}")
    assert f"no reward model at {absent}" in refusal(*command, f"filter.model={absent}")
    assert "not writable (Not a directory)" in refusal("run", "filter", "--config", config, "--run", file / "run")
    assert not (tmp_path / "run" / "filter").exists()


@pytest.fixture
def bound_by_permissions() -> Iterator[None]:
    """Root may read and write everything by two capabilities of Linux; this thread goes without them for a test."""
    libc = ctypes.CDLL(None, use_errno=True)
    version, bits = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice
    assert libc.capget(version, bits) == 0
    kept = bits[0]
    bits[0] &= ~(1 << 1 | 1 << 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    assert libc.capset(version, bits) == 0
    yield
    bits[0] = kept
    assert libc.capset(version, bits) == 0


def test_a_file_that_cannot_be_written_is_named_by_its_own_name(small: Path, tmp_path: Path) -> None:
    run, long = copied(small, tmp_path / "run"), "a" * 230
    (tmp_path / "page.html").mkdir()
    command = ("select", "diff", "best", "full", "--run", run, "--images", 0, "--page", tmp_path / "page.html")
    assert refusal(*command) == f"{tmp_path / 'page.html'}: Is a directory"
    found = refusal("select", "--run", run, "--name", long, "--rule", "top", "--count", 2)
    assert found == f"{run}/filter/selections/{long}.parquet: File name too long"


def test_directories_without_permission(small: Path, tmp_path: Path, bound_by_permissions: None) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    sentence = f"{closed}/run may not be read or written by this user; change"
    assert sentence in refusal("run", "filter", "--config", small / "small.yaml", "--run", closed / "run")
    override = f"filter.input={{dataset: sharegpt4o, path: {closed}}}"
    found = refusal("run", "filter", "--config", small / "small.yaml", "--run", tmp_path / "run", override)
    assert f"folder {closed} may not be read by this user" in found


def test_input_that_goes_away_between_scoring_and_writing(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    command = ("run", "filter", "--config", small / "small.yaml", "--run", run)
    picture = small / "7-edited.png"
    content = picture.read_bytes()
    planned = shard_sets.assign
    with monkeypatch.context() as patch:

        def then_it_goes(*arguments: object) -> object:
            picture.unlink()
            return planned(*arguments)

        patch.setattr(shard_sets, "assign", then_it_goes)
        try:
            sentence = refusal(*command)
        finally:
            picture.write_bytes(content)
    assert re.match(r"mine\.jsonl\[7\] changed since it was read .*7-edited\.png cannot be read", sentence)
    assert not (run / "filter" / "index.json").exists() and not list(run.rglob("shards/*/index.json"))
    pipeline(*command)
    assert hashes(run) == hashes(small / "run") and sound(run) and not leftovers(run)


@pytest.mark.parametrize("what", ["scores.parquet", "full/shard-000001.tar", "full/samples.parquet", "best.parquet"])
def test_damage_under_a_finished_step_is_seen_and_repaired(small: Path, tmp_path: Path, what: str) -> None:
    run = copied(small, tmp_path / "run")
    parts = {part.path for parts in RunDir(run).step("filter").require().artifacts.values() for part in parts}
    found = sorted((run / "filter").rglob(what))  # units that the index does not list stay for later runs, and are not checked
    path = next(path for path in found if path.parts[-3] != "units" or path.relative_to(run / "filter").as_posix() in parts)
    data = path.read_bytes()
    path.write_bytes(data[:-20] + bytes(byte ^ 255 for byte in data[-20:]))
    name = path.relative_to(run / "filter")
    assert f"damaged: {name}" in pipeline("status", "--run", run).output
    others = {key: when for key, when in times(run / "filter" / "units").items() if key.endswith(("scores.parquet", "edits.parquet"))}
    others = {key: when for key, when in others.items() if (run / "filter" / "units" / key).parent != path.parent}
    pipeline("run", "filter", "--run", run)
    assert hashes(run) == hashes(small / "run") and sound(run) and path.read_bytes() == data
    assert len(others) >= 4 and others.items() <= times(run / "filter" / "units").items()  # no other unit was scored again


def test_a_log_of_units_that_was_cut_or_scribbled_on(small: Path, tmp_path: Path) -> None:
    run = copied(small, tmp_path / "run")
    (run / "filter" / "index.json").unlink()
    log = run / "filter" / "units.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text(lines[0] + "scribble\n" + "".join(lines[1:-1]) + lines[-1][:40])
    pipeline("run", "filter", "--run", run)
    assert hashes(run) == hashes(small / "run") and sound(run)


RATED = """\
name: rated
world: {size: 32, kinds: [recolour, remove]}
generate:
  sources: {dataset: world, train: 6, validation: 4}
  editors: [{name: world/quill}, {name: world/bobbin}]
  annotate: 3
  workers: 1
annotate: {simulate: {overlap: 0.5}}
"""


def test_changed_settings_are_refused_and_forced_only_where_they_matter(cluster: object, tmp_path: Path) -> None:
    config, run = tmp_path / "rated.yaml", tmp_path / "run"
    config.write_text(RATED)
    pipeline("run", "generate", "--config", config, "--run", run)
    ingest = ["annotate", "ingest", "--run", run]
    for file in pipeline("annotate", "simulate", "--run", run).output.split():
        ingest += ["--file", file]
    pipeline(*ingest)
    pipeline("run", "preferences", "--run", run)
    steps = {name: times(run / name) for name in ("generate", "annotate", "preferences")}
    frozen = (run / "config.yaml").read_bytes()

    refused = refusal("run", "preferences", "--run", run, "preferences.ties=off")
    assert "was made with other settings (preferences.ties: 'opposed' then, 'off' now); repeat with --force" in refused
    assert {name: times(run / name) for name in steps} == steps and (run / "config.yaml").read_bytes() == frozen

    pipeline("run", "preferences", "--run", run, "--force", "preferences.ties=off")
    assert times(run / "generate") == steps["generate"] and times(run / "annotate") == steps["annotate"]
    assert times(run / "preferences") != steps["preferences"]
    assert "ties: 'off'" in (run / "config.yaml").read_text()

    refused = refusal("run", "generate", "--run", run, "generate.sources.train=7")
    assert "other settings (generate.sources.train: 6 then, 7 now)" in refused
    pipeline("run", "generate", "--run", run, "--force", "generate.sources.train=7")
    assert "was made for other candidates" in refusal(*ingest)
    assert re.search(r"annotate +stale: generate changed", pipeline("status", "--run", run).output)


def test_arms_that_are_no_longer_configured_leave_nothing(tmp_path: Path) -> None:
    """The files of the fine-tune step are all that its folders hold."""
    for name in ("base", "full", "naive"):
        storage.publish_json(tmp_path / "editors" / name / "editor.json", {})
        storage.publish_bytes(tmp_path / "metrics" / f"{name}.jsonl", b"")
    (tmp_path / "checkpoints" / "naive-key").mkdir(parents=True)
    finetune._clear(tmp_path, {"base", "full"})
    assert list(storage.tree_hashes(tmp_path)) == [
        "editors/base/editor.json",
        "editors/full/editor.json",
        "metrics/base.jsonl",
        "metrics/full.jsonl",
    ]
    assert not (tmp_path / "checkpoints").exists()


def test_more_workers_are_no_change(small: Path, tmp_path: Path) -> None:
    run = copied(small, tmp_path / "run")
    before = times(run / "filter")
    assert "up to date" in pipeline("run", "filter", "--run", run, "filter.workers=7", "ray.num_cpus=3").output
    assert times(run / "filter") == before


def test_ctrl_c_leaves_nothing_damaged(small: Path, tmp_path: Path) -> None:
    """In a process of its own with its own Ray, interrupted after its first unit, as a terminal does it: the whole process group.

    It runs in a folder whose files have the names of our packages, and imports none of them.
    """
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for package in ("pipeline", "stages", "reward", "finetune"):
        (elsewhere / f"{package}.py").write_text("raise SystemExit('this is not our package')")
    run = tmp_path / "run"
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    slow = ["filter.unit_rows=1", f"filter.input.path={save_triplets(pictures, count=6, side=200)}"]
    command = ["run", "filter", "--config", str(small / "small.yaml"), "--run"]
    output = tmp_path / "output"
    with output.open("w") as file:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("pipeline"), *command, str(run), *slow],
            cwd=elsewhere,
            stdout=file,
            stderr=file,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs are started deaf to it
        )
        log = run / "filter" / "units.jsonl"
        give_up = time.monotonic() + PATIENCE
        while not (log.exists() and log.stat().st_size) and process.poll() is None and time.monotonic() < give_up:
            time.sleep(0.02)
        while process.poll() is None and time.monotonic() < give_up:
            if "stopped: " not in output.read_text():  # a second one while Python ends is how an impatient user kills it
                os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(4)
    said = output.read_text()
    assert process.returncode == 130, said
    assert "stopped: the same command resumes the run" in said and "error: " not in said
    done = log.read_text().splitlines()
    assert done and not (run / "filter" / "index.json").exists()
    pipeline(*command, run, *slow)
    assert log.read_text().splitlines()[: len(done)] == done and sound(run) and not leftovers(run)
    pipeline(*command, tmp_path / "undisturbed", *slow)
    assert hashes(run) == hashes(tmp_path / "undisturbed")
