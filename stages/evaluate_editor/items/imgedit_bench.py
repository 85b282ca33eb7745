"""ImgEdit-Bench, the basic single-turn items (PKU-YuanGroup/ImgEdit, Benchmark/Basic), from a local copy: one JSON file and images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from stages.evaluate_editor.items.item import Item
from stages.evaluate_editor.items.rows import BenchmarkRow, RowItems, check_rows

if TYPE_CHECKING:
    from stages.datasets.io.faults import Fault


class ImgEditBench(RowItems):
    """Items of ImgEdit-Bench: ``{key: {id: image, prompt, edit_type}}``."""

    name: Literal["imgedit-bench"]
    path: str = Field(description="The JSON file of the items")
    images_in: str = Field(description="Folder of the images")
    caveats: ClassVar[tuple[str, ...]] = (
        "ImgEdit-Bench's own judge gives three scores from 1 to 5, with questions that differ by type of edit. The rubric imgedit has its "
        "scores, scale and averages, with one question of ours for all types: no figure here is one of its script. Published figures are "
        "of gpt-4o or gpt-4.1, which papers do not always say.",
        "ImgEdit-Bench's items are among the sources from which EditReward-Data was made, with which the published EditReward was trained.",
    )

    def rows(self) -> Sequence[BenchmarkRow]:
        """All of the file."""
        return _read(self.path, self.images_in)

    def images(self, rows: Sequence[BenchmarkRow]) -> Iterator[bytes | Fault]:
        """The files that the records name."""
        from stages.datasets.io import cells
        from stages.datasets.io.faults import Fault

        for row in rows:
            found = cells.image(row.place[0], self.images_in, "source")
            yield found if isinstance(found, Fault) else found[0]

    def edit_paths(self, item: Item) -> tuple[str, str]:
        """``<key>.png``; the benchmark's script reads the sources elsewhere."""
        return f"{item.item_id}.png", ""


@lru_cache(maxsize=2)
def _read(path: str, images_in: str) -> tuple[BenchmarkRow, ...]:
    from stages.datasets.io import files, locations, text_tables

    folder, (name,) = files.one(path, what="evaluate_editor.items.path")
    sizes = locations.Sizes()
    rows = []
    with files.opened(f"{folder}/{name}") as file:
        for _, record in text_tables.records(file, path):
            if isinstance(record, text_tables.Bad):
                raise ValueError(f"evaluate_editor.items: {path}: {record.message}")
            key, missing = str(record.get(text_tables.KEY)), [name for name in ("id", "prompt", "edit_type") if not record.get(name)]
            if missing or text_tables.KEY not in record:
                raise ValueError(f"evaluate_editor.items: {path}, item {key}: there is no {missing[0] if missing else 'key'}")
            image = str(record["id"])
            mark = str(sizes.of(locations.join(images_in, image)))
            rows.append(BenchmarkRow(key, "en", str(record["edit_type"]), str(record["prompt"]), (), (image,), mark))
    check_rows(rows, path)
    return tuple(rows)
