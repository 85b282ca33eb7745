"""What counts when instructions are compared: their words. Case, punctuation and spacing do not, in any script."""

from __future__ import annotations

import re
import unicodedata


def words(instruction: str) -> str:
    """The words alone: NFKC, lower case, without punctuation, one space between."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", instruction).casefold()))
