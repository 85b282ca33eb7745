"""From a folder of triplets to verified shards of the best half, through the Python API of the stages. Read it from top to bottom.

    python examples/curate_my_triplets.py photos/edits.jsonl runs/demo/train-reward/model runs/my-edits

In: a JSON Lines file of ``source``, ``instruction``, ``edited`` with the images beside it, and a reward model's directory. Out: a run
directory with scores, selections, webdataset shards and a quarantine. Run it again to resume: finished work is skipped, also after a kill.
The command line does the same with `pipeline run filter`.
"""

import json
import sys

import webdataset

from stages.config import FlowConfig
from stages.context import Context
from stages.datasets.config import TripletEdits
from stages.engine.cluster import Cluster
from stages.engine.config import RayConfig
from stages.engine.rundir import RunDir
from stages.filter import step as filter
from stages.filter.config import FilterConfig
from stages.filter.selection.config import SelectionConfig
from stages.shards import format as shards
from stages.shards.config import ShardsConfig
from stages.shards.verify import verify

edits, model, run_directory = sys.argv[1:4]

# 1. What is wanted. Every field that is left out has a default; an unknown one is an error.
flow = FlowConfig(
    name="curate-my-triplets",
    ray=RayConfig(dashboard=False),
    filter=FilterConfig(
        input=TripletEdits(dataset="triplets", path=edits),
        model=model,
        selections=(
            SelectionConfig(name="selected", rule="top", fraction=0.5),
            SelectionConfig(name="random", rule="random", fraction=0.5),  # the control: as many, chosen without the model
        ),
        shards=ShardsConfig(samples_per_shard=100),
    ),
)

# 2. Score, select, write shards. The run directory is locked meanwhile; Ray starts only when there is something to do.
with RunDir(run_directory) as run:
    cluster = Cluster(flow.ray)
    try:
        index = filter.run(Context(run, flow, cluster))
    finally:
        cluster.close()
print(f"edits: {index.counts['in']} in, {index.counts['out']} scored, {index.counts['quarantined']} set aside")

# 3. What was set aside, and why. Nothing is dropped silently: in = scored + set aside.
step = run.step(filter.STEP)
for row in step.read("quarantine").to_pylist():
    print(f"  {row['position']}: {row['reason']}, {row['message']}")

# 4. The best of them, from the table of scores.
for row in step.read("scores").sort_by([("overall_mean", "descending")]).slice(0, 3).to_pylist():
    print(f"  sample {row['sample_id']}: {row['overall_mean']:.3f} +- {row['overall_sigma']:.3f}")

# 5. Trust, but verify: every shard against its index, down to the member.
for name in index.results["selections"]:
    folder = step.path / "shards" / name
    problems = verify(str(folder))
    if problems:
        sys.exit("\n".join(problems))
    print(f"{folder}: {json.loads((folder / shards.INDEX).read_text())['rows']} samples, sound")

# 6. Read them as any trainer does.
tars = [str(path) for path in sorted((step.path / "shards" / "selected").glob("*.tar"))]
reader = webdataset.WebDataset(tars, shardshuffle=False).decode("pil")  # ty: ignore[missing-attribute]  (the library fills its names in late)
sample = next(iter(reader))
image = next(value for key, value in sample.items() if key.startswith("edited."))
print(f"first sample: {image.size[0]} x {image.size[1]} pixels, {sample['json']['instruction']!r}")
