"""The model card: what a saved reward model is, in words that a reader of its directory needs."""

from __future__ import annotations

from collections.abc import Mapping

from reward.config import RewardModelConfig
from reward.model.calibration import Calibration

FAMILY_NAMES = {"qwen2_5_vl": "Qwen2.5-VL", "qwen3_vl": "Qwen3-VL"}


def model_card(*, config: RewardModelConfig, parameters: int, calibration: Calibration | None, facts: Mapping[str, str]) -> str:
    """Markdown with a metadata block. facts: further lines, name -> value, in the given order."""
    backbone, presentation = config.backbone, config.presentation
    origin = (
        f"pretrained, {backbone.pretrained}" + (f" at {backbone.revision}" if backbone.revision else "")
        if backbone.pretrained
        else f"random weights: text {backbone.text_hidden} x {backbone.text_layers}, "
        f"vision {backbone.vision_hidden} x {backbone.vision_depth}, patch {backbone.patch_size}"
    )
    rows = {
        "parameters": f"{parameters:,}",
        "backbone": f"{FAMILY_NAMES[backbone.family]}, {origin}",
        "presentation": f"{presentation.layout}, {presentation.image_area} pixels per image",
        "dimensions": ", ".join(config.dimensions),
        "calibration": "raw means to Likert scores" if calibration else "none: scores have no fixed zero or unit",
        **facts,
    }
    lines = [
        "---",
        "library_name: transformers",
        "tags: [reward-model, image-editing]",
        "---",
        "# Reward model for instruction-guided image editing",
        "",
        "Scores an edited image, given its source and instruction, with a mean and a sigma per dimension, after EditReward",
        "(arXiv 2509.26346). Differences of scores of edits of the same source mean something; absolute values only after calibration.",
        "",
        *(f"- {name}: {value}" for name, value in rows.items()),
        "",
        "```python",
        "from reward import EditSample, RewardModel, score",
        "",
        'model = RewardModel.load("this directory")',
        "print(score(model=model, samples=[EditSample(source=..., instruction=..., edited=...)]))",
        "```",
    ]
    return "\n".join(lines) + "\n"
