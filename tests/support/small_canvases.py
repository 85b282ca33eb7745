"""Canvases of about 96² pixels in place of one megapixel, here and in the pipelines of diffusers, whose area is written into their code."""

from __future__ import annotations

import pytest
from diffusers.pipelines.longcat_image import pipeline_longcat_image_edit
from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit, pipeline_qwenimage_edit_plus

from stages.editors import canvas_rules

AREA = 96 * 96


def shrink(patch: pytest.MonkeyPatch) -> None:
    """Until the patch is undone."""
    share = AREA / canvas_rules.MEGAPIXEL
    for module in (pipeline_longcat_image_edit, pipeline_qwenimage_edit, pipeline_qwenimage_edit_plus):
        of_area = module.calculate_dimensions
        patch.setattr(module, "calculate_dimensions", lambda area, ratio, of_area=of_area: of_area(area * share, ratio))
    patch.setattr(canvas_rules, "MEGAPIXEL", AREA)
    patch.setattr(canvas_rules, "KONTEXT_SIZES", ((64, 144), (96, 96), (128, 64)))
