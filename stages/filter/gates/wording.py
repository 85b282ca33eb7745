"""What can be read off an instruction without a model: its words, its script, what kind of change it asks for, whether it asks for any.

Word lists are short, English and Chinese only: an instruction in other words is not recognised, and then the gates that need to know say
nothing.
"""

from __future__ import annotations

import re
import unicodedata

import numpy as np
import pyarrow as pa

from reward.likeness import words
from stages.datasets.io.cells import CHINESE_CHARACTER
from stages.filter.gates.config import LanguageGate, NothingAskedGate
from stages.filter.gates.finding import Finding, above, below
from stages.filter.gates.pair import Pair

_THE_PICTURE = (
    r"(?:it|this|that|everything|all|(?:the |this |that )?(?:whole |entire |original |input |source |same )*(?:image|picture|photo|scene))"
)
_AS_IT_IS = r"(?:as (?:it )?is|as (?:it|they) (?:is|are|was|were)|unchanged|the same|intact|alone|untouched|unmodified|unedited)"
_NOTHING = re.compile(
    rf"(?:(?:make|do|apply|perform) )?(?:no|without(?: any| a)?) (?:further |other |more )*(?:changes?|edits?|modifications?|alterations?)"
    rf"(?: (?:is|are)?\s?(?:needed|required|necessary|made|to {_THE_PICTURE}))*"
    rf"|(?:please )?(?:do not|don t|dont|never) (?:change|edit|modify|alter|touch|do) (?:anything|{_THE_PICTURE})(?: at all)?"
    rf"|(?:please )?(?:do|change|edit|modify) nothing(?: (?:at all|to {_THE_PICTURE}))?"
    rf"|(?:please )?(?:keep|leave|return|preserve|copy)(?: {_THE_PICTURE})?(?: {_AS_IT_IS})+"
    rf"|(?:please )?(?:keep|return|copy|repeat|reproduce) {_THE_PICTURE}"
    rf"|(?:the )?same {_THE_PICTURE}|same|unchanged|nothing|none|null|nan|n a|no|identity|no op"
    r"|(?:请)?(?:不要|不做|不用|无需|不需要|无须)(?:任何|做)*(?:修改|改变|更改|编辑|改动|变化)?"
    r"|(?:请)?(?:保持|维持)(?:图像|图片|原图|画面|原样)?(?:不变|原样)?|(?:没有|无)(?:任何)?(?:变化|修改)"
)
_WHOLE_PICTURE = re.compile(
    r"\b(?:style|season|spring|summer|autumn|winter|weather|rainy|snowy|foggy|sunny|sunset|sunrise|sun|night|day|daytime|dusk|dawn|background|scenery"
    r"|tone|lighting|brightness|contrast|saturation|exposure|filter|monochrome|grayscale|greyscale|black and white|sepia|anime|cartoon"
    r"|sketch|painting|watercolou?r|out ?paint|zoom|crop|rotate|flip|viewpoint|camera|whole|entire"
    r"|(?:the|this) (?:image|picture|photo|scene))\b"
    r"|\b(?:change|convert|turn|transform) (?:the )?(?:image|picture|photo)\b"
    r"|风格|季节|天气|背景|色调|亮度|对比度|滤镜|黑白|漫画|动漫|卡通|素描|油画|水彩|夜晚|白天|整张|整个图"
)


def asks_for_the_whole_picture(instruction: str) -> bool:
    """Whether the instruction names a change of the whole picture (style, season, background ...)."""
    return bool(_WHOLE_PICTURE.search(words(instruction)))


def asked_words(instruction: str) -> int:
    """Number of words; 0 when there are none but punctuation, or when all that is said is that nothing should change."""
    plain = words(instruction)
    return 0 if _NOTHING.fullmatch(plain) else len(plain.split())


def shares(instruction: str) -> tuple[float | None, float | None]:
    """Shares of Latin letters and of Chinese characters among the letters; None where there are no letters."""
    letters = [letter for letter in unicodedata.normalize("NFKC", instruction) if letter.isalpha()]
    if not letters:
        return None, None
    latin = sum(unicodedata.name(letter, "").startswith("LATIN") for letter in letters)
    chinese = sum(bool(CHINESE_CHARACTER.match(letter)) for letter in letters)
    return latin / len(letters), chinese / len(letters)


def measure(pair: Pair) -> dict[str, float | int | None]:
    """Measures of the two gates on instructions."""
    latin, chinese = shares(pair.edit.instruction)
    return {"latin_share": latin, "han_share": chinese, "asked_words": asked_words(pair.edit.instruction)}


def language(inspected: pa.Table, config: LanguageGate) -> Finding:
    """Value: share of letters in other scripts than those of the expected languages; NaN for an instruction without letters."""
    columns = {"en": "latin_share", "cn": "han_share"}
    expected = sum(inspected[columns[name]].to_numpy() for name in config.languages)
    return above(np.round(1.0 - expected, 6), config.foreign_share)


def nothing_asked(inspected: pa.Table, config: NothingAskedGate) -> Finding:
    """Value: number of words that ask for something."""
    return below(inspected["asked_words"].to_numpy().astype(np.float64), config.words)
