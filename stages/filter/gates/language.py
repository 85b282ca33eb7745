"""Gate: the script of the instruction is not that of an expected language.

Columns ``latin_share`` and ``han_share``: shares of Latin letters and of Chinese characters among the letters; null without letters. Value:
share of letters in other scripts than those of the expected languages.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from stages.filter.gates.gate import Finding, Gate, GateConfig, above

if TYPE_CHECKING:
    from stages.filter.pair import Pair

COLUMN_OF = {"en": "latin_share", "cn": "han_share"}


class LanguageGate(GateConfig):
    """The script of the instruction is not that of an expected language."""

    languages: tuple[Literal["en", "cn"], ...] = Field(("en",), min_length=1, description="en: Latin letters; cn: Chinese characters")
    foreign_share: float = Field(0.2, ge=0, le=1, description="Caught above this share of letters in other scripts")


def shares(instruction: str) -> tuple[float | None, float | None]:
    """Shares of Latin letters and of Chinese characters among the letters; None where there are no letters."""
    from stages.datasets.io.cells import CHINESE_CHARACTER

    letters = [letter for letter in unicodedata.normalize("NFKC", instruction) if letter.isalpha()]
    if not letters:
        return None, None
    latin = sum(unicodedata.name(letter, "").startswith("LATIN") for letter in letters)
    chinese = sum(bool(CHINESE_CHARACTER.match(letter)) for letter in letters)
    return latin / len(letters), chinese / len(letters)


def measure(pair: Pair) -> dict[str, float | int | None]:
    """The two shares."""
    return dict(zip(COLUMN_OF.values(), shares(pair.edit.instruction), strict=True))


def decide(config: LanguageGate) -> Finding:
    """Too many letters in other scripts."""
    expected = " + ".join(COLUMN_OF[name] for name in config.languages)
    return above(f"round(1.0::DOUBLE - ({expected}), 6)", config.foreign_share)


GATE = Gate(
    config=LanguageGate,
    description="Instructions in other languages",
    caption="instructions in other scripts",
    columns=dict.fromkeys(COLUMN_OF.values(), "float64"),
    measure=measure,
    decide=decide,
)
