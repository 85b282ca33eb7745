"""Does the small demo show the effect? Loose enough to be stable over seeds, tight enough to fail when something breaks.

python benchmarks/check_small.py runs/demo-small
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(run: Path) -> int:
    """Print each figure with its bound; 1 when one is missed."""
    reward = json.loads((run / "evaluate-reward" / "evaluation.json").read_text())["against"]["truth"]["pair_accuracy"]["overall"]["value"]
    selections = json.loads((run / "filter" / "index.json").read_text())["results"]["selections"]
    good = {name: entry["good_share"] for name, entry in selections.items()}
    editor = json.loads((run / "evaluate-editor" / "evaluation.json").read_text())["differences"]["selected"]["value"]
    checks = [
        ("held-out pair accuracy", reward, 0.65),
        ("good share, selected minus full", good["selected"] - good["full"], 0.08),
        ("benchmark overall, selected minus full", editor, 0.3),
    ]
    for name, value, bound in checks:
        print(f"{'ok    ' if value > bound else 'MISSED'} {name}: {value:.3f} (above {bound})")
    return 0 if all(value > bound for _, value, bound in checks) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
