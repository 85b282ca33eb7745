"""The EditReward paper's fine-tuning result (Table 3): GEdit-Bench scores of Step1X-Edit before and after, 0..10.

These numbers are a reference to print beside one's own, not a scale to compare with:
- another judge (GPT-4.1 behind the flag "gpt4o"), other images and another editor; a score of a programmatic judge on
  synthetic scenes shares only the formula;
- the base row was copied from the benchmark's project page, the fine-tunes were judged later; the drift of a hosted judge
  between dates is of the size of the gaps;
- one seed, no intervals, and no random subset of the same size beside the filtered one;
- PQ falls against the base in both fine-tunes, the gain is in SC;
- the base row's CN full cell is the line of Step1X-Edit v1.1; the other three are v1.0's. v1.0's own line on the project page
  is `CN_FULL_BASE_V1_0`, and against it the gain of the filtered set on CN full is +0.34, not +0.02.
"""

from __future__ import annotations

from typing import NamedTuple


class PublishedScores(NamedTuple):
    """Semantic consistency, perceptual quality and overall, each unweighted over GEdit-Bench's 11 tasks."""

    semantic_consistency: float
    perceptual_quality: float
    overall: float


COLUMNS = ("EN intersection", "EN full", "CN intersection", "CN full")

TABLE_3: dict[str, dict[str, PublishedScores]] = {
    row: dict(zip(COLUMNS, cells, strict=True))
    for row, cells in {
        "Step1X-Edit": (
            PublishedScores(7.289, 6.962, 6.618),
            PublishedScores(7.131, 6.998, 6.444),
            PublishedScores(7.464, 7.076, 6.779),
            PublishedScores(7.647, 7.398, 6.983),
        ),
        "Step1X-Edit + ShareGPT-4o-Image, all 46K": (
            PublishedScores(7.411, 6.838, 6.803),
            PublishedScores(7.349, 6.893, 6.780),
            PublishedScores(7.126, 6.855, 6.595),
            PublishedScores(7.116, 6.807, 6.583),
        ),
        "Step1X-Edit + ShareGPT-4o-Image, top 20K by EditReward": (
            PublishedScores(7.895, 6.946, 7.131),
            PublishedScores(7.854, 6.931, 7.086),
            PublishedScores(7.757, 7.024, 7.074),
            PublishedScores(7.658, 6.995, 7.001),
        ),
    }.items()
}

CN_FULL_BASE_V1_0 = PublishedScores(7.299, 7.142, 6.658)
