"""The rubric of each dimension: our own wording of the criteria that the annotators were given (EditReward, appendix A.2).

A rubric of prompt `reference` comes after the images and contains the instruction; one of `rubric_first` comes before everything and
does not. Other dimensions need texts of their own, in `presentation.rubrics`.
"""

from __future__ import annotations

from collections.abc import Sequence

from reward.config import PresentationConfig

_CRITERIA = {
    "instruction_following": """Instruction following. Compare the edited picture with the original and with what was asked; judge three \
things. Meaning: the edit shows what the instruction means, with the right objects, attributes, counts and places. \
Completeness: every part of the instruction is carried out. Restraint: nothing that was not asked for has changed.
4, very good: all of it is done, and only that. 3, good: the main request is done, with small omissions or small side effects. \
2, poor: done in part, or with changes that nobody asked for. \
1, very poor: not done, the opposite done, or an unrelated or unchanged picture.""",
    "visual_quality": """Visual quality. Judge the edited picture as a picture, beside the original. \
Plausibility: light, shadow, reflection, perspective and proportion agree, and the scene could exist. \
Cleanness: no blur, noise, seams, halos, smears, doubled or broken shapes, faces or hands. \
Appeal: colours and composition are pleasant, and the style fits.
4, very good: nothing betrays the edit. 3, good: small flaws that need a second look. \
2, poor: flaws that are seen at once. 1, very poor: broken, distorted or unusable.""",
}

INTRODUCTION = "You see an original picture, an instruction for editing it, and the edited picture. Rate the edit from 1 to 4."
"""Opens the prompt of `rubric_first`, before the rubrics."""


def rubrics_of(presentation: PresentationConfig, dimensions: Sequence[str]) -> list[str]:
    """The rubric of each dimension. Raises ValueError for a dimension that has none."""
    if presentation.rubrics is not None:
        return [presentation.rubrics[name] for name in dimensions]
    for name in dimensions:
        if name not in _CRITERIA:
            raise ValueError(f"there is no rubric for {name}; give one per dimension in presentation.rubrics")
    if presentation.prompt == "reference":
        return [
            f"The first picture is the original, the second the edit.\n{_CRITERIA[name]}\nInstruction: {{instruction}}\nRating: "
            for name in dimensions
        ]
    return [_CRITERIA[name] for name in dimensions]
