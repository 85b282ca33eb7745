"""What the model of a run is trained on, read from the run: domain and data sets of its sources, its raters, and the days of rating."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import pyarrow.compute as pc

from reward.model.origin import Origin
from stages.datasets.readers import domain_of
from stages.engine import steps
from stages.engine.rundir import RunDir

IMPORTED = "imported:"
"""How the annotator of ratings begins whose raters are not published."""


def origin_of(run: RunDir, source_ids: Collection[str]) -> Origin:
    """The origin of a model that is trained on the rated groups of these sources."""
    table = (
        run.step(steps.GENERATE).read("sources", ["source_id", "dataset", "benchmark"]).filter(pc.field("source_id").isin(list(source_ids)))
    )
    datasets, benchmarks = Counter(table["dataset"].to_pylist()), Counter(table["benchmark"].to_pylist())
    annotate = run.step(steps.ANNOTATE)
    ratings = annotate.read("ratings", ["source_id", "annotator", "rated_at"]).filter(pc.field("source_id").isin(list(source_ids)))
    simulated = {file.stem for file in (annotate.path / "simulated").glob("*.csv")}
    raters = Counter(
        "simulated" if name in simulated else "imported" if name.startswith(IMPORTED) else "people"
        for name in sorted(pc.unique(ratings["annotator"]).to_pylist())
    )
    days = sorted({time[:10] for time in pc.unique(ratings["rated_at"]).to_pylist() if time})
    return Origin(
        domains=tuple(sorted({domain for name in datasets if (domain := domain_of(name))})),
        data=dict(sorted(datasets.items())),
        benchmarks={name: count for name, count in sorted(benchmarks.items()) if name},
        raters=dict(sorted(raters.items())),
        rated=(days[0], days[-1]) if days else None,
    )
