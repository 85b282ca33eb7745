"""Edits that are kept with their images for the report: the ends of the scores and of the uncertainty, and both sides of a cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from stages.datasets import readers as edits
from stages.engine import contracts
from stages.engine.ids import settings_hash
from stages.engine.rundir import Part, StepFolder
from stages.engine.units import publish_unit
from stages.filter.selection import rule as selection
from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.scored_rows import ScoredRows

EXAMPLES = 12
"""Edits at each end, and on both sides of the main selection's cut."""
ENDS = ("overall_mean DESC", "overall_mean", "overall_sigma DESC")


def publish(
    step: StepFolder, rows: ScoredRows, slices: Sequence[edits.Slice], selections: Sequence[SelectionConfig], made: Mapping[str, Path]
) -> list[Part]:
    """The best, the worst and the most uncertain edits, and those around the cut of the main selection: files of selections by name."""
    ids = _chosen(rows, selections, made)
    found = rows.tables.table("SELECT sample_id, number FROM scored SEMI JOIN (SELECT unnest(?) AS sample_id) USING (sample_id)", [ids])
    numbers = dict(zip(*(column.to_pylist() for column in found.columns), strict=True))
    piece = edits.pick(slices, [numbers[name] for name in ids])
    table = contracts.table("examples", [edit.row(with_images=True) for edit in edits.fetch_known(piece, ids)])
    return list(publish_unit(step.path, settings_hash("examples", ids), {"examples": table}).values())


def _chosen(rows: ScoredRows, selections: Sequence[SelectionConfig], made: Mapping[str, Path]) -> list[str]:
    ends = (rows.tables.table(f"SELECT sample_id FROM scored ORDER BY {end}, sample_id LIMIT {EXAMPLES}") for end in ENDS)
    wanted = dict.fromkeys(chain(*(end["sample_id"].to_pylist() for end in ends)))
    main = selection.main(selections)
    if main is not None:
        wanted |= dict.fromkeys(chain(*selection.around_cut(rows, main, made[main.name], EXAMPLES)))
    return list(wanted)
