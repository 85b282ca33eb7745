"""Items of a folder, of several sizes, tasks and languages and without reference edits, go through the step's work and its figures."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stages.config import FlowConfig
from stages.engine import contracts, storage
from stages.evaluate_editor import generation, judging
from stages.evaluate_editor.evaluation import evaluate
from stages.evaluate_editor.items.item import Item
from stages.evaluate_editor.judges.judge import Judge, JudgeEdits
from stages.evaluate_editor.systems import COPY, System
from stages.evaluate_editor.verdict import HEADLINE, Verdict

Path("photos").mkdir()
rows = []
for number, (size, task, language) in enumerate([((40, 30), "add", "en"), ((30, 40), "remove", "en"), ((30, 30), "add", "cn")]):
    Image.new("RGB", size, (number * 50, 0, 0)).save(f"photos/{number}.png")
    rows.append({"id": f"i{number}", "image": f"{number}.png", "instruction": "do", "task": task, "language": language})
Path("photos/items.json").write_text(json.dumps(rows))


def flow_of(**settings: object) -> FlowConfig:
    items = {"name": "folder", "path": "photos", "languages": ["en", "cn"]}
    return FlowConfig.model_validate({"name": "x", "evaluate_editor": {"items": items, **settings}})


with pytest.raises(ValueError, match="the judge world compares with the exact edit, which these items do not have"):
    flow_of(judge="world")


class Size(Judge):
    """Gives every edit its height as a score."""

    name: str = "size"

    @property
    def revision(self) -> str:
        return "size 1"

    def open(self, replies: Path) -> JudgeEdits:
        return self._judge

    def _judge(self, items: Sequence[Item], edited: Sequence[np.ndarray]) -> list[Verdict]:
        return [Verdict("ok", dict.fromkeys(HEADLINE, len(image) / 10), len(image) / 10) for image in edited]


flow = flow_of(reference_arm=COPY, bootstrap=100)
config = flow.evaluate_editor
assert config is not None and config.judge.name == "endpoint"  # what a benchmark with settings gets
assert config.items.count(flow) == 3 and list(config.items.identity(flow)) == ["folder"]

made = generation.make_work(flow)(generation.Piece(System(COPY, "copy", COPY), 0, 3))
storage.publish_bytes("edits.parquet", storage.table_bytes(made.tables["benchmark_edits"]))
output = judging.make_work(flow, Size(), Path("replies"))(judging.JudgingPiece("edits.parquet", 0, 3))
verdicts = output.tables["verdicts"].to_pylist()
assert [row["language"] for row in verdicts] == ["en", "en", "cn"] and {row["judge"] for row in verdicts} == {"size"}
assert [row["overall"] for row in verdicts] == [3.0, 4.0, 3.0]
found = evaluate(judging.judged_edits(output.tables["verdicts"], contracts.table("subscores", [])), config, Size(), seed=0)
assert found["arms"][COPY]["per_task"] == {"add": 3.0, "remove": 4.0} and found["arms"][COPY]["overall"] == 3.5
assert np.isclose(found["arms"][COPY]["over_items"], 10 / 3)
