"""Verdicts of a vision-language model: a rubric's questions are asked independently, each again by itself where its reply has no scores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stages.evaluate_editor.verdict import Status, Verdict
from stages.evaluate_editor.vlm.pictures import Format, encoded
from stages.evaluate_editor.vlm.questions import Question, Rubric
from stages.evaluate_editor.vlm.replies import Unparsable, scores_of

if TYPE_CHECKING:
    import numpy as np

    from stages.evaluate_editor.items.item import Item
    from stages.evaluate_editor.vlm.chat import Answer, Chat
    from stages.evaluate_editor.vlm.reply_cache import ReplyCache


@dataclass(frozen=True)
class _Asked:
    """What a question led to. ``answers``: of all its attempts; ``why``: the reason of the last one that failed."""

    status: Status
    answers: tuple[Answer, ...]
    scores: tuple[float, ...] | None = None
    why: str = ""


class VlmJudging:
    """Judges with a chat model. ``attempts``: calls per question at most; ``concurrency``: calls at the same time, whoever judges."""

    def __init__(self, chat: Chat, cache: ReplyCache, rubric: Rubric, *, attempts: int, concurrency: int, image_format: Format) -> None:
        self.chat, self.cache, self.rubric = chat, cache, rubric
        self.attempts, self.image_format = attempts, image_format
        self.threads = ThreadPoolExecutor(concurrency)

    def __call__(self, items: Sequence[Item], edited: Sequence[np.ndarray]) -> list[Verdict]:
        """One verdict per edit, in their order. An edit of another size than its source is the caller's mistake."""
        jobs = []
        for item, output in zip(items, edited, strict=True):
            assert output.shape == item.image.shape, "an edit is judged at its source's size"
            pictures = {"source": encoded(item.image, self.image_format), "edited": encoded(output, self.image_format)}
            jobs += [(question, [pictures[role] for role in question.images], item.instruction) for question in self.rubric.questions]
        futures = [self.threads.submit(self._ask, *job) for job in jobs]
        try:
            asked = [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()
        count = len(self.rubric.questions)
        return [self._verdict(asked[first : first + count]) for first in range(0, len(asked), count)]

    def _ask(self, question: Question, images: Sequence[bytes], instruction: str) -> _Asked:
        text = question.prompt(instruction)
        answers: list[Answer] = []
        found = _Asked("api_error", ())
        for attempt in range(1, self.attempts + 1):
            answer = self._answer(images, text, attempt)
            answers.append(answer)
            found = self._read(question, answer, tuple(answers))
            if found.status in ("ok", "api_error"):  # the client has already asked again
                break
        return found

    def _answer(self, images: Sequence[bytes], text: str, attempt: int) -> Answer:
        path = self.cache.path(images, text, attempt)
        answer = self.cache.get(path)
        if answer is None:
            answer = self.chat.ask(images, text)
            if answer.status != "api_error":
                self.cache.put(path, answer)
        return answer

    def _read(self, question: Question, answer: Answer, answers: tuple[Answer, ...]) -> _Asked:
        if answer.status != "ok":
            return _Asked(answer.status, answers, why=answer.text)
        try:
            return _Asked("ok", answers, scores_of(answer.text, len(question.scores), self.rubric.least, self.rubric.most))
        except Unparsable as error:
            return _Asked("refused" if error.refused else "unparsable", answers, why=str(error))

    def _verdict(self, asked: Sequence[_Asked]) -> Verdict:
        """Of the answers to all questions about an edit: the first question that failed gives the status."""
        raw = {
            question.name: {"status": one.status, "reply": one.answers[-1].text} | ({"why": one.why} if one.why else {})
            for question, one in zip(self.rubric.questions, asked, strict=True)
        }
        answers = [answer for one in asked for answer in one.answers]
        facts: dict[str, Any] = {
            "raw": json.dumps(raw, ensure_ascii=False, sort_keys=True).encode(errors="replace").decode(),
            "snapshot": ", ".join(sorted({answer.model for answer in answers if answer.model})),
            "attempts": len(answers),
            "tokens": (sum(answer.prompt_tokens for answer in answers), sum(answer.completion_tokens for answer in answers)),
        }
        given = {question.name: one.scores for question, one in zip(self.rubric.questions, asked, strict=True) if one.scores is not None}
        if len(given) < len(self.rubric.questions):
            return Verdict(next(one.status for one in asked if one.status != "ok"), **facts)
        scores, overall = self.rubric.combine(given)
        return Verdict("ok", scores, overall, **facts)
