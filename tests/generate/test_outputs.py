"""What is measured of an edit, whatever editor made it."""

from __future__ import annotations

from PIL import Image

from stages.editors.config import OutputsConfig
from stages.editors.editor import Edited, EditRequest
from stages.generate.outputs import Outputs


def test_small_drawings_are_not_measured_and_another_size_is_always_found() -> None:
    outputs, policy = Outputs(), OutputsConfig().policy
    gradient = Image.linear_gradient("L").convert("RGB")
    for side, flags in ((32, []), (64, ["black"])):
        measured = outputs.measure(EditRequest(gradient.resize((side, side)), "a", 0), Edited(Image.new("RGB", (side, side))))
        assert (
            measured.flags == flags
            and policy(measured.flags) == ("new-seed" if flags else "keep")
            and bool(measured.measures["measures"]) == bool(flags)
        )
    other = outputs.measure(EditRequest(gradient.resize((32, 32)), "a", 0), Edited(gradient.resize((32, 16))))
    assert (other.flags, policy(other.flags)) == (["wrong-size"], "drop")
    returned = outputs.measure(EditRequest(gradient, "a", 0), Edited(gradient, record=(("returned", [512, 512]),)))
    assert "wrong-size" in returned.flags and policy(returned.flags) == "drop"


def test_shift_and_zoom_are_recorded() -> None:
    source = Image.radial_gradient("L").convert("RGB")
    source.paste((200, 30, 30), (40, 60, 90, 140))
    moved = Image.new("RGB", source.size, (128, 128, 128))
    moved.paste(source, (6, 0))
    measures = Outputs().measure(EditRequest(source, "a", 0), Edited(moved)).measures
    assert abs(measures["shift"][0] - 6) < 1 and abs(measures["shift"][1]) < 1 and abs(measures["zoom"] - 1) < 0.02
