"""Replies that were paid for, by the hash of what was asked, so that a rerun makes no call.

The key is made of the pictures' bytes, the text, the model and its settings, and the number of the attempt. Failed calls are not kept: a
later run asks again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stages.engine import storage
from stages.evaluate_editor.vlm.chat import Answer


class ReplyCache:
    """A folder with a file per reply. Processes may share it: files appear whole."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        self.settings = json.dumps(dict(settings), sort_keys=True)

    def path(self, images: Sequence[bytes], text: str, attempt: int) -> Path:
        """Where the reply to this is, or will be."""
        asked = [self.settings, text, attempt, *(hashlib.sha256(image).hexdigest() for image in images)]
        key = hashlib.sha256(json.dumps(asked).encode()).hexdigest()
        return self.folder / key[:2] / f"{key}.json"

    def get(self, path: Path) -> Answer | None:
        """The kept reply; None where there is none, or its file is damaged."""
        try:
            return Answer(**storage.read_checked(path, "delete it"))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def put(self, path: Path, answer: Answer) -> None:
        """Keep a reply of the model."""
        storage.publish_checked(path, asdict(answer))
