"""The questions that a vision-language model is asked about an edit. The texts are ours.

The design is VIEScore's (Ku et al. 2024, arXiv 2312.14867) as GEdit-Bench uses it (arXiv 2504.17761): two calls that know nothing of each
other. The first sees source and edit and the instruction, and scores success and over-editing. The second sees the edit alone, and scores
naturalness and artifacts. Each score is 0 to 10, higher is better, and the smaller one of a call counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from stages.evaluate_editor.verdict import HEADLINE, viescore

ImageRole = Literal["source", "edited"]
LEAST, MOST = 0.0, 10.0


@dataclass(frozen=True)
class Question:
    """One call. ``name``: of the headline score that it gives; ``scores``: what the numbers of its reply are, in their order.

    ``text`` contains ``{instruction}`` where the call knows the instruction.
    """

    name: str
    scores: tuple[str, str]
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
QUESTIONS = (CONSISTENCY, QUALITY)
SUBSCORES = (*HEADLINE, *CONSISTENCY.scores, *QUALITY.scores)


def aggregate(scores: Mapping[str, tuple[float, float]]) -> tuple[dict[str, float], float]:
    """Sub-scores and overall score of an edit from the two numbers of each question: SC and PQ are the minima, overall is sqrt(SC * PQ)."""
    headline = {question.name: min(scores[question.name]) for question in QUESTIONS}
    parts = {name: value for question in QUESTIONS for name, value in zip(question.scores, scores[question.name], strict=True)}
    return headline | parts, viescore(*headline.values())
