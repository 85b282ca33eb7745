"""Which steps hold the images of a data set: the memory of each on a run, and on one of four times as many groups.

    python benchmarks/image_memory.py --folder /tmp/feed --groups 300 1200

The folder gets the run directories of `image_feed.py`, with 8 images of about 170 KB per group. Each figure is of a process of its own that
does the reading of images of a step: its highest memory above what it had with everything imported. A step that holds images needs four
times as much in the second column; one that holds a batch or a unit of work needs the same. Prints a Markdown table. Linux only.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from benchmarks.image_feed import made_run, memory, sleeping
from pipeline.report.published import Published
from pipeline.report.sections.samples import section as samples
from reward.evaluation.baselines import closeness_scores
from reward.evaluation.evaluate import predict_groups
from reward.inputs.decoding import encoded
from stages.annotate import step as annotate
from stages.annotate.page import packet as page
from stages.config import FlowConfig
from stages.contamination import references
from stages.context import Context
from stages.engine import steps
from stages.engine.cluster import Cluster
from stages.engine.config import RayConfig
from stages.engine.rundir import RunDir
from stages.evaluate_reward.leaks import training_sources
from stages.preferences.groups import load_groups
from stages.preferences.layouts.content import Content


def rank(run: RunDir) -> object:
    """Every rank of train-reward, and the driver of evaluate-reward."""
    return load_groups(run, "train"), load_groups(run, "validation")


def validation(run: RunDir) -> object:
    """Every rank when it validates, and the calibration."""
    return predict_groups(model=sleeping(0.0), groups=load_groups(run, "validation"))


def record(run: RunDir) -> object:
    """What a model is saved with."""
    seen = ((group.source_id, encoded(group.source), group.instruction) for group in load_groups(run, "train"))
    with tempfile.TemporaryDirectory() as model:
        return references.publish_training(Path(model), seen)


def exported(run: RunDir) -> object:
    """`annotate export`, then the rating page's start."""
    annotate.export(Context(run, FlowConfig(name="memory"), Cluster(RayConfig())))
    return page.load(run.path / steps.ANNOTATE)


def layouts(run: RunDir) -> object:
    """`preferences export`, the images of the candidates."""
    content = Content(run)
    return content, deque(content.images("candidates", "candidate_id", set(content.candidates)), maxlen=1)


STEPS: dict[str, Callable[[RunDir], object]] = {
    "groups loaded": rank,
    "validation, calibration": validation,
    "record of the sources trained on": record,
    "evaluation: trivial baselines": lambda run: closeness_scores(load_groups(run, "validation")),
    "evaluation: leaks of benchmarks": training_sources,
    "annotate export, rating page": exported,
    "preferences export": layouts,
    "report: samples": lambda run: samples(Published(run)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--groups", type=int, nargs="+", default=[300, 1200])
    parser.add_argument("--measure", choices=STEPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    runs = [made_run(options.folder, groups) for groups in options.groups]
    if options.measure is not None:
        print(peak(STEPS[options.measure], RunDir(runs[0])))
        return
    print("| step | " + " | ".join(f"{groups:,} groups" for groups in options.groups) + " |\n| --- |" + " --- |" * len(runs))
    for name in STEPS:
        cells = []
        for groups in options.groups:
            command = [sys.executable, sys.argv[0], "--folder", str(options.folder), "--groups", str(groups), "--measure", name]
            found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
            cells.append(f"{int(found) / 1e6:,.0f} MB")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def peak(step: Callable[[RunDir], object], run: RunDir) -> int:
    """Highest memory while a step runs, above what there was before."""
    sleeping(0.0)  # imports
    before, highest, ended = memory(), [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            highest[0] = max(highest[0], memory())

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    result = step(run)
    highest[0] = max(highest[0], memory())
    ended.set()
    watching.join()
    del result
    return highest[0] - before


if __name__ == "__main__":
    main()
