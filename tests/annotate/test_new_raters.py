"""Intervals of alpha for new raters: coverage on simulated raters, and agreement with the plain tables."""

from __future__ import annotations

import numpy as np
import pytest

from stages.annotate.agreement import new_raters
from stages.annotate.agreement.alpha import Panel, alpha, rater_tables
from stages.annotate.agreement.bootstrap import estimate, resampled_sums

LEVELS = [1.0, 2.0, 3.0, 4.0]
GROUPS, CANDIDATES, RATERS = 100, 4, 8


def simulated(rng: np.random.Generator, groups: int, raters: int) -> Panel:
    """Each group rated whole by two of the raters, who differ in severity and care."""
    severity, noise = rng.normal(0, 0.6, raters), rng.choice([0.3, 1.6], raters, p=[0.7, 0.3])
    quality = rng.normal(2.5, 1.1, (groups, CANDIDATES))
    pairs = np.array([rng.choice(raters, 2, replace=False) for _ in range(groups)])  # [groups, 2]
    felt = quality[:, None, :] + severity[pairs][:, :, None] + rng.normal(size=(groups, 2, CANDIDATES)) * noise[pairs][:, :, None]
    value = np.clip(np.rint(felt), 1, 4).ravel()
    group, _, candidate = (axis.ravel() for axis in np.indices((groups, 2, CANDIDATES)))
    return Panel(group, np.zeros_like(group), group * CANDIDATES + candidate, np.repeat(pairs.ravel(), CANDIDATES), value)


def ordinal(tables: np.ndarray) -> np.ndarray:
    return alpha(tables, np.array(LEVELS), "ordinal")


def test_new_raters_are_covered_where_intervals_over_groups_are_too_short() -> None:
    rng = np.random.default_rng(14)
    population = simulated(rng, 6_000, 3_000)
    truth = ordinal(rater_tables(population, LEVELS)[0].sum(0)[None])[0]
    covered = np.zeros(2)
    for _ in range(60):
        panel = simulated(rng, GROUPS, RATERS)
        both = new_raters.alpha_ordinal(panel, LEVELS, seed=0, resamples=300)
        tables = rater_tables(panel, LEVELS)[0]
        groups = estimate(tables, resampled_sums(tables, seed=0, resamples=300), ordinal, n=0, undefined="")
        assert both.value == groups.value
        covered += [found.low <= truth <= found.high for found in (both, groups) if found.low is not None and found.high is not None]
    of_both, of_groups = covered / 60
    assert of_groups < 0.8 and of_both >= 0.9, (of_groups, of_both)


def test_tables_of_pairs_add_up_and_few_raters_give_no_interval() -> None:
    rng = np.random.default_rng(0)
    panel = simulated(rng, 30, 6)
    three = Panel(*(np.concatenate([column, column[:40]]) for column in vars(panel).values()))
    three.rater[-40:] = 99  # a third rater of the first groups
    for of in (panel, three):
        assert new_raters.pair_tables(of, LEVELS)[3].sum(0) == pytest.approx(rater_tables(of, LEVELS)[0].sum(0))
    few = new_raters.alpha_ordinal(simulated(rng, 30, 4), LEVELS, seed=0)
    assert not few.defined and few.note == "fewer than 5 raters"
    once = Panel(*(column[:4] for column in vars(panel).values()))
    assert new_raters.alpha_ordinal(once, LEVELS, seed=0).note == "no item was rated twice"
