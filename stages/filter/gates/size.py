"""Gate: a side of either image is shorter or longer than allowed. Value: the shortest side in pixels; the longest where only that is at
fault."""

from __future__ import annotations

from pydantic import Field

from stages.filter.gates.gate import Finding, Gate, GateConfig

SIDES = "source_width, source_height, edited_width, edited_height"


class SizeGate(GateConfig):
    """A tiny or huge image."""

    shortest_side: int = Field(128, ge=1, description="Pixels that every side of both images has at least")
    longest_side: int = Field(8192, ge=1, description="Pixels that every side of both images has at most")


def decide(config: SizeGate) -> Finding:
    """Tiny or huge; of an edit that is both the shortest side counts."""
    shortest, longest = f"least({SIDES})", f"greatest({SIDES})"
    tiny, huge = f"{shortest} < {config.shortest_side}", f"{longest} > {config.longest_side}"
    value, threshold = (
        f"CASE WHEN {huge} AND NOT {tiny} THEN {high} ELSE {low} END"
        for high, low in ((longest, shortest), (config.longest_side, config.shortest_side))
    )
    return Finding(value, f"{tiny} OR {huge}", threshold)


GATE = Gate(config=SizeGate, description="Tiny and huge images", caption="tiny or huge images, pixels", decide=decide)
