"""Which parts of a run are synthetic or simulated, and what follows for its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.report.published import Published


@dataclass(frozen=True)
class Synthetic:
    """A synthetic part: its short name, what it is, and what it means for the numbers."""

    name: str
    what: str
    meaning: str


def synthetic_parts(published: Published) -> list[Synthetic]:
    """The synthetic parts of a run, found in the settings of its steps."""
    generate = published.settings("generate").get("generate", {})
    toy_editors = any(name.startswith("world/") for name in _editors(published, generate))
    table = [
        (
            toy_editors or _dataset(generate.get("sources")) == "world",
            "sources",
            "the sources come from the built-in toy data set",
            "Source images are drawn scenes of a few shapes. Results say nothing about photographs.",
        ),
        (
            toy_editors,
            "candidates",
            "the candidates come from simulated editors with known flaws",
            "Each draws the exact edit and adds flaws with known probabilities. Win rates rank these probabilities, not real editors.",
        ),
        (
            _simulated_raters(published),
            "ratings",
            "the ratings come from simulated raters with bias and noise",
            "The raters see the ground-truth quality with noise added. Their agreement is a property of the simulation, not of people.",
        ),
        (
            published.settings("train-reward").get("reward", {}).get("pretraining", {}).get("steps"),
            "the model's warm-up",
            "the reward model's backbone gets a warm-up by captioning (toy data only)",
            "The warm-up uses no ratings. It replaces the web pretraining that the weights of a real vision-language model include.",
        ),
        (
            _dataset(published.settings("filter").get("filter", {}).get("input")) == "world-edits",
            "noisy edits",
            "the noisy edits are synthetic edits, about half of them flawed by design",
            "Filtering has a much larger effect here than on real data. The paper reports a gain on photographs; none is measured here.",
        ),
        (
            published.json("evaluate-editor", "evaluation.json").get("judge", {}).get("name") == "world",
            "the judge",
            "the benchmark is judged by a program that knows the exact edit",
            "The program compares pixels. Its scale is not that of a vision-language model, and its two scores are not independent.",
        ),
    ]
    return [Synthetic(name, what, meaning) for is_synthetic, name, what, meaning in table if is_synthetic]


def _dataset(section: Any) -> str | None:
    return section.get("dataset") if isinstance(section, dict) else None


def _editors(published: Published, generate: dict[str, Any]) -> set[str]:
    """Editors of the configuration; of candidates made elsewhere, those that the data set names."""
    if generate.get("candidates"):
        table = published.table("generate", "candidates", ["editor"])
        return set(table["editor"].unique().to_pylist()) if table else set()
    return {str(choice.get("name", "")) for choice in generate.get("editors", [])}


def _simulated_raters(published: Published) -> bool:
    folder = published.path / "annotate" / "simulated"
    return published.done("annotate") and folder.is_dir() and any(folder.iterdir())
