"""Records of text tables (JSON Lines, a JSON list or object of records, CSV, TSV), from their beginning or from a byte inside.

Each record comes with the byte that it begins at, so that a later read starts there: a file is never held as a whole.
"""

from __future__ import annotations

import codecs
import csv
import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv")
KEY = "#key"
"""Column that contains the key of a record where a JSON file is an object of records by key."""
MOST_LEVELS = 64
"""Levels of lists and objects in a record. A bound of our own: the parser's depends on how deep the program is at that moment."""
IS_JSON_LINES = "is no JSON list but JSON Lines, a record per line; give it the ending .jsonl"
"""What is said of a file with the ending .json in which a second object follows the first."""
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_CHUNK = 1 << 18
_BLANKS = " \t\r\n"
_DECODER = json.JSONDecoder()
_BOM = codecs.BOM_UTF8


class Bad(NamedTuple):
    """A record that cannot be read, and why."""

    message: str


Record = dict[str, Any] | Bad


class Ambiguous(dict[str, Any]):
    """In place of an object with a key that it has more than once."""


def unambiguous(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; one that has a key more than once becomes ``{"unreadable": why}``."""
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    key, times = Counter(key for key, _ in pairs).most_common(1)[0]
    return Ambiguous(unreadable=f"it has {times} values of the key {key!r}")


EXACT = json.JSONDecoder(object_pairs_hook=unambiguous)
"""Reads objects as :func:`unambiguous` does, for half of the time more: a plan does without, since it passes no columns on."""


def records(file: BinaryIO, name: str, start: int = 0, decoder: json.JSONDecoder = _DECODER) -> Iterator[tuple[int, Record]]:
    """Records from byte ``start`` (0, or where a record begins) with the byte at which each begins; blank lines are no records.

    The ending of ``name`` determines the format; the default is JSON Lines. ``decoder``: of JSON; with :data:`EXACT` a record that has a
    key more than once is a bad one. Raises ``ValueError`` for a JSON file that cannot be read further; in the other formats a bad record
    costs only itself.
    """
    suffix = posixpath.splitext(name)[1].lower()
    if suffix in _SEPARATORS:
        return _separated(file, name, start, _SEPARATORS[suffix])
    return _json(file, name, start, decoder) if suffix == ".json" else _lines(file, start, decoder)


def header(file: BinaryIO, name: str) -> list[str] | None:
    """The names in the header of a CSV or TSV file, also those that are there twice; None for the other formats, which have no header."""
    separator = _SEPARATORS.get(posixpath.splitext(name)[1].lower())
    return _header(_CountedLines(file, 0), name, separator) if separator else None


def _header(lines: _CountedLines, name: str, separator: str) -> list[str]:
    """Raises ``ValueError`` for a first line that is none of such a table, in a file whose lines end in carriage returns too."""
    try:
        names = next(csv.reader(lines, delimiter=separator, strict=True), [])
        if "\0" in "".join(names):
            raise ValueError(f"{name} is no UTF-8 text, perhaps UTF-16; save it as CSV in UTF-8 again")
        return names
    except csv.Error as error:
        raise ValueError(f"{name}: its first line is no header ({error}); end lines with line feeds, and save it as CSV again") from None


def _lines(file: BinaryIO, start: int, decoder: json.JSONDecoder) -> Iterator[tuple[int, Record]]:
    file.seek(start)
    for line in file:
        text = line.removeprefix(_BOM) if start == 0 else line
        if text and not text.isspace():
            yield start, _parsed(text, decoder)
        start += len(line)


def _parsed(data: bytes, decoder: json.JSONDecoder) -> Record:
    try:
        text = data.decode()
        value, end = decoder.raw_decode(text)
        if not text[end:].strip(_BLANKS):
            return _checked(_NESTED if _is_nested(value, text, 0, end) else value)
    except (RecursionError, ValueError):
        pass
    try:  # by what also knows other encodings, and says what is wrong
        value = json.loads(data, object_pairs_hook=decoder.object_pairs_hook)
    except RecursionError:
        return _NESTED
    except ValueError as error:
        return Bad(f"the line is not JSON ({error})")
    return _checked(_NESTED if is_nested(value) else value)


def is_nested(value: Any) -> bool:
    """Whether a list or an object has more than ``MOST_LEVELS`` levels of lists and objects."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MOST_LEVELS):
        children = (child for entry in level for child in (entry.values() if isinstance(entry, dict) else entry))
        level = [child for child in children if isinstance(child, (dict, list))]
        if not level:
            return False
    return True


def _is_nested(value: Any, text: str, begin: int, end: int) -> bool:
    """The same of a value that was read from ``text`` between ``begin`` and ``end``: few brackets there are few levels."""
    return text.count("[", begin, end) + text.count("{", begin, end) > MOST_LEVELS and is_nested(value)


_NESTED = Bad(f"the record has more than {MOST_LEVELS} levels of lists and objects")


def _checked(value: Any) -> Record:
    if isinstance(value, Ambiguous):
        return Bad(f"the record cannot be read: {value['unreadable']}")
    return value if isinstance(value, (dict, Bad)) else Bad(f"the record should be an object, it is {json.dumps(value)[:40]}")


class _CountedLines:
    """Text lines of a file for the CSV reader, and the byte after the last line it took."""

    def __init__(self, file: BinaryIO, start: int) -> None:
        file.seek(start)
        self.file, self.end, self.count = file, start, 0

    def __iter__(self) -> Iterator[str]:
        for line in self.file:
            text = (line.removeprefix(_BOM) if self.end == 0 else line).decode(errors="surrogateescape")
            self.end += len(line)
            self.count += 1
            yield text


def _separated(file: BinaryIO, name: str, start: int, separator: str) -> Iterator[tuple[int, Record]]:
    header = _CountedLines(file, 0)
    names = _header(header, name, separator)
    lines = _CountedLines(file, max(start, header.end))
    reader = csv.reader(lines, delimiter=separator, strict=True)  # otherwise a quote that is not closed makes one record of two
    while True:
        begin, before = lines.end, lines.count
        try:
            cells = next(reader, None)
        except csv.Error as error:
            several = f", in {lines.count - before} lines: is a quote not closed?" if lines.count > before + 1 else ""
            yield begin, Bad(f"the record is not {'TSV' if separator != ',' else 'CSV'} ({error}{several})")
            continue
        if cells is None:
            return
        if not cells:
            continue
        if len(cells) != len(names):
            yield begin, Bad(f"the record has {len(cells)} cells, the header {len(names)}")
        else:
            yield begin, dict(zip(names, cells, strict=True))


class _Text:
    """The text of a file from a byte on, read as it is needed; ``start`` is the byte of the next character."""

    def __init__(self, file: BinaryIO, start: int, decoder: json.JSONDecoder) -> None:
        file.seek(start)
        self.file, self.start, self._json = file, start, decoder
        self._text, self._at = "", 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape")

    def skip(self, pattern: re.Pattern[str]) -> str:
        """Skip what matches; returns the character after it, empty at the end of the file."""
        while True:
            found = pattern.match(self._text, self._at)
            assert found is not None, "the patterns match nothing at all as well"
            self._go(found.end())
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def value(self) -> Any:
        """Read the next JSON value. Raises ``ValueError`` when there is none."""
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except RecursionError:
                self._skip_nested()
                return _NESTED
            except ValueError as error:
                if (self._at == 0 and _is_wrong(error)) or not self._more():
                    raise
                continue
            size = end - self._at
            if end + 2 < len(self._text) or not self._more():  # a number may go on in the next chunk, also behind "." or "e+"
                end = self._at + size
                nested = _is_nested(value, self._text, self._at, end)
                self._go(end)
                return _NESTED if nested else value

    def objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Objects of a list, with the byte that each begins at, as far as they follow each other in the text that was read: up to one that
        goes on in the next chunk, is no good record, or is something else. What comes next is the separator before it."""
        text, plain, decode = self._text, self._text.isascii(), self._json.raw_decode
        while found := _BEFORE_OBJECT.match(text, self._at):
            begin = found.end()
            try:
                value, end = decode(text, begin)
            except (RecursionError, ValueError):
                return
            if type(value) is not dict or (end - begin > 2 * MOST_LEVELS and _is_nested(value, text, begin, end)):
                return
            start = self.start + begin - self._at  # what is between objects is ASCII
            self.start, self._at = start + (end - begin if plain else len(text[begin:end].encode(errors="surrogateescape"))), end
            yield start, value

    def _skip_nested(self) -> None:
        """Skip a list or an object that has too many levels for the parser. Raises ``ValueError`` where it does not end."""
        depth, at = 0, self._at
        while True:
            found = _SIGN.search(self._text, at)
            if found is None or found.group() == '"':  # the text may end inside a string
                at -= self._at
                if not self._more():
                    raise ValueError("a list or an object has no end")
                continue
            at = found.end()
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found.group(), 0)
            if depth == 0 and found.group() in ("]", "}"):
                self._go(at)
                return

    def take(self) -> None:
        """Skip the character that was seen."""
        self._go(self._at + 1)

    def _go(self, end: int) -> None:
        plain = self._text.isascii()  # one byte per character
        self.start += end - self._at if plain else len(self._text[self._at : end].encode(errors="surrogateescape"))
        self._at = end

    def _more(self) -> bool:
        data = self.file.read(max(_CHUNK, len(self._text) - self._at))
        self._text, self._at = self._text[self._at :] + self._decoder.decode(data, final=not data), 0
        return bool(data)


def _is_wrong(error: ValueError) -> bool:
    """Whether text is no JSON before its end, so that reading on would not help."""
    if not isinstance(error, json.JSONDecodeError):  # a number of too many digits
        return True
    return error.pos + len("-Infinity") < len(error.doc) and not error.msg.startswith("Unterminated string")


_SIGN = re.compile(r'"(?:[^"\\]|\\.)*"|["\[\]{}]', re.DOTALL)
"""A whole string, the beginning of one that does not end, or a bracket."""
_OPENS = str.maketrans("]}", "[{")
_SPACE, _BETWEEN = re.compile(r"[ \t\r\n\ufeff]*"), re.compile(r"[ \t\r\n,]*")
_BEFORE_OBJECT = re.compile(r"[ \t\r\n,]*(?=\{)")


def _json(file: BinaryIO, name: str, start: int, decoder: json.JSONDecoder) -> Iterator[tuple[int, Record]]:
    text = _Text(file, 0, decoder)
    opening = text.skip(_SPACE)
    if opening not in ("[", "{"):
        raise ValueError(f"{name} should be a JSON list of records, or an object of records by key; correct it or download it again")
    text.take()
    if start:
        text = _Text(file, start, decoder)
    while True:
        if opening == "[":
            yield from text.objects()
        following = text.skip(_BETWEEN)
        begin, key = text.start, None
        if following in ("]", "}"):
            text.take()
            rest = text.skip(_SPACE)
            if opening == following.translate(_OPENS) == rest == "{":
                raise ValueError(f"{name} {IS_JSON_LINES}")
            if opening != following.translate(_OPENS) or rest:
                message = "something follows its list of records; correct it or download it again"
                raise ValueError(f"{name} is not valid JSON after byte {begin:,} ({message})")
            return
        try:
            if opening == "{":
                key = text.value()
                if text.skip(_SPACE) != ":":
                    raise ValueError(f"there is no value after the key {key!r}")
                text.take()
                text.skip(_SPACE)
            record = _checked(text.value())
        except ValueError as error:
            said = error.msg if isinstance(error, json.JSONDecodeError) else error  # its place is one in what was read ahead
            raise ValueError(f"{name} is not valid JSON after byte {begin:,} ({said}); correct it or download it again") from None
        yield begin, {KEY: key, **record} if key is not None and isinstance(record, dict) else record
