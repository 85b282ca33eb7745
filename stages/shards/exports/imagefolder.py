"""The ImageFolder layout of Hugging Face ``datasets``, with the columns that diffusers' InstructPix2Pix trainer reads by default.

``metadata.jsonl`` has a row per sample; ``input_image_file_name`` becomes the image column ``input_image``, and ``edited_image`` is made in
the same way. Paths are relative, so the folder can be moved.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from stages.shards.exports.sample import Extracted


def files(samples: Sequence[Extracted], folder: Path) -> dict[str, str]:
    """``metadata.jsonl``."""
    rows = [
        {
            "input_image_file_name": sample.source,
            "edit_prompt": sample.instruction,
            "edited_image_file_name": sample.edited,
            "sample_id": sample.sample_id,
            "rank": sample.rank,
            "licence": sample.licence,
        }
        for sample in samples
    ]
    return {"metadata.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)}
