"""Published GEdit-Bench figures of editors, 0 to 10, with the judge and the date of each as far as they are known.

They are a reference to print beside one's own, never a scale to compare with: a hosted judge drifts between dates by as much as the gaps
(Step1X-Edit v1.1 was published with 6.969 and judged again, in March 2026, with 7.497), refusals of a judge were scored with random numbers
by the benchmark's own script, and others could not repeat many of the figures. gpt-4.1, the judge of most of them, leaves OpenAI's API on
2027-01-14.
"""

from __future__ import annotations

from typing import NamedTuple

GPT = "gpt-4.1"
QWEN = "Qwen2.5-VL-72B-Instruct-AWQ"
USUAL = "not verified; gpt-4.1 is usual"
AUTHORS = "of its authors or of later papers; date and snapshot of the judge are not known"


class PublishedEditor(NamedTuple):
    """Overall score of an editor; SC and PQ where they were published. ``column``: language and subset."""

    system: str
    column: str
    overall: float
    judge: str
    when: str
    caveat: str
    semantic_consistency: float | None = None
    perceptual_quality: float | None = None


EDITORS = (
    PublishedEditor("Step1X-Edit v1.0", "EN full", 6.70, GPT, "2025-04", "technical report (arXiv 2504.17761)", 7.09, 6.76),
    PublishedEditor("Step1X-Edit v1.0", "EN full", 6.444, GPT, "2025, after April", "project page, judged again", 7.131, 6.998),
    PublishedEditor("Step1X-Edit v1.0", "CN full", 6.658, GPT, "2025, after April", "project page, judged again", 7.299, 7.142),
    PublishedEditor("Step1X-Edit v1.0", "EN full", 7.067, QWEN, "2025", "project page; the judge whose weights stay", 7.388, 7.279),
    PublishedEditor("Step1X-Edit v1.0", "CN full", 7.212, QWEN, "2025", "project page; the judge whose weights stay"),
    PublishedEditor("Step1X-Edit v1.1", "EN full", 6.969, GPT, "2025-07", "7.497 when judged again in March 2026", 7.658, 7.354),
    PublishedEditor("Step1X-Edit v1.1", "CN full", 6.983, GPT, "2025-07", "project page", 7.647, 7.398),
    PublishedEditor("Step1X-Edit v1.1", "EN full", 7.346, QWEN, "2025", "project page; the judge whose weights stay", 7.652, 7.408),
    PublishedEditor("Step1X-Edit v1.2", "EN full", 7.24, GPT, "2025-11", "arXiv 2511.22625; 7.36 with thinking, 7.58 with reflection too"),
    PublishedEditor("FLUX.1 Kontext dev", "EN full", 6.00, USUAL, "–", f"{AUTHORS}; others give up to 6.51"),
    PublishedEditor("Qwen-Image-Edit-2511", "EN full", 7.88, USUAL, "–", AUTHORS),
    PublishedEditor("Qwen-Image-Edit-2511", "CN full", 7.82, USUAL, "–", AUTHORS),
    PublishedEditor("FLUX.2 klein 9B", "EN full", 7.64, USUAL, "–", AUTHORS),
    PublishedEditor("FLUX.2 klein 4B", "EN full", 7.02, USUAL, "–", AUTHORS),
)
