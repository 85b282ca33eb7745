"""Selection rules: sizes, ties, independence of the order of the scores."""

from __future__ import annotations

import hashlib
import math
import random
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selecting import select

from stages.engine.contracts import SCORES, SELECTION
from stages.filter.selection import rule as selection
from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.order import fixed_width, hashed

steady = settings(deadline=None, derandomize=True, max_examples=15)


def sample_id(name: object) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()[:24]


def scores(rows: list[tuple[str, float, float]], chunks: int = 1) -> pa.Table:
    """Rows of (id, overall mean, change from the source) under the whole contract, in several chunks."""
    full = [
        {
            "sample_id": name,
            "scorer_revision": "r",
            "dimensions": [],
            "overall_mean": mean,
            "overall_sigma": 1.0,
            "change_from_source": change,
            "task": "",
            "language": "en",
            "flags": [],
        }
        for name, mean, change in rows
    ]
    size = max(1, -(-len(full) // chunks))
    tables = [pa.Table.from_pylist(full[first : first + size], schema=SCORES) for first in range(0, len(full), size)]
    return pa.concat_tables(tables) if tables else SCORES.empty_table()


def config(rule: Any, **how_many: Any) -> SelectionConfig:
    return SelectionConfig(name="chosen", rule=rule, **how_many)


few_values = st.sampled_from([-1.5, -0.0, 0.0, 0.25, 1.0])
tables = st.lists(st.tuples(few_values, few_values), min_size=1, max_size=40).map(
    lambda values: [(sample_id(n), mean, change) for n, (mean, change) in enumerate(values)]
)
rules = st.sampled_from(["top", "random", "closest-to-source", "all"])


@steady
@given(tables, rules, st.data())
def test_the_order_of_the_scores_does_not_matter(rows: list[tuple[str, float, float]], rule: str, data: st.DataObject) -> None:
    how_many = {} if rule == "all" else {"count": data.draw(st.integers(1, len(rows)))}
    shuffled = data.draw(st.permutations(rows))
    first = select(scores(rows), config(rule, **how_many)).table
    again = select(scores(shuffled, chunks=data.draw(st.integers(1, 4))), config(rule, **how_many)).table
    assert first.equals(again)
    assert first.schema == SELECTION and first.schema.metadata == SELECTION.metadata


@steady
@given(tables, st.data())
def test_top_is_a_sort_with_ties_broken_by_id(rows: list[tuple[str, float, float]], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(rows)))
    table = select(scores(rows), config("top", count=count)).table
    expected = sorted(rows, key=lambda row: (-row[1], row[0]))[:count]
    assert table["sample_id"].to_pylist() == [name for name, _, _ in expected]
    assert table["score"].to_pylist() == [mean for _, mean, _ in expected]
    assert table["rank"].to_pylist() == list(range(count))


@steady
@given(tables, st.data())
def test_closest_to_source_takes_the_smallest_change(rows: list[tuple[str, float, float]], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(rows)))
    table = select(scores(rows), config("closest-to-source", count=count)).table
    expected = sorted(rows, key=lambda row: (row[2], row[0]))[:count]
    assert table["sample_id"].to_pylist() == [name for name, _, _ in expected]
    assert set(table["rule"].to_pylist()) == {"closest-to-source"}


@steady
@given(tables)
def test_all_keeps_everything_best_first(rows: list[tuple[str, float, float]]) -> None:
    table = select(scores(rows), config("all")).table
    assert table["sample_id"].to_pylist() == [name for name, _, _ in sorted(rows, key=lambda row: (-row[1], row[0]))]


@steady
@given(st.integers(1, 1000), st.sampled_from([0.05, 0.43, 0.5, 1 / 3, 0.999, 1.0]))
def test_a_fraction_is_rounded_half_up(available: int, fraction: float) -> None:
    expected = math.floor(Fraction(repr(fraction)) * available + Fraction(1, 2))
    if expected:
        assert selection.size(available, config("top", fraction=fraction), None) == expected
    else:
        with pytest.raises(ValueError, match="keeps none"):
            selection.size(available, config("top", fraction=fraction), None)


@pytest.mark.parametrize(
    ("available", "fraction", "expected"), [(6000, 0.43, 2580), (5, 0.5, 3), (25, 0.1, 3), (35, 0.1, 4), (100, 0.145, 15)]
)
def test_halves_round_up_in_decimal_not_in_binary(available: int, fraction: float, expected: int) -> None:
    assert selection.size(available, config("top", fraction=fraction), None) == expected


def test_random_depends_on_seed_and_ids_only() -> None:
    rows = [(sample_id(n), float(n), 0.0) for n in range(400)]
    one, again, two = (select(scores(rows), config("random", count=100, seed=seed)).table for seed in (1, 1, 2))
    assert one.equals(again)
    kept, others = set(one["sample_id"].to_pylist()), set(two["sample_id"].to_pylist())
    assert len(kept & others) < 50  # two independent quarters share 25 of 100 on average
    other_scores = select(scores([(name, -mean, 5.0) for name, mean, _ in rows]), config("random", count=100, seed=1)).table
    assert other_scores.equals(one)
    more = select(scores(rows), config("random", count=150, seed=1)).table
    assert more["sample_id"].to_pylist()[:100] == one["sample_id"].to_pylist()


def test_random_is_even() -> None:
    ids = fixed_width(pa.chunked_array([[sample_id(n) for n in range(20_000)]]))
    drawn = hashed(ids, "selection", 0)
    counts = np.histogram(drawn, bins=20, range=(0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 43.8  # chi square with 19 degrees of freedom, 0.1 %
    other = hashed(ids, "shards", 0)
    assert abs(np.corrcoef(drawn, other)[0, 1]) < 0.03
    sequential = hashed(np.array([b"%024x" % n for n in range(20_000)]), "selection", 0)
    assert abs(np.corrcoef(sequential[:-1], sequential[1:])[0, 1]) < 0.03


def test_too_few_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="count 3 is more than the 2 scored edits"):
        select(scores([(sample_id(n), 0.0, 0.0) for n in range(2)]), config("top", count=3))
    with pytest.raises(ValueError, match="no scored edits"):
        select(scores([]), config("all"))


def test_chunks_and_slices_of_ids_are_read_right() -> None:
    names = [sample_id(n) for n in range(10)]
    array = pa.array(names)
    column = pa.chunked_array([array.slice(0, 3), array.slice(3, 0), array.slice(3, 7)])
    assert [name.decode() for name in fixed_width(column)] == names


def test_every_rank_is_given_once() -> None:
    rows = [(sample_id(n), random.Random(n).choice([0.0, 1.0]), 0.0) for n in range(50)]
    table = select(scores(rows), config("top", count=20)).table
    assert Counter(table["rank"].to_pylist()) == dict.fromkeys(range(20), 1)
    assert set(table["stratum"].to_pylist()) == {"all"}
