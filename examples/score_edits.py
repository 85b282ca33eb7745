"""Score edits with a reward model, best first. Uses the library `reward` alone: no Ray, no run directory, no configuration.

    python examples/score_edits.py runs/demo/train-reward/model photos/edits.jsonl

In: a reward model's directory, and a JSON Lines file of ``source``, ``instruction``, ``edited`` with image paths relative to its folder.
Out: a line per edit; for every source and instruction with several edits, how sure the model is of the best one; what cannot be scored.
The cells (# %%) also run one by one in an editor or notebook that knows them: set MODEL and EDITS by hand there.
"""

# %% What to score, and with which model
import json
import sys
from collections import defaultdict
from pathlib import Path

from reward import EditSample, RewardModel, SampleError, preference, score

MODEL, EDITS = (Path(argument) for argument in sys.argv[1:3])

rows = [json.loads(line) for line in EDITS.read_text(encoding="utf-8").splitlines() if line.strip()]
samples = [
    EditSample(
        source=(EDITS.parent / row["source"]).read_bytes(),
        instruction=row["instruction"],
        edited=(EDITS.parent / row["edited"]).read_bytes(),
    )
    for row in rows
]

# %% Score them: a Gaussian per dimension, and of their mean. A damaged sample gets its error instead and costs the others nothing
model = RewardModel.load(MODEL)
results = score(model=model, samples=samples)
scored = [(row, result) for row, result in zip(rows, results, strict=True) if not isinstance(result, SampleError)]
refused = [(row, result) for row, result in zip(rows, results, strict=True) if isinstance(result, SampleError)]

# %% Best first. The zero and the unit of raw scores are free; `likert` is on the raters' scale where the model was calibrated
print("  overall   sigma  " + "  ".join(model.config.dimensions))
for row, result in sorted(scored, key=lambda pair: -pair[1].overall_mean):
    values = result.likert or result.mean
    cells = "  ".join(f"{values[name]:{len(name)}.2f}" for name in model.config.dimensions)
    print(f"{result.overall_mean:9.3f} {result.overall_sigma:7.3f}  {cells}  {row['edited']}: {row['instruction']}")

# %% Scores are meant to compare edits of one source and instruction: how sure is the model of its choice?
groups = defaultdict(list)
for row, result in scored:
    groups[row["source"], row["instruction"]].append((row, result))
for (source, _), group in groups.items():
    if len(group) > 1:
        (best, first), (_, second), *_ = sorted(group, key=lambda pair: -pair[1].overall_mean)
        print(f"best of {len(group)} edits of {source}: {best['edited']}, better than the next with P = {preference(first, second):.2f}")

# %% What has no score, and why
for row, error in refused:
    print(f"no score for {row['edited']}: {error}")
