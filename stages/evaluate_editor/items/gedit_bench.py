"""GEdit-Bench (stepfun-ai/GEdit-Bench, arXiv 2504.17761) from a local copy of its Parquet files: 606 items, each in English and Chinese."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from stages.evaluate_editor.items.item import Item
from stages.evaluate_editor.items.rows import BenchmarkRow, RowItems, check_rows

if TYPE_CHECKING:
    from stages.config import FlowConfig
    from stages.datasets.io.faults import Fault

TASKS = {
    "background_change": 40, "color_alter": 40, "material_alter": 40, "motion_change": 40, "ps_human": 70, "style_change": 60,
    "subject-add": 60, "subject-remove": 57, "subject-replace": 60, "text_change": 99, "tone_transfer": 40,
}  # fmt: skip
"""Items per task and language, as published."""
FULL, INTERSECTION = "full", "intersection"
_INTERSECTION = "Intersection_exist"
_COLUMNS = ("key", "task_type", "instruction", "instruction_language", _INTERSECTION)
_IMAGE = "input_image"

Language = Annotated[Literal["en", "cn"], BeforeValidator(lambda name: "cn" if name == "zh" else name)]


class GEditBench(RowItems):
    """Items of GEdit-Bench. The intersection is the items for which all systems of April 2025 returned an image; it is not harder."""

    name: Literal["gedit-bench"]
    path: str = Field(description="Your copy: the folder of its Parquet files, a file, or a pattern")
    languages: tuple[Language, ...] = Field(
        ("en",), min_length=1, description="Languages of the instructions: en, cn (also zh); the first one is the headline"
    )
    subset: Literal["full", "intersection"] = Field(FULL, description="Items to evaluate; of the full set the intersection is reported too")
    tasks: ClassVar[tuple[str, ...]] = tuple(TASKS)
    caveats: ClassVar[tuple[str, ...]] = (
        "GEdit-Bench's 606 items are among the sources from which EditReward-Data was made: a reward model trained on it, such as "
        "the published EditReward, has seen the benchmark's images and instructions, and so has what it selects, indirectly.",
        "The standard error of an overall score is about 0.12 by the items alone, and judging again moves it by about 0.1: differences "
        "below 0.2 between separate runs are no evidence.",
    )

    def columns(self) -> list[tuple[str, str, str]]:
        """Full and intersection of each language."""
        subsets = (INTERSECTION,) if self.subset == INTERSECTION else ("", INTERSECTION)
        return [(f"{name.upper()} {subset or FULL}", name, subset) for name in self.languages for subset in subsets]

    def remarks(self, flow: FlowConfig) -> list[str]:
        """With the items that this copy lacks."""
        found = Counter(row.language for row in self.rows())
        expected = sum(TASKS.values())
        short = [f"{found[name]} of {expected} in {name}" for name in self.languages if self.subset == FULL and found[name] != expected]
        return [
            *self.caveats,
            *([f"This copy of the benchmark has other items than the published one: {', '.join(short)}."] if short else []),
        ]

    def rows(self) -> Sequence[BenchmarkRow]:
        """Of the chosen languages and subset."""
        every = _read(self.path)
        there = Counter(row.language for row in every)
        for language in dict.fromkeys(self.languages):
            if not there[language]:
                known = ", ".join(f"{count} in {name}" for name, count in sorted(there.items()))
                raise ValueError(f"evaluate_editor.items.languages: {self.path} has no items in {language}; it has {known}")
        chosen = [
            row
            for language in dict.fromkeys(self.languages)
            for row in every
            if row.language == language and (self.subset == FULL or INTERSECTION in row.subsets)
        ]
        if not chosen:
            raise ValueError(f"evaluate_editor.items.subset: no item of {self.path} is in the intersection")
        return chosen

    def images(self, rows: Sequence[BenchmarkRow]) -> Iterator[bytes | Fault]:
        """The column input_image, which is what editors are given; input_image_raw is not used."""
        from stages.datasets.io import cells, files, parquet_files
        from stages.datasets.io.blocks import read_addressed
        from stages.datasets.io.faults import Fault

        folder = _files(self.path)[0]
        with files.OneOpen(folder) as tables:

            def block(name: str, group: int, first: int) -> Iterator[Any]:
                import pyarrow.parquet as pq

                return parquet_files.rows(pq.ParquetFile(tables.get(name)), group, first, [_IMAGE], f"{tables.folder}/{name}")

            for row in read_addressed((row.place for row in rows), block):
                found = cells.image(row.to_pylist()[0][_IMAGE], folder, "source")
                yield found if isinstance(found, Fault) else found[0]

    def edit_paths(self, item: Item) -> tuple[str, str]:
        """``fullset/<task>/<language>/<key>.png`` and, beside it, ``<key>_SRCIMG.png``."""
        stem = f"fullset/{item.task}/{item.language}/{item.item_id}"
        return f"{stem}.png", f"{stem}_SRCIMG.png"


def _files(path: str) -> tuple[str, list[str]]:
    from stages.datasets.io import files, parquet_files

    return files.find(path, suffixes=(parquet_files.SUFFIX,), what="evaluate_editor.items.path")


@lru_cache(maxsize=2)
def _read(path: str) -> tuple[BenchmarkRow, ...]:
    """All items of the files, in their order, without images."""
    from stages.datasets.io import parquet_files

    folder, names = _files(path)
    rows = []
    for name in names:
        with parquet_files.opened(folder, name, needed=(*_COLUMNS, _IMAGE), what="evaluate_editor.items") as table:
            for group in range(table.num_row_groups):
                mark = parquet_files.mark(table, group)
                for number, values in enumerate(table.read_row_group(group, columns=list(_COLUMNS)).to_pylist()):
                    rows.append(_row(values, f"{folder}/{name}", (name, group, number), mark))
    check_rows(rows, path)
    return tuple(rows)


def _row(values: dict[str, Any], file: str, place: tuple[str, int, int], mark: str) -> BenchmarkRow:
    """Raises ``ValueError`` for a value that GEdit-Bench does not have."""
    key, task, instruction, language, intersection = (values[name] for name in _COLUMNS)
    where = f"evaluate_editor.items: {file}, item {key!r}"
    language = "cn" if language == "zh" else language
    if task not in TASKS:
        raise ValueError(f"{where}: there is no task {task!r} in GEdit-Bench; its tasks are {', '.join(TASKS)}")
    if language not in ("en", "cn"):
        raise ValueError(f"{where}: instruction_language should be en or cn, it is {language!r}")
    if not isinstance(key, str) or not key or "/" in key or key.startswith("."):
        raise ValueError(f"{where}: the key should be a text that can name a file")
    if not isinstance(instruction, str) or not instruction.strip():
        raise ValueError(f"{where} has no instruction")
    return BenchmarkRow(key, language, task, instruction, (INTERSECTION,) if intersection else (), place, f"{mark} {place[2]}")
