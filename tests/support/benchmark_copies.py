"""Tiny copies of benchmarks in their published layouts. Image number n is one of a kind; scores go by the number of the edited image."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from reward.benchmarks.items import EditScore, Item, distinct, samples
from reward.benchmarks.pictures import content_of

if TYPE_CHECKING:
    from reward import RewardModel, SampleError

DIMENSIONS = ("instruction_following", "visual_quality")
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def png(number: int) -> bytes:
    """A picture with structure, so that it can be hashed and scored; the number decides what it shows."""
    image = Image.new("RGB", (32, 32), (number * 37 % 256, number * 91 % 256, number * 53 % 256))
    for bit in range(16):
        colour = (255, 255, 255) if (number * 2654435761 >> bit) & 1 else (0, 0, 0)
        image.paste(colour, (bit % 4 * 8 + 2, bit // 4 * 8 + 2, bit % 4 * 8 + 6, bit // 4 * 8 + 6))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def cell(number: int) -> dict[str, Any]:
    """The Hub's image struct."""
    return {"bytes": png(number), "path": f"{number}.png"}


def write(file: Path, rows: Sequence[Mapping[str, Any]], *, lists: Sequence[str] = (), rows_per_group: int = 2) -> Path:
    """Rows as a Parquet file of small row groups; columns that hold an image, or a list of images, get their type."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fields = []
    for name, value in rows[0].items():
        if name in lists:
            fields.append((name, pa.list_(IMAGE)))
        elif isinstance(value, dict):
            fields.append((name, IMAGE))
        else:
            fields.append((name, pa.array([value]).type))
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(fields)), file, row_group_size=rows_per_group)
    return file


def tiger_row(kind: str, name: str, source: int, first: int, second: int, compared: str, ranking: str) -> dict[str, Any]:
    return {
        "id": name,
        "dataset": kind,
        "num_candidates": int(kind[0]),
        "instruction": f"edit {source}",
        "source_image": cell(source),
        "candidate_1": cell(first),
        "candidate_2": cell(second),
        "ranking": ranking,
        "comparison_type": compared,
    }


def editscore_row(kind: str, dimension: str, source: int, better: int, worse: int) -> dict[str, Any]:
    return {
        "key": [f"{source}-{better}", f"{source}-{worse}"],
        "instruction": f"edit {source}",
        "input_image": cell(source),
        "output_images": [cell(better), cell(worse)],
        "task_type": kind,
        "dimension": dimension,
    }


def genai_row(source: int, left: int, right: int, vote: str, instruction: str = "") -> dict[str, Any]:
    return {
        "instruct_prompt": instruction or f"edit {source}",
        "source_image": cell(source),
        "left_output_image": cell(left),
        "right_output_image": cell(right),
        "left_model": "SDEdit",
        "right_model": "Pix2PixZero",
        "vote_type": vote,
    }


def genai_copy(folder: Path) -> Path:
    rows = [
        genai_row(1, 11, 12, "leftvote"),
        genai_row(1, 13, 12, "rightvote"),
        genai_row(2, 21, 22, "tievote"),
        genai_row(3, 31, 32, "bothbad_vote"),
        genai_row(3, 31, 33, "leftvote"),
    ]
    write(folder / "image_edition" / "test_v1-00000-of-00001.parquet", rows)
    return folder


def save_images(folder: Path, numbers: Sequence[int]) -> None:
    """Image files ``images/<number>.png``."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for number in numbers:
        (folder / "images" / f"{number}.png").write_bytes(png(number))


def write_json(file: Path, records: Sequence[Mapping[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(list(records)))
    return file


def imagenhub_copy(folder: Path) -> Path:
    rows = [{"img_id": 7, "turn_index": n, "instruction": f"do {n}", "source_img": {"bytes": bytes([n]), "path": ""}} for n in (1, 2, 3)]
    write(folder / "data" / "filtered-00000-of-00001.parquet", rows)
    cells = {"Edy": ["[1,1]", "[0, 0]", "[0.5,0.5]"], "Max": ["[0,1]", "[1,0.5]", "[1.0,1]"], "Imagic": ["[0,0]"] * 3}
    for editor in cells:
        (folder / "outputs" / editor).mkdir(parents=True)
        for n in (1, 2, 3):
            (folder / "outputs" / editor / f"sample_7_{n}.jpg").write_bytes(f"{editor}{n}".encode())
    (folder / "ratings").mkdir()
    for rater in (1, 2, 3):
        lines = ["\t".join(["uid", *cells])] + [
            "\t".join([f"sample_7_{n + 1}.jpg", *(column[n] for column in cells.values())]) for n in range(3)
        ]
        (folder / "ratings" / f"Text-Guided_IE_rater{rater}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def judged(items: Sequence[Item], values: Mapping[int, float | Mapping[str, float]], change: float | None = None) -> dict[str, EditScore]:
    """Scores by the number of the edited image: one value for everything, or one per dimension and overall. Others have no score."""
    by_content = {content_of(png(number)): value for number, value in values.items()}
    found = {}
    for edit in distinct(items):
        value = by_content.get(edit.edited.content)
        if value is None:
            continue
        parts = value if isinstance(value, Mapping) else dict.fromkeys((*DIMENSIONS, "overall"), value)
        found[edit.edit_id] = EditScore(parts["overall"], {name: parts[name] for name in parts if name != "overall"}, change)
    return found


def scored(model: RewardModel, items: Sequence[Item]) -> tuple[dict[str, EditScore], list[SampleError]]:
    """Scores of a model without the pipeline, as docs/benchmarks.md does it, and what could not be scored."""
    from reward import SampleError, score

    edits = distinct(items)
    results = list(score(model=model, samples=samples(edits)))
    found = {e.edit_id: EditScore(r.overall_mean, r.mean) for e, r in zip(edits, results, strict=True) if not isinstance(r, SampleError)}
    return found, [result for result in results if isinstance(result, SampleError)]
