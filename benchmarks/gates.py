"""Recall and false positives of the filter's gates at their default thresholds, on defects planted into sound edits.

    python benchmarks/gates.py                                # real triplets, and the toy world
    python benchmarks/gates.py --triplets PATH --no-write

Prints a table per data set and writes both into benchmarks/RESULTS.md between its markers. Recall is the share of planted edits that the
gate catches; false positives are the sound edits that it catches. Intervals are Wilson's at 95 % over edits, which are not independent
where they share a source. Without the real triplets only the toy world is measured.
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import results
from benchmarks.planted_defects import PLANTED, drawn_edits, nameless, real_triplets
from stages.datasets.readers import Edit
from stages.engine import contracts, tables
from stages.filter import decide as gates
from stages.filter import inspection
from stages.filter.gates.config import GATES, GatesConfig
from stages.filter.gates.language import LanguageGate
from stages.filter.gates.size import SizeGate
from stages.filter.gates.source_reuse import SourceReuseGate
from stages.filter.pair import Pair
from stages.filter.schemas import INSPECTED

ROOT = Path(__file__).resolve().parent.parent
DRAWN, DRAWN_SIDE = 300, 128
CHOSEN_ON = ("anyedit", "magicbrush")
"""Data sets on which the thresholds of the gates in ``SPLIT`` were chosen."""
SPLIT = ("flat", "unrelated", "unchanged", "drift")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triplets", type=Path, default=ROOT.parent / "shared" / "data" / "triplets", help="folder of real triplets")
    parser.add_argument("--drawn", type=int, default=DRAWN, help="edits of the toy world")
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="write the tables into RESULTS.md")
    options = parser.parse_args()
    parts = [
        f"Command: `python benchmarks/gates.py`\nMeasured {datetime.now(UTC):%Y-%m-%d} on {platform.machine()}, "
        f"Python {platform.python_version()}."
    ]
    if options.triplets.is_dir():
        sound = real_triplets(options.triplets)
        config = GatesConfig(language=LanguageGate(languages=("en", "cn")))
        parts.append(f"{len(sound)} real triplets:\n\n{table(sound, config)}")
        parts.append(
            "By data set, of the gates whose thresholds and word lists were chosen on AnyEdit and MagicBrush alone and frozen before the "
            f"others were looked at:\n\n{by_set(sound, config)}"
        )
    else:
        print(f"no real triplets at {options.triplets}: only the toy world is measured")
    world = drawn_edits(options.drawn, DRAWN_SIDE)
    parts.append(f"{len(world)} exact edits of the toy world, {DRAWN_SIDE} x {DRAWN_SIDE} pixels:\n\n{table(world, GatesConfig())}")
    text = "\n\n".join(parts)
    print(text)
    if options.write:
        results.write("gates", text)
    return 0


def table(sound: Sequence[Edit], config: GatesConfig) -> str:
    """Markdown table of all gates on one set of sound edits."""
    started = time.process_time()
    rows = inspected(sound)
    cost = (time.process_time() - started) / len(sound)
    without_names = inspected(nameless(sound))
    lines = ["| gate | planted | recall | sound edits caught |", "| --- | --- | --- | --- |"]
    clean = {name: caught(rows, config, name) for name in GATES if name != "near_embedding"}
    seen: set[str] = set()
    for gate, what, plant in PLANTED:
        planted = inspected(plant(sound))
        if gate == "near_duplicate":
            found = caught(pa.concat_tables([rows, planted]), config, gate)[rows.num_rows :]
        elif gate == "language":
            found = caught(planted, config.model_copy(update={"language": LanguageGate()}), gate)
        else:
            found = caught(planted, config, gate)
        negatives = caught(without_names, config, gate) if what == "exchanged, no file names" else clean[gate]
        repeat = gate in seen and what != "exchanged, no file names"
        lines.append(f"| {gate} | {what} | {share(found)} | {'as above' if repeat else share(negatives)} |")
        seen.add(gate)
    reuse = pa.concat_tables([rows.slice(0, 1)] * 30)
    found = caught(reuse, config, "source_reuse")[SourceReuseGate().edits :]
    lines.append(f"| source_reuse | 30 edits of one source: the 11th and later | {share(found)} | {share(clean['source_reuse'])} |")
    huge = rows.set_column(
        rows.schema.get_field_index("edited_width"), "edited_width", pa.array([SizeGate().longest_side + 1] * len(rows), pa.int32())
    )
    lines.insert(3, f"| size | edit wider than 8,192 pixels | {share(caught(huge, config, 'size'))} | as above |")
    return "\n".join(lines) + f"\n\nInspection took {1000 * cost:.1f} ms of one core per edit."


def by_set(sound: Sequence[Edit], config: GatesConfig) -> str:
    """Markdown table of the split gates per data set; the sets that were looked at first."""
    sets = [*CHOSEN_ON, *sorted({edit.task for edit in sound} - set(CHOSEN_ON))]
    places = {name: [place for place, edit in enumerate(sound) if edit.task == name] for name in sets}
    clean = inspected(sound)
    heads = [f"{name} ({len(places[name])}{', chosen on' if name in CHOSEN_ON else ''})" for name in sets]
    lines = [f"| gate | planted | {' | '.join(heads)} |", f"| --- | --- |{' --- |' * len(sets)}"]
    for gate in SPLIT:
        kinds = [("nothing (sound)", clean), *((what, inspected(plant(sound))) for name, what, plant in PLANTED if name == gate)]
        for what, rows in kinds:
            if len(rows) == len(sound):
                found = caught(rows, config, gate)
                cells = (f"{int(found[place].sum())} of {len(place)}" for place in places.values())
                lines.append(f"| {gate} | {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def inspected(edits: Sequence[Edit]) -> pa.Table:
    """The artifact ``inspected`` of edits that can all be read."""
    pairs = [pair for edit in edits if isinstance(pair := inspection.pair_of(edit), Pair)]
    assert len(pairs) == len(edits), "a planted edit cannot be read"
    return contracts.table("inspected", [inspection.row_of(pair) for pair in pairs], INSPECTED)


def caught(rows: pa.Table, config: GatesConfig, gate: str) -> np.ndarray:
    """Which rows a gate catches, bool [n]."""
    off = {name: {"action": "off"} for name in GATES}
    alone = GatesConfig.model_validate(off | {gate: getattr(config, gate).model_dump() | {"action": "drop"}})
    places = pa.array([f"planted[{number}]" for number in range(len(rows))], pa.string())  # planted rows have the positions of sound ones
    rows = rows.set_column(rows.schema.get_field_index("position"), "position", places)
    with tempfile.TemporaryDirectory() as folder, tables.opened(folder) as database:
        database.keep("inspected", rows.to_batches(), rows.schema)
        gates.read(database, alone)
        database.execute("CREATE TABLE copies (number BIGINT)")
        gates.decide(database, alone)
        return np.isin(np.arange(len(rows)), database.table("SELECT number FROM gone")["number"].to_numpy())


def share(found: np.ndarray) -> str:
    """Share with its interval by Wilson (1927)."""
    count, hits, z = len(found), int(found.sum()), 1.959964
    middle = (hits + z * z / 2) / (count + z * z)
    half = z / (count + z * z) * math.sqrt(hits * (count - hits) / count + z * z / 4)
    return f"{hits}/{count} = {hits / count:.2f} [{max(0.0, middle - half):.2f}, {min(1.0, middle + half):.2f}]"


if __name__ == "__main__":
    sys.exit(main())
