"""Gwet's coefficients and intraclass correlations against published examples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from panels import KRIPPENDORFF_2011, NONE, panel_of

from stages.annotate.agreement import ac2 as gwet
from stages.annotate.agreement import icc as intraclass

SHROUT_FLEISS_1979 = np.array(  # table 2: six targets (columns here), four judges (rows here)
    [[9, 6, 8, 7, 10, 6], [2, 1, 4, 1, 5, 2], [5, 3, 6, 2, 6, 4], [8, 2, 8, 6, 9, 7]], dtype=float
)


def test_the_six_forms_of_shrout_and_fleiss() -> None:
    found = intraclass.correlations(panel_of(SHROUT_FLEISS_1979), seed=0)
    published = {"icc_1_1": 0.17, "icc_2_1": 0.29, "icc_3_1": 0.71, "icc_1_k": 0.44, "icc_2_k": 0.62, "icc_3_k": 0.91}
    for name, value in published.items():
        assert found[name]["value"] == pytest.approx(value, abs=0.005)
    assert found["icc_1_1"]["value"] == pytest.approx(0.1657, abs=0.00005)
    assert found["icc_2_k"]["value"] == pytest.approx(0.6201, abs=0.00005)
    assert found["icc_1_1"]["n"] == 6 and found["icc_1_1"]["low"] < 0.1657 < found["icc_1_1"]["high"]


def test_gwets_coefficients_of_krippendorffs_data() -> None:
    found = gwet.coefficients(panel_of(KRIPPENDORFF_2011), [1, 2, 3, 4, 5], seed=0)
    assert found["ac1"]["value"] == pytest.approx(0.77544, abs=0.00001)
    assert found["ac2_quadratic"]["value"] == pytest.approx(0.91400, abs=0.00001)
    tables, items = gwet.group_tables(panel_of(KRIPPENDORFF_2011), [1, 2, 3, 4, 5], np.eye(5))
    assert items == 11 and tables[:, 1].sum() / tables[:, 0].sum() == pytest.approx(0.81818, abs=0.00001)


def test_ac2_takes_any_weights() -> None:
    linear = 1 - np.abs(np.subtract.outer(range(5), range(5))) / 4
    tables, _ = gwet.group_tables(panel_of(KRIPPENDORFF_2011), [1, 2, 3, 4, 5], linear)
    assert gwet.ac(tables.sum(0, keepdims=True), linear)[0] == pytest.approx(0.85874, abs=0.00001)


def test_ordinal_weights_by_hand() -> None:
    """Gwet 2014, chapter 4: 1 - C(d + 1, 2) / C(q, 2), so with four levels 1, 5/6, 1/2, 0."""
    assert gwet.agreement_weights([1, 2, 3, 4], "ordinal")[0] == pytest.approx([1, 5 / 6, 1 / 2, 0])
    assert gwet.agreement_weights([0, 0.5, 1], "quadratic")[0] == pytest.approx([1, 3 / 4, 0])


def test_one_way_takes_unequal_numbers_of_raters() -> None:
    """By hand: items (1, 3), (4, 4, 5): BMS = 6.5333, WMS = 2.6667 / 3, k0 = 5 - 13 / 5 = 2.4."""
    found = intraclass.correlations(panel_of(np.array([[1.0, 4], [3, 4], [NONE, 5]])), seed=0)
    between, within, k = 2 * (2 - 3.4) ** 2 + 3 * (13 / 3 - 3.4) ** 2, (2 + 2 / 3) / 3, 2.4
    assert found["icc_1_1"]["value"] == pytest.approx((between - within) / (between + (k - 1) * within), abs=1e-6)
    assert found["icc_2_1"] == {"value": None, "low": None, "high": None, "n": 1, "note": intraclass.NOT_CROSSED}


def test_without_variation_or_overlap_there_is_no_correlation() -> None:
    same = panel_of(np.full((3, 5), 4.0))
    assert {entry["note"] for entry in intraclass.correlations(same, seed=0).values()} == {"no variation"}
    assert gwet.coefficients(same, [1, 2, 3, 4], seed=0)["ac2_ordinal"]["value"] == 1.0, "AC2 is defined where alpha is not"
    alone = panel_of(np.array([[1.0, 2.0, 3.0]]))
    assert intraclass.correlations(alone, seed=0)["icc_1_1"]["note"] == "no item was rated twice"
    assert gwet.coefficients(alone, [1, 2, 3, 4], seed=0)["ac1"]["note"] == "no item was rated twice"


def test_items_without_differences_leave_the_mean_undefined() -> None:
    """All item sums are equal, so ICC(3,k) divides by zero, whatever rounding makes of it."""
    for unit in (1.0, 0.1):
        found = intraclass.correlations(panel_of(unit * np.array([[1.0, 1, 2], [1, 2, 1], [2, 1, 1]])), seed=0)
        assert found["icc_3_k"]["value"] is None and found["icc_2_1"]["value"] == pytest.approx(-1)


@given(st.lists(st.lists(st.integers(1, 4), min_size=3, max_size=3), min_size=3, max_size=10), st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_correlations_do_not_depend_on_origin_and_unit(columns: list[list[int]], shift: int) -> None:
    scores = np.array(columns, dtype=float).T
    one, two = (intraclass.correlations(panel_of(values), seed=0) for values in (scores, 10 * scores + shift))
    for name in (*intraclass.ONE_WAY, *intraclass.TWO_WAY):
        assert one[name]["n"] == two[name]["n"]
        if one[name]["value"] is None:
            assert two[name]["value"] is None
        else:
            assert one[name]["value"] == pytest.approx(two[name]["value"], rel=2e-6, abs=2e-6), "published to six digits"
