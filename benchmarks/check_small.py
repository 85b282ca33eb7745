"""Does the small demo show the effect? Loose enough to be stable over seeds, tight enough to fail when something breaks.

The reward model must also be better than closeness to the source, which knows no instruction and no rating.

    python benchmarks/check_small.py runs/demo-small
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from stages.datasets import readers
from stages.engine import storage
from stages.engine.rundir import RunDir
from stages.filter.schemas import SCORED

CLOSENESS = "closeness to the source"


def main(path: Path) -> int:
    """Print each figure with its bound; 1 when one is missed."""
    run = RunDir(path)
    against = storage.read_json(path / "evaluate-reward" / "evaluation.json")["against"]["truth"]
    accuracy, of_closeness = against["pair_accuracy"]["overall"]["value"], against["baselines"][CLOSENESS]["value"]
    step = run.step("filter")
    good = {name: entry["good_share"] for name, entry in step.require().results["selections"].items()}
    selected = step.require().results["selections"]["selected"]["count"]
    closest = good_share_of_closest(step.read("scores", ["sample_id", "change_from_source", "metadata"], SCORED), selected)
    editor = storage.read_json(path / "evaluate-editor" / "evaluation.json")["differences"]["selected"]["value"]
    checks = [
        ("held-out pair accuracy", accuracy, 0.65),
        (f"held-out pair accuracy, reward model minus {CLOSENESS} ({of_closeness:.3f})", accuracy - of_closeness, 0.05),
        ("good share, selected minus full", good["selected"] - good["full"], 0.08),
        (f"good share, selected minus as many by {CLOSENESS} ({closest:.3f})", good["selected"] - closest, 0.03),
        ("benchmark overall, selected minus full", editor, 0.3),
    ]
    for name, value, bound in checks:
        print(f"{'ok    ' if value > bound else 'MISSED'} {name}: {value:.3f} (above {bound})")
    return 0 if all(value > bound for _, value, bound in checks) else 1


def good_share_of_closest(scores: pa.Table, count: int) -> float:
    """Share of good edits among the ``count`` that changed least, by ground-truth quality."""
    ids, change = np.array(scores["sample_id"].to_pylist()), scores["change_from_source"].to_numpy()
    return float(readers.good(scores["metadata"].to_pylist())[np.lexsort((ids, change))[:count]].mean())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
