"""The paper's table of fine-tuned editors."""

import pytest

from finetune.published import CN_FULL_BASE_V1_0, COLUMNS, TABLE_3


def test_published_rows_and_the_wrong_cell():
    """Table 3's figures that the paper's text repeats, and the base cell that equals another version's line."""
    base, full, top = (TABLE_3[row]["EN full"].overall for row in TABLE_3)
    assert (base, full, top) == (6.444, 6.780, 7.086)
    assert all(tuple(row) == COLUMNS for row in TABLE_3.values())
    shown = TABLE_3["Step1X-Edit"]["CN full"]
    assert shown.overall == 6.983 and CN_FULL_BASE_V1_0.overall == 6.658
    top_cn = TABLE_3["Step1X-Edit + ShareGPT-4o-Image, top 20K by EditReward"]["CN full"]
    assert top_cn.overall - CN_FULL_BASE_V1_0.overall == pytest.approx(0.343)
    assert top_cn.overall - shown.overall == pytest.approx(0.018)


def test_published_perceptual_quality_falls_against_the_base_in_every_column():
    """The caveat in the docstring, with v1.0's own line in the wrong cell's place."""
    base, *finetuned = TABLE_3.values()
    for column in COLUMNS:
        before = CN_FULL_BASE_V1_0 if column == "CN full" else base[column]
        assert all(row[column].perceptual_quality < before.perceptual_quality for row in finetuned)
