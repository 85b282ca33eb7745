"""Configuration of preference pairs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stages.engine.config import Config


class PreferencesConfig(Config):
    """Preference pairs from ratings."""

    ties: Literal["opposed", "all", "soft", "off"] = Field(
        "opposed",
        description="Overall ties whose dimensions disagree (paper 3.3): opposed: two pairs with opposite labels; all: every overall tie "
        "so, as the released data; soft: one pair with target 0.5; off: a tie",
    )
