"""Editors in interpreters of their own, with real ones: what they get and give, and how each way of failing ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interpreters import environment
from PIL import Image

from stages.editors.editor import Edited, EditRequest, Failure
from stages.editors.process.editor import ProcessEditor

BRIDGE = Path(__file__).with_name("odd_bridge.py")
Open = Callable[..., ProcessEditor]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(environment(tmp_path_factory.mktemp("one") / "env"))


@pytest.fixture
def opened(python: str, tmp_path: Path) -> Iterator[Open]:
    editors = []

    def open_editor(python: str = python, start_seconds: float = 60, edit_seconds: float = 60, **load: Any) -> ProcessEditor:
        load = {"marker": str(tmp_path / "marker"), **load}
        editors.append(ProcessEditor("odd", python, BRIDGE, load, start_seconds, edit_seconds))
        return editors[-1]

    yield open_editor
    for editor in editors:
        editor.close()


def image(size: tuple[int, int] = (7, 5)) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8))


def one(editor: ProcessEditor, instruction: str, seed: int = 0) -> Edited | Failure:
    (result,) = editor.edit([EditRequest(image(), instruction, seed)])
    return result


def edit(editor: ProcessEditor, instruction: str, seed: int = 0) -> Edited:
    result = one(editor, instruction, seed)
    assert isinstance(result, Edited), result
    return result


def failure(editor: ProcessEditor, instruction: str) -> Failure:
    """How an edit fails. The next edit works."""
    result = one(editor, instruction)
    assert isinstance(result, Failure)
    assert edit(editor, "invert").image.size == (7, 5)
    return result


def test_environments_of_other_versions_edit_side_by_side(opened: Open, python: str, tmp_path: Path) -> None:
    editors = [opened(), opened(str(environment(tmp_path / "two", "2.5")))]
    made = [edit(editor, "invert") for editor in editors]
    for result in made:
        assert np.array_equal(np.asarray(result.image), 255 - np.asarray(image()))
    versions = [dict(result.record)["versions"] for result in made]
    assert [found["toolkit"] for found in versions] == ["1.0", "2.5"]
    assert all(set(found) == {"python", "toolkit"} for found in versions)
    assert [edit(editor, "state").image.getpixel((0, 0))[2] for editor in editors] == [1, 2]


def test_the_seed_alone_decides_what_is_drawn_from_global_generators(opened: Open) -> None:
    first, second = opened(), opened()
    drawn = [edit(editor, "random", seed).image.tobytes() for editor, seed in [(first, 1), (first, 2), (first, 1), (second, 1)]]
    assert drawn[0] == drawn[2] == drawn[3] != drawn[1]


def test_what_a_model_prints_is_logged_and_disturbs_nothing(opened: Open, capfd: pytest.CaptureFixture[str]) -> None:
    editor = opened()
    assert edit(editor, "print").image.tobytes() == image().tobytes()
    editor.close()
    logged = capfd.readouterr().err
    assert logged.count("[odd] EDIT noise �� on stdout\n") == 5000
    assert "[odd] noise on stderr\n" in logged


@pytest.mark.parametrize(
    ("instruction", "reason", "message"),
    [
        ("die", "crashed", "ended with code 3; its last output:\nlast words"),
        ("half a message", "crashed", "ended with code 0"),
        ("garbage", "bad-answer", "sent something that is no answer"),
        ("two images", "bad-answer", "with 2 images, not request 2 with 1"),
        ("no image", "bad-answer", "with 0 images, not request 2 with 1"),
        ("raise", "error", "odd: KeyError: 'no such layer'"),
        ("text", "error", "AttributeError"),
        ("no picture", "no-image", "is no image"),
        ("crop", "wrong-size", "the edit of an image of 7x5 pixels has 1x1"),
    ],
)
def test_a_failed_edit_is_a_failure_and_the_next_one_works(opened: Open, instruction: str, reason: str, message: str) -> None:
    found = failure(opened(), instruction)
    assert found.reason == reason
    assert message in found.message


def test_a_model_that_hangs_is_killed_although_it_holds_the_interpreters_lock(opened: Open) -> None:
    found = failure(opened(edit_seconds=1.5), "hang")
    assert (found.reason, found.message) == ("timed-out", "2 times the process of odd gave no answer in 1.5 seconds")


def test_one_crash_is_forgiven_and_leaves_no_trace_in_the_result(opened: Open, tmp_path: Path) -> None:
    editor = opened()
    made = edit(editor, "die once")
    assert (tmp_path / "marker").exists()
    assert made == edit(editor, "die once") == edit(opened(), "invert")


def test_an_answer_too_many_is_not_taken_for_that_of_the_next_request(opened: Open) -> None:
    editor = opened()
    assert edit(editor, "answer twice").image.tobytes() == image().tobytes()
    assert np.array_equal(np.asarray(edit(editor, "invert").image), 255 - np.asarray(image()))


def test_an_image_of_100_megabytes_goes_there_and_back(opened: Open) -> None:
    large = Image.effect_noise((6000, 5800), 90).convert("RGB")
    assert len(large.tobytes()) > 100e6
    (made,) = opened().edit([EditRequest(large, "same", 0)])
    assert isinstance(made, Edited)
    assert made.image.tobytes() == large.tobytes()


def test_out_of_memory_is_torchs_and_savings_outlive_a_crash(opened: Open) -> None:
    import torch

    editor = opened()
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        one(editor, "memory")
    assert editor.save_memory() is True
    assert editor.save_memory() is False
    failure(editor, "die")
    edits, savings, _ = edit(editor, "state").image.getpixel((0, 0))
    assert (edits, savings) == (2, 1)  # of a new process: its second edit, with the one saving that there is


def test_a_process_that_ends_while_it_loads_is_started_once_more(opened: Open, tmp_path: Path) -> None:
    assert edit(opened(load="die once"), "invert")
    (tmp_path / "marker").unlink()
    with pytest.raises(ValueError, match="odd could not be loaded: the process of odd was ended by signal 9"):
        opened(load="die always")


def test_a_model_that_cannot_be_loaded_says_why(opened: Open, python: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"odd could not be loaded by .*: OSError: weights\.safetensors is not there"):
        opened(load="fail")
    with pytest.raises(ValueError, match="odd could not be loaded: the process of odd gave no answer in 1 seconds"):
        opened(load="slow", start_seconds=1)
    with pytest.raises(ValueError, match="nowhere/python cannot be started: No such file"):
        opened("nowhere/python")
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    with pytest.raises(ValueError, match="No module named 'toolkit'"):
        opened(str(bare / "bin" / "python"))


def test_nothing_outlives_a_parent_that_is_killed(python: str, tmp_path: Path) -> None:
    """Neither the process, which hangs with the interpreter's lock, nor what it started."""
    marker = tmp_path / "marker"
    code = f"""
from pathlib import Path
from PIL import Image
from stages.editors.editor import EditRequest
from stages.editors.process.editor import ProcessEditor
editor = ProcessEditor("odd", {python!r}, Path({str(BRIDGE)!r}), {{"marker": {str(marker)!r}}}, 60, 600)
editor.edit([EditRequest(Image.new("RGB", (4, 4)), "child and hang", 0)])
"""
    parent = subprocess.Popen([sys.executable, "-c", code])
    _until(lambda: marker.exists() and len(marker.read_text().split()) == 2)
    pids = [int(pid) for pid in marker.read_text().split()]
    assert all(map(_runs, pids))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    _until(lambda: not any(map(_runs, pids)))


def test_closing_ends_what_the_process_started(python: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    editor = ProcessEditor("odd", python, BRIDGE, {"marker": str(marker)}, 60, 3)
    assert isinstance(one(editor, "child and hang"), Failure)
    editor.close()
    editor.close()
    _until(lambda: not any(map(_runs, map(int, marker.read_text().split()))))


def _runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_pipes_are_closed(opened: Open) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    editor = opened()
    failure(editor, "die")
    editor.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
