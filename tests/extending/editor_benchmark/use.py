"""Items of a folder, of several sizes, tasks and languages and without reference edits, go through the step's work and its figures."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from stages.evaluate_editor.items.folder import FolderItems

from stages.config import FlowConfig
from stages.engine import contracts
from stages.evaluate_editor.items.item import Item
from stages.evaluate_editor.judges.verdict import HEADLINE, Judge, Verdict
from stages.evaluate_editor.step import COPY, _Slice, evaluate, judged_edits, make_work

Path("photos").mkdir()
rows = []
for number, (size, task, language) in enumerate([((40, 30), "add", "en"), ((30, 40), "remove", "en"), ((30, 30), "add", "cn")]):
    Image.new("RGB", size, (number * 50, 0, 0)).save(f"photos/{number}.png")
    rows.append({"id": f"i{number}", "image": f"{number}.png", "instruction": "do", "task": task, "language": language})
Path("photos/items.json").write_text(json.dumps(rows))


def flow_of(**settings: object) -> FlowConfig:
    return FlowConfig.model_validate({"name": "x", "evaluate_editor": {"items": {"name": "folder", "path": "photos", **settings}}})


with pytest.raises(ValueError, match="the judge world compares with the exact edit, which these items do not have"):
    flow_of()


class Size(Judge):
    """Gives every edit its height as a score."""

    name: str = "size"

    @property
    def revision(self) -> str:
        return "size 1"

    def judge(self, items: Sequence[Item], edited: Sequence[np.ndarray]) -> list[Verdict]:
        return [Verdict("ok", dict.fromkeys(HEADLINE, len(image) / 10), len(image) / 10) for image in edited]


world = FlowConfig.model_validate({"name": "x", "evaluate_editor": {}}).evaluate_editor
assert world is not None and world.items.model_dump() == 160
folder = FolderItems(name="folder", path="photos", languages=("en", "cn"))
config = world.model_copy(update={"items": folder, "judge": Size(), "reference_arm": COPY, "bootstrap": 100})
flow = FlowConfig(name="x").model_copy(update={"evaluate_editor": config})
assert config.items.count(flow) == 3 and list(config.items.identity(flow)) == ["folder"]

output = make_work(Path("editors"), flow)(_Slice(COPY, 0, 3))
verdicts = output.tables["verdicts"].to_pylist()
assert [row["language"] for row in verdicts] == ["en", "en", "cn"] and {row["judge"] for row in verdicts} == {"size"}
assert [row["overall"] for row in verdicts] == [3.0, 4.0, 3.0]
found = evaluate(judged_edits(output.tables["verdicts"], contracts.table("subscores", [])), config, seed=0)
assert found["arms"][COPY]["per_task"] == {"add": 3.0, "remove": 4.0} and found["arms"][COPY]["over_tasks"] == 3.5
assert np.isclose(found["arms"][COPY]["overall"], 10 / 3)
