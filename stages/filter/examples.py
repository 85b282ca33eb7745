"""Edits that are kept with their images for the report: the ends of the scores and of the uncertainty, and both sides of a cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import pyarrow as pa

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
    return list(publish_unit(step.path, settings_hash("examples", ids), {"examples": read(rows, slices, ids)}).values())


def read(rows: ScoredRows, slices: Sequence[edits.Slice], ids: Sequence[str]) -> pa.Table:
    """Scored edits with their images, in the order of their ``ids``, read from the data set again."""
    wanted = "SELECT unnest($1) AS sample_id, generate_subscripts($1, 1) AS place"
    found = rows.tables.table(f"SELECT number FROM scored JOIN ({wanted}) USING (sample_id) ORDER BY place", [ids])
    piece = edits.pick(slices, found["number"].to_pylist())
    return contracts.table("examples", [edit.row(with_images=True) for edit in edits.fetch_known(piece, ids)])


def _chosen(rows: ScoredRows, selections: Sequence[SelectionConfig], made: Mapping[str, Path]) -> list[str]:
    ends = (rows.tables.table(f"SELECT sample_id FROM scored ORDER BY {end}, sample_id LIMIT {EXAMPLES}") for end in ENDS)
    wanted = dict.fromkeys(chain(*(end["sample_id"].to_pylist() for end in ends)))
    main = selection.main(selections)
    if main is not None:
        wanted |= dict.fromkeys(chain(*selection.around_cut(rows, main, made[main.name], EXAMPLES)))
    return list(wanted)
