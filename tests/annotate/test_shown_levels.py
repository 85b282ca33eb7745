"""The levels that tables show of a fine scale."""

import numpy as np

from stages.annotate.ratings.shown_levels import nearest, note, shown_levels, summed


def test_a_fine_scale_is_shown_at_five_levels() -> None:
    scale = [float(level) for level in range(101)]
    assert shown_levels(scale) == [0, 25, 50, 75, 100] and note(scale)
    assert nearest(np.array([[0, 12], [13, 88]]), shown_levels(scale)).tolist() == [[0, 0], [1, 4]]
    given = np.zeros((101, 101))
    given[12, 13] = given[87, 99] = given[88, 50] = 1
    assert summed(given.tolist(), scale)[[0, 3, 4], [1, 4, 2]].tolist() == [1, 1, 1] and summed(given, scale).sum() == 3
    assert summed(np.ones(101), scale).tolist() == [13, 25, 25, 25, 13]
    coarse = [float(level) for level in range(11)]
    assert shown_levels(coarse) == coarse and not note(coarse) and summed(np.eye(11), coarse).tolist() == np.eye(11).tolist()
