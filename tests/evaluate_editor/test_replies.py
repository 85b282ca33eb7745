"""Scores are read from replies, and nothing else becomes one."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.evaluate_editor.vlm.questions import COMPLIANCE, CONSISTENCY, RUBRICS, aggregate
from stages.evaluate_editor.vlm.replies import Unparsable, scores_of


@pytest.mark.parametrize(
    ("reply", "scores"),
    [
        ('{"score": [8, 6], "reasoning": "fine"}', (8, 6)),
        ('```json\n{"reasoning": "ok", "score": [10, 0]}\n```', (10, 0)),
        ('The set {a, b} is {unclear}. {"reasoning": "a } brace", "score": [7.5, 9]} Done {here}.', (7.5, 9)),
        ('{"score": [1, 1]} Wait, looking again: {"score": [6, 7]}', (6, 7)),
        ('<think>maybe {"score": [1, 1]}</think>\n{"score": [5, 4]}', (5, 4)),
        ('{"reasoning": "line\nbreak", "score": ["7", " 8.5 "]}', (7, 8.5)),
        ('{"reasoning": "编辑成功，背景保持不变。", "score": [9, 8]}', (9, 8)),
        ('{"reasoning": "no refusal: I\'m sorry for the dog", "score": [2, 3]}', (2, 3)),
        ("[8, 7]", (8, 7)),
        ("```\n[8, 7]\n```", (8, 7)),
    ],
)
def test_scores_are_found(reply: str, scores: tuple[float, float]) -> None:
    assert scores_of(reply) == scores


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", "empty"),
        ("   \n", "empty"),
        ('<think>{"score": [5, 4]} and so on</think>', "empty"),
        ("8", "no JSON object"),
        ("I would give it 8 of 10.", "no JSON object"),
        ("Scores: [8, 7]", "no JSON object"),
        ('{"score": [8, 7', "no JSON object"),
        ('{"评分": [8, 7]}', "no JSON object"),
        ('{"score": 8}', "a list of 2 numbers"),
        ('{"score": [8]}', "a list of 2 numbers"),
        ('{"score": []}', "a list of 2 numbers"),
        ('{"score": [8, 7, 9]}', "a list of 2 numbers"),
        ('{"score": {"a": 8, "b": 7}}', "a list of 2 numbers"),
        ('{"score": [8, 11]}', "not from 0 to 10"),
        ('{"score": [-1, 7]}', "not from 0 to 10"),
        ('{"score": [NaN, 7]}', "not from 0 to 10"),
        ('{"score": [8, Infinity]}', "not from 0 to 10"),
        ('{"score": ["nan", 7]}', "not from 0 to 10"),
        ('{"score": [true, 7]}', "not from 0 to 10"),
        ('{"score": [null, 7]}', "not from 0 to 10"),
        ('{"score": ["eight", 7]}', "is no number"),
        ('{"score": [8, 7]} no: {"score": [8, 12]}', "not from 0 to 10"),  # the last one is what it ends with
    ],
)
def test_nothing_else_is_a_score(reply: str, why: str) -> None:
    with pytest.raises(Unparsable, match=why) as error:
        scores_of(reply)
    assert not error.value.refused


@pytest.mark.parametrize(
    "reply", ["I'm sorry, but I can't assist with that.", "I’m unable to evaluate real people.", "抱歉，我无法评估这张图片。"]
)
def test_refusals_in_words_are_refusals(reply: str) -> None:
    with pytest.raises(Unparsable) as error:
        scores_of(reply)
    assert error.value.refused


@given(st.text())
def test_any_text_gives_scores_in_range_or_a_reason(text: str) -> None:
    try:
        found = scores_of(text)
    except Unparsable as error:
        assert str(error)
    else:
        assert all(0 <= score <= 10 for score in found)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=6), st.text())
def test_only_two_numbers_in_range_are_scores(value: object, around: str) -> None:
    """Whatever is under the key, in whatever text without a JSON object of its own."""
    around = around.replace("{", "(").replace("</think>", "")
    reply = f"{around}{json.dumps({'score': value})}{around}"
    good = isinstance(value, list) and len(value) == 2 and all(_is_score(one) for one in value)
    try:
        found = scores_of(reply)
    except Unparsable:
        assert not good
    else:
        assert found == tuple(float(one) for one in value)  # ty: ignore[not-iterable]


def _is_score(value: object) -> bool:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return False
    return not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value) and 0 <= value <= 10


def test_the_smaller_number_of_each_question_counts() -> None:
    scores, overall = aggregate({"semantic_consistency": (9.0, 4.0), "perceptual_quality": (9.0, 10.0)})
    assert overall == 6.0 and list(scores) == list(RUBRICS["viescore"].subscores)
    assert scores["semantic_consistency"] == 4.0 and scores["success"] == 9.0 and scores["over_editing"] == 4.0
    assert aggregate({"semantic_consistency": (0.0, 10.0), "perceptual_quality": (9.0, 10.0)})[1] == 0.0


def test_questions_show_what_they_should() -> None:
    assert [question.images for question in RUBRICS["viescore"].questions] == [("source", "edited"), ("edited",)]
    assert 'add {score} and "quotes"' in CONSISTENCY.prompt('add {score} and "quotes"')
    assert "instruction}" not in RUBRICS["viescore"].questions[1].text


def test_the_rubric_of_imgedit_bench_is_three_scores_from_1_to_5_and_their_mean() -> None:
    rubric = RUBRICS["imgedit"]
    assert scores_of('{"score": [5, 1, 3]}', 3, rubric.least, rubric.most) == (5, 1, 3)
    for reply in ('{"score": [5, 0, 3]}', '{"score": [6, 1, 3]}', '{"score": [5, 1]}'):
        with pytest.raises(Unparsable):
            scores_of(reply, 3, rubric.least, rubric.most)
    assert rubric.combine({COMPLIANCE.name: (5.0, 1.0, 3.0)}) == (dict(zip(rubric.subscores, (5, 1, 3), strict=True)), 3.0)
    assert [question.images for question in rubric.questions] == [("source", "edited")] and "[A, B, C]" in COMPLIANCE.text
