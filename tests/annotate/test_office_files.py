"""Files as offices send them: each is read right, row by row, or refused by name with one sentence. One table of them."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rated_run import make_run, rating_task_of, ratings_of

from stages.annotate.formats import read as formats
from stages.annotate.ratings.rating_task import RatingTask
from stages.annotate.ratings.validate import validate

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class File:
    """What writes the file from sound rows, and what is expected: the refusal, or the rows set aside by reason; all others are read."""

    write: Callable[[Rows], bytes]
    refused: str = ""
    aside: dict[str, int] = field(default_factory=dict)


def table(rows: Rows, delimiter: str = ",", end: str = "\n", quoting: Any = csv.QUOTE_MINIMAL) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def cell(**change: Any) -> Callable[[Rows], bytes]:
    """A table in which the third row is changed."""
    return lambda rows: table([*rows[:2], rows[2] | change, *rows[3:]]).encode()


def text(change: Callable[[str], str], **layout: Any) -> Callable[[Rows], bytes]:
    return lambda rows: change(table(rows, **layout)).encode()


def wide(rows: Rows, delimiter: str = ";", second: str = "visual_quality", decimal: str = "") -> str:
    """A row per candidate, as spreadsheets like it."""
    by_candidate: dict[str, dict[str, Any]] = {}
    for row in rows:
        of = by_candidate.setdefault(row["candidate_id"], {key: row[key] for key in ("group_id", "candidate_id", "annotator_id")})
        of["instruction_following" if row["dimension"] == "instruction_following" else second] = f"{row['score']}{decimal}"
    return table(list(by_candidate.values()), delimiter)


def parquet(**columns: Callable[[Rows], pa.Array]) -> Callable[[Rows], bytes]:
    def written(rows: Rows) -> bytes:
        made = {name: pa.array([row[name] for row in rows]) for name in rows[0]} | {name: of(rows) for name, of in columns.items()}
        buffer = io.BytesIO()
        pq.write_table(pa.table(made), buffer)
        return buffer.getvalue()

    return written


def archive(name: str) -> Callable[[Rows], bytes]:
    """A zip file, as .xlsx and .ods are."""

    def written(rows: Rows) -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as file:
            file.writestr(name, table(rows))
        return buffer.getvalue()

    return written


def as_json(rows: Rows, **changes: Any) -> str:
    return json.dumps([row | changes for row in rows])


def in_first(change: str) -> Callable[[Rows], bytes]:
    """JSON with a further entry in its first object."""
    return lambda rows: as_json(rows).replace('"group_id"', change + ', "group_id"', 1).encode()


def spoilt(rows: Rows) -> bytes:
    """A spreadsheet has taken a candidate id for a number."""
    return table([*rows[:2], rows[2] | {"candidate_id": "3.482E+23"}, *rows[3:]]).encode()


UTF16 = "is not UTF-8 text but UTF-16"
NOT_UTF8 = "is not UTF-8 text .*save it again as UTF-8"
FORMATS = "ratings are read from .csv, .tsv, .jsonl"
DEEP = '"more": ' + "[" * 200_000 + "]" * 200_000

FILES: dict[str, File] = {
    # encodings and line ends
    "bom.csv": File(lambda rows: b"\xef\xbb\xbf" + table(rows).encode()),
    "utf-16.csv": File(lambda rows: table(rows).encode("utf-16"), UTF16),
    "utf-16-no-bom.csv": File(lambda rows: table(rows).encode("utf-16-le"), UTF16),
    "utf-16-be.csv": File(lambda rows: b"\xfe\xff" + table(rows).encode("utf-16-be"), UTF16),
    "windows-1252.csv": File(lambda rows: table([row | {"comment": "größer"} for row in rows]).encode("cp1252"), NOT_UTF8),
    "crlf.csv": File(text(str, end="\r\n")),
    "cr.csv": File(text(str, end="\r")),
    "nul.csv": File(text(lambda t: t.replace(",ann,", ",a\0nn,", 1)), aside={"annotator-invalid": 1}),
    # delimiters and quotes
    "semicolons.csv": File(text(str, delimiter=";")),
    "tabs.tsv": File(text(str, delimiter="\t")),
    "tabs.csv": File(text(str, delimiter="\t")),
    "pipes.csv": File(text(str, delimiter="|")),
    "all-quoted.csv": File(text(str, quoting=csv.QUOTE_ALL)),
    "sep.csv": File(lambda rows: ("sep=;\r\n" + wide(rows)).encode()),
    "quoted-sep.csv": File(lambda rows: ('"sep=;"\n' + wide(rows)).encode()),
    "wrong-sep.csv": File(lambda rows: ("sep=|\n" + wide(rows)).encode(), r"its first line says sep=\|, but .* remove that line"),
    "open-quote.csv": File(text(lambda t: t.replace(",ann,", ',"ann,', 1)), "is not CSV|fields, there are"),
    "line-in-a-cell.csv": File(cell(comment="two\nlines, and a comma")),
    # what stands around the table
    "title-above.csv": File(text(lambda t: "Ratings of March\n\n" + t), "lacks the columns"),
    "empty-lines.csv": File(text(lambda t: "\n\n" + t.replace("\n", "\n\n", 3) + "\n,,,,,,\n\n"), aside={}),
    "total-below.csv": File(text(lambda t: t + "Total,,,,131,,\n"), aside={"annotator-empty": 1}),
    "spare-columns.csv": File(text(lambda t: "\n".join(line + ",," for line in t.splitlines()) + "\n")),
    "short-row.csv": File(text(lambda t: t + "Total,131\n"), aside={"field-count": 1}),
    "header-only.csv": File(text(lambda t: t.splitlines()[0] + "\n"), "has no ratings: it contains only column names"),
    "empty.csv": File(lambda rows: b" \n", "is empty"),
    # column names
    "spelled-otherwise.csv": File(text(lambda t: t.replace("group_id", " Group_ID ", 1).replace("score", "SCORE", 1))),
    "misspelt.csv": File(
        lambda rows: wide(rows, second="visual_qualty").encode(), "column 'visual_qualty' is not known; is 'visual_quality' m"
    ),
    "twice.csv": File(text(lambda t: t.replace("comment", "score", 1)), "has the column score twice"),
    # cells
    "decimal-comma.csv": File(lambda rows: wide(rows, decimal=",0").encode()),
    "number-format.csv": File(cell(score="3.00 "), aside={}),
    "error-value.csv": File(cell(score="#REF!"), aside={"score-not-a-number": 1}),
    "not-available.csv": File(cell(score="N/A"), aside={"score-empty": 1}),
    "score-a-date.csv": File(cell(score="03. Jan"), aside={"score-not-a-number": 1}),
    "score-a-formula.csv": File(cell(score="=3"), aside={"score-not-a-number": 1}),
    "full-width.csv": File(cell(score="\uff13"), aside={"score-not-a-number": 1}),
    "id-a-number.csv": File(spoilt, aside={"candidate-unknown": 1}),
    "time-as-shown.csv": File(cell(rated_at="31.03.2025 14:05"), aside={"time-unreadable": 1}),
    # other programs' files
    "book.xlsx": File(archive("xl/worksheets/sheet1.xml"), FORMATS),
    "book.csv": File(archive("xl/worksheets/sheet1.xml"), "is a spreadsheet or another zip archive, not the text"),
    "page.csv": File(lambda rows: b"\n<!DOCTYPE html><html><table></table></html>", "is an HTML or XML page, not"),
    "print.csv": File(lambda rows: b"%PDF-1.4 x", "is a PDF, not"),
    "old.xls": File(lambda rows: bytes.fromhex("d0cf11e0a1b11ae1") + b"\0" * 512, FORMATS),
    # JSON and Parquet
    "nested.json": File(in_first(DEEP), r"nested\.json cannot be read: it is nested more than 50 levels deep"),
    "lines.json": File(lambda rows: "".join(json.dumps(row) + "\n" for row in rows).encode(), "JSON Lines, .* give it the ending .jsonl"),
    "half-a-pair.json": File(lambda rows: as_json(rows, comment="\ud83d").encode(), "half of a surrogate pair"),
    "key-twice.json": File(in_first('"score": 1'), "the key 'score' twice in one object"),
    "floats.parquet": File(parquet(score=lambda rows: pa.array([float(row["score"]) for row in rows]))),
}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> RatingTask:
    return rating_task_of(make_run(tmp_path_factory.mktemp("office") / "run"))


def test_the_table_has_all_files() -> None:
    assert len(FILES) == 47


@pytest.mark.parametrize("name", FILES)
def test_office_files_are_read_right_or_refused_by_name(tmp_path: Path, work: RatingTask, name: str) -> None:
    file = FILES[name]
    rows = [row | {"comment": ""} for row in ratings_of(work)]
    (tmp_path / name).write_bytes(file.write(rows))
    if file.refused:
        with pytest.raises(ValueError, match=file.refused) as error:
            validate(formats.read(tmp_path / name), work, {}, batch="b", now=datetime.now(UTC))
        assert name in str(error.value) and "\n" not in str(error.value)
        return
    checked = validate(formats.read(tmp_path / name), work, {}, batch="b", now=datetime.now(UTC))
    assert Counter(row.reason for row in checked.quarantine) == file.aside
    assert all(re.match(rf"{re.escape(name)} (line|row|record) \d+$", row.position) for row in checked.quarantine)
    sound = {(row["candidate_id"], row["dimension"]): float(row["score"]) for row in rows}
    if name == "number-format.csv":
        sound[rows[2]["candidate_id"], rows[2]["dimension"]] = 3.0
    given = {(row["candidate_id"], row["dimension"]): row["score"] for row in checked.accepted}
    of_table = sum(file.aside.values()) - (name in ("total-below.csv", "short-row.csv"))
    assert len(given) == len(sound) - of_table and given.items() <= sound.items()
    assert {row["annotator"] for row in checked.accepted} == {"ann"} and checked.duplicates == 0
