"""The new judge is chosen in the configuration; its sub-scores and its refusals are in the step's tables and figures."""

from pathlib import Path

from stages.config import FlowConfig
from stages.evaluate_editor.step import COPY, EXACT, _Slice, evaluate, judged_edits, make_work

chosen = {"items": 3, "judge": {"name": "brightness", "most": 200}, "reference_arm": EXACT, "bootstrap": 100}
flow = FlowConfig.model_validate({"name": "x", "world": {}, "evaluate_editor": chosen})
config = flow.evaluate_editor
assert config is not None and config.model_dump(mode="json")["judge"] == {"name": "brightness", "most": 200}
assert FlowConfig.model_validate(flow.model_dump(mode="json")) == flow

output = make_work(Path("editors"), flow)(_Slice(COPY, 0, 3))
verdicts, subscores = (output.tables[name] for name in ("verdicts", "subscores"))
assert subscores["subscore"].to_pylist() == ["brightness"] * 3 and verdicts["raw"][0].as_py()
found = evaluate(judged_edits(verdicts, subscores), config, seed=0)
assert found["judge"] == {"name": "brightness", "revision": "brightness 1, 200"}
assert 0 < found["arms"][COPY]["brightness"] <= 10 and found["arms"][COPY]["failed"] == 0
