"""Decontamination: matching against brute force, what counts, references in their layouts, the filter that drops matching edits."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchmark_copies import genai_row, png, write
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from reward import likeness
from reward.likeness import perceptual_hash
from stages.contamination import match, references
from stages.contamination.config import Reference
from stages.datasets import readers as edits
from stages.datasets.config import WorldConfig, WorldEdits
from stages.engine import contracts, images, storage, tables
from stages.engine.contracts import Quarantined
from stages.world import items
from stages.world.scenes import render

steady = settings(deadline=None, derandomize=True)


def inspected(rows: list[tuple[str, int, str]]) -> pa.Table:
    """Edits as (content, hash, words)."""
    names = ["sample_id", "source_sha256", "source_phash", "instruction"]
    columns = [
        [f"s{number}" for number in range(len(rows))],
        [hashlib.sha256(content.encode()).hexdigest() for content, _, _ in rows],
        [bits for _, bits, _ in rows],
        [words for _, _, words in rows],
    ]
    return pa.table(columns, schema=pa.schema([contracts.INSPECTED.field(name) for name in names]))


def known_items(rows: list[tuple[str, int, str]], name: str = "bench") -> pa.Table:
    table = inspected(rows)
    columns = [[name] * len(rows), [f"i{n}" for n in range(len(rows))], *(table[c] for c in table.column_names[1:])]
    return pa.table(columns, schema=contracts.REFERENCES)


def matches(edits: pa.Table, known: pa.Table, distance: int | None, counts: Any = "image") -> pa.Table:
    with tables.opened() as database:
        database.keep("sources", tables.numbered(edits.select(match.COMPARED).to_batches()), match.SOURCES)
        match.read(database, known.to_batches())
        match.find(database, distance, counts)
        return pa.Table.from_batches(match.hits(database), contracts.CONTAMINATION)


def found(
    edits: list[tuple[str, int, str]], known: list[tuple[str, int, str]], *, distance: int | None = 8, counts: Any = "image"
) -> list[dict[str, Any]]:
    return matches(inspected(edits), known_items(known), distance, counts).to_pylist()


def test_what_matches_and_what_counts() -> None:
    known = [("a", 0, "make it red"), ("b", 0xFF00, "remove the dog"), ("c", 1 << 63, "")]
    edits = [
        ("a", 0, "make it red"),  # exact, same words
        ("x", 0xFF01, "something else"),  # near b by one bit, but 9 bits from a
        ("y", 0x123456789ABCDEF0, "remove the dog"),  # words only
        ("z", 0x123456789ABCDEF0, ""),  # nothing: no words are no match
    ]
    rows = found(edits, known)
    assert [(r["sample_id"], r["item"], r["match"], r["distance"], r["same_instruction"], r["others"], r["counted"]) for r in rows] == [
        ("s0", "i0", "exact image", 0, True, 0, True),
        ("s1", "i1", "near image", 1, False, 0, True),
        ("s2", "i1", "instruction", None, True, 0, False),
    ]
    both = found(edits, known, counts="image-and-instruction")
    assert [row["counted"] for row in both] == [True, False, False]
    assert [row["counted"] for row in found(edits, known, counts="image-or-instruction")] == [True, True, True]
    exact = found(edits, known, distance=None)
    assert [(row["sample_id"], row["match"]) for row in exact] == [("s0", "exact image"), ("s2", "instruction")]
    assert found([], known) == [] and found(edits, []) == []


def test_an_edit_has_one_row_per_reference_and_way() -> None:
    known = [("a", 0, "other"), ("a", 0, "make it red"), ("b", 1, "make it red"), ("c", 3, "x")]
    (exact,) = found([("a", 0, "make it red")], known)
    assert (exact["item"], exact["others"], exact["same_instruction"]) == ("i1", 1, True)
    (near,) = found([("n", 3, "other")], known)  # i3 has equal bits, i0 the same words too
    assert (near["item"], near["distance"], near["others"], near["same_instruction"]) == ("i0", 2, 3, True)


FLIPS = st.sets(st.integers(0, 63), max_size=7)
HASHES = st.builds(lambda base, flips: base ^ sum(1 << bit for bit in flips), st.sampled_from([0, 2**64 - 1, 0x5555]), FLIPS)
ROWS = st.lists(st.tuples(st.sampled_from("abc"), HASHES, st.sampled_from(["", "x", "y"])), max_size=8)
COUNTS = st.sampled_from(["image", "image-and-instruction", "image-or-instruction"])
Rows = list[tuple[str, int, str]]


@steady
@given(ROWS, ROWS, st.sampled_from([None, 0, 3, 8, 16]), COUNTS)
def test_bands_find_what_brute_force_finds(edits: Rows, known: Rows, distance: int | None, counts: Any) -> None:
    rows = {(row["sample_id"], row["match"]): row for row in found(edits, known, distance=distance, counts=counts)}
    expected = set()
    for number, (content, bits, words) in enumerate(edits):
        exact = [n for n, item in enumerate(known) if item[0] == content]
        limit = -1 if distance is None else distance
        near = [n for n, item in enumerate(known) if (item[1] ^ bits).bit_count() <= limit] if not exact else []
        spoken = [n for n, item in enumerate(known) if item[2] == words and words]
        name = f"s{number}"
        for kind, there in (("exact image", exact), ("near image", near)):
            if there:
                row, said = rows[name, kind], bool(set(there) & set(spoken))
                best = min(there, key=lambda n: (n not in spoken, 0 if kind == "exact image" else (known[n][1] ^ bits).bit_count(), n))
                assert (row["item"], row["others"], row["same_instruction"]) == (f"i{best}", len(there) - 1, said)
                assert row["counted"] == (said if counts == "image-and-instruction" else True)
                expected.add((name, kind))
        if spoken and not set(exact + near) & set(spoken):
            assert rows[name, "instruction"]["item"] == f"i{spoken[0]}" and rows[name, "instruction"]["others"] == len(spoken) - 1
            assert rows[name, "instruction"]["counted"] == (counts == "image-or-instruction")
            expected.add((name, "instruction"))
    assert rows.keys() == expected


@pytest.mark.parametrize("together", [1, 100])
def test_matches_are_in_the_order_of_references_and_edits(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    """Items of a reference may come apart: its place is that of its first."""
    monkeypatch.setattr(tables, "TOGETHER", together)
    known = pa.concat_tables(
        [known_items(rows, name) for name, rows in (("b", [("x", 0, "x")]), ("a", [("y", 1, "x")]), ("b", [("z", 9, "z")]))]
    )
    rows = matches(inspected([("x", 0, "z"), ("y", 1, "x")]), known, 0).to_pylist()
    assert [(row["reference"], row["sample_id"], row["match"], row["others"]) for row in rows] == [
        ("b", "s0", "exact image", 0),
        ("b", "s0", "instruction", 0),
        ("b", "s1", "instruction", 0),
        ("a", "s1", "exact image", 0),
    ]


def hashed(reference: dict[str, Any]) -> tuple[list[dict[str, Any]], list[Quarantined]]:
    """Rows of a reference, and what could not be read, as its units give them."""
    work = references.make_work()
    outputs = [
        work(unit.payload)
        for unit in references.units(Reference.model_validate({"name": "bench", "input": reference}), "filter.contamination")
    ]
    tables = [contracts.REFERENCES.empty_table(), *(output.tables["references"] for output in outputs)]
    return pa.concat_tables(tables).to_pylist(), [row for output in outputs for row in output.quarantine]


def test_references_in_their_layouts(shared_data: Path, tmp_path: Path) -> None:
    """Six real sources, each layout with one damaged image where it can have one."""
    rows = [json.loads(line) for line in (shared_data / "triplets" / "triplets.jsonl").read_text(encoding="utf-8").splitlines()][::10]
    sources = [(shared_data / "triplets" / row["source"]).read_bytes() for row in rows]
    texts = [row["instruction"] for row in rows]
    sha256 = [hashlib.sha256(data).hexdigest() for data in sources]
    words = [likeness.words(text) for text in texts]
    bits = [perceptual_hash(Image.open(io.BytesIO(data)).convert("RGB")) for data in sources]
    cut = {"bytes": sources[0][:-200], "path": None}

    gedit = [
        {"key": f"g{n}", "task_type": "x", "instruction": text, "instruction_language": "en", "input_image": {"bytes": data, "path": None}}
        for n, (data, text) in enumerate(zip(sources, texts, strict=True))
    ]
    write(tmp_path / "gedit" / "train.parquet", [*gedit, gedit[0] | {"key": "cut", "input_image": cut}])
    emu = [{"idx": n, "task": "add", "instruction": row["instruction"], "image": row["input_image"]} for n, row in enumerate(gedit)]
    write(tmp_path / "emu" / "test.parquet", emu)
    folder = tmp_path / "folder"
    (folder / "original").mkdir(parents=True)
    for number, data in enumerate(sources):
        (folder / "original" / f"{number}-input.jpg").write_bytes(data)
    (folder / "notes.txt").write_text("no image")
    bench = {f"{number}": {"id": f"original/{number}-input.jpg", "prompt": text, "edit_type": "add"} for number, text in enumerate(texts)}
    (folder / "singleturn.json").write_text(json.dumps(bench), encoding="utf-8")
    triplets = [json.dumps({"source": f"original/{n}-input.jpg", "instruction": text, "edited": "a.png"}) for n, text in enumerate(texts)]
    (folder / "mine.jsonl").write_text("\n".join(triplets), encoding="utf-8")
    votes = [genai_row(1, 11, 12, "leftvote", text) | {"source_image": row["input_image"]} for row, text in zip(gedit, texts, strict=True)]
    write(tmp_path / "genai" / "image_edition" / "test_v1-00000-of-00001.parquet", votes)

    expected = sorted(zip(sha256, bits, words, strict=True))
    layouts = [
        {"dataset": "table", "path": f"{tmp_path}/gedit", "preset": "gedit-bench"},
        {"dataset": "table", "path": f"{tmp_path}/emu", "preset": "emu-edit"},
        {"dataset": "table", "path": f"{folder}/singleturn.json", "preset": "imgedit-bench"},
        {"dataset": "table", "path": f"{folder}/mine.jsonl"},
        {"dataset": "benchmark", "benchmark": "genai-bench", "path": f"{tmp_path}/genai"},
        {"dataset": "images", "path": f"{folder}"},
        {"dataset": "images", "path": f"{folder}/**/*-input.jpg"},
    ]
    for layout in layouts:
        found, unreadable = hashed(layout)
        plain = layout["dataset"] == "images"
        wanted = [(content, hash_, "") for content, hash_, _ in expected] if plain else expected
        assert sorted((row["source_sha256"], row["source_phash"], row["instruction"]) for row in found) == wanted, layout
        assert [row.row_id for row in unreadable] == (["cut"] if layout.get("preset") == "gedit-bench" else [])
    assert [row["item"] for row in hashed(layouts[2])[0]] == [str(number) for number in range(6)]


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ({"dataset": "images", "path": "nowhere"}, r"filter.contamination.references, bench: there is no .*nowhere; correct the path"),
        ({"dataset": "table", "path": "a.jsonl"}, r"filter.contamination.references, bench: .*a.jsonl has no column source; it has image"),
        ({"dataset": "benchmark", "benchmark": "genai-bench", "path": "nowhere"}, "references, bench: there is no image_edition"),
    ],
)
def test_a_reference_that_cannot_be_read_is_one_sentence(tmp_path: Path, reference: dict[str, str], sentence: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"image": "x"}\n')
    with pytest.raises(ValueError, match=sentence):
        hashed(reference | {"path": f"{tmp_path}/{reference['path']}"})


def test_a_model_names_what_it_was_trained_on(tmp_path: Path) -> None:
    assert references.of_training(tmp_path) is None
    references.publish_training(tmp_path, [("a", png(1), "Make it red!"), ("b", png(2), "x")])
    file = references.of_training(tmp_path)
    assert file is not None
    table = storage.read_table(file)
    assert [(row["reference"], row["item"], row["instruction"]) for row in table.to_pylist()] == [
        ("training", "a", "make it red"),
        ("training", "b", "x"),
    ]
    assert table["source_sha256"][0].as_py() == hashlib.sha256(png(1)).hexdigest()
    storage.publish_bytes(file, storage.table_bytes(table.drop_columns("source_phash")))
    with pytest.raises(ValueError, match=r"trained on cannot be read from .*sources\.parquet \(.* has no column source_phash"):
        references.of_training(tmp_path)
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"trained on cannot be read from .*sources\.parquet \(.*; copy the model again"):
        references.of_training(tmp_path)


def test_training_and_noisy_scenes_of_the_world_have_no_picture_in_common() -> None:
    """What the demo relies on: no exact match. Near ones are another matter: tiny drawings have few frequencies."""
    world = WorldConfig()
    trained = [(f"t{n}", images.png(render(items.item(0, "train", n, kinds=world.kinds).scene, world.size)), "") for n in range(150)]
    work = references.make_work()
    noisy = edits.plan(WorldEdits(dataset="world-edits", count=150), seed=0, world=world, unit_rows=150)[0]
    known = pa.Table.from_pylist([references.row("training", *item) for item in trained], schema=contracts.REFERENCES)  # ty: ignore[invalid-argument-type]
    drawn = work(("x", noisy)).tables["references"].rename_columns(["reference", "sample_id", *known.column_names[2:]])
    assert matches(drawn, known, None).filter(pc.field("match") == "exact image").num_rows == 0
    near = matches(drawn, known, 8)
    print("near pairs of unlike drawings:", near.filter(pc.field("match") == "near image").num_rows, "of", drawn.num_rows)
