"""The configuration knows the new benchmark's name; the step loads it, and its figures are those of its rule."""

import json
from pathlib import Path

from benchmark_copies import judged, save_images

from reward.benchmarks.names import benchmark
from stages.config import FlowConfig
from stages.evaluate_reward import benchmarks

save_images(Path("copy"), [1, 2, 11, 12, 21, 22])
records = [
    {"source": f"images/{n}.png", "instruction": "do", "first": f"images/{n}1.png", "second": f"images/{n}2.png", "vote": vote}
    for n, vote in ((1, 1), (2, -1))
]
Path("copy/votes.json").write_text(json.dumps(records))
entry = {"name": "votes-in-json", "path": "copy", "revision": "1"}
config = FlowConfig.model_validate({"name": "x", "evaluate_reward": {"benchmarks": [entry]}}).evaluate_reward
assert list(benchmarks.inputs(config)) == ["benchmark votes-in-json"]

module = benchmark(config.benchmarks[0].name)
items = module.load("copy")
result = module.evaluate(items, judged(items, {11: 2.0, 12: 1.0, 21: 2.0, 22: 1.0}, change=1.0), bootstrap=benchmarks.Bootstrap(100))
assert result.model.published["without ties, equal scores wrong"].value == 0.5
assert b'"right"' in benchmarks._lines(items, judged(items, {11: 2.0, 12: 1.0, 21: 2.0, 22: 1.0}), result)
