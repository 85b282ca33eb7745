"""The measures of `my_measures` are named in the configuration; no file of the product is touched."""

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from my_measures import moved_outside

from stages.config import FlowConfig
from stages.engine import storage
from stages.evaluate_editor import generation, measuring
from stages.evaluate_editor.judging import JudgingPiece
from stages.evaluate_editor.systems import COPY, EXACT, System

measures = [{"name": name, "function": f"my_measures:{name}", "version": "1"} for name in ("moved_outside", "same_subject")]
chosen = {"items": 3, "measures": measures, "reference_arm": EXACT}
flow = FlowConfig.model_validate({"name": "x", "world": {}, "evaluate_editor": chosen})
config = flow.evaluate_editor
assert config is not None
measuring.check(config)
means = {}
for name, kind in ((COPY, "copy"), (EXACT, "exact")):
    made = generation.make_work(flow)(generation.Piece(System(name, kind, name), 0, 3))
    storage.publish_bytes(f"{name}.parquet", storage.table_bytes(made.tables["benchmark_edits"]))
    for measure in config.measures:
        work = measuring.make_work(flow, measure.name, partial(measuring.of_function, measure))
        means |= {(measure.name, name): measuring.means(work(JudgingPiece(f"{name}.parquet", 0, 3)).tables["measures"])[measure.name][name]}
assert means["moved_outside", COPY] == means["moved_outside", EXACT] == {"mean": 0.0, "n": 3}
assert means["same_subject", COPY]["n"] == 0 and 0.5 < means["same_subject", EXACT]["mean"] < 1
source = np.full((16, 16, 3), 128, np.uint8)
edited, left = source.copy(), np.zeros((16, 16), bool)
edited[:, 8:], left[:, :8] = 255, True
assert moved_outside(source, edited, left) > 0.01 and moved_outside(source, edited, ~left) == 0
