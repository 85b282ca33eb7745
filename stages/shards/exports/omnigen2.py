"""OmniGen2's trainer: a JSON Lines file of instruction, input images and output image, and the YAML list of such files that it is given.

``data.yml`` goes into the training configuration as ``data.data_path``. The trainer opens images by these paths as they stand, so they are
absolute.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from stages.shards.exports.sample import Extracted


def files(samples: Sequence[Extracted], folder: Path) -> dict[str, str]:
    """``data.yml`` and ``train.jsonl``."""
    rows = [
        {
            "task_type": "edit",
            "instruction": sample.instruction,
            "input_images": [str(folder / sample.source)],
            "output_image": str(folder / sample.edited),
            "sample_id": sample.sample_id,
            "licence": sample.licence,
        }
        for sample in samples
    ]
    path = json.dumps(str(folder / "train.jsonl"), ensure_ascii=False)
    return {
        "data.yml": f"data:\n  - path: {path}\n    type: edit\n    ratio: 1.0\n",
        "train.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows),
    }
