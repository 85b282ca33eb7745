"""Time and memory to plan the candidates of the paper's sources: 9,557 sources, 12 candidates of each by six editors.

    python benchmarks/candidate_plan.py

First `pipeline plan` on a table of that many rows. Then what the driver does for them: units of every editor, seeds and ids of all
candidates, and the draw of seven per source. Beside the wall time stands that of the processor, which does not depend on what else the
machine does. Exits with 1 when either takes ten seconds or 500 MB.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES, PER_SOURCE = 9557, 12
EDITORS = [f"world/{name}" for name in ("quill", "lathe", "bobbin", "trowel", "thimble", "anvil")]
SECONDS, MEGABYTES = 10.0, 500.0


def main() -> int:
    if "--child" in sys.argv:
        plan_here(Path(sys.argv[-1]))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        rows = (json.dumps({"image": f"{number}.jpg", "instruction": f"make object {number} larger"}) for number in range(SOURCES))
        (path / "sources.jsonl").write_text("\n".join(rows))
        sources = {"dataset": "table", "tables": [{"name": "paper", "path": str(path / "sources.jsonl"), "expected": SOURCES}]}
        generate = {"sources": sources, "editors": [{"name": name} for name in EDITORS]}
        (path / "x.yaml").write_text(json.dumps({"name": "x", "world": {}, "generate": generate}))
        plan = measured([sys.executable, "-m", "pipeline.cli", "plan", "--config", str(path / "x.yaml"), "--run", str(path / "run")])
        driver = measured([sys.executable, __file__, "--child", str(path / "x.yaml")])
    for what, (seconds, busy, megabytes) in (("pipeline plan", plan), ("driver", driver)):
        print(f"{what}: {seconds:.1f} s, of the processor {busy:.1f} s, {megabytes:.0f} MB for {SOURCES * PER_SOURCE:,} edits")
    return 1 if any(seconds >= SECONDS or megabytes >= MEGABYTES for seconds, _, megabytes in (plan, driver)) else 0


def plan_here(path: Path) -> None:
    """Units, ids and draw, as the step makes them."""
    from itertools import count

    import pyarrow as pa

    from pipeline import config
    from stages.context import Context
    from stages.datasets import readers
    from stages.engine import contracts, storage
    from stages.engine.cluster import Cluster
    from stages.engine.config import RayConfig
    from stages.engine.rundir import Part, RunDir
    from stages.generate import draw, edit_units
    from stages.generate.candidate_plan import planned

    flow = config.load(path).flow
    assert flow.generate is not None
    pieces = readers.plan(
        flow.generate.sources, seed=0, world=None, unit_rows=flow.generate.unit_sources, key="generate.sources", edited=False
    )
    context = Context(RunDir(path.parent / "run"), flow, Cluster(RayConfig()))
    folder = context.run.step("generate")
    editors = planned(flow)
    numbers = count()
    sources = []
    for number, piece in enumerate(pieces):  # published without images, which the driver does not read
        ids = [f"{next(numbers):024x}" for _ in piece.rows]
        rows = [{"source_id": name, "dataset": "paper", "metadata": "{}"} for name in ids]
        table = pa.Table.from_pylist(rows, pa.schema([contracts.SCHEMAS["sources"].field(name) for name in rows[0]]))
        part = Part(f"units/{number}/sources.parquet", len(rows), f"{number:064x}")
        storage.publish_bytes(folder.path / part.path, storage.table_bytes(table))
        sources.append(edit_units.listed(folder, part))
    units = [unit for editor in editors for unit in edit_units.of_plan(context, folder, flow.generate, editor, sources)]
    print(f"{len(units):,} units", file=sys.stderr)
    assert len({unit.key for unit in units}) == len(units) and sum(unit.rows for unit in units) == SOURCES * PER_SOURCE
    made = [
        draw.Sound(f"{number:024x}", editor.candidate_id(f"{number:024x}", seed), editor.spec.name)
        for editor in editors
        for number in range(SOURCES)
        for seed in editor.seeds(0, f"{number:024x}")
    ]
    drawn = draw.table(draw.draw(made, 7, 0))
    assert drawn.num_rows == 7 * SOURCES


def measured(command: list[str]) -> tuple[float, float, float]:
    """Seconds, those of the processor, and the most resident memory in MB of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    seconds = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, busy, max(before.ru_maxrss, after.ru_maxrss) / 1024


if __name__ == "__main__":
    sys.exit(main())
