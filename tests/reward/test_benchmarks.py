"""Every benchmark in its published layout: figures by hand, trivial baselines, failures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_copies import editscore_row, genai_copy, genai_row, imagenhub_copy, judged, save_images, scored, tiger_row, write, write_json

from reward.benchmarks import aurora_pair, aurora_point, editscore_editreward_bench, genai_bench, imagenhub, tiger_editreward_bench
from reward.benchmarks.items import EditScore, distinct
from reward.benchmarks.pictures import read
from reward.benchmarks.result import BenchmarkResult, Measured
from reward.evaluation.bootstrap import Bootstrap

QUICK = Bootstrap(resamples=100)


def values(figures: dict) -> list[float]:
    return [round(figure.value, 6) for figure in figures.values()]


# GenAI-Bench ---------------------------------------------------------------------------------------


GENAI = {11: 3.0, 12: 1.0, 13: 2.0, 21: 1.0, 22: 1.5, 31: 0.0, 32: 0.25, 33: -1.0}
# margins 2, 1, -0.5, -0.25, 1 for labels 1, -1, 0, 0, 1: with a threshold of 0.5 four are right


def test_genai_bench(tmp_path: Path) -> None:
    items = genai_bench.load(genai_copy(tmp_path))
    assert [item.label for item in items] == [1, -1, 0, 0, 1] and len(distinct(items)) == 8, "31 of source 3 is in two comparisons"
    result = genai_bench.evaluate(items, judged(items, GENAI, change=1.0), bootstrap=QUICK)
    assert values(result.model.published) == [0.8, round(2 / 3, 6)]
    assert result.model.details == {"oracle threshold": 0.5} and result.model.sound["without ties, equal scores half"].n == 3
    constant = result.scorers["constant"]
    assert values(constant.published) == [0.4, 0.0] and values(constant.sound)[1] == 0.5
    assert result.chance == {"always first": 0.4, "always second": 0.2, "always tie": 0.4}
    assert result.counts == {"items": 5, "edits": 8, "edits without score": 0, "items without score": 0, "decided": 3, "ties": 2}
    assert result.notes == ("5 votes, while published figures rest on 919: another version, or a part of it",)
    text = result.table()
    assert "published   with ties, oracle threshold" in text and "closest to the source" in text and "always tie 0.4000" in text


def test_a_failed_edit_counts_as_wrong(tmp_path: Path) -> None:
    items = genai_bench.load(genai_copy(tmp_path))
    scores = judged(items, {number: value for number, value in GENAI.items() if number != 11}, change=1.0)
    result = genai_bench.evaluate(items, scores, bootstrap=QUICK)
    assert values(result.model.published) == [0.6, round(1 / 3, 6)], "the same denominators, one right less"
    assert result.counts["edits without score"] == 1 and result.counts["items without score"] == 1
    with pytest.raises(ValueError, match="none of its 8 edits has a score"):
        genai_bench.evaluate(items, {}, bootstrap=QUICK)


def test_the_closest_baseline_ranks_by_change_alone(tmp_path: Path) -> None:
    items = genai_bench.load(genai_copy(tmp_path))
    scores = judged(items, GENAI)
    closest = {name: EditScore(0.0, {}, change=-value.overall) for name, value in scores.items()}
    result = genai_bench.evaluate(items, closest, bootstrap=QUICK)
    assert values(result.scorers["closest to the source"].published) == [0.8, round(2 / 3, 6)]
    assert "closest to the source" not in genai_bench.evaluate(items, scores, bootstrap=QUICK).scorers, "change was not measured"


def test_results_do_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    items = genai_bench.load(genai_copy(tmp_path))
    scores = judged(items, GENAI, change=1.0)
    straight, turned = (genai_bench.evaluate(order, scores, bootstrap=QUICK) for order in (items, items[::-1]))
    assert straight.to_json() == turned.to_json()
    json.dumps(straight.to_json(), allow_nan=False)


def test_scoring_without_a_pipeline(tmp_path: Path) -> None:
    import torch

    from reward import RewardModel, RewardModelConfig

    broken = {"bytes": b"no image", "path": ""}
    rows = [
        genai_row(1, 11, 12, "leftvote"),
        genai_row(2, 21, 12, "tievote"),
        genai_row(2, 21, 12, "leftvote") | {"left_output_image": broken},
    ]
    write(tmp_path / "image_edition" / "test_v1-00000-of-00001.parquet", rows)
    items = genai_bench.load(tmp_path)
    torch.set_num_threads(1)
    model = RewardModel.from_config(RewardModelConfig(), ["edit 1"], seed=0)
    scores, failed = scored(model, items)
    assert len(scores) == 4 and [str(error).startswith("edited image") for error in failed] == [True]
    assert {name for judged in scores.values() for name in judged.dimensions} == {"instruction_following", "visual_quality"}
    result = genai_bench.evaluate(items, scores, bootstrap=QUICK)
    assert result.counts["items without score"] == 1


# TIGER-Lab/EditReward-Bench ------------------------------------------------------------------------

THREE = {"AvsB": "A>B", "AvsC": "C>A", "BvsC": "C>B"}  # C > A > B
FOUR = {"AvsB": "A>B", "AvsC": "A>C", "AvsD": "A>D", "BvsC": "B>C", "BvsD": "B>D", "CvsD": "C>D"}


def group(kind: str, name: str, source: int, rankings: dict[str, str]) -> list[dict[str, Any]]:
    """Rows of a group; candidate A is image 10 * source, B the next."""
    image = {letter: 10 * source + place for place, letter in enumerate("ABCD")}
    return [
        tiger_row(kind, f"{name}_{compared}", source, image[compared[0]], image[compared[-1]], compared, ranking)
        for compared, ranking in rankings.items()
    ]


def tiger_copy(folder: Path, extra: list[dict[str, Any]] | None = None) -> Path:
    twos = [row for n, ranking in enumerate(["A>B", "B>A", "A=B", "A=B"], start=1) for row in group("2pair", f"p{n}", n, {"AvsB": ranking})]
    threes = group("3pair", "t5", 5, THREE) + group("3pair", "t6", 6, THREE)
    write(folder / "2pair" / "train-00000-of-00001.parquet", twos + (extra or []))
    write(folder / "3pair" / "train-00000-of-00001.parquet", threes)
    write(folder / "4pair" / "train-00000-of-00001.parquet", group("4pair", "f7", 7, FOUR))
    return folder


TIGER = (
    {10: 0.3, 11: 0.0, 20: 0.0, 21: -2.0, 30: 1.0, 31: 0.5, 40: 0.0, 41: 9.0}  # margins 0.3, 2 (wrong), 0.5 (tie), -9 (tie)
    | {50: 2.0, 51: 1.0, 52: 3.0}  # right
    | {60: 2.0, 61: 1.0, 62: 1.5}  # C > B only: two of three comparisons
    | {70: 4.0, 71: 3.0, 72: 2.0, 73: 1.0}
)


def test_strict_groups(tmp_path: Path) -> None:
    items = tiger_editreward_bench.load(tiger_copy(tmp_path))
    assert len(items) == 4 + 6 + 6
    result = tiger_editreward_bench.evaluate(items, judged(items, TIGER, change=0.0), bootstrap=QUICK)
    published = {name: round(figure.value, 4) for name, figure in result.model.published.items()}
    # groups of 2: never tying gives 1 right, 0.3 gives 0, 0.5 gives 1, 9 gives 2 (and is best): both ties right, and 0.3 right by its sign
    assert result.model.details["oracle threshold of the groups of 2"] == 9.0
    # pooled: never tying 1 + 3 + 2 + 6 = 12 of 16, which nothing beats
    assert published == {
        "groups, overall": round(5 / 7, 4),
        "groups, K=2": 0.75,
        "groups, K=3": 0.5,
        "groups, K=4": 1.0,
        "pooled pairwise, oracle threshold": 0.75,
    }
    sound = {name: figure.value for name, figure in result.model.sound.items()}
    assert sound["groups, K=3"] == 0.5 and sound["groups, K=4"] == 1 and sound["groups, K=2"] <= 0.5, "each pair gives one answer"
    assert result.model.sound["pooled pairwise without ties, equal scores half"].n == 14
    constant = {name: figure.value for name, figure in result.scorers["constant"].published.items()}
    assert constant["groups, K=2"] == 0.5 and constant["groups, K=3"] == constant["groups, K=4"] == 0
    assert result.chance["K=3, scorer"] == pytest.approx(1 / 6) and result.chance["K=4, judge of pairs"] == 1 / 64
    assert result.counts["groups"] == 7 and result.counts["comparisons with contradicting labels"] == 0
    assert len(result.model.correct) == 7 and result.model.correct["4pair/f7"]


def test_contradicting_duplicates_are_counted_and_left_out_of_the_sound_figures(tmp_path: Path) -> None:
    swapped = tiger_row("2pair", "p9_AvsB", 1, 11, 10, "AvsB", "A>B")  # source 1 again, the other way round and the other way decided
    again = group("2pair", "p2", 2, {"AvsB": "B>A"})  # the very row of p2 again
    items = tiger_editreward_bench.load(tiger_copy(tmp_path, [swapped, *again]))
    result = tiger_editreward_bench.evaluate(items, judged(items, TIGER, change=0.0), bootstrap=QUICK)
    assert result.counts["comparisons with contradicting labels"] == 1 and result.counts["rows that repeat a comparison"] == 2
    assert result.counts["groups left out of the sound figures"] == 2
    assert result.model.published["groups, overall"].n == 8 and result.model.sound["groups, overall"].n == 6
    assert not {"2pair/p1", "2pair/p9"} & result.model.correct.keys()
    assert [item.item_id for item in items if "(2)" in item.item_id] == ["2pair/p2_AvsB (2)"]


def test_the_published_overall_is_a_share_of_484_groups() -> None:
    groups = [("2pair", 186, 105), ("3pair", 150, 64), ("4pair", 148, 17)]
    right = {f"{kind}/{n}": n < hits for kind, count, hits in groups for n in range(count)}
    found = tiger_editreward_bench._by_size(right, {name: name for name in right}, QUICK)
    assert [round(100 * figure.value, 2) for figure in found.values()] == [38.43, 56.45, 42.67, 11.49]


# EditScore/EditReward-Bench ------------------------------------------------------------------------


def test_editscores_bench(tmp_path: Path) -> None:
    rows = [
        editscore_row("style", "overall", 1, 11, 12),  # right
        editscore_row("style", "overall", 2, 21, 22),  # right
        editscore_row("text", "overall", 3, 31, 32),  # equal
        editscore_row("text", "prompt_following", 3, 31, 32),  # right in this dimension
        editscore_row("text", "prompt_following", 1, 12, 11),  # wrong
        editscore_row("text", "consistency", 3, 31, 32),
    ]
    items = editscore_editreward_bench.load(write(tmp_path / "data" / "train-00000.parquet", rows, lists=["output_images"]).parent)
    scores = {
        number: {"overall": overall, "instruction_following": following, "visual_quality": 0.0}
        for number, overall, following in [(11, 2, 2), (12, 1, 1), (21, 5, 0), (22, 4, 0), (31, 1, 3), (32, 1, 2)]
    }
    result = editscore_editreward_bench.evaluate(items, judged(items, scores, change=0.0), bootstrap=QUICK)
    assert values(result.model.published) == [0.5, 0.5], "overall: style 1, text 0; prompt following: text 1/2"
    assert values(result.model.sound) == [round(2.5 / 3, 6), 0.5]
    assert next(iter(result.model.published)).startswith("overall, ")
    assert "no figure for consistency: the model has no dimension consistency" in result.notes
    assert values(result.scorers["constant"].published) == [0, 0] and values(result.scorers["constant"].sound) == [0.5, 0.5]
    images = read([picture for item in items for edit in item.edits for picture in (edit.source, edit.edited)])
    assert len(images) == 9, "three sources and six edits, read from lists of images in several row groups"


# AURORA and ImagenHub ------------------------------------------------------------------------------


def test_aurora_pairs(tmp_path: Path) -> None:
    save_images(tmp_path, [1, 2, 11, 12, 21, 22])
    records = [
        {"prompt": "a", "path_src": "images/1.png", "path1": "images/11.png", "path2": "images/12.png"},
        {"prompt": "b", "path_src": "images/2.png", "path1": "images/21.png", "path2": "images/22.png"},
    ]
    for record, (first, second) in zip(records, [(2, 1), (1.5, 1.5)], strict=True):
        record |= {"model1_dim1_score": first, "model2_dim1_score": second}
    write_json(tmp_path / "pairwise.json", records)
    items = aurora_pair.load(tmp_path)
    assert [item.label for item in items] == [1, 0]
    result = aurora_pair.evaluate(items, judged(items, {11: 3.0, 12: 1.0, 21: 1.0, 22: 2.0}, change=0.0), bootstrap=QUICK)
    assert values(result.model.published) == [1, 1] and result.model.details["oracle threshold"] == 1.0
    (tmp_path / "images" / "22.png").unlink()
    with pytest.raises(ValueError, match=r"images/22\.png cannot be read"):
        aurora_pair.load(tmp_path)


def test_aurora_points(tmp_path: Path) -> None:
    save_images(tmp_path, [1, 2, 3, *range(11, 17)])
    records = [
        {"prompt": "p", "input": f"images/{source}.png", "gen": f"images/{edit}.png", "score": score, "model": model}
        for source, edit, score, model in [
            (1, 11, 1, "x"), (2, 12, 2, "x"), (3, 13, 3, "x"),
            (1, 14, 3, "y"), (2, 15, 2, "y"), (3, 16, 2, "y"),
        ]
    ]  # fmt: skip
    write_json(tmp_path / "pointwise.json", records)
    items = aurora_point.load(tmp_path)
    scores = judged(items, {11: 1.0, 12: 3.0, 13: 2.0, 14: 5.0, 15: 1.0, 16: 1.0}, change=0.0)
    result = aurora_point.evaluate(items, scores, bootstrap=QUICK)
    assert result.model.details == {"rho of x": pytest.approx(0.5), "rho of y": pytest.approx(1.0)}
    assert result.model.published["mean of rho"].value == pytest.approx(0.75)
    # within sources: 1 -> 14 over 11 right; 2 -> equal ratings; 3 -> 13 over 16 right
    assert result.model.sound["order within a source, equal scores half"].value == 1 and len(result.model.correct) == 2
    assert result.scorers["constant"].published["mean of rho"].value == 0


def test_imagenhub(tmp_path: Path) -> None:
    items = imagenhub.load(imagenhub_copy(tmp_path))
    assert {item.editor for item in items} == {"Edy", "Max"} and {item.source for item in items} == {"7"}
    assert [item.score for item in items if item.editor == "Edy"] == [1, 0, 0.5]
    assert [round(item.score, 6) for item in items if item.editor == "Max"] == [0, round(math.sqrt(0.5), 6), 1]
    scores = {item.edit.edit_id: EditScore(item.score if item.editor == "Edy" else -item.score, {}, 0.0) for item in items}
    result = imagenhub.evaluate(items, scores, bootstrap=QUICK)
    assert result.model.details == {"rho of Edy": pytest.approx(1), "rho of Max": pytest.approx(-1)}
    assert result.model.published["tanh(mean rho)"].value == pytest.approx(0) and result.counts["ratings of 0"] == 2
    agreement = f"reaches {math.tanh(math.tanh(1)):.4f} by the published average, 1.0000 as the mean of rho"
    assert agreement in result.notes[-1], "the three raters of the copy agree, and the published average takes the tanh twice"


def test_result_table_of_figures_that_are_not_defined() -> None:
    nothing = Bootstrap().mean(np.array([math.nan]), ["a"])
    result = BenchmarkResult("x", {"model": Measured({"p": nothing}, {})}, {}, {}, ())
    assert result.to_json()["rows"][0]["model"]["value"] is None and "nan" in result.table()
