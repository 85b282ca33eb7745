"""Edits that are kept with their images for the report: the ends of the scores and of the uncertainty, and both sides of a cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

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
COLUMNS = ["sample_id", "overall_mean", "overall_sigma"]


def publish(
    step: StepFolder, rows: ScoredRows, slices: Sequence[edits.Slice], selections: Sequence[SelectionConfig], made: Mapping[str, Path]
) -> list[Part]:
    """The best, the worst and the most uncertain edits, and those around the cut of the main selection: files of selections by name."""
    ids = _chosen(rows, selections, made)
    piece = edits.pick(slices, edits.numbers_of(positions(rows, ids)).tolist())
    table = contracts.table("examples", [edit.row(with_images=True) for edit in edits.fetch_known(piece, ids)])
    return list(publish_unit(step.path, settings_hash("examples", ids), {"examples": table}).values())


def positions(rows: ScoredRows, ids: Sequence[str]) -> pa.ChunkedArray:
    """Where these scored edits are in the data set, in the order of their ids."""
    found: dict[str, str] = {}
    wanted = pa.array(ids, pa.string())
    for batch in rows.read("edits", ["sample_id", "position"]):
        here = batch.filter(pc.is_in(batch["sample_id"], value_set=wanted))
        found |= dict(zip(here["sample_id"].to_pylist(), here["position"].to_pylist(), strict=True))
    return pa.chunked_array([[found[name] for name in ids]], pa.string())


def _chosen(rows: ScoredRows, selections: Sequence[SelectionConfig], made: Mapping[str, Path]) -> list[str]:
    schema = pa.schema([contracts.SCORES.field(name) for name in COLUMNS])
    rows.tables.keep("ends", rows.read("scores", COLUMNS), schema)
    ends = (rows.tables.table(f"SELECT sample_id FROM ends ORDER BY {end}, sample_id LIMIT {EXAMPLES}") for end in ENDS)
    wanted = dict.fromkeys(chain(*(end["sample_id"].to_pylist() for end in ends)))
    main = selection.main(selections)
    if main is not None:
        wanted |= dict.fromkeys(chain(*selection.around_cut(rows, main, made[main.name], EXAMPLES)))
    return list(wanted)
