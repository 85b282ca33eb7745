"""Gate: the instruction is no instruction: a refusal of a language model, a link, markup, a word for nothing, control characters, or far
too long.

Values ``text_faults``, how many of the first five kinds it has, and ``characters``. Caught with any fault, and above the length. A refusal
says in its first words that its author cannot do it, perhaps after an apology, and asks for nothing afterwards: "make the sign say I'm
sorry" is none, nor is "I can't see the dog, make it brighter". Wishes are recognised in English and Chinese only.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from pydantic import Field

from stages.filter.gates.gate import Gate, GateConfig, above

if TYPE_CHECKING:
    from stages.filter.pair import Pair

_APOLOGY = (
    r"\b(?:sorry|(?:un|mis)fortunately|regret\w*|afraid|apolog\w+|désolée?s?|excuse\w*|malheureusement|leid|leider|entschuldig\w+|bedaure"
    r"|lo siento|lo lamento|disculp\w+|lamentablemente|desafortunadamente|desculp\w+|lamento|sinto muito|infelizmente|mi (?:di)?spiace"
    r"|spiacente|purtroppo|spijt|helaas|przykro|niestety|przepraszam|üzgünüm|maalesef|xin lỗi|rất tiếc|maaf|извините|простите|к сожалению"
    r"|сожалею|вибачте|на жаль)\b|抱歉|对不起|對不起|不好意思|遗憾|遺憾|申し訳|すみません|ごめん|恐れ入り|残念|죄송|미안|유감|안타깝"
    r"|عذر|آسف|اسف|أعتذر|للأسف"
)
_COMPLAINT = (
    r"(?! (?:stand|bear|wait|find|read|ver|distinguir|soportar|suportar|voir|distinguer|supporter|vedere|sopportare|видеть|разглядеть"
    r"|терпеть|sehen|erkennen|leiden|ausstehen)\b)"
)
_UNABLE = "|".join(
    (
        rf"(?:i|we|i'm|we're) (?:(?:am|are) )?(?:can ?not|can't|couldn't|unable|not (?:going to be )?able|won't be able){_COMPLAINT}",
        r"(?:i |we )?(?:can ?not|can't|unable to|won't|will not|do not|don't) (?:help|assist|edit|generate|create|process|comply)\b",
        r"(?:can ?not|can't|could not) be\b|(?:is|are) not (?:possible|allowed|permitted)\b|outside (?:of )?(?:what|my)\b",
        r"(?:i )?don't have (?:the )?(?:ability|access)\b|as an? (?:ai|artificial|(?:large )?language)\b",
        r"(?:(?:this|that|your|the) )?(?:request|prompt|image|this) (?:(?:was|is|has been) )?(?:violates|goes against|declined|rejected)\b",
        r"(?:it (?:seems|appears|looks like)(?: that)? )?no (?:\w+ ){0,2}(?:image|picture|instruction)s? (?:was|were|has|can)\b",
        rf"(?:\w+ ){{0,3}}ne (?:peux|peut|puis|pouvons)(?: \w+)? pas{_COMPLAINT}|je ne suis pas (?:en mesure|capable|autorisée?)",
        r"(?:n'est|pas) (?:pas )?possible|en tant qu'(?:ia|intelligence|assistant|modèle)|als (?:ki|sprachmodell)\b",
        rf"(?:ich (?:kann|darf|bin)|(?:kann|darf|können) (?:ich|wir))\b[^.!?]{{0,80}}? (?:nicht|keine?n?){_COMPLAINT}\b",
        r"nicht (?:möglich|erlaubt)|(?:\w+ ){0,2}verstößt gegen|como (?:una? )?(?:ia|modelo|inteligencia)\b",
        rf"(?:no|não|non) (?:m[ei] )?(?:puedo|podemos|es posible|posso|consigo|é possível|tenho como|possiamo|è possibile){_COMPLAINT}",
        r"ik kan\b[^.!?]{0,80}? (?:niet|geen)\b|nie (?:mogę|możemy|jestem w stanie)\b|tôi không thể|tidak (?:bisa|dapat)\b",
        r"\w+(?:eme|ama)[mz]\b",
        rf"не (?:могу|можем|смогу|можу|в состоянии|поддерж\w+){_COMPLAINT}|(?:мне )?(?:недоступн\w+|невозможно)",
        r"لا (?:[أا]ستطيع|يمكن\w*|[أا]قدر)|غير قادر",
    )
)
_UNABLE_UNSPACED = (
    r"(?:我们?|我們|该|这个)\w{0,4}不能|作为(?:一个|一名)?(?:ai|人工智能|语言模型)"
    r"|(?![把将让使请给删去])[^，。、,.!?\n]{0,30}?"
    r"(?:无法|無法|没有?办法|沒有?辦法|做不到|违反|違反|(?:でき|出来)ません|かねます|수(?:가)? 없|불가)"
)
_REFUSAL = re.compile(
    rf"\W*(?:(?:[\w']+ ){{0,3}}\w{{0,4}}?(?:{_APOLOGY})[^!?。\n]{{0,80}}?)?(?:\b(?:{_UNABLE})|{_UNABLE_UNSPACED})", re.IGNORECASE
)
_WISH = re.compile(
    r"(?:[-–—,.;:!?]|\b(?:and|so|then|please))\s*(?:please |just |then |so |and |but )*"
    r"(?:make|add|remove|delete|erase|change|turn|replace|put|swap|give|move|crop|blur|brighten|darken|lighten|fix|paint|draw|place|insert"
    r"|hide|cover|take|get rid|clea[nr]|cut|let|increase|decrease|enlarge|sharpen|colou?r|use|set|fill|open|show|raise|lower|bring)\b"
    r"(?! (?:sure|me|us|your|another|a different)\b)"
    r"|[，。；！,;]\s*(?:所以|那就|麻烦)?(?:请|帮我|给我)*(?:把|将|調|调|变|去掉|去除|删|移除|加|添|换成|改成|改为|让|使|涂|裁|放大|缩小|提亮)"
    r"|[てで](?:ください|下さい|欲しい|ほしい)|줘|주세요",
    re.IGNORECASE,
)
_LINK = re.compile(r"\b[a-z][a-z0-9+.-]{0,20}://|\bwww\.\w|\bdata:image/|\bmailto:|\b\w[\w-]{1,40}\.[a-z]{2,20}/\w", re.IGNORECASE)
_MARKUP = re.compile(
    r"</?[a-z][^<>]{0,300}>|<\||\|>|<<\w+>>|\[/?inst\]|\{\{.{0,60}?\}\}|\$\{\w+\}|\{\w*(?:instruction|prompt|text|input)\w*\}"
    r"|&(?:amp|lt|gt|quot|nbsp|#x?[0-9a-f]{1,6});|```"
    r"|!?\[[^\[\]]{0,300}\]\([^()]{0,2000}\)|^\s*[\[{]\s*[\"']|^\s*#{1,6} \w|\\(?:u[0-9a-f]{4}|[nrt]|[a-z]+\{)",
    re.IGNORECASE,
)
_NOTHING = re.compile(r"\W*(?:nan|none|null|nil|undefined|to ?do|tbd|fixme|n/?a|object object|placeholder|test)\W*", re.IGNORECASE)
"""A text that is such a word alone stands for no text."""
_TEXT_CONTROLS = "\t\n\r"


class BrokenTextGate(GateConfig):
    """The instruction is no instruction."""

    longest: int = Field(2000, ge=1, description="Caught with more characters")


def faults(instruction: str) -> int:
    """How many kinds of faults a text has: refusal, link, markup, a word for nothing in place of a text, control characters."""
    text = instruction.replace("’", "'")
    refusal = _REFUSAL.match(text)
    refuses = refusal is not None and not _WISH.search(text, refusal.end())
    found = (_LINK.search(text), _MARKUP.search(text), _NOTHING.fullmatch(text), any(map(_is_control, text)))
    return refuses + sum(map(bool, found))


def _is_control(character: str) -> bool:
    """Whether no text has this character: controls, private use, non-characters, and the mark of a decoding error."""
    if character == "\ufffd" or "\ufdd0" <= character <= "\ufdef" or ord(character) & 0xFFFE == 0xFFFE:
        return True  # others that are not assigned may be, in a later Unicode than this Python's
    return unicodedata.category(character) in ("Cc", "Co", "Cs") and character not in _TEXT_CONTROLS


def measure(pair: Pair) -> dict[str, float | int | None]:
    """Faults and length."""
    return {"text_faults": faults(pair.edit.instruction), "characters": len(pair.edit.instruction)}


GATE = Gate(
    revision=3,
    config=BrokenTextGate,
    description="Refusals, links, markup and other texts that are no instructions",
    caption="texts that are no instructions, faults",
    columns={"text_faults": "int32", "characters": "int32"},
    measure=measure,
    decide=lambda config: above(f"(text_faults + (characters > {config.longest})::INTEGER)", 0.0),  # a text that is too long has one more
)
