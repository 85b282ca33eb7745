"""Rows of a benchmark's files. What is not laid out as published is a ``ValueError`` that names file, row and column."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reward.benchmarks.pictures import Picture, content_of

ROWS = 32
"""Rows of images that are in memory at the same time."""


@dataclass(frozen=True)
class Row:
    """A row by column; images are pictures, lists of images lists of pictures."""

    file: Path
    number: int
    values: dict[str, Any]

    def __getitem__(self, column: str) -> Any:
        return self.values[column]

    def fault(self, column: str, what: str) -> ValueError:
        """The error to raise for a cell."""
        return ValueError(f"{self.file}, row {self.number}, column {column}: {what}")

    def text(self, column: str) -> str:
        """A cell that must hold text."""
        value = self.values[column]
        if not isinstance(value, str):
            raise self.fault(column, f"expected text, found {value!r}")
        return value

    def number_of(self, column: str) -> float:
        """A cell that must hold a finite number."""
        value = self.values[column]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < float("inf"):
            raise self.fault(column, f"expected a number, found {value!r}")
        return float(value)


def parquet_files(path: str | Path, pattern: str, hub_id: str) -> list[Path]:
    """Files of a local copy in their order."""
    files = sorted(Path(path).glob(pattern))
    if not files:
        raise ValueError(f"there is no {pattern} in {path}; name the folder of a copy of {hub_id} as downloaded")
    return files


def parquet_rows(files: Sequence[Path], *, columns: Sequence[str], images: Sequence[str]) -> Iterator[Row]:
    """Rows of Parquet files. images: columns with the Hub's image struct {bytes, path}, or lists of it; they are hashed, not kept."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = [*columns, *images]
    for file in files:
        try:
            table = pq.ParquetFile(file)
        except (pa.ArrowInvalid, OSError) as error:
            raise ValueError(f"{file} cannot be read as a Parquet table ({error}); download it again") from None
        _check_columns(file, table.schema_arrow.names, wanted)
        number = 0
        for batch in table.iter_batches(batch_size=ROWS, columns=wanted):
            for values in batch.to_pylist():
                row = Row(file, number, values)
                for column in images:
                    cell = values[column]
                    several = isinstance(cell, list)
                    values[column] = (
                        [_picture(row, column, image, n) for n, image in enumerate(cell)] if several else _picture(row, column, cell)
                    )
                yield row
                number += 1


def json_rows(file: Path, *, columns: Sequence[str]) -> Iterator[Row]:
    """Records of a file that contains one JSON list."""
    try:
        records = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"there is no {file.name} in {file.parent}") from None
    except ValueError as error:
        raise ValueError(f"{file} is not JSON ({error})") from None
    if not isinstance(records, list) or not records:
        raise ValueError(f"{file} should contain a list of records, one per item")
    for number, record in enumerate(records):
        if not isinstance(record, dict):
            raise ValueError(f"{file}, record {number} is {record!r}; expected an object with {', '.join(columns)}")
        _check_columns(file, record, columns, f", record {number},")
        yield Row(file, number, record)


def _check_columns(file: Path, there: Any, wanted: Sequence[str], where: str = "") -> None:
    missing = [column for column in wanted if column not in there]
    if missing:
        raise ValueError(f"{file}{where} has no column {missing[0]}; expected {', '.join(wanted)}")


def _picture(row: Row, column: str, image: Any, index: int | None = None) -> Picture:
    data = image.get("bytes") if isinstance(image, dict) else None
    if not data:
        raise row.fault(column, "there are no image bytes; expected the Hub's image struct {bytes, path} with the image embedded")
    return Picture(str(row.file), content_of(data), column, row.number, index)
