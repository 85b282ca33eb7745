"""Configuration of what happens around editors."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stages.engine.config import Config

OutputPolicy = Literal["keep", "new-seed", "drop"]
STRICTEST: tuple[OutputPolicy, ...] = ("drop", "new-seed", "keep")


class OutputsConfig(Config):
    """What becomes of an output that a check flags: keep it as a negative, make it again with another seed, or drop it.

    Black, constant and noisy outputs are accidents of arithmetic. A copy of the source is what raters should see when an editor makes one.
    """

    black: OutputPolicy = Field("new-seed", description="Black images, which not-a-number values become, too")
    constant: OutputPolicy = Field("new-seed", description="Images of one colour")
    noise: OutputPolicy = Field("new-seed", description="Noise")
    unchanged: OutputPolicy = Field("keep", description="Copies of the source")
    wrong_size: OutputPolicy = Field("drop", description="Images of another size than the source")
    content: OutputPolicy = Field("drop", description="Images that the content filter finds")
    new_seeds: int = Field(2, ge=1, le=10, description="Seeds that are tried after the first; when all are flagged the candidate fails")
    content_filter: str | None = Field(None, description="Content filter of an installed package, by the name of its entry point")

    def policy(self, flags: list[str]) -> OutputPolicy:
        """The strictest of the policies of these flags; keep where there is none."""
        found = {getattr(self, flag.replace("-", "_")) for flag in flags}
        return next((policy for policy in STRICTEST if policy in found), "keep")
