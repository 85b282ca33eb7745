"""Configuration of preference pairs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stages.contamination.config import Comparison
from stages.engine.config import Config


class PreferencesConfig(Config):
    """Preference pairs from ratings."""

    ties: Literal["opposed", "all", "soft", "off"] = Field(
        "opposed",
        description="Overall ties whose dimensions disagree (paper 3.3): opposed: two pairs with opposite labels; all: every overall tie "
        "so, as the released data; soft: one pair with target 0.5; off: a tie",
    )
    contamination: Comparison | None = Field(
        None, description="Benchmarks that the sources of the training split are compared with, before training; drop: they get no pairs"
    )
    workers: int = Field(2, ge=1, description="Ray actors that hash images for that comparison")
