"""The check of the small demo: a sound run passes, a reward model that is no better than closeness to the source does not."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from paths import ROOT
from selecting import completed

from stages.engine import contracts, storage
from stages.engine.rundir import Index, RunDir
from stages.engine.units import publish_unit
from stages.world.flaws import Made, to_metadata

COUNT, KEPT = 100, 40
_FILE = importlib.util.spec_from_file_location("check_small", ROOT / "benchmarks" / "check_small.py")
assert _FILE is not None and _FILE.loader is not None
check_small = importlib.util.module_from_spec(_FILE)
_FILE.loader.exec_module(check_small)


def make_run(path: Path, *, accuracy: float, selected: float) -> Path:
    """A run with 100 edits, of which every second is good; of the 40 closest to their sources 30 are, a share of 0.75."""
    run, step = RunDir(path), RunDir(path).step("filter")
    good = np.concatenate([np.arange(KEPT) % 4 != 0, np.arange(COUNT - KEPT) < 20])
    image = np.zeros((1, 1, 3), np.uint8)
    ids = [f"{number:024x}" for number in np.random.default_rng(0).permutation(COUNT)]
    score = {"scorer_revision": "r", "dimensions": [], "overall_mean": 0.0, "overall_sigma": 1.0, "task": "", "language": "", "flags": []}
    scores = [score | {"sample_id": name, "change_from_source": float(change)} for change, name in enumerate(ids)]
    edit = {"dataset": "world-edits", "source": None, "instruction": "", "edited": None, "language": "", "task": "", "licence": ""}
    edits = [
        edit | {"sample_id": name, "position": "", "image_bytes": 0, "metadata": to_metadata(Made(image, 4, 4 if fine else 1, "", ""))}
        for name, fine in zip(ids, good.tolist(), strict=True)
    ]
    parts = publish_unit(step.path, "unit", {"scores": completed(contracts.table("scores", scores), contracts.table("edits", edits))})
    selections = {"full": {"good_share": 0.5, "count": COUNT}, "selected": {"good_share": selected, "count": KEPT}}
    artifacts = {name: [part] for name, part in parts.items()}
    step.publish(Index(step="filter", key="k", settings={}, inputs={}, artifacts=artifacts, results={"selections": selections}))
    figures = {"pair_accuracy": {"overall": {"value": accuracy}}, "baselines": {"closeness to the source": {"value": 0.69}}}
    storage.publish_json(run.path / "evaluate-reward" / "evaluation.json", {"against": {"truth": figures}})
    storage.publish_json(run.path / "evaluate-editor" / "evaluation.json", {"differences": {"selected": {"value": 0.7}}})
    return path


@pytest.mark.parametrize(
    ("accuracy", "selected", "missed"),
    [
        (0.82, 0.85, []),
        (0.69, 0.85, ["held-out pair accuracy, reward model minus closeness to the source (0.690)"]),
        (0.82, 0.75, ["good share, selected minus as many by closeness to the source (0.750)"]),
    ],
)
def test_closeness_to_the_source_does_not_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], accuracy: float, selected: float, missed: list[str]
) -> None:
    assert check_small.main(make_run(tmp_path / "run", accuracy=accuracy, selected=selected)) == bool(missed)
    printed = capsys.readouterr().out.splitlines()
    assert [line.removeprefix("MISSED ").partition(": ")[0] for line in printed if line.startswith("MISSED")] == missed
