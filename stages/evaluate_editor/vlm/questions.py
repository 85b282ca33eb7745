"""The questions that a vision-language model is asked about an edit, by rubric. The texts are ours.

viescore: the design is VIEScore's (Ku et al. 2024, arXiv 2312.14867) as GEdit-Bench uses it (arXiv 2504.17761): two calls that know
nothing of each other. The first sees source and edit and the instruction, and scores success and over-editing. The second sees the edit
alone, and scores naturalness and artifacts. Each score is 0 to 10, higher is better, and the smaller one of a call counts.

imgedit: ImgEdit-Bench's own design (Ye et al. 2025, arXiv 2505.20275): one call that sees source, edit and instruction gives three scores
from 1 to 5, and the mean of the three is the item's score. Its questions differ by type of edit, which the paper describes in part only;
here all types have the same one. Whether its script caps two of the scores by the first is not described; here none is capped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from stages.evaluate_editor.verdict import HEADLINE, viescore

ImageRole = Literal["source", "edited"]
RubricName = Literal["viescore", "imgedit"]


@dataclass(frozen=True)
class Question:
    """One call. ``name``: of the score that it gives; ``scores``: what the numbers of its reply are, in their order.

    ``text`` contains ``{instruction}`` where the call knows the instruction.
    """

    name: str
    scores: tuple[str, ...]
    images: tuple[ImageRole, ...]
    text: str

    def prompt(self, instruction: str) -> str:
        """The text of the call; braces in an instruction stay as they are."""
        return self.text.replace("{instruction}", instruction)


_ANSWER = """
Answer with one JSON object and nothing after it: {"reasoning": "two or three sentences", "score": [A, B]}
A and B are numbers from 0 to 10; use the whole range."""

CONSISTENCY = Question(
    HEADLINE[0],
    ("success", "over_editing"),
    ("source", "edited"),
    """You compare two versions of a picture. The first image is the original. The second image is what an editing program made of it.
The program was told: "{instruction}"

Give two scores.
A, success: how completely the second image does what the program was told. 0: nothing of it was done. 10: all of it was done, as told.
B, restraint: how well everything that the instruction does not mention was kept. 0: the second image has nothing to do with the first. \
10: only what the instruction asks for has changed, and no more of it than needed.
Both images show computer-made or photographed scenes; people in them are not to be identified."""
    + _ANSWER,
)
QUALITY = Question(
    HEADLINE[1],
    ("naturalness", "artifacts"),
    ("edited",),
    """You look at one picture that a program has made. You do not know what it was asked for; judge only how well the picture is made.

Give two scores.
A, naturalness: how believable the scene is as a whole: light, shadows, distances, proportions. 0: it cannot be real. \
10: it looks entirely natural for its style.
B, freedom from flaws: distortions, seams, blur, watermarks, malformed faces, hands or letters, parts that do not fit. 0: flaws are \
everywhere. 10: there is none."""
    + _ANSWER,
)
COMPLIANCE = Question(
    "imgedit",
    ("instruction_adherence", "editing_quality", "detail_preservation"),
    ("source", "edited"),
    """You compare two versions of a picture. The first image is the original. The second image is what an editing program made of it.
The program was told: "{instruction}"

Give three scores from 1 to 5.
A, instruction adherence: 1: nothing of it was done, or something else. 3: done in part, or at the wrong place. 5: done exactly as told.
B, editing quality: 1: the edited part is broken or clearly pasted. 3: acceptable with visible flaws. 5: it looks like a part of the \
original.
C, detail preservation: 1: much that the instruction does not mention was lost or changed. 3: small unwanted changes. 5: all of it was kept.
Both images show computer-made or photographed scenes; people in them are not to be identified.

Answer with one JSON object and nothing after it: {"reasoning": "two or three sentences", "score": [A, B, C]}
A, B and C are numbers from 1 to 5; use the whole range.""",
)


def aggregate(scores: Mapping[str, tuple[float, ...]]) -> tuple[dict[str, float], float]:
    """Sub-scores and overall score of an edit from the two numbers of each question: SC and PQ are the minima, overall is sqrt(SC * PQ)."""
    headline = {question.name: min(scores[question.name]) for question in (CONSISTENCY, QUALITY)}
    parts = {name: value for question in (CONSISTENCY, QUALITY) for name, value in zip(question.scores, scores[question.name], strict=True)}
    return headline | parts, viescore(*headline.values())


def _mean(scores: Mapping[str, tuple[float, ...]]) -> tuple[dict[str, float], float]:
    """The three scores of ImgEdit-Bench and their mean."""
    given = scores[COMPLIANCE.name]
    return dict(zip(COMPLIANCE.scores, given, strict=True)), math.fsum(given) / len(given)


@dataclass(frozen=True)
class Rubric:
    """``least`` and ``most``: range of a reply's numbers; ``shown``: scores that are columns of the table of results, ``subscores``: all.

    ``combine``: from the numbers by question to the scores by name, and the overall one.
    """

    questions: tuple[Question, ...]
    least: float
    most: float
    shown: tuple[str, ...]
    subscores: tuple[str, ...]
    combine: Callable[[Mapping[str, tuple[float, ...]]], tuple[dict[str, float], float]]


RUBRICS: dict[RubricName, Rubric] = {
    "viescore": Rubric((CONSISTENCY, QUALITY), 0.0, 10.0, HEADLINE, (*HEADLINE, *CONSISTENCY.scores, *QUALITY.scores), aggregate),
    "imgedit": Rubric((COMPLIANCE,), 1.0, 5.0, COMPLIANCE.scores, COMPLIANCE.scores, _mean),
}
