"""Time of quality control of the paper's volume of ratings, and of its parts.

    python benchmarks/qc_speed.py

9,557 groups of 7 candidates in two dimensions by 20 annotators, every fifth group by two of them (EditReward, section 2.1, with the overlap
of docs/annotation-quality.md): about 160,000 ratings, among them those of a random clicker. Goes the way of `pipeline annotate qc` on a run
directory: the ledger is read, everything is judged and written, the page is drawn. Ingest is not part of it. Puts the table between the
markers of benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests" / "support"))

from simulated_project import Rater, project  # noqa: E402  # ty: ignore[import-not-found]

from benchmarks import results  # noqa: E402
from pipeline.report import quality_page  # noqa: E402
from stages.annotate.config import AnnotateConfig  # noqa: E402
from stages.annotate.quality import step as annotation_qc  # noqa: E402
from stages.config import FlowConfig  # noqa: E402
from stages.context import Context  # noqa: E402
from stages.engine import contracts  # noqa: E402
from stages.engine.cluster import Cluster  # noqa: E402
from stages.engine.config import RayConfig  # noqa: E402
from stages.engine.rundir import Index, RunDir  # noqa: E402
from stages.engine.units import publish_unit  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=9557)
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/RESULTS.md")
    options = parser.parse_args()
    raters = {f"a{n:02}": Rater() for n in range(19)} | {"clicker": Rater(kind="random")}
    ratings = project(raters, groups=options.groups, raters_per_group=(2, 1, 1, 1, 1))
    with tempfile.TemporaryDirectory() as folder:
        context = run_of(Path(folder), ratings)
        started = time.monotonic()
        index = annotation_qc.run(context)
        judged = time.monotonic() - started
        quality_page.build(context.run)
        drawn = time.monotonic() - started - judged
        page = (context.run.step(annotation_qc.STEP).path / quality_page.NAME).stat().st_size
    assert index.results["removed"] == ["clicker"]
    lines = [
        "| ratings | groups | annotators | judging | page | page size | peak memory |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        f"| {len(ratings):,} | {options.groups:,} | {len(raters)} | {judged:.1f} s | {drawn:.1f} s | {page / 1024:.0f} KiB "
        f"| {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB |",
    ]
    print("\n".join(lines))
    if options.write:
        results.write("qc-speed", "\n".join(lines))


def run_of(path: Path, ratings: pa.Table) -> Context:
    """A run directory with these ratings in its ledger, and the candidates that they are of (without images)."""
    context = Context(RunDir(path), FlowConfig(name="speed", annotate=AnnotateConfig()), Cluster(RayConfig()))
    generate, annotate = context.run.step("generate"), context.run.step("annotate")
    items = ratings.select(["source_id", "candidate_id"]).group_by(["source_id", "candidate_id"], use_threads=False).aggregate([])
    rows = [contracts.candidate(**row, editor="") for row in items.to_pylist()]
    tables = {"candidates": contracts.table("candidates", rows), "drawn": items.cast(contracts.SCHEMAS["drawn"])}
    made = publish_unit(generate.path, "unit", tables)
    generated = generate.publish(Index("generate", "key", {}, {}, artifacts={name: [part] for name, part in made.items()}))
    part = publish_unit(annotate.path, "unit", {"ratings": ratings})
    annotate.publish(
        Index(
            "annotate", "key", {}, {"generate": generated.fingerprint}, artifacts={"ratings": [part["ratings"]]}, results={"agreement": {}}
        )
    )
    return context


if __name__ == "__main__":
    main()
