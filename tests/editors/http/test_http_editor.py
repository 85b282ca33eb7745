"""Editors behind a server, a real one on loopback: what is sent, and how each of its misdeeds ends."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from edits_server import MODEL, Script, serving
from PIL import Image

from stages.config import FlowConfig
from stages.context import Context
from stages.editors import catalogue
from stages.editors.editor import Edited, Editor, EditRequest, Failure
from stages.editors.http import client
from stages.engine import http_client, pace
from stages.engine.http_client import Reply
from stages.engine.rundir import RunDir
from stages.evaluate_editor import step as evaluate_editor
from stages.generate import step

KEY = "generate.editors.0.settings"
FLOW = FlowConfig(name="x")


def image(size: tuple[int, int] = (7, 5)) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8))


def opened(name: str, base_url: str, **settings: Any) -> Editor:
    spec = catalogue.find(name, "generate.editors")
    settings = {"base_url": base_url, "pause_seconds": 0.01, "edit_seconds": 20, **settings}
    return spec.open(catalogue.settings_of(spec, settings, KEY), FLOW)


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def url(script: Script) -> Iterator[str]:
    with serving(script) as address:
        yield address


def one(editor: Editor, seed: int = 3) -> Edited | Failure:
    (result,) = editor.edit([EditRequest(image(), "make it 紅 & bright", seed)])
    return result


def test_the_form_says_everything_and_the_answer_is_the_edit(script: Script, url: str) -> None:
    editor = opened("http/flux-kontext", url + "/v1/", guidance_scale=3)
    result = one(editor, seed=2**40 + 9)
    editor.close()
    assert isinstance(result, Edited)
    assert np.array_equal(np.asarray(result.image), 255 - np.asarray(image()))
    assert dict(result.record) == {"engine": "vllm", "engine_version": "0.30.0", "model": MODEL, "generator_device": "cpu"}
    (form,) = script.forms
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(form.pop("image")))), np.asarray(image()))
    assert form == {
        "prompt": "make it 紅 & bright",
        "model": MODEL,
        "size": "7x5",
        "n": "1",
        "seed": "9",
        "generator_device": "cpu",
        "num_inference_steps": "28",
        "guidance_scale": "3.0",
        "response_format": "b64_json",
        "output_format": "png",
    }


@pytest.mark.parametrize(
    "faults",
    [[429], [500, 503], ["hang up"], ["half"], ["half json"], ["gzip without its end"], ["html"], [502, "half", 429, "hang up", 504]],
)
def test_a_passing_fault_is_waited_out(script: Script, url: str, faults: list[Any]) -> None:
    editor = opened("http/flux-kontext", url)
    script.faults = list(faults)
    assert isinstance(one(editor), Edited)
    editor.close()
    assert len(script.forms) == len(faults) + 1
    assert len({form["seed"] for form in script.forms}) == 1


def test_an_answer_may_be_compressed(script: Script, url: str) -> None:
    editor = opened("http/flux-kontext", url)
    script.faults = ["gzip"]
    assert isinstance(one(editor), Edited) and len(script.forms) == 1
    editor.close()


@pytest.mark.parametrize("fault", ["silence", "drip", "drip headers"])
def test_an_answer_that_does_not_come_is_asked_for_again(script: Script, url: str, fault: str) -> None:
    editor = opened("http/flux-kontext", url, edit_seconds=0.5)
    script.faults = [fault, 500, fault]
    result = one(editor)
    assert isinstance(result, Failure) and result.message.endswith("2 times: no answer in 0.5 seconds")
    assert len(script.forms) == 3
    script.faults = [fault]
    assert isinstance(one(editor), Edited)
    editor.close()


def test_a_server_that_is_silent_twice_is_given_up(script: Script, url: str) -> None:
    editor = opened("http/flux-kontext", url, edit_seconds=0.5)
    script.faults = ["silence", 500, "silence"]
    result = one(editor)
    assert isinstance(result, Failure)
    assert (result.reason, len(script.forms)) == ("unanswered", 3)
    assert result.message.endswith("/v1/images/edits, 2 times: no answer in 0.5 seconds")
    editor.close()


@pytest.mark.parametrize(
    ("faults", "reason", "message", "requests"),
    [
        ([400], "refused", "400: fault 400", 1),
        ([422], "refused", "422: fault 422", 1),
        (["two"], "refused", "the answer has 2 images, not one", 1),
        (["none"], "refused", "the answer has 0 images, not one", 1),
        (["no base64"], "refused", "b64_json is no base64", 1),
        (["text"], "no-image", "the answer contains no image", 1),
        (["url"], "no-image", "the answer contains no image", 1),
        (["size"], "wrong-size", "the edit of 7x5 pixels has 3x3", 1),
        ([500, 429, "later"], "unanswered", "tried 3 times: HTTP 429: too many", 3),
    ],
)
def test_a_lasting_fault_is_a_failure(script: Script, url: str, faults: list[Any], reason: str, message: str, requests: int) -> None:
    editor = opened("http/flux-kontext", url, tries=3)
    script.faults = list(faults)
    result = one(editor)
    assert isinstance(result, Failure)
    assert (result.reason, len(script.forms)) == (reason, requests)
    assert message in result.message
    assert isinstance(one(editor), Edited)
    editor.close()


def test_pauses_double_and_one_that_the_server_asks_for_comes_first(script: Script, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(http_client, "time", SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic))
    editor = opened("http/flux-kontext", url)
    script.faults = [500, "later", "half", 503]
    before = time.monotonic()
    assert isinstance(one(editor), Edited)
    editor.close()
    assert pauses == [0.01, 0.02, 0.04, 0.08] and time.monotonic() - before > 0.3


def test_a_server_asks_for_a_pause_in_seconds_or_until_a_date() -> None:
    asked = ["7", "0.5", "-3", "soon", "900", "Wed, 21 Oct 2015 07:28:00 GMT", "Fri, 31 Dec 2100 23:59:59 GMT"]
    assert [Reply(429, {"Retry-After": one}, b"").retry_after() for one in asked] == [7, 0.5, 0, 0, 60, 0, 60]
    impossible = "Fri, 31 Dec 99999 23:59:59 GMT"
    assert Reply(429, {"Retry-After": impossible}, b"").retry_after() == Reply(429, {"Retry-After": "nan"}, b"").retry_after() == 0
    assert Reply(429, {}, b"").retry_after() == 0 and pace.LONGEST_PAUSE == 60


def test_an_answer_without_end_is_not_read(script: Script, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LARGEST_ANSWER", 120)
    editor = opened("http/flux-kontext", url)
    result = one(editor)
    editor.close()
    assert isinstance(result, Failure) and result.message.endswith("/v1/images/edits: an answer of more than 120 bytes")
    assert len(script.forms) == 1


def test_no_more_requests_at_a_time_than_wanted_and_results_in_order(script: Script, url: str) -> None:
    script.seconds = 0.05
    editor = opened("http/flux-kontext", url, concurrency=3)
    batch = [EditRequest(Image.new("RGB", (7, 5), (shade, 0, 0)), "invert", shade) for shade in range(12)]
    results = editor.edit(batch)
    editor.close()
    assert [result.image.getpixel((0, 0))[0] for result in results if isinstance(result, Edited)] == [255 - shade for shade in range(12)]
    assert script.most_at_a_time == 3


def test_a_server_that_comes_back_is_waited_for(script: Script) -> None:
    with serving(script) as address:
        editor = opened("http/flux-kontext", address, tries=12)
    results: list[Edited | Failure] = []
    thread = threading.Thread(target=lambda: results.append(one(editor)))
    thread.start()
    time.sleep(0.2)
    with serving(Script(), int(address.rpartition(":")[2])):
        thread.join()
    editor.close()
    assert [type(result) for result in results] == [Edited]


def test_the_key_is_sent_and_never_shown(script: Script, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script.key = "secret"
    with pytest.raises(ValueError, match=r"HTTP 401: no key; settings.key_variable names"):
        opened("http/flux-kontext", url)
    with pytest.raises(ValueError, match=r"settings.key_variable names EDITS_KEY, and this environment variable is not set"):
        opened("http/flux-kontext", url, key_variable="EDITS_KEY")
    monkeypatch.setenv("EDITS_KEY", "secret")
    editor = opened("http/flux-kontext", url, key_variable="EDITS_KEY")
    result = one(editor)
    editor.close()
    assert script.headers[0]["Authorization"] == "Bearer secret"
    assert "secret" not in repr(result)


def test_another_model_or_engine_is_refused(script: Script, url: str) -> None:
    with pytest.raises(
        ValueError, match=r"http/bagel: the server at .* serves black-forest-labs/FLUX\.1-Kontext-dev, not ByteDance-Seed/BAGEL"
    ):
        opened("http/bagel", url)
    script.model = "mine"
    opened("http/bagel", url, model="mine").close()
    with pytest.raises(ValueError, match="is of vllm, and only sglang is known to condition this model as it was trained"):
        opened("http/qwen-image-edit-2511", url, model="mine")
    script.engine = "sglang"
    editor = opened("http/qwen-image-edit-2511", url, model="mine")
    result = one(editor)
    editor.close()
    assert isinstance(result, Edited)
    assert dict(result.record)["engine_version"] == "0.5.23"
    assert (script.forms[-1]["negative_prompt"], script.forms[-1]["true_cfg_scale"]) == (" ", "4.0")


def test_what_is_no_server_is_named(script: Script, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"settings.base_url names no server; `vllm serve ByteDance-Seed/BAGEL-7B-MoT --omni` starts one"):
        opened("http/bagel", "")
    with serving(script) as address:
        pass
    with pytest.raises(ValueError, match=r"does not tell which model it serves .*tried 2 times: a broken connection"):
        opened("http/flux-kontext", address, tries=2)
    spec = catalogue.find("http/flux-kontext", "key")
    settings = catalogue.settings_of(spec, {"base_url": address, "pause_seconds": 0.01}, "key")
    assert "tried 2 times: a broken connection" in spec.unready(settings), "before a run begins nobody waits long"
    editors = [{"name": "http/bagel", "candidates": 2, "settings": {"base_url": address, "pause_seconds": 0.01}}]
    section = {"sources": {"dataset": "table", "tables": [{"name": "a", "path": "nowhere"}]}, "annotate": 2, "editors": editors}
    flow = FlowConfig.model_validate({"name": "x", "generate": section})
    with pytest.raises(ValueError, match=r"or correct generate\.editors\.0\.settings\.base_url$"):  # before sources are looked for
        step.run(Context(RunDir(tmp_path / "run"), flow, cast(Any, None)))
    compared = {"items": 8, "reference_arm": "copy-of-source", "editors": [{"editor": "http/bagel", "settings": editors[0]["settings"]}]}
    benchmark = FlowConfig.model_validate({"name": "x", "world": {}, "evaluate_editor": compared})
    for begin in (evaluate_editor.check, evaluate_editor.run):  # the latter where a run goes on
        with pytest.raises(ValueError, match=r"or correct evaluate_editor\.editors\.0\.settings\.base_url$"):
            begin(Context(RunDir(tmp_path / "benchmark"), benchmark, cast(Any, None)))
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="localhost:8000"):
        opened("http/flux-kontext", "localhost:8000")


def test_no_edit_will_come_from_a_server_without_the_endpoint(script: Script, url: str) -> None:
    editor = opened("http/flux-kontext", url)
    script.faults = [404]
    with pytest.raises(ValueError, match=r"POST .*/v1/images/edits is answered with HTTP 404: fault 404"):
        one(editor)
    editor.close()


def test_settings_that_the_form_cannot_carry_are_refused() -> None:
    spec = catalogue.find("http/bagel", "generate.editors")
    with pytest.raises(
        ValueError, match=r"^generate.editors.0.settings: .* cannot carry cfg_img_scale, cfg_text_scale: the server would drop"
    ):
        catalogue.settings_of(spec, {"cfg_text_scale": 4, "cfg_img_scale": 2}, KEY)
    with pytest.raises(ValueError, match="cannot carry guidance_scale_2"):
        catalogue.settings_of(catalogue.find("http/flux-kontext", "generate.editors"), {"guidance_scale_2": 2}, KEY)


def test_where_the_server_is_changes_no_edit() -> None:
    spec = catalogue.find("http/omnigen2", "generate.editors")

    def identity(**given: Any) -> Any:
        return spec.identity(catalogue.settings_of(spec, given, KEY), FLOW)

    assert identity() == identity(base_url="http://elsewhere", concurrency=9, tries=2, edit_seconds=5, key_variable="K")
    assert len({str(identity(**given)) for given in ({}, {"model": "m"}, {"generator_device": "cuda"}, {"guidance_scale_2": 1.5})}) == 4
