"""The sources: slices of a data set in, the table ``sources`` and the quarantine out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from stages.context import Context
from stages.datasets import readers
from stages.datasets.config import VALIDATION_SHARE, SourcesInput, TableSources
from stages.datasets.slices import Slice
from stages.engine import contracts
from stages.engine.contracts import Quarantined
from stages.engine.ids import settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import Part, StepFolder
from stages.engine.units import Done, Unit, UnitOutput, Work
from stages.generate.rows import source_row


def make_sources(context: Context, folder: StepFolder, config: SourcesInput, pieces: Sequence[Slice], workers: int) -> Done:
    """The sources of all slices. Raises ``ValueError`` when rows are listed twice, or two are the same source."""
    units = [Unit(unit_key(piece, config), piece, len(piece.rows)) for piece in pieces]
    (twice, times), *_ = Counter(unit.key for unit in units).most_common(1)
    if times > 1:
        location = next(unit.payload.location for unit in units if unit.key == twice)
        raise ValueError(f"generate.sources: the same rows of {location} are listed {times} times; name each table once")
    work = partial(make_work, config)
    made = run_units(folder, units, work, cluster=context.cluster, workers=workers, phase="sources", rows_are="sources")
    _reject_duplicates(folder, made.artifacts())
    return made


def unit_key(piece: Slice, config: SourcesInput) -> str:
    """Name of a slice. A fingerprint is of the text of the rows: where their images are, and the split, come on top.

    A reader that states the content of its rows needs neither.
    """
    beside = () if piece.content is not None else (piece.location, piece.images, _validation_share(config))
    return settings_hash("sources", piece.fingerprint, *beside)


def make_work(config: SourcesInput) -> Work:
    """The work of a slice: its sources, all of which can be decoded."""

    def work(piece: Slice) -> UnitOutput:
        rows, quarantine = [], []
        for entry in readers.load(piece):
            if isinstance(entry, Quarantined):
                quarantine.append(entry)
            else:
                rows.append(source_row(entry, _validation_share(config)))
        tables = {"sources": contracts.table("sources", rows)}
        return UnitOutput(tables, rows_in=len(piece.rows), rows_out=len(rows), quarantine=quarantine)

    return work


def _validation_share(config: SourcesInput) -> float:
    return config.validation_share if isinstance(config, TableSources) else VALIDATION_SHARE


def _reject_duplicates(folder: StepFolder, artifacts: Mapping[str, Sequence[Part]]) -> None:
    """Raise ``ValueError`` when two rows are the same source, since their candidates would have the same ids."""
    seen: set[str] = set()
    rows = folder.read_table("sources", artifacts["sources"], ["source_id", "instruction"])
    for source_id, instruction in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        if source_id in seen:
            raise ValueError(f"generate.sources: two rows have the same image and the instruction {instruction!r}; remove one")
        seen.add(source_id)
