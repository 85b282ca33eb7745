"""Gate: the edited image is of another row: it has nothing in common with the source.

Value ``structure_match``: both images in the source's shape are cut into 8 x 8 parts; in each part that has structure in both, the
correlation of their brightness; of these the mean over the best eighth, at least ``LEAST`` parts. Unlike ``redrawn`` it needs only some
part of the picture to stay, so that it also judges changes of style or background. Caught below the threshold. Null where fewer parts have
structure, and for an instruction that moves the whole picture (zoom, rotation, another view).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pydantic import Field

from stages.filter.gates.gate import Gate, GateConfig, below

if TYPE_CHECKING:
    import numpy as np

    from stages.filter.pair import Pair

PARTS = 8
LEAST = 4
STRUCTURE = 4.0
"""Standard deviation of brightness (0..255) from which a part has structure."""
_MOVES = re.compile(
    r"\b(?:rotat\w+|flip\w*|mirror\w*|zoom\w*|crop\w*|out ?paint\w*|expand\w*|extend\w*|view\w*|viewpoint|angle|perspective|camera|pan|tilt"
    r"|close ?up|extract\w*|isolate\w*|generate|map|segment\w*|mask)\b|旋转|翻转|镜像|放大|缩小|裁剪|扩展|视角|镜头|角度"
)


class UnrelatedGate(GateConfig):
    """The edited image is of another row."""

    match: float = Field(0.54, ge=-1, le=1, description="Caught where the parts that agree best correlate less")


def measure(pair: Pair) -> dict[str, float | int | None]:
    """The match of the best parts, -1..1."""
    return {"structure_match": None if _MOVES.search(pair.words) else _match(pair)}


def _match(pair: Pair) -> float | None:
    import numpy as np

    source, edited = (_parts(grey) for grey in (pair.source_brightness, pair.edited_brightness))  # [parts, pixels]
    spread = np.minimum(source.std(axis=1), edited.std(axis=1))
    known = spread >= STRUCTURE
    if known.sum() < LEAST:
        return None
    a, b = ((of[known] - of[known].mean(axis=1, keepdims=True)) / of[known].std(axis=1, keepdims=True) for of in (source, edited))
    correlation = np.sort((a * b).mean(axis=1))
    return float(correlation[-max(LEAST, PARTS * PARTS // 8) :].mean())


def _parts(grey: np.ndarray) -> np.ndarray:
    """Equal parts: [height, width] -> [PARTS * PARTS, pixels]; a rest at the edges is left out."""
    height, width = (max(1, side // PARTS) for side in grey.shape)
    rows, columns = grey.shape[0] // height, grey.shape[1] // width
    cut = grey[: rows * height, : columns * width].reshape(rows, height, columns, width)
    return cut.transpose(0, 2, 1, 3).reshape(rows * columns, height * width)


GATE = Gate(
    config=UnrelatedGate,
    description="Pictures of another row",
    caption="no part in common with the source, match −1–1",
    columns={"structure_match": "float64"},
    measure=measure,
    decide=lambda config: below("structure_match", config.match),
)
