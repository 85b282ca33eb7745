"""The judge behind an endpoint, against a real server on this machine that misbehaves."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judge_server import MODEL, Answered, JudgeServer, instruction_in, is_quality, said, scored, serving
from PIL import Image

from stages.engine.pace import Pace
from stages.evaluate_editor.items.item import Item
from stages.evaluate_editor.judges.endpoint import EndpointJudge
from stages.evaluate_editor.verdict import Verdict
from stages.evaluate_editor.vlm.endpoint import FAILURES_IN_SUCCESSION, is_snapshot_of

FAST = {"model": MODEL, "backoff": 0.01, "timeout": 1.0, "concurrency": 2, "patience": 2}


def item(name: str = "a", instruction: str = "add a hat", value: int = 50) -> Item:
    return Item(name, np.full((6, 9, 3), value, np.uint8), instruction, "subject-add", "en")


def edit(value: int = 90) -> np.ndarray:
    return np.full((6, 9, 3), value, np.uint8)


def judge_at(server: JudgeServer, **settings: Any) -> EndpointJudge:
    return EndpointJudge.model_validate({"name": "endpoint", "base_url": server.url, **FAST, **settings})


def verdict_of(server: JudgeServer, folder: Path, **settings: Any) -> Verdict:
    (found,) = judge_at(server, **settings).open(folder)([item()], [edit()])
    return found


def asking(semantic: Callable[[dict, int], Answered]) -> Callable[[dict, int], Answered]:
    """A server that answers questions about source and edit as told, and the other question well."""
    return lambda body, before: scored(9, 8) if is_quality(body) else semantic(body, before)


def test_two_independent_calls_at_temperature_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "secret")
    with serving(lambda body, _: scored(9, 4, model=f"{MODEL}-2026-01-31") if not is_quality(body) else scored(9, 10)) as server:
        found = verdict_of(server, tmp_path, key_variable="A_KEY", extra={"reasoning_effort": "low"})
    assert (found.status, found.overall, found.attempts, found.tokens) == ("ok", 6.0, 2, (1800, 60))
    assert found.scores == {
        "semantic_consistency": 4.0, "perceptual_quality": 9.0, "success": 9.0, "over_editing": 4.0, "naturalness": 9.0, "artifacts": 10.0,
    }  # fmt: skip
    assert found.snapshot == f"{MODEL}, {MODEL}-2026-01-31"
    assert set(server.keys) == {"Bearer secret"}
    quality, semantic = sorted(server.requests, key=is_quality, reverse=True)
    assert all(body["temperature"] == 0 and body["seed"] == 0 and body["reasoning_effort"] == "low" for body in server.requests)
    assert "add a hat" in instruction_in(semantic) and "add a hat" not in json.dumps(quality)
    pictures = [part["image_url"]["url"] for part in semantic["messages"][0]["content"] if part["type"] == "image_url"]
    decoded = [np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))) for url in pictures]
    assert [image.shape for image in decoded] == [(6, 9, 3)] * 2 and (decoded[0] == 50).all() and (decoded[1] == 90).all()
    assert "secret" not in "".join(path.read_text() for path in tmp_path.rglob("*.json"))


def test_a_rerun_makes_no_call_and_other_content_does(tmp_path: Path) -> None:
    with serving(asking(lambda body, _: scored(5, 5))) as server:
        first = verdict_of(server, tmp_path)
        assert verdict_of(server, tmp_path) == first and len(server.requests) == 2
        judge_at(server).open(tmp_path)([item()], [edit(91)])
        assert len(server.requests) == 4
        judge_at(server).open(tmp_path)([item(instruction="add a scarf")], [edit()])
        assert len(server.requests) == 5  # the picture alone was judged before
        for changed in ({"temperature": 0.5}, {"weights": "b"}, {"image_format": "jpeg"}, {"seed": 1}):
            before = len(server.requests)
            verdict_of(server, tmp_path, **changed)
            assert len(server.requests) == before + 2, changed
    with serving(lambda body, _: Answered({}, 500)) as dead:
        assert verdict_of(dead, tmp_path) == first and not dead.requests  # at another address, too: the model is the same
    for damaged in tmp_path.rglob("*.json"):
        damaged.write_bytes(damaged.read_bytes()[:-20])
    with serving(asking(lambda body, _: scored(5, 5))) as server:
        assert verdict_of(server, tmp_path) == first and len(server.requests) == 2


@pytest.mark.parametrize(
    "trouble",
    [
        Answered({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, 429),
        Answered({"error": {"message": "slow down"}}, 429, headers={"Retry-After": "0.02"}),
        Answered(b"<html>bad gateway</html>", 502),
        Answered({"error": {"message": "oops"}}, 500),
        Answered({"error": {"message": "an error with status 200"}}),
        Answered({"model": MODEL, "choices": []}),
        Answered(b"not json"),
        Answered({"model": MODEL, "choices": [{"message": {"content": "x" * 400}}]}, half=True),
        Answered({}, late=1.4),
        Answered({"model": MODEL, "choices": []}, drip=True),
    ],
    ids=["429", "retry-after", "502", "500", "200-error", "no-choices", "no-json", "half", "time-out", "drip"],
)
def test_what_may_pass_is_asked_again(tmp_path: Path, trouble: Answered) -> None:
    with serving(asking(lambda body, before: scored(7, 7) if before else trouble)) as server:
        found = verdict_of(server, tmp_path)
    assert (found.status, found.scores["semantic_consistency"], found.attempts) == ("ok", 7.0, 2)
    assert len(server.requests) == 3  # the other question was asked once


def test_what_does_not_pass_is_an_error_without_scores_and_is_asked_again_by_the_next_run(tmp_path: Path) -> None:
    with serving(asking(lambda body, _: Answered({"error": {"message": "overloaded"}}, 503))) as server:
        found = verdict_of(server, tmp_path)
        assert (found.status, found.scores, found.overall) == ("api_error", {}, None) and "overloaded" in found.raw
        assert len(server.requests) == 1 + 3
    with serving(asking(lambda body, _: scored(6, 6))) as server:
        assert verdict_of(server, tmp_path).status == "ok"
        assert len(server.requests) == 1  # the answer to the other question was kept


@pytest.mark.parametrize(
    ("answer", "status", "calls"),
    [
        (Answered({"error": {"code": "content_filter", "message": "blocked"}}, 400), "refused", 3),
        (Answered({"error": {"code": "400", "innererror": {"code": "ResponsibleAIPolicyViolation"}}}, 400), "refused", 3),
        (said(None, finish="content_filter"), "refused", 3),
        (said(None, refusal="I will not."), "refused", 3),
        (said("I'm sorry, I can't help with identifying people."), "refused", 3),
        (said('{"score": [8,'), "unparsable", 3),
        (said("8"), "unparsable", 3),
        (said('{"score": [NaN, 3]}'), "unparsable", 3),
        (scored(11, 3), "unparsable", 3),
        (Answered({"error": {"message": "image too large"}}, 413), "api_error", 1),
    ],
    ids=["filter", "azure", "finish", "refusal", "words", "truncated", "number", "nan", "range", "413"],
)
def test_failures_never_become_numbers(tmp_path: Path, answer: Answered, status: str, calls: int) -> None:
    with serving(asking(lambda body, _: answer)) as server:
        found = verdict_of(server, tmp_path)
        assert (found.status, found.scores, found.overall) == (status, {}, None)
        assert sum(not is_quality(body) for body in server.requests) == calls and found.attempts == calls + 1
        assert json.loads(found.raw)["perceptual_quality"]["status"] == "ok"


def test_a_question_is_asked_again_by_itself(tmp_path: Path) -> None:
    """Two replies without scores; the third has them, between braces and in another language."""
    replies = [said("没有分数"), said("{no}"), said('评分如下 {draft} {"reasoning": "好", "score": [9, 9]}')]
    with serving(asking(lambda body, before: replies[before])) as server:
        found = verdict_of(server, tmp_path)
        assert found.status == "ok" and found.attempts == 4 and sum(map(is_quality, server.requests)) == 1
        assert verdict_of(server, tmp_path) == found and len(server.requests) == 4
        assert verdict_of(server, tmp_path, attempts=2).status == "unparsable" and len(server.requests) == 4


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (scored(5, 5, model="judge-1-mini"), "was asked for judge-1 and judge-1-mini replied; two models are two judges"),
        (Answered({"error": {"message": "bad key"}}, 401), "answers HTTP 401: bad key, asked for the model judge-1"),
        (Answered({"error": {"message": "no such model"}}, 404), "answers HTTP 404"),
        (Answered({"error": {"code": "insufficient_quota"}}, 429), "has no quota left"),
    ],
)
def test_what_cannot_get_better_ends_the_command(tmp_path: Path, answer: Answered, message: str) -> None:
    with serving(lambda body, _: answer) as server, pytest.raises(ValueError, match=message):
        verdict_of(server, tmp_path)
    assert len(server.requests) <= 4


def test_a_server_that_has_stopped_ends_the_command(tmp_path: Path) -> None:
    with serving(lambda body, _: Answered({"error": {"message": "loading"}}, 503)) as server:
        items = [item(str(number), value=number) for number in range(FAILURES_IN_SUCCESSION)]
        edits = [edit(100 + number) for number in range(len(items))]
        with pytest.raises(ValueError, match=r"2\d calls .* in succession, the last with: .*HTTP 503: .*loading"):
            judge_at(server, patience=0).open(tmp_path)(items, edits)
    url = server.url
    with pytest.raises(ValueError, match=f"no judge answers at {url} "):
        EndpointJudge(name="endpoint", base_url=url, model=MODEL).open(tmp_path)


def test_many_edits_at_the_same_time_keep_their_order_and_the_rate(tmp_path: Path) -> None:
    def by_instruction(body: dict, before: int) -> Answered:
        return scored(3, 3) if is_quality(body) else scored(*[float(instruction_in(body).split("number ")[1][0])] * 2)

    with serving(by_instruction) as server:
        items = [item(str(number), f"number {number}", number) for number in range(8)]
        edits = [edit(100 + number) for number in range(8)]
        found = judge_at(server, concurrency=8, per_minute=6000).open(tmp_path)(items, edits)
    assert [verdict.scores["semantic_consistency"] for verdict in found] == list(range(8))


def test_the_key_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("A_KEY", raising=False)
    with pytest.raises(ValueError, match="the environment variable A_KEY has no API key for http"):
        EndpointJudge(name="endpoint", key_variable="A_KEY").check()
    EndpointJudge(name="endpoint").check()


def test_names_of_snapshots() -> None:
    assert is_snapshot_of("gpt-4.1-2025-04-14", "gpt-4.1") and is_snapshot_of("gpt-4.1", "gpt-4.1")
    assert not is_snapshot_of("gpt-4.1-mini", "gpt-4.1") and not is_snapshot_of("gpt-4.1-mini-2025-04-14", "gpt-4.1")
    assert not is_snapshot_of("gpt-4.12", "gpt-4.1") and not is_snapshot_of("gpt-4", "gpt-4.1")


def test_revisions_tell_judges_apart_and_prices_are_added_up() -> None:
    plain = EndpointJudge(name="endpoint")
    assert plain.revision != EndpointJudge(name="endpoint", weights="x").revision != EndpointJudge(name="endpoint", temperature=1).revision
    assert plain.revision == EndpointJudge(name="endpoint", base_url="http://elsewhere/v1", concurrency=1).revision
    priced = EndpointJudge(name="endpoint", prompt_price=2.0, completion_price=8.0)
    assert priced.cost(1_000_000, 500_000) == 6.0 and plain.cost(1, 1) is None
    assert priced.meter([{"prompt_tokens": 1e6, "completion_tokens": 0}]) == "1,000,000 tokens, US$ 2.00"


def test_a_rate_and_a_pause_hold_for_all_threads() -> None:
    slept: list[float] = []
    pace = Pace(1, slept.append)
    pace.wait()
    pace.wait()
    assert len(slept) == 1 and 40 < slept[0] <= 60  # the first call begins at once, the second a minute later
    free = Pace(None, slept.append)
    free.wait()
    free.pause(30)
    free.wait()
    free.pause(6000)
    free.wait()
    assert len(slept) == 3 and 20 < slept[1] <= 30 and 40 < slept[2] <= 60


def test_the_rubric_of_imgedit_bench_is_one_call(tmp_path: Path) -> None:
    with serving(lambda body, _: said('{"score": [5, 2, 2]}')) as server:
        found = verdict_of(server, tmp_path, rubric="imgedit")
        assert (found.status, found.overall, len(server.requests)) == ("ok", 3.0, 1)
        assert set(found.scores) == set(judge_at(server, rubric="imgedit").subscores) and len(found.scores) == 3
        assert verdict_of(server, tmp_path).status == "unparsable"  # the same reply is none to the other questions
    assert judge_at(server).revision != judge_at(server, rubric="imgedit").revision and judge_at(server, rubric="imgedit").calls == 1
