"""Damage of our own files: every single flipped bit is redone or refused with one sentence, never taken for sound and never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.engine import contracts, storage, unit_log
from stages.engine.rundir import Index, RunDir, StepFolder
from stages.engine.units import UnitRecord, publish_unit

few = settings(max_examples=60)


def finished(path: Path) -> tuple[RunDir, StepFolder, Index]:
    """A run with a published step of two units and a manifest."""
    run = RunDir(path)
    step = run.step("filter")
    draft, _ = step.begin(settings={"rule": "top", "share": 0.43}, inputs={"edits": "abc"}, force=False)
    parts = []
    with open(step.path / unit_log.NAME, "w") as log:
        for name in ("one", "two"):
            row = {"sample_id": name, "rank": 7, "stratum": "", "score": 0.25, "rule": "top"}
            made = publish_unit(step.path, name, {"selection": contracts.table("selection", [row])})
            log.write(unit_log.line(UnitRecord(name, made, 17, 16, {"bad-row": 1}, 0.125, {"edits": 17.5}, "whole")))
            parts.append(made["selection"])
    index = step.publish(draft, artifacts={"selection": parts}, counts={"in": 34, "out": 32, "quarantined": 2}, results={"mean": 0.5})
    run.note("filter", {"seconds": 12.5})
    return run, step, index


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDir, StepFolder, Index]:
    return finished(tmp_path_factory.mktemp("damage") / "run")


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8 % len(data)] ^= 1 << bit % 8
    return bytes(changed)


@few
@given(bit=st.integers(0, 2**20), cut=st.booleans())
def test_a_damaged_line_of_the_unit_log_costs_its_unit(made: tuple[RunDir, StepFolder, Index], bit: int, cut: bool) -> None:
    _, step, _ = made
    log = step.path / unit_log.NAME
    sound, before = log.read_bytes(), unit_log.sound(step)
    try:
        log.write_bytes(sound[: bit % len(sound)] if cut else flipped(sound, bit))
        found = unit_log.sound(step)
        assert all(before[key] == record for key, record in found.items()), "no record is taken for another"
        assert len(before) == 2 and len(found) >= (0 if cut else 1 - (b"\n" not in log.read_bytes()[:-1]))
    finally:
        log.write_bytes(sound)


@few
@given(bit=st.integers(0, 2**20), cut=st.booleans())
def test_a_damaged_index_is_refused_by_name(made: tuple[RunDir, StepFolder, Index], bit: int, cut: bool) -> None:
    _, step, index = made
    path = step.path / "index.json"
    sound = path.read_bytes()
    try:
        path.write_bytes(sound[: bit % len(sound)] if cut else flipped(sound, bit))
        found = step.index()
        assert found == index  # what changed is white space, and says nothing
    except ValueError as error:
        assert str(path) in str(error) and "delete" in str(error)
    finally:
        path.write_bytes(sound)


@few
@given(bit=st.integers(0, 2**20), cut=st.booleans())
def test_a_damaged_manifest_is_begun_again(made: tuple[RunDir, StepFolder, Index], bit: int, cut: bool) -> None:
    run, _, _ = made
    path = run.path / "manifest.json"
    sound, before = path.read_bytes(), run.manifest()
    try:
        path.write_bytes(sound[: bit % len(sound)] if cut else flipped(sound, bit))
        found = run.manifest()  # of which no result depends
        assert not found or {key: value for key, value in found.items() if key == "steps"} == before
        run.note("finetune", {"seconds": 1.0})
        assert run.manifest()["steps"]["finetune"] == {"seconds": 1.0}
    finally:
        path.write_bytes(sound)


def test_a_folder_in_place_of_a_file_is_damage(tmp_path: Path) -> None:
    _, step, index = finished(tmp_path / "run")
    part = index.artifacts["selection"][1].path
    (step.path / part).unlink()
    (step.path / part).mkdir()
    assert step.damage(index) == part


def test_a_file_without_its_checksum_is_damaged(tmp_path: Path) -> None:
    _, step, index = finished(tmp_path / "run")
    storage.publish_json(step.path / "index.json", index.to_json())
    with pytest.raises(ValueError, match=r"index\.json is damaged: it does not have the checksum"):
        step.index()
    log = step.path / unit_log.NAME
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps({key: line[key] for key in line if key != "check"}) + "\n" for line in lines))
    assert not unit_log.sound(step)
