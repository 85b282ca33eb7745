"""Preferences: complete groups, pairs and labels, splits, and the statistics for the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rated_run import EDITORS, candidates, make_run, rating_task_of, ratings_of, source, write_csv

from reward.inputs.groups import build_preferences
from stages.annotate import step as annotate
from stages.context import Context
from stages.engine import storage
from stages.engine.ids import content_id
from stages.engine.rundir import Index
from stages.preferences import step as preferences
from stages.preferences.config import PreferencesConfig
from stages.preferences.groups import load_groups

IF, VQ = "instruction_following", "visual_quality"


def rated(context: Context, scores: dict[str, list[tuple[int, int]]], group: int = 0) -> None:
    """Every annotator rates a group: (instruction following, visual quality) of its four sampled candidates, in the order of their ids."""
    work = rating_task_of(context)
    name = content_id("source", group)
    for annotator, given in scores.items():
        by_candidate = dict(zip(sorted(work.sampled[name]), given, strict=True))
        rows = [row | {"score": by_candidate[row["candidate_id"]][row["dimension"] == VQ]} for row in ratings_of(work, annotator, [name])]
        annotate.ingest(context, [write_csv(context.run.path / f"{annotator}-{group}.csv", rows)])


def pairs_of(context: Context) -> list[dict[str, Any]]:
    return context.run.step("preferences").read("pairs").to_pylist()


def statistics_of(context: Context) -> dict[str, Any]:
    return json.loads((context.run.path / "preferences" / "statistics.json").read_text())


def with_ties(context: Context, ties: Any) -> Context:
    return Context(context.run, context.flow.model_copy(update={"preferences": PreferencesConfig(ties=ties)}), context.cluster)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return make_run(tmp_path / "run", groups=1)


def test_pairs_and_labels_by_hand(context: Context) -> None:
    rated(context, {"ann": [(4, 2), (4, 1), (2, 4), (4, 2)]})
    index = preferences.run(context)
    a, b, c, d = sorted(rating_task_of(context).sampled[content_id("source", 0)])
    found = [(row["candidate_a"], row["candidate_b"], row["label"], row["origin"], row["gap"]) for row in pairs_of(context)]
    assert found == [
        (a, b, "a", "plain", 1.0),
        (a, c, "a", "tie-disentangled", 0.0),
        (a, c, "b", "tie-disentangled", 0.0),
        (a, d, "tie", "plain", 0.0),
        (b, c, "b", "plain", -1.0),
        (b, d, "b", "plain", -1.0),
        (c, d, "a", "tie-disentangled", 0.0),
        (c, d, "b", "tie-disentangled", 0.0),
    ]
    first = pairs_of(context)[0]
    assert first["dimensions"] == [
        {"dimension": IF, "score_a": 4.0, "score_b": 4.0, "label": "tie"},
        {"dimension": VQ, "score_a": 2.0, "score_b": 1.0, "label": "a"},
    ]
    assert (first["overall_a"], first["overall_b"], first["raters"], first["split"]) == (6.0, 5.0, 1, "train")
    assert len({row["pair_id"] for row in pairs_of(context)}) == 8
    assert index.results["pairs"] == {"train": {"strict": 3, "tie": 1, "tie-disentangled": 4}}
    # of six pairs: IF ties ab, ad, bd; VQ ties ad; overall ties ac, ad, cd, of which ac and cd are opposed
    assert index.results["tie_shares"] == {IF: 0.5, VQ: 0.166667, "overall": 0.5, "opposed": 0.333333}


def test_ties_off_keeps_opposed_ties_as_one_row(context: Context) -> None:
    rated(context, {"ann": [(4, 2), (4, 1), (2, 4), (4, 2)]})
    preferences.run(with_ties(context, "off"))
    labels = [(row["label"], row["origin"]) for row in pairs_of(context)]
    assert labels.count(("tie", "plain")) == 3 and len(labels) == 6
    assert statistics_of(context)["pairs"] == {"train": {"strict": 3, "tie": 3}}


@pytest.mark.parametrize(
    ("ties", "kinds", "overall"),
    [
        ("opposed", {"tie": 1, "tie-disentangled": 4}, [1.0, 1.0, 0.0, None, 0.0, 0.0, 1.0, 0.0]),
        ("all", {"tie": 0, "tie-disentangled": 4, "tie-doubled": 2}, [1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0]),
        ("soft", {"tie": 1, "tie-soft": 2}, [1.0, 0.5, None, 0.0, 0.0, 0.5]),
        ("off", {"tie": 3}, [1.0, None, None, 0.0, 0.0, None]),
    ],
)
def test_targets_survive_the_table(context: Context, ties: str, kinds: dict[str, int], overall: list[float | None]) -> None:
    scores = [(4, 2), (4, 1), (2, 4), (4, 2)]
    rated(context, {"ann": scores})
    index = preferences.run(with_ties(context, ties))
    assert index.results["pairs"] == {"train": {"strict": 3, **kinds}}
    assert len({row["pair_id"] for row in pairs_of(context)}) == len(overall)
    assert {row["label"] for row in pairs_of(context)} <= {"a", "b", "tie"}
    (group,) = load_groups(context.run, "train")
    assert [preference.overall for preference in group.preferences] == overall
    expected = [dict(zip((IF, VQ), map(float, score), strict=True)) for score in scores]
    assert group.preferences == tuple(build_preferences(expected, (IF, VQ), PreferencesConfig(ties=ties).ties))


def test_scores_are_means_over_raters_of_the_whole_group(context: Context) -> None:
    rated(
        context, {"ann": [(1, 1), (2, 1), (3, 1), (4, 1)], "bob": [(2, 1), (1, 1), (3, 1), (4, 1)], "cat": [(2, 1), (2, 1), (3, 1), (4, 1)]}
    )
    work = rating_task_of(context)
    partial = [row | {"score": 4} for row in ratings_of(work, "dan")[:7]]
    annotate.ingest(context, [write_csv(context.run.path / "dan.csv", partial)])
    preferences.run(context)
    pairs = pairs_of(context)
    assert {row["raters"] for row in pairs} == {3}, "dan did not rate the whole group, so nothing of what he said counts"
    assert pairs[0]["dimensions"][0] == {"dimension": IF, "score_a": 1.666666667, "score_b": 1.666666667, "label": "tie"}
    assert pairs[0]["label"] == "tie"


def test_groups_that_nobody_rated_whole_are_quarantined(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run", groups=4)
    work = rating_task_of(context)
    groups = sorted(work.sampled)
    halves = ratings_of(work, "ann", groups[:1]) + ratings_of(work, "ann", groups[1:2])[:4] + ratings_of(work, "bob", groups[1:2])[4:]
    annotate.ingest(context, [write_csv(tmp_path / "a.csv", halves)])
    index = preferences.run(context)
    assert index.counts == {"in": 4, "out": 1, "quarantined": 3}
    assert index.quarantined == {"incomplete-group": 1, "unrated-group": 2}
    row = next(row for row in context.run.step("preferences").read("quarantine").to_pylist() if row["reason"] == "incomplete-group")
    assert row["row_id"] == groups[1] and "at most 4 of 8 ratings" in row["message"]
    assert {row["source_id"] for row in pairs_of(context)} == {groups[0]}


def test_without_a_pair_there_is_one_sentence(context: Context, tmp_path: Path) -> None:
    annotate.ingest(context, [write_csv(tmp_path / "a.csv", ratings_of(rating_task_of(context))[:3])])
    with pytest.raises(ValueError, match=r"give no pair, e\.g\. group .*at most 3 of 8 ratings"):
        preferences.run(context)
    assert context.run.step("preferences").index() is None


def test_preferences_need_ratings_of_these_candidates(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run", groups=1)
    with pytest.raises(ValueError, match="step annotate is not done"):
        preferences.run(context)
    rated(context, {"ann": [(1, 1), (2, 2), (3, 3), (4, 4)]})
    with pytest.raises(ValueError, match="not of the candidates in"):
        preferences.run(make_run(tmp_path / "run", groups=2))


def test_the_split_is_that_of_the_source(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run", groups=10)
    annotate.ingest(context, annotate.simulate(context))
    preferences.run(context)
    held_out = {content_id("source", number) for number in (4, 9)}
    assert {row["source_id"] for row in pairs_of(context) if row["split"] == "validation"} <= held_out
    assert all((row["split"] == "validation") == (row["source_id"] in held_out) for row in pairs_of(context))
    assert statistics_of(context)["groups"] == {"train": 8, "validation": 2}


def test_an_image_in_two_splits_is_refused(tmp_path: Path) -> None:
    rows = [source(0), source(1, group=source(0)["group"], split="validation")]
    context = make_run(tmp_path / "run", sources=rows)
    annotate.ingest(context, annotate.simulate(context))
    with pytest.raises(
        ValueError, match=f"the image of group {rows[0]['group']} is in two splits: source {rows[0]['source_id']} is in train"
    ):
        preferences.run(context)


def test_a_done_step_is_kept_and_a_grown_ledger_redoes_it_only_with_force(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run", groups=3)
    rated(context, {"ann": [(1, 2), (2, 2), (3, 1), (4, 4)]})
    first = preferences.run(context)
    before = storage.tree_hashes(context.run.path / "preferences")
    assert preferences.run(context) == first
    assert storage.tree_hashes(context.run.path / "preferences") == before
    (context.run.path / "preferences" / "statistics.json").write_text("{}")
    preferences.run(context)
    assert storage.tree_hashes(context.run.path / "preferences") == before, "what was damaged is made again, the same"
    rated(context, {"ann": [(4, 2), (2, 2), (3, 1), (4, 4)]}, group=1)
    with pytest.raises(ValueError, match="made with another version of its input annotate; repeat with --force"):
        preferences.run(context)
    forced: Index = preferences.run(Context(context.run, context.flow, context.cluster, force=True))
    assert forced.counts["out"] == 2


def test_the_same_run_elsewhere_has_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        context = make_run(tmp_path / name, groups=12)
        annotate.ingest(context, annotate.simulate(context))
        preferences.run(context)
    assert storage.tree_hashes(tmp_path / "a") == storage.tree_hashes(tmp_path / "b")


def test_win_rates_by_hand(context: Context) -> None:
    work = rating_task_of(context)
    editor = {row["candidate_id"]: row["editor"] for row in candidates(0)}
    names = sorted(work.sampled[content_id("source", 0)])
    first, second, third = EDITORS  # two candidates of the first and one of each of the others are to be rated
    points = {first: [(4, 1), (2, 1)], second: [(3, 1)], third: [(1, 1)]}
    rated(context, {"ann": [points[editor[name]].pop(0) for name in names]})
    preferences.run(context)
    rates = statistics_of(context)["win_rates"]
    assert {name: (entry["overall"]["value"], entry["overall"]["n"]) for name, entry in rates.items()} == {
        first: (0.75, 4),
        second: (pytest.approx(2 / 3, abs=1e-6), 3),
        third: (0.0, 3),
    }
    assert all(entry[VQ]["value"] == 0.5 for entry in rates.values()), "a tie counts one half"


def test_statistics_of_ratings(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run", groups=1)
    rated(context, {"ann": [(2, 1), (2, 2), (3, 3), (4, 4)], "bob": [(3, 1), (3, 2), (4, 3), (4, 4)]})
    index = preferences.run(context)
    assert index.files.keys() == {"statistics.json"}
    found = statistics_of(context)
    assert found["score_shares"]["all"]["all"][IF] == {"ratings": 8, "mean": 3.125, "levels": {"1": 0.0, "2": 0.25, "3": 0.375, "4": 0.375}}
    assert set(found["score_shares"]["by_editor"]) == set(EDITORS) and set(found["score_shares"]["by_task"]) == {"resize"}
    assert found["raters"]["bob"][IF] == {"ratings": 4, "mean": 3.5, "compared": 4, "difference": 0.75}
    assert found["raters"]["ann"][IF]["difference"] == -0.75 and found["raters"]["ann"][VQ]["difference"] == 0
    assert found["rater_agreement"][VQ]["exact"]["value"] == 1.0 and found["rater_agreement"][IF]["exact"]["value"] == 0.25
    assert found["paper_tie_shares"] == {IF: 0.3828, VQ: 0.3283, "overall": 0.2068}
    assert index.results["rater_predicts_rater"] == found["rater_agreement"]["overall"]["rater_predicts_rater"]
