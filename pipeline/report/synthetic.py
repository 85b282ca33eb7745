"""Which parts of a run are synthetic or simulated, and what follows for its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.report.published import Published


@dataclass(frozen=True)
class Synthetic:
    """A stand-in: what it is, and what it means."""

    what: str
    meaning: str


def synthetic_parts(published: Published) -> list[Synthetic]:
    """Found in the settings that the steps were made with."""
    parts = []
    generate = published.settings("generate").get("generate", {})
    if _dataset(generate.get("sources")) == "world":
        parts.append(
            Synthetic(
                "the sources are drawn by the embedded procedural world",
                "Source images are drawn scenes of a few shapes, so what is learnt here says nothing about photographs.",
            )
        )
    if any(str(choice.get("name", "")).startswith("world/") for choice in generate.get("editors", [])):
        parts.append(
            Synthetic(
                "the candidates come from simulated editors with known flaws",
                "Each draws the exact edit and damages it with known odds; the editor league ranks those odds, not real editors.",
            )
        )
    if _simulated_raters(published):
        parts.append(
            Synthetic(
                "the ratings come from simulated raters with bias and noise",
                "The raters know the true levels and blur them. Agreement between them is a property of that simulation, not of people.",
            )
        )
    if published.settings("train-reward").get("reward", {}).get("pretraining", {}).get("steps"):
        parts.append(
            Synthetic(
                "a short captioning stage stands in for the reward backbone's pretraining",
                "It uses no ratings and plays the part of the vision-language model's web pretraining, which real weights bring along.",
            )
        )
    if _dataset(published.settings("filter").get("filter", {}).get("input")) == "world-edits":
        parts.append(
            Synthetic(
                "the noisy edits are drawn too, about half of them flawed by design",
                "Filtering therefore has a much larger effect than on a delivered data set: its direction carries over, its size does not.",
            )
        )
    if published.json("evaluate-editor", "evaluation.json").get("judge", {}).get("name") == "world":
        parts.append(
            Synthetic(
                "the benchmark's judge is a program that knows the exact edit",
                "It compares pixels with the exact edit. Its scale is not that of a judging model, and its two scores are not independent.",
            )
        )
    return parts


def _dataset(section: Any) -> str | None:
    return section.get("dataset") if isinstance(section, dict) else None


def _simulated_raters(published: Published) -> bool:
    folder = published.path / "annotate" / "simulated"
    return published.done("annotate") and folder.is_dir() and any(folder.iterdir())
