"""An editor for any image: it mirrors it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reward.inputs.decoding import decode
from stages.editors.editors import Edited, EditorSpec
from stages.engine import images


class Mirror:
    """Left is right and, with an odd seed, top is bottom."""

    def edit(self, source: Mapping[str, Any], seed: int) -> Edited:
        """The mirrored image."""
        pixels = np.asarray(decode(source["image"]["bytes"]))[:, ::-1]
        return Edited(images.png(np.ascontiguousarray(pixels[::-1] if seed % 2 else pixels)))


EDITORS = {"mirror": EditorSpec("1", lambda flow: Mirror(), lambda flow: None)}
