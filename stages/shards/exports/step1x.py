"""Step1X-Edit's trainer (made from kohya's scripts): one JSON object from target path to source path and caption.

``metadata.json`` goes into the trainer's data configuration as ``metadata_file``, ``edited/`` as ``image_dir``, with
``edit_dataset = true``. The trainer looks its images up by these keys, so they are absolute paths; it puts its caches beside the images.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from stages.shards.exports.sample import Extracted


def files(samples: Sequence[Extracted], folder: Path) -> dict[str, str]:
    """``metadata.json``."""
    entries = {
        str(folder / sample.edited): {"ref_image_path": str(folder / sample.source), "caption": sample.instruction} for sample in samples
    }
    return {"metadata.json": json.dumps(entries, indent=1, ensure_ascii=False) + "\n"}
