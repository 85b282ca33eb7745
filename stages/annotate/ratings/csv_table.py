"""CSV files for people: tables to fill in, lists, figures."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def csv_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> bytes:
    """Rows as CSV in UTF-8 with these columns; absent cells are empty, a cell of another column is an error."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
