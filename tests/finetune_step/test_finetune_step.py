"""What a group of workers trains, in which order; the training itself is in tests/library_finetune and in the kills of a whole loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stages.config import FlowConfig
from stages.engine import storage
from stages.finetune import small
from stages.finetune.config import FinetuneConfig


def test_a_restarted_group_skips_what_it_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = FlowConfig(name="x", finetune=FinetuneConfig()).model_dump(mode="json")
    trained: list[str] = []
    monkeypatch.setattr(small, "_train_base", lambda one, *_: trained.append(one["name"]))
    monkeypatch.setattr(small, "_train", lambda one, *_: trained.append(one["name"]))
    monkeypatch.setattr(small, "samples_of", lambda *_: None)
    monkeypatch.setattr("finetune.editor.Editor.from_directory", lambda folder: folder)
    editors: list[dict[str, Any]] = [
        {"folder": str(tmp_path), "name": name, "key": f"key of {name}", "flow": flow, "shards": ""}
        for name in ("base", "full", "selected")
    ]
    small._train_in_turn({"editors": editors})
    assert trained == ["base", "full", "selected"]
    for name, key in (("base", "key of base"), ("full", "an earlier key"), ("selected", "key of selected")):
        (tmp_path / "editors" / name).mkdir(parents=True)
        storage.publish_json(tmp_path / "editors" / name / "training.json", {"key": key})
    trained.clear()
    small._train_in_turn({"editors": editors})
    assert trained == ["full"]
