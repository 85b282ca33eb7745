"""Gates on edits with planted defects, and their decisions against plain loops. Without Ray."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gated import ALL_OFF, database, gated, with_places
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError
from selecting import rows_of

from benchmarks.planted_defects import (
    BROKEN,
    LATIN_SCRIPT,
    NOTHING,
    OTHER_SCRIPTS,
    PLANTED,
    drawn_edits,
    nameless,
    on_edited,
    real_triplets,
)
from reward.inputs.decoding import DECODER, decode
from reward.likeness import words
from stages.contamination import match
from stages.contamination.config import Comparison
from stages.datasets import readers as edits
from stages.datasets.readers import Edit
from stages.engine import contracts, images, tables
from stages.engine.ids import settings_hash
from stages.engine.rundir import StepFolder
from stages.engine.tables import Tables
from stages.engine.units import UnitRecord, publish_unit
from stages.filter import decide as gates
from stages.filter import decontamination, inspection, summary
from stages.filter.gates import broken_text, language, near_duplicate, near_embedding, nothing_asked, upscaled
from stages.filter.gates.config import GATES, GatesConfig
from stages.filter.gates.language import LanguageGate
from stages.filter.gates.near_embedding import NearEmbeddingGate
from stages.filter.gates.size import SizeGate
from stages.filter.pair import Pair
from stages.filter.schemas import INSPECTED

steady = settings(deadline=None, derandomize=True)
WANTED = (
    "magicbrush:0000",
    "kubric:0019",
    "anyedit:0028",
    "anyedit:0038",
    "step1x:0045",
    "step1x:0053",
    "editreward:0055",
    "editreward:0056",
)


def row(number: int = 0, **changes: Any) -> dict[str, Any]:
    """A row of ``inspected`` that no gate catches."""
    plain = {
        "sample_id": f"sample {number}", "row_id": str(number), "position": f"mine.jsonl[{number}]",
        "source_width": 640, "source_height": 480, "edited_width": 640, "edited_height": 480,
        "source_sha256": f"source {number}", "edited_sha256": f"edited {number}",
        "source_phash": number, "edited_phash": number, "change_phash": number, "instruction": f"make number {number} red",
        "largest_change": 90.0, "background_change": 0.5, "background_match": 1.0, "swap_evidence": None, "fine_detail": -1.2,
        "latin_share": 1.0, "han_share": 0.0, "asked_words": 4, "flat_share": 0.0, "structure_match": 0.95, "aligned_change": 90.0,
        "text_faults": 0, "characters": 18,
    }  # fmt: skip
    return plain | changes


def table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    return contracts.table("inspected", list(rows), INSPECTED)


def inspected(delivered: Sequence[Edit]) -> pa.Table:
    return table([inspection.row_of(pair) for edit in delivered if isinstance(pair := inspection.pair_of(edit), Pair)])


def found(rows: pa.Table, gate: str, config: GatesConfig | None = None) -> list[bool]:
    return dropped_rows(rows, only(**{gate: getattr(config or GatesConfig(), gate).model_dump() | {"action": "drop"}}))


def dropped_rows(rows: pa.Table, config: GatesConfig) -> list[bool]:
    """What gates drop that look at one edit at a time."""
    with database() as opened:
        opened.keep("inspected", with_places(rows).to_batches(), rows.schema)
        found = opened.table(f"SELECT {gates.dropped_alone(config)} AS dropped FROM inspected ORDER BY {gates.NUMBER}")
    return found["dropped"].to_pylist()


def caught(rows: pa.Table, gate: str, config: GatesConfig | None = None) -> float:
    return float(np.mean(found(rows, gate, config)))


@pytest.fixture(scope="module")
def opened() -> Iterator[Tables]:
    with database() as made:
        yield made


def only(**gates_on: Any) -> GatesConfig:
    """The gates given, all others off."""
    return GatesConfig.model_validate(ALL_OFF | gates_on)


@pytest.fixture(scope="module")
def sound(shared_data: Path) -> list[Edit]:
    """Real photographs from five sets; the last two are edits of one source with one instruction."""
    return [edit for edit in real_triplets(shared_data / "triplets") if edit.row_id in WANTED]


@pytest.fixture(scope="module")
def clean(sound: list[Edit]) -> pa.Table:
    return inspected(sound)


def test_sound_photographs_pass(opened: Tables, clean: pa.Table) -> None:
    decided = gated(opened, clean, GatesConfig())
    assert decided.table.num_rows <= 1 and not any(decided.dropped)
    assert {name for name, entry in decided.summary.items() if entry["action"] == "off"} == {"near_embedding"}
    assert decided.summary["unchanged"]["measured"] == len(WANTED) == decided.summary["upscaled"]["measured"]


@pytest.mark.parametrize(
    ("what", "least"),
    [
        ("both shrunk to 96 pixels", 1.0),
        ("edit squeezed to three quarters of its width", 1.0),
        ("edit cropped to a square, or by a fifth", 1.0),
        ("copy, same bytes", 1.0),
        ("copy, JPEG quality 50", 0.8),
        ("copy, WebP quality 80", 0.8),
        ("source moved by a pixel, JPEG", 0.8),
        ("source mirrored, JPEG", 0.8),
        ("edit all white", 1.0),
        ("edit all grey", 1.0),
        ("right half of the edit white", 0.6),
        ("edited image of another row", 0.8),
        ("edit enlarged twice, bicubic", 0.8),
        ("edit enlarged four times, Lanczos, JPEG 75", 0.8),
        ("exchanged, with file names", 0.6),
        ("edit redder by 8 levels", 0.8),
        ("edit blurred, sigma 3", 0.8),
        ("edit zoomed by 3 %", 0.8),
        ("again, JPEG quality 85", 0.8),
        ("again, redder by 8 levels", 0.8),
    ],
)
def test_planted_defects_are_caught(opened: Tables, sound: list[Edit], clean: pa.Table, what: str, least: float) -> None:
    gate, plant = next((gate, plant) for gate, name, plant in PLANTED if name == what)
    planted = inspected(plant(sound))
    if gate == "near_duplicate":
        rows = [entry | {"sample_id": str(number)} for number, entry in enumerate(pa.concat_tables([clean, planted]).to_pylist())]
        decided = gated(opened, table(rows), only(near_duplicate={"action": "drop"}))
        assert np.mean(decided.dropped[len(sound) :]) >= least
    else:
        assert caught(planted, gate) >= least


def test_exchanged_pairs_of_drawn_edits_are_seen_where_the_instruction_tells() -> None:
    drawn = [edit for edit in drawn_edits(40, 64) if edit.task in ("add", "remove", "recolour")]
    assert len(drawn) >= 10
    exchanged = next(plant for _, name, plant in PLANTED if name == "exchanged, no file names")
    assert caught(inspected(exchanged(drawn)), "swapped") > 0.8
    assert caught(inspected(nameless(drawn)), "swapped") == 0.0
    plain = nameless(drawn)[:1]

    def evidence(source: str, edited: str) -> float | None:
        return inspected([replace(edit, source_path=source, edited_path=edited) for edit in plain])["swap_evidence"][0].as_py()

    assert (evidence("edited/1.png", "source/1.png"), evidence("source/1.png", "edited/1.png")) == (1.0, -1.0)
    without = inspected(plain)["swap_evidence"][0].as_py()
    assert evidence("target/after.png", "target/b.png") == 1.0 and evidence("target/a.png", "target/b.png") == without, "not what both say"


def test_instructions_that_ask_for_nothing_and_those_that_only_sound_so() -> None:
    assert sum(nothing_asked.asked_words(words(text)) == 0 for text in NOTHING) >= 22
    asking = (
        "Keep the dog as it is, remove the cat", "make the same image in black and white", "Change the text to 'no change'", "no hat",
        "leave only the dog", "copy the dog to the left", "保持背景不变，去掉狗", "Let her cry.", "1",
    )  # fmt: skip
    assert [text for text in asking if nothing_asked.asked_words(words(text)) == 0] == []


def test_blank_edits_are_found_under_instructions_about_the_whole_picture(sound: list[Edit]) -> None:
    blank = {what: plant for gate, what, plant in PLANTED if gate == "flat"}
    style = [replace(edit, instruction="Change the style of the picture to anime") for edit in sound]
    assert caught(inspected(style), "flat") == 0.0
    for what, plant in blank.items():
        assert caught(inspected(plant(style)), "flat") >= 0.8, what
    wanted = [replace(edit, instruction="Put it on a plain white background") for edit in sound]
    assert caught(inspected(blank["right half of the edit white"](wanted)), "flat") == 0.0, "a part of it was asked for"
    assert caught(inspected(blank["edit all white"](wanted)), "flat") == 1.0
    half = blank["right half of the edit white"](style)
    white_before = [replace(edit, source=edit.edited) for edit in half]
    assert set(inspected(white_before)["flat_share"].to_pylist()) == {0.0}, "it was white before"


def noisy_half(image: Image.Image, level: float = 128, spread: float = 0) -> Image.Image:
    """The right half as noise around a grey, or of all colours."""
    pixels, rng = np.asarray(image.convert("RGB")).copy(), np.random.default_rng(0)
    half = pixels[:, pixels.shape[1] // 2 :]
    half[:] = rng.normal(level, spread, half.shape).clip(0, 255) if spread else rng.integers(0, 256, half.shape)
    return Image.fromarray(pixels)


def test_noise_over_half_of_a_picture_is_found_and_texture_is_none(shared_data: Path) -> None:
    """On photographs, of which grass, snow and gravel are the nearest to noise; an edit of a picture of another place gains all of it."""
    photographs = [replace(edit, instruction="Make it better") for edit in real_triplets(shared_data / "triplets")]
    assert caught(inspected(photographs), "flat") == 0.0
    others = [replace(edit, edited=photographs[place - 1].edited) for place, edit in enumerate(photographs)]
    assert max(inspected(others)["flat_share"].to_pylist()) < 0.25
    for change in (noisy_half, partial(noisy_half, spread=8), partial(noisy_half, level=250, spread=8)):
        assert caught(inspected(on_edited(change)(photographs)), "flat") >= 0.95


def test_texts_that_are_no_instructions_and_those_that_only_look_so() -> None:
    assert sum(broken_text.faults(text) > 0 for text in BROKEN) >= len(BROKEN) - 2  # one is too long, one begins otherwise
    sound = (
        "Change the text to \"I'm sorry\"", "make the man say: I can't wait",
        "add a sign with 50 % < 100 %", "put the hat on & remove the dog",
        "I don't like the sky, make it pink", "We won't need the tree; remove it", "a <3 on the mug", "turn [the left] mug blue",
        "replace 'www' with 'http'", "Make it red\nand blue", "I can't stand the red sofa, make it blue", "我不能看清狗，请调亮",
        "I am sorry about this, but please remove the man", "Désolé, rends la voiture verte", "すみません、犬を消してください",
        "Add a sign: sorry, this image cannot be shown", "The image cannot be this dark, brighten it", "Add a {red} hat and/or $5.00/ea",
        "让天空变成粉色，谢谢", "make her 👩🏽‍🚀",
    )  # fmt: skip
    assert [text for text in sound if broken_text.faults(text)] == []
    broken = (
        "Je suis désolé, mais je ne peux pas modifier cette image.", "Es tut mir leid, aber ich kann dabei nicht helfen.",
        "Lo siento, no puedo ayudar con eso.", "Desculpe, não posso ajudar com isso.", "Извините, я не могу помочь с этим запросом.",
        "申し訳ありませんが、その画像は編集できません。", "죄송하지만 이 요청은 도와드릴 수 없습니다.", "عذرا، لا يمكنني تعديل هذه الصورة",
        "不好意思，这个请求我做不到", "This request goes against my guidelines.", "It seems no image was attached.",
        "nan", "None", "null", "TODO", "[object Object]", "{{instruction}}", "[INST] add a cat [/INST]", "example.com/a.jpg",
        "s3://bucket/key.png",
    )  # fmt: skip
    assert [text for text in broken if not broken_text.faults(text)] == []
    assert [broken_text.faults(f"add a {sign}") for sign in "\U0001fae8\U0001faea\ufdd0\ufffe\U0010ffff\a"] == [0, 0, 1, 1, 1, 1]
    config = GatesConfig()
    lengths = table([row(0), row(1, characters=config.broken_text.longest + 1), row(2, text_faults=1)])
    assert found(lengths, "broken_text", config) == [False, True, True]


def test_wishes_for_other_light_are_no_drift(sound: list[Edit]) -> None:
    plant = next(plant for gate, what, plant in PLANTED if gate == "drift" and what.startswith("no fault"))
    assert caught(inspected(plant(sound[:2])), "drift") <= 0.1
    moved = [replace(edit, instruction="Mirror the picture") for edit in sound]
    assert caught(inspected(next(plant for _, what, plant in PLANTED if what == "source mirrored, JPEG")(moved)), "unchanged") == 0.0


@pytest.mark.parametrize("size", [(1, 1), (4000, 5), (2, 300), (16, 16)])
def test_tiny_and_thin_pictures_are_measured(size: tuple[int, int]) -> None:
    width, height = size
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    edit = Edit("0", "mine[0]", "mine", images.png(pixels), None, "add a hat", images.png(255 - pixels))
    assert inspected([edit])["largest_change"].to_pylist()[0] > 0


def test_edits_near_the_edge_and_of_small_pictures_are_no_copies(sound: list[Edit]) -> None:
    edits_of = []
    for edit in sound:
        pixels = np.array(decode(edit.source))
        height, width = pixels.shape[:2]
        pixels[-height // 12 : -height // 50, -width // 12 : -width // 50] ^= 255
        edits_of.append(replace(edit, instruction="add a logo", edited=images.png(pixels)))
    assert caught(inspected(edits_of), "unchanged") == 0.0
    assert caught(inspected(drawn_edits(40, 64)), "unchanged") <= 0.05


def test_language_is_what_the_script_tells() -> None:
    def share_caught(texts: Sequence[str], *languages: Any) -> float:
        shares = [language.shares(text) for text in texts]
        rows = [row(n, latin_share=latin, han_share=chinese) for n, (latin, chinese) in enumerate(shares)]
        return caught(table(rows), "language", GatesConfig(language=LanguageGate(languages=languages)))

    assert share_caught(OTHER_SCRIPTS, "en") == 1.0
    assert share_caught(("make it red", "Replace 'TRAIN' with '列车'", "café à côté", "3 + 4"), "en") == 0.0
    assert share_caught(("让她哭。", "将文本 'TRAIN' 替换为 'PLANE'", "make it red"), "en", "cn") == 0.0
    assert share_caught(LATIN_SCRIPT, "en") == 0.0  # the limit of it: letters are no language
    assert language.shares("!? 12") == (None, None)


def test_words_are_those_of_the_contamination_check() -> None:
    assert words("  Make it\tRED, please! ") == "make it red please" and words("...") == ""


HASHES = ("source_phash", "edited_phash", "change_phash")
FLIPPED = st.sets(st.sampled_from([0, 1, 2, 20, 40, 41, 63]), max_size=3).map(lambda bits: sum(1 << bit for bit in bits))
DRAWN = st.lists(st.tuples(st.integers(0, 1), FLIPPED, FLIPPED, FLIPPED), max_size=12)


@settings(steady, max_examples=25)
@given(DRAWN, st.integers(0, 5), st.sampled_from([1, 2, 20]), st.integers(0, 3), st.sampled_from([3, 100]))
def test_near_duplicates_are_those_of_a_plain_loop(
    opened: Tables, drawn: list[tuple[int, ...]], bits: int, first: int, cut: int, part: int
) -> None:
    """Also in bands of none to all of the hashes, which edits of an instruction beyond the first ones are looked up by, and in parts."""
    rows = [row(n, instruction=str(i), **dict(zip(HASHES, hashes, strict=True))) for n, (i, *hashes) in enumerate(drawn)]
    expected: dict[int, float] = {}
    for n, (i, *hashes) in enumerate(drawn):
        earlier = {tuple(other): None for j, *other in drawn[:n] if j == i}
        distances = [max((a ^ b).bit_count() for a, b in zip(hashes, other, strict=True)) for other in earlier]
        if distances:
            expected[n] = min(distances) if min(distances) <= bits else min(distances[:first])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near_duplicate, "FIRST", first)
        patch.setattr(near_duplicate, "PART", part)
        patch.setattr(near_duplicate, "_hashes_in_bands", lambda *_: cut)
        config = only(near_duplicate={"action": "flag", "bits": bits})
        opened.keep("inspected", table(rows).to_batches(), INSPECTED)
        gates.read(opened, config)
        opened.execute("CREATE OR REPLACE VIEW seen AS SELECT * FROM edits")
        decided = opened.table(near_duplicate.compare(opened, config.near_duplicate)).to_pylist()
    assert {entry["number"]: entry["value"] for entry in decided} == expected
    assert all(entry["caught"] == (entry["value"] <= bits) and entry["threshold"] == bits for entry in decided)


def test_few_bits_are_looked_up_and_many_compared() -> None:
    assert [near_duplicate._hashes_in_bands(10**6, 10**12, bits + 1) for bits in (1, 4, 8, 63)] == [1, 2, 3, 0]


EDITS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from("abc"), st.sampled_from([64, 100, 640]), st.sampled_from([0, 1, 255])), max_size=12
)
ACTIONS = st.sampled_from(["off", "flag", "drop"])


@settings(steady, max_examples=25)
@given(EDITS, ACTIONS, ACTIONS, ACTIONS, st.integers(1, 3), st.sampled_from([3, 100]))
def test_decisions_are_those_of_a_plain_loop(
    opened: Tables, drawn: list[tuple[int, str, int, int]], size: str, near: str, reuse: str, most: int, together: int
) -> None:
    """A gate of one edit and two that compare, copies before all: rows, counts and quantiles; ids joined some at a time."""
    rows = [
        row(n, sample_id=f"sample {i}", source_sha256=source, edited_width=side, source_phash=bits, edited_phash=0, change_phash=0)
        | {"instruction": "same"}
        for n, (i, source, side, bits) in enumerate(drawn)
    ]
    given_gates = {"size": {"action": size}, "near_duplicate": {"action": near}, "source_reuse": {"action": reuse, "edits": most}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "TOGETHER", together)
        decided = gated(opened, table(rows), only(**given_gates))
    single = [n for n, (i, *_) in enumerate(drawn) if i not in [other for other, *_ in drawn[:n]]]
    assert [entry["row_id"] for entry in decided.copies] == [str(n) for n in range(len(drawn)) if n not in single]
    for entry in decided.copies:
        original = [i for i, *_ in drawn].index(drawn[int(entry["row_id"])][0])
        assert entry["message"].endswith(f" are those of mine.jsonl[{original}]")
    dropped: set[int] = set()
    listed = []
    for gate, action in (("size", size), ("near_duplicate", near), ("source_reuse", reuse)):
        values, limit = {}, {"size": 128.0, "near_duplicate": 4.0, "source_reuse": float(most)}[gate]
        seen = [n for n in single if n not in dropped or gate == "size"]
        for n in seen:
            before = [other for other in seen if other < n]
            if gate == "size":
                values[n] = float(min(drawn[n][2], 480))
            elif gate == "source_reuse":
                values[n] = 1.0 + sum(drawn[other][1] == drawn[n][1] for other in before)
            elif before:
                values[n] = float(min((drawn[other][3] ^ drawn[n][3]).bit_count() for other in before))
        hit = [n for n, value in values.items() if (value > limit if gate == "source_reuse" else value <= limit)]
        if action == "off":
            assert decided.summary[gate] == {"action": "off"}
            continue
        listed += [(f"sample {drawn[n][0]}", gate, values[n], limit, action) for n in hit]
        quantiles = [round(float(value), 5) for value in np.quantile([*values.values()], gates.QUANTILES)] if values else None
        newly = len(set(hit) - dropped) if action == "drop" else 0
        dropped |= set(hit) if action == "drop" else set()
        wanted = {"measured": len(values), "caught": len(hit), "dropped": newly, "quantiles": quantiles}
        assert {key: decided.summary[gate][key] for key in wanted} == wanted
    assert [tuple(entry.values()) for entry in decided.table.to_pylist()] == listed
    assert decided.dropped == [n in dropped for n in range(len(drawn))]
    assert dropped_rows(table(rows), only(**given_gates)) == [size == "drop" and side < 128 for _, _, side, _ in drawn]


def test_near_vectors_are_found_in_the_nearest_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(1200, 24)).astype(np.float32)
    vectors[600::20] = vectors[:600:20] + 0.1 * draw.normal(size=(30, 24))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = np.where(np.tri(len(vectors), k=-1, dtype=bool), vectors @ vectors.T, -2).max(axis=1)
    every = near_embedding.largest_before(vectors)
    assert np.isnan(every[0]) and np.allclose(every[1:], cosines[1:], atol=1e-6)
    monkeypatch.setattr(near_embedding, "EXACT", 100)
    monkeypatch.setattr(near_embedding, "PROBED", 8)
    monkeypatch.setattr(near_embedding, "BLOCK", 64)
    found = near_embedding.largest_before(vectors)
    assert (cosines > 0.95).sum() == 30 and np.allclose(found[600::20], cosines[600::20], atol=1e-6)
    assert np.nanmax(found - cosines) < 1e-6 and 0.1 < np.mean(found < cosines - 1e-6) < 0.9, "others are compared with some"


def test_vectors_of_your_own(opened: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_embedding, "BLOCK", 2)
    path = tmp_path / "vectors.parquet"
    rows = table([row(n) for n in range(4)])

    def write(vectors: dict[int, list[float]]) -> None:
        pq.write_table(pa.table({"sample_id": [f"sample {n}" for n in vectors], "embedding": list(vectors.values())}), path)

    gate = NearEmbeddingGate(action="drop", embeddings=str(path), similarity=0.9)
    write({3: [0.0, 2.0], 2: [3.0, 0.1], 1: [0.0, 1.0], 0: [1.0, 0.0], 9: [1.0, 1.0]})
    decided = gated(opened, rows, only(near_embedding=gate.model_dump()))
    assert decided.dropped == [False, False, True, True] and decided.summary["near_embedding"]["measured"] == 3
    assert decided.table["value"].to_pylist()[1] == 1.0
    before = gates.inputs(GatesConfig(near_embedding=gate))["embeddings"]
    for vectors, sentence in (
        ({0: [1.0], 1: [1.0], 3: [1.0]}, "has no vector for 1 of 4 edits, the first is sample 2"),
        ({0: [1.0], 1: [1.0, 2.0], 2: [1.0], 3: [1.0]}, r"have several lengths: \['1', '2'\]"),
        ({0: [1.0], 1: [], 2: [1.0], 3: [1.0]}, "vectors in .* that have no numbers"),
        ({0: [1.0], 1: [0.0], 2: [1.0], 3: [1.0]}, "zero or not finite"),
    ):
        write(vectors)
        with pytest.raises(ValueError, match=sentence):
            gated(opened, rows, only(near_embedding=gate.model_dump()))
    assert gates.inputs(GatesConfig(near_embedding=gate))["embeddings"] != before and gates.inputs(GatesConfig()) == {}
    for ids, embedding, sentence in (
        ([*range(4), 2], [[1.0]] * 5, "has several vectors for sample 2; keep one per sample id"),
        (range(4), [["a"]] * 4, "column embedding of .* holds list<.*string>; it should hold lists of numbers"),
        (range(4), [1.0] * 4, "holds double; it should hold lists of numbers"),
    ):
        pq.write_table(pa.table({"sample_id": [f"sample {n}" for n in ids], "embedding": embedding}), path)
        with pytest.raises(ValueError, match=sentence):
            gated(opened, rows, only(near_embedding=gate.model_dump()))
    path.write_bytes(b"no table")
    with pytest.raises(ValueError, match="cannot be read as Parquet with the columns sample_id and embedding"):
        gated(opened, rows, only(near_embedding=gate.model_dump()))
    path.unlink()
    with pytest.raises(ValueError, match=r"near_embedding\.embeddings: .* cannot be read"):
        gates.inputs(GatesConfig(near_embedding=gate))
    with pytest.raises(ValidationError, match="needs the file of vectors"):
        NearEmbeddingGate(action="flag")


def test_dropped_edits_count_once_and_take_nobodys_place(opened: Tables) -> None:
    config = GatesConfig.model_validate(
        {
            "size": {"action": "drop"},
            "aspect": {"action": "drop"},
            "unchanged": {"action": "flag"},
            "drift": {"action": "off"},
            "near_duplicate": {"action": "drop"},
            "source_reuse": {"action": "drop", "edits": 1},
        }
    )
    same = {"instruction": "same", "source_phash": 7, "edited_phash": 7, "change_phash": 7}
    rows = [
        row(0, edited_width=64, **same),  # too small, and in another shape: the first gate has it
        row(1, **same),  # near only to a dropped edit: stays
        row(2, **same, source_sha256="source 4"),  # near to the one before
        row(3, largest_change=1.0, background_change=99.0),  # flagged, and not looked at for drift
        row(4, source_sha256="source 4"),  # the second of its source, but the first is dropped: stays
        row(5, source_sha256="source 4", source_width=9000),
    ]
    decided = gated(opened, table(rows), config)
    assert decided.dropped == [True, False, True, False, False, True]
    assert {name: (entry["caught"], entry["dropped"]) for name, entry in decided.summary.items() if entry.get("caught")} == {
        "size": (2, 2),
        "aspect": (2, 0),
        "unchanged": (1, 0),
        "near_duplicate": (1, 1),
    }
    assert decided.summary["drift"] == {"action": "off"}
    listed = [tuple(entry.values()) for entry in decided.table.to_pylist()]
    assert listed[0] == ("sample 0", "size", 64.0, 128.0, "drop") and listed[1] == ("sample 5", "size", 9000.0, 8192.0, "drop")
    assert ("sample 3", "unchanged", 1.0, 15.0, "flag") in listed and len(listed) == 6


def test_nothing_to_measure_is_no_value(opened: Tables) -> None:
    assert upscaled.detail(Image.new("L", (64, 64))) is None and upscaled.detail(Image.new("L", (400, 20))) is None
    rng = np.random.default_rng(0)
    noise = upscaled.detail(Image.fromarray(rng.integers(0, 256, (128, 96, 3), dtype=np.uint8)).convert("L"))
    assert noise is not None and abs(noise) < 0.2  # white noise: as much above as below
    decided = gated(opened, table([]), GatesConfig())
    assert decided.table.num_rows == 0 and decided.summary["size"]["quantiles"] is None
    unmeasured = row(0, fine_detail=None, background_change=None, background_match=None, latin_share=None, han_share=None)
    assert gated(opened, table([unmeasured]), GatesConfig()).table.num_rows == 0


def test_a_threshold_may_be_met() -> None:
    rows = table([row(0, source_width=128, source_height=128, edited_width=128, edited_height=128)])
    assert caught(rows, "size", GatesConfig(size=SizeGate(shortest_side=128))) == 0.0
    assert caught(rows, "size", GatesConfig(size=SizeGate(shortest_side=129))) == 1.0


def test_the_table_of_inspected_edits_is_the_contract_and_the_gates_columns() -> None:
    added = [name for name in INSPECTED.names if name not in contracts.INSPECTED.names]
    assert added == [revision.split("/")[0] for revision in gates.REVISIONS]
    assert INSPECTED.metadata == contracts.INSPECTED.metadata and INSPECTED.field("asked_words").type == pa.int32()


def test_a_measure_that_is_no_number_is_null(monkeypatch: pytest.MonkeyPatch, sound: list[Edit]) -> None:
    """To the engine it would be larger than any number, and so caught."""
    pair = inspection.pair_of(sound[0])
    assert isinstance(pair, Pair)
    monkeypatch.setitem(GATES, "flat", replace(GATES["flat"], measure=lambda _: {"flat_share": float("nan")}))
    assert gates.measure(pair)["flat_share"] is None


def test_a_changed_measure_inspects_again(monkeypatch: pytest.MonkeyPatch) -> None:
    piece = edits.Slice("triplets", "", {}, [(0, "a")])
    before = inspection.unit_key(piece)
    assert before == settings_hash("inspect", inspection.REVISION, DECODER, piece.fingerprint, *gates.REVISIONS)
    monkeypatch.setattr(gates, "REVISIONS", ("fine_detail/2",))
    assert inspection.unit_key(piece) != before


def test_rows_to_score_of_a_unit_are_those_left_by_gates_references_and_copies(tmp_path: Path) -> None:
    rows = table([row(0), row(1), row(2, source_width=8), row(3, sample_id="sample 0", source_width=8), row(4)])
    step = StepFolder(tmp_path, "filter")
    record = UnitRecord("unit", publish_unit(tmp_path, "unit", {"inspected": rows}), 5, 5, {}, 0.0)
    config = only(size={"action": "drop"})
    said = {"reference": "bench", "item": "i", "source_sha256": "no source", "source_phash": 0, "instruction": "make number 4 red"}
    seen = said | {"source_sha256": "source 1"}
    with database() as opened:
        assert inspection.left_in(opened, step, record, config).tolist() == [0, 1, 4]
        match.read(opened, contracts.table("references", [said, seen]).to_batches())
        for counts, left in (("image", [0, 4]), ("image-or-instruction", [0])):
            settings = Comparison(distance=None, counts=counts)
            assert inspection.left_in(opened, step, record, config, settings).tolist() == left


def test_references_are_compared_with_the_edits_that_gates_left(tmp_path: Path) -> None:
    parts = [
        publish_unit(tmp_path, name, {"inspected": table([row(n) for n in numbers])})["inspected"]
        for name, numbers in (("a", (0, 1)), ("b", (2, 3)))
    ]
    left = np.array([True, False, False, True])
    found = inspection.Inspection(left, np.zeros(4, np.uint32), parts, {}, 4, {}, 2, {})
    compared = pa.Table.from_batches(decontamination._left(StepFolder(tmp_path, "filter"), found), match.SOURCES)
    assert compared["place"].to_pylist() == [0, 3] and compared["source_sha256"].to_pylist() == ["source 0", "source 3"]


def test_figures_of_scores_are_those_of_numpy() -> None:
    """Also where the mean is large beside the deviation, and where values are equal."""
    for values in (np.random.default_rng(0).normal(-3, 2, 1001).round(5), np.repeat([9999.12345, 9999.12405], [300, 700]), np.array([0.5])):
        found = summary._distribution(rows_of(pa.table({"overall_mean": values})), "overall_mean")
        quantiles = np.quantile(values, (0.0, *summary.QUANTILES, 1.0))
        assert [*found.values()] == np.round([values.mean(), values.std(), *quantiles], 5).tolist()
        assert [*found][2:] == ["minimum", *(f"quantile_{level:g}" for level in summary.QUANTILES), "maximum"]
