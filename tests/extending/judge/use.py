"""The new judge is chosen in the configuration; its sub-scores and its refusals are in the step's tables and figures."""

from pathlib import Path

from stages.config import FlowConfig
from stages.engine import storage
from stages.evaluate_editor import generation, judging
from stages.evaluate_editor.evaluation import evaluate
from stages.evaluate_editor.systems import COPY, EXACT, System

chosen = {"items": 3, "judge": {"name": "brightness", "most": 200}, "reference_arm": EXACT, "bootstrap": 100}
flow = FlowConfig.model_validate({"name": "x", "world": {}, "evaluate_editor": chosen})
config = flow.evaluate_editor
assert config is not None and config.model_dump(mode="json")["judge"] == {"name": "brightness", "most": 200}
assert FlowConfig.model_validate(flow.model_dump(mode="json")) == flow

edits = {}
for name, kind in ((COPY, "copy"), (EXACT, "exact")):
    made = generation.make_work(flow)(generation.Piece(System(name, kind, name), 0, 3))
    storage.publish_bytes(f"{name}.parquet", storage.table_bytes(made.tables["benchmark_edits"]))
    output = judging.make_work(flow, config.judge, Path("replies"))(judging.JudgingPiece(f"{name}.parquet", 0, 3))
    verdicts, subscores = (output.tables[name] for name in ("verdicts", "subscores"))
    assert subscores["subscore"].to_pylist() == ["brightness"] * 3 and verdicts["raw"][0].as_py()
    edits |= judging.judged_edits(verdicts, subscores)
found = evaluate(edits, config, config.judge, seed=0)
assert found["judge"] == {"name": "brightness", "revision": "brightness 1, 200"}
assert 0 < found["arms"][COPY]["brightness"] <= 10 and found["arms"][COPY]["failed"] == 0
