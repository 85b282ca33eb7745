"""Bounds, values, quotas, clusters and controls of selections, against a plain reading of what they promise."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scored_run import score_row
from selecting import Made, select
from selecting import rows_of as scored_rows

from stages.engine import contracts, storage, tables
from stages.engine.near_hashes import join_near
from stages.filter.selection import quotas
from stages.filter.selection import rule as selection
from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.order import first, ranked

steady = settings(deadline=None, derandomize=True, max_examples=15)
Row = dict[str, Any]


def sample_id(name: object) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()[:24]


def rows_of(values: list[tuple[float, float, str, str]]) -> list[Row]:
    """Rows of (mean of either dimension, task, language); the language stands for a cluster."""
    return [
        score_row(sample_id(n), np.array([a, b]), np.array([1.0, 0.25 * (n % 3) + 0.5]), task=task, language=cluster, change=abs(a))
        for n, (a, b, task, cluster) in enumerate(values)
    ]


def chosen(rows: list[Row], others: dict[str, pa.Table] | None = None, **how: Any) -> Made:
    return select(contracts.table("scores", rows), SelectionConfig.model_validate({"name": "chosen", **how}), others)


def ids(made: Made) -> list[str]:
    return made.table["sample_id"].to_pylist()


few = st.sampled_from([-1.5, -0.5, 0.0, 0.25, 1.0])
many_rows = st.lists(st.tuples(few, few, st.sampled_from("xyz"), st.sampled_from("abcdefgh")), min_size=4, max_size=40).map(rows_of)


@steady
@given(many_rows, st.integers(1, 3), st.sampled_from(["top", "bottom", "random", "closest-to-source"]))
def test_clusters_keep_their_first_by_rank(rows: list[Row], most: int, rule: str) -> None:
    everything = chosen(rows, rule=rule, count=len(rows))
    cluster = {row["sample_id"]: row["language"] for row in rows}
    taken: Counter[str] = Counter()
    expected = []
    for name in ids(everything):
        taken[cluster[name]] += 1
        if taken[cluster[name]] <= most:
            expected.append(name)
    made = chosen(rows, rule=rule, count=len(expected), at_most={"per": "language", "count": most})
    assert ids(made) == expected
    if len(expected) < len(rows):
        sentence = f"only {len(expected)} of the {len(rows)} scored edits remain under its at_most {most} per language"
        with pytest.raises(ValueError, match=sentence):
            chosen(rows, rule=rule, count=len(expected) + 1, at_most={"per": "language", "count": most})


@steady
@given(many_rows, st.data())
def test_quotas_fill_each_stratum_best_first_and_refill_by_rank(rows: list[Row], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(rows)))
    shares = data.draw(st.sampled_from(["equal", "proportional"]))
    by_rank = ids(chosen(rows, rule="top", count=len(rows)))
    task = {row["sample_id"]: row["task"] for row in rows}
    made = chosen(rows, rule="top", count=count, quotas={"by": "task", "shares": shares, "short": "refill"})
    asked = {entry.name: entry.asked for entry in made.strata}
    assert sum(asked.values()) == count == made.table.num_rows
    taken: Counter[str] = Counter()
    kept = []
    for name in by_rank:
        if taken[task[name]] < asked[task[name]]:
            taken[task[name]] += 1
            kept.append(name)
    kept += [name for name in by_rank if name not in kept][: count - len(kept)]
    assert ids(made) == sorted(kept, key=by_rank.index)
    assert made.table["stratum"].to_pylist() == [task[name] for name in ids(made)]
    assert made.table["rank"].to_pylist() == list(range(count))
    assert {entry.name: entry.kept for entry in made.strata} == {name: Counter(map(task.get, ids(made)))[name] for name in asked}
    if shares == "proportional":
        assert all(entry.asked <= entry.scored for entry in made.strata)


@steady
@given(many_rows, st.data())
def test_the_order_of_the_scores_changes_no_byte_of_a_composed_rule(rows: list[Row], data: st.DataObject) -> None:
    how = {
        "rule": data.draw(st.sampled_from(["top", "bottom", "random"])),
        "count": 2,
        "quotas": {"by": "task", "shares": "equal", "short": "refill"},
        "at_most": {"per": "language", "count": 8},
    }
    again = data.draw(st.permutations(rows))
    assert chosen(rows, **how).table.equals(chosen(again, **how).table)


@given(st.integers(0, 500), st.lists(st.integers(0, 50), min_size=1, max_size=12).filter(any))
def test_shares_are_hamiltons(count: int, weights: list[int]) -> None:
    parts = quotas.shares(count, np.array(weights))
    exact = [count * weight / sum(weights) for weight in weights]
    assert parts.sum() == count
    assert all(abs(part - value) < 1 for part, value in zip(parts, exact, strict=True))


def test_shares_of_a_known_example() -> None:
    assert quotas.shares(10, np.array([6, 6, 2])).tolist() == [4, 4, 2]  # 4.29, 4.29, 1.43: the largest remainder gets the tenth
    assert quotas.shares(7, np.array([1, 1, 1])).tolist() == [3, 2, 2]


PLAIN = rows_of([(float(n), 0.0, "xyz"[n % 3], "abcde"[n % 5]) for n in range(10)])  # overall means 0, 0.5 ... 4.5


@pytest.mark.parametrize(
    ("how", "kept"),
    [
        ({"rule": "top", "threshold": 3.5}, [9, 8, 7]),
        ({"rule": "bottom", "threshold": 0.5}, [0, 1]),
        ({"rule": "bottom", "count": 3}, [0, 1, 2]),
        ({"rule": "top", "quantile": 0.9}, [9]),
        ({"rule": "top", "quantile": 0.5}, [9, 8, 7, 6, 5]),
        ({"rule": "top", "quantile": 1.0}, [9]),
        ({"rule": "bottom", "quantile": 0.1}, [0]),
        ({"rule": "closest-to-source", "quantile": 0.25}, [0, 1, 2]),
        ({"rule": "top", "threshold": 1.0, "count": 2, "at_most": {"per": "task", "count": 1}}, [9, 8]),
        ({"rule": "all", "at_most": {"per": "language", "count": 1}}, [9, 8, 7, 6, 5]),
        ({"rule": "top", "quotas": {"by": "task", "numbers": {"x": 1, "z": 2}}}, [9, 8, 5]),
    ],
)
def test_bounds_keep_what_they_say(how: dict[str, Any], kept: list[int]) -> None:
    assert ids(chosen(PLAIN, **how)) == [sample_id(n) for n in kept]


def test_a_quantile_keeps_ties_and_its_exact_place() -> None:
    rows = rows_of([(float(n // 4), 0.0, "x", "a") for n in range(12)])
    assert len(ids(chosen(rows, rule="top", quantile=0.9))) == 4
    even = rows_of([(float(n), 0.0, "x", "a") for n in range(11)])
    assert len(ids(chosen(even, rule="top", quantile=0.9))) == 2  # the tenth of eleven values, whatever 1 - 0.9 is in binary


def test_values_are_what_they_are_called() -> None:
    rows = rows_of([(2.0, -1.0, "x", "a"), (0.5, 0.5, "x", "a"), (-1.0, 1.8, "x", "a"), (0.4, 0.4, "x", "a")])
    sigma = [row["overall_sigma"] for row in rows]
    likert = [[entry["likert"] for entry in row["dimensions"]] for row in rows]
    percentiles = [(1.0, 0.25), (0.75, 0.75), (0.25, 1.0), (0.5, 0.5)]
    expected = {
        ("lower-bound", "likert"): [row["overall_mean"] - 2 * s for row, s in zip(rows, sigma, strict=True)],
        ("likert", "likert"): [(a + b) / 2 for a, b in likert],
        ("product", "likert"): [a * b for a, b in likert],
        ("minimum", "likert"): [min(pair) for pair in likert],
        ("product", "percentile"): [a * b for a, b in percentiles],
        ("minimum", "percentile"): [min(pair) for pair in percentiles],
    }
    for (value, scale), values in expected.items():
        made = chosen(rows, rule="top", value=value, scale=scale, sigmas=2, count=4).table
        found = dict(zip(made["sample_id"].to_pylist(), made["score"].to_pylist(), strict=True))
        assert [found[row["sample_id"]] for row in rows] == values, value
        assert set(made["rule"].to_pylist()) == {f"top {value}"}


def test_a_product_on_percentiles_does_not_see_a_shift_or_a_stretch_of_a_dimension() -> None:
    rng = np.random.default_rng(0)
    means = rng.normal(size=(50, 2)).round(3)
    plain = [score_row(sample_id(n), pair, np.ones(2)) for n, pair in enumerate(means)]
    moved = [score_row(sample_id(n), pair * [3, 1] + [7, -2], np.ones(2)) for n, pair in enumerate(means)]
    how = {"rule": "top", "value": "product", "scale": "percentile", "count": 50}
    assert chosen(plain, **how).table.equals(chosen(moved, **how).table)
    assert ids(chosen(plain, rule="top", count=50)) != ids(chosen(moved, rule="top", count=50))


def test_a_control_has_the_size_and_the_strata_of_another_selection() -> None:
    rows = rows_of([(float(n % 13), n / 7, "xxxyz"[n % 5], "a") for n in range(100)])
    best = chosen(rows, rule="top", threshold=8.0)
    others = {"best": best.table}
    control = chosen(rows, others, rule="random", like="best", quotas={"by": "task", "shares": "like"}, seed=3)
    task = {row["sample_id"]: row["task"] for row in rows}
    assert Counter(map(task.get, ids(control))) == Counter(map(task.get, ids(best)))
    assert set(ids(control)) != set(ids(best))
    worst = chosen(rows, others, rule="bottom", like="best")
    assert worst.table.num_rows == best.table.num_rows and not set(ids(worst)) & set(ids(best))


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        (
            {"rule": "top", "count": 9, "quotas": {"by": "task", "numbers": {"x": 5, "y": 4}}},
            "was given count and quotas.numbers: give one of them",
        ),
        (
            {"rule": "top", "quotas": {"by": "task", "numbers": {"x": 5, "y": 4}}},
            "2 samples are missing by task (x 5 asked, 4 there; y 4 asked, 3 there)",
        ),
        ({"rule": "top", "quotas": {"by": "task", "numbers": {"w": 1}}}, "no scored edit has task 'w'; quotas.numbers can name x, y, z"),
        ({"rule": "top", "quotas": {"by": "task", "numbers": {"x": 11}, "short": "refill"}}, "ask for 11 samples and only 10 remain"),
        (
            {"rule": "top", "threshold": 1.0, "quotas": {"by": "task", "shares": "equal"}},
            "give count, fraction or like beside the threshold",
        ),
        ({"rule": "top", "count": 3, "quotas": {"by": "task", "shares": "like"}}, "name it with like"),
        ({"rule": "top", "count": 3, "quotas": {"by": "task"}}, "exactly one of shares (proportional, equal, like) and numbers"),
        (
            {"rule": "top", "count": 3, "quotas": {"by": "colour", "shares": "equal"}},
            "quotas.by: there is no column colour; it can be task,",
        ),
        ({"rule": "top", "count": 3, "at_most": {"per": "hue"}}, "at_most.per: there is no column hue"),
        ({"rule": "top", "threshold": 99.0}, "no scored edit is within its threshold 99; relax it"),
        (
            {"rule": "top", "threshold": 4.0, "count": 3},
            "count 3 is 3 samples, and only 2 of the 10 scored edits remain under its threshold 4",
        ),
        ({"rule": "random", "threshold": 1.0, "count": 3}, "rule random has no values to compare with a threshold"),
        ({"rule": "random", "value": "likert", "count": 3}, "rule random does not order by a score: leave value out"),
        ({"rule": "random", "like": "best"}, "there is no selection best of the present scores to be like"),
        ({"rule": "random", "like": "chosen"}, "selection chosen cannot be like itself"),
        ({"rule": "top", "quantile": 0.3, "threshold": 0.3}, "was given threshold and quantile: give one of them"),
    ],
)
def test_what_cannot_be_is_one_sentence(how: dict[str, Any], sentence: str) -> None:
    with pytest.raises((ValueError, ValidationError)) as caught:
        chosen(PLAIN, **how)
    assert sentence in str(caught.value)


def test_likert_values_need_a_calibrated_model() -> None:
    rows = [score_row(sample_id(n), np.array([n, 0.0]), np.ones(2), likert=False) for n in range(4)]
    with pytest.raises(ValueError, match=r"has no map to the raters' scale.*or choose value overall or scale percentile"):
        chosen(rows, rule="top", value="product", count=2)
    assert len(ids(chosen(rows, rule="top", value="product", scale="percentile", count=2))) == 2


def test_many_ties_are_in_the_order_of_ids() -> None:
    names = np.array([b"%08x%016x" % (n % 7, (n * 2654435761) % 2**32) for n in range(5000)])
    key = np.repeat([1.0, -0.0, 0.0, 2.0, 0.0], 1000)
    ids_of_rows = pa.chunked_array([names[:2000].astype(str), names[2000:].astype(str)])
    order = ranked(key, ids_of_rows)
    assert order.tolist() == np.lexsort((names, key)).tolist()
    assert first(key, ids_of_rows, 1700).tolist() == order[:1700].tolist()
    assert first(key, ids_of_rows, 9999).tolist() == order.tolist()


def test_a_selection_around_its_cut(tmp_path: Path) -> None:
    table = contracts.table("scores", PLAIN)
    config = SelectionConfig(name="s", rule="top", count=4)
    path = tmp_path / "s.parquet"
    storage.publish_bytes(path, storage.table_bytes(select(table, config).table))
    just_in, just_out = selection.around_cut(scored_rows(table), config, path, 3)
    assert just_in == [sample_id(n) for n in (6, 7, 8)] and just_out == [sample_id(n) for n in (5, 4, 3)]
    everything = SelectionConfig(name="s", rule="top", fraction=1.0)
    storage.publish_bytes(path, storage.table_bytes(select(table, everything).table))
    assert selection.around_cut(scored_rows(table), everything, path, 3)[1] == []


@steady
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=12), st.integers(1, 4), st.data())
def test_clusters_of_hashes_are_the_chains_of_near_ones(seeds: list[int], bits: int, data: st.DataObject) -> None:
    flips = st.lists(st.integers(0, 63), max_size=6)
    made = {seed ^ sum(1 << bit for bit in set(data.draw(flips))) for seed in seeds for _ in range(3)}
    hashes = np.array(sorted(made), np.uint64)
    with tables.opened() as database:
        rows = pa.record_batch([np.arange(len(hashes)), hashes], names=["place", "hash"])
        database.keep("t", [rows], rows.schema)
        join_near(database, "t", "hash", bits)
        found = database.table("SELECT hash FROM t ORDER BY place")["hash"].to_numpy()
    near = np.bitwise_count(hashes[:, None] ^ hashes[None]) <= bits
    for _ in hashes:
        near = near @ near
    assert np.array_equal(found[:, None] == found[None], near)


def test_near_hashes_are_one_cluster_where_they_were_measured() -> None:
    hashes = pa.array([0, 3, 15 << 60, (15 << 60) + 2**40], pa.uint64())
    table = contracts.table("scores", PLAIN[:4]).append_column("edited_phash", hashes)
    table = table.append_column("source_sha256", pa.array(["x", "x", "y", "y"]))

    def kept(at_most: dict[str, Any]) -> list[str]:
        return ids(select(table, SelectionConfig.model_validate({"name": "s", "rule": "all", "at_most": at_most})))

    names = table["sample_id"].to_pylist()
    assert kept({"per": "edited_phash"}) == names[::-1]
    assert kept({"per": "edited_phash", "bits": 1}) == [names[3], names[1], names[0]]
    assert kept({"per": "edited_phash", "bits": 2}) == [names[3], names[1]]
    assert kept({"per": "source"}) == [names[3], names[1]]
    with pytest.raises(ValueError, match=r"at_most\.bits is for perceptual hashes, task is none"):
        kept({"per": "task", "bits": 2})
    with pytest.raises(
        ValueError, match=r"instruction, source, metadata\.KEY, flag\.NAME, source_sha256, edited_sha256, source_phash, edited_phash"
    ):
        kept({"per": "phash"})


def test_edits_with_unwanted_flags_are_left_out_and_flags_are_strata() -> None:
    rows = rows_of([(float(n), 0.0, "x", "a") for n in range(6)])
    for number, flags in {1: ["drift"], 4: ["size", "drift"], 5: ["size"]}.items():
        rows[number]["flags"] = flags
    table = contracts.table("scores", rows)
    names = [row["sample_id"] for row in rows]

    def kept(**how: Any) -> list[str]:
        config = SelectionConfig.model_validate({"name": "s", "rule": "top", **how})
        return ids(select(table, config, flags=frozenset({"drift", "size", "aspect"})))

    assert kept(count=2, without_flags=["drift"]) == [names[5], names[3]]
    assert kept(rule="all", without_flags=["drift", "size"]) == [names[3], names[2], names[0]]
    assert kept(threshold=1, without_flags=["aspect", "size"]) == [names[3], names[2]]  # of two dimensions the mean
    assert sorted(kept(quotas={"by": "flag.drift", "numbers": {"yes": 1, "no": 2}})) == sorted([names[5], names[4], names[3]])
    with pytest.raises(ValueError, match="count 5 is 5 samples, and only 4 of the 6 scored edits remain under its without_flags size"):
        kept(count=5, without_flags=["size"])
    with pytest.raises(ValueError, match="there is no flag drif, its gate is off, or it has no references; flags are aspect, drift, size"):
        kept(count=1, without_flags=["drif"])
    with pytest.raises(ValueError, match=r"quotas\.by: there is no flag x"):
        kept(quotas={"by": "flag.x", "numbers": {"yes": 1}})
    with pytest.raises(ValueError, match="have no flags, because all gates are off"):
        chosen(rows, rule="top", count=1, without_flags=["drift"])


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("editor", "brush", "brush"),
        ("a/b~c.d", "x", "x"),
        ('it\'s "so"', "it's", "it's"),
        ("编辑器", "画笔 😀", "画笔 😀"),
        ("seed", 3, "3"),
        ("done", True, "true"),
        ("list", ["a", 1], '["a",1]'),
    ],
)
def test_a_key_of_the_metadata_can_be_any(key: str, value: Any, name: str) -> None:
    texts = [json.dumps(entry, ensure_ascii=False) for entry in ({key: value}, {}, {"other": 1}, {key: value, "more": {"x": key}})]
    table = contracts.table("scores", PLAIN[:4]).append_column("metadata", pa.array(texts))
    config = SelectionConfig.model_validate(
        {"name": "s", "rule": "top", "count": 4, "quotas": {"by": f"metadata.{key}", "shares": "proportional"}}
    )
    assert {entry.name: entry.scored for entry in select(table, config).strata} == {name: 2, "": 2}


def test_a_key_of_the_metadata_that_no_edit_has_is_refused() -> None:
    texts = [json.dumps(entry) for entry in ({"editor": "x"}, {}, {"seed": None}, {"editor": ""})]
    table = contracts.table("scores", PLAIN[:4]).append_column("metadata", pa.array(texts))
    for setting in ({"quotas": {"by": "metadata.editr", "shares": "equal"}}, {"at_most": {"per": "metadata.seed", "count": 1}}):
        config = SelectionConfig.model_validate({"name": "s", "rule": "top", "count": 1, **setting})
        with pytest.raises(ValueError, match=r"no scored edit has metadata\.(editr|seed); keys of metadata are editor, seed$"):
            select(table, config)


@pytest.mark.parametrize("where", [0, 9])
def test_edits_without_a_likert_score_or_with_other_dimensions_are_refused(where: int) -> None:
    rows = rows_of([(float(n), 0.0, "x", "a") for n in range(10)])
    entry = rows[where]["dimensions"][1]
    entry["likert"] = None
    with pytest.raises(ValueError, match="value minimum needs Likert scores"):
        chosen(rows, rule="top", value="minimum", count=3)
    rows[where]["dimensions"] = [*rows[where]["dimensions"], entry | {"dimension": "third"}]
    for how in ({"value": "minimum"}, {"value": "product", "scale": "percentile"}):
        with pytest.raises(ValueError, match="have not all the same dimensions in the same order"):
            chosen(rows, rule="top", count=3, **how)
    rows[where]["dimensions"] = rows[where]["dimensions"][1::-1]
    with pytest.raises(ValueError, match="have not all the same dimensions in the same order"):
        chosen(rows, rule="top", value="product", scale="percentile", count=3)
