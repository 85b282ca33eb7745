"""Precision at k: intervals, orders, and which judgement of an edit counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binomtest

from pipeline.report.precision import Judged, judged, steps, wilson
from pipeline.report.published import Published
from stages.engine import contracts
from stages.engine.rundir import Index, RunDir
from stages.engine.units import publish_unit

SCORES = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]


def of(**given: list) -> Judged:
    ids = np.array([f"{number:024x}".encode() for number in range(6)])
    columns = {"change": np.arange(6.0), "source": np.arange(6)} | {k: np.array(v) for k, v in given.items()}
    return Judged(ids=ids, standard="", edits="", **columns)


@pytest.mark.parametrize(("hits", "count"), [(0, 12), (12, 12), (11, 12), (330, 645)])
def test_the_interval_is_wilsons(hits: int, count: int) -> None:
    found, known = wilson(hits / count, count), binomtest(hits, count).proportion_ci(method="wilson")
    assert (found.low, found.high) == (pytest.approx(known.low, abs=1e-6), pytest.approx(known.high, abs=1e-6))


def test_precision_follows_the_order_and_breaks_ties_by_id() -> None:
    found = of(score=[0.5, 0.9, 0.5, 0.1, 0.8, 0.2], good=[True, True, False, False, False, True], change=[9, 1, 2, 9, 9, 0])
    assert found.best().tolist() == [1, 4, 0, 2, 5, 3] and found.closest()[:3].tolist() == [5, 1, 2]
    assert [found.precision(found.best(), k).value for k in (1, 2, 3)] == [1.0, 0.5, pytest.approx(2 / 3)]
    assert found.precision(found.closest(), 2).value == 1.0


def test_edits_of_one_source_count_once_for_the_interval() -> None:
    apart = of(score=SCORES, good=[True] * 3 + [False] * 3)
    together = of(score=SCORES, good=[True] * 3 + [False] * 3, source=[0, 0, 1, 1, 2, 2])
    estimates = [found.precision(found.best(), 6) for found in (apart, together)]
    assert estimates[0].value == estimates[1].value == 0.5
    assert estimates[1].low == pytest.approx(wilson(0.5, 3).low) and estimates[1].low < estimates[0].low


def test_steps_double_below_the_number_of_edits() -> None:
    assert steps(1500, [645]) == [12, 25, 50, 100, 200, 400, 645, 800]
    assert steps(59, [20]) == [12, 20, 25, 50] and steps(5) == [] and steps(0) == []


def test_human_ratings_judge_held_out_candidates_where_no_ground_truth_is_known(tmp_path: Path) -> None:
    """Of three scored candidates the first has means of 3.5 and 3, the second 4 and 2; the third is rated in one dimension only."""
    run = RunDir(tmp_path / "run")
    ids = [f"{number:024x}" for number in range(3)]
    score = {"scorer_revision": "r", "dimensions": [], "overall_sigma": 0.1, "task": "t", "language": "en", "flags": []}
    rows = [
        score | {"sample_id": name, "overall_mean": mean, "change_from_source": 1.0}
        for name, mean in zip(ids, (0.1, 0.9, 0.5), strict=True)
    ]
    given = [(0, "if", 3.0), (0, "if", 4.0), (0, "vq", 3.0), (1, "if", 4.0), (1, "vq", 2.0), (2, "if", 4.0)]
    rating = {
        name: 0.0 if pa.types.is_floating(kind) else "" for name, kind in zip(contracts.RATINGS.names, contracts.RATINGS.types, strict=True)
    }
    ratings = [
        rating | {"candidate_id": ids[number], "source_id": f"s{number}", "dimension": dimension, "score": value, "annotator": f"p{row}"}
        for row, (number, dimension, value) in enumerate(given)
    ]
    for step, name, content in (("evaluate-reward", "scores", rows), ("annotate", "ratings", ratings)):
        parts = publish_unit(run.step(step).path, "unit", {name: contracts.table(name, content)})
        artifacts = {key: [part] for key, part in parts.items()}
        run.step(step).publish(Index(step=step, key="k", inputs={}, settings={}, artifacts=artifacts))
    found = judged(Published(run))
    assert found is not None
    assert found.good.tolist() == [True, False] and found.source.tolist() == ["s0", "s1"]
    assert found.best().tolist() == [1, 0] and found.precision(found.best(), 1).value == 0.0
