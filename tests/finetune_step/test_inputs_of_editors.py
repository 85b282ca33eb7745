"""Which samples, seeds and settings the step hands to the training of each editor: one wired wrongly would train, too."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from finetune import editor as editors
from stages.config import FlowConfig
from stages.context import Context
from stages.datasets import readers
from stages.engine.rundir import Index, RunDir
from stages.finetune import small
from stages.finetune import step as finetune
from stages.shards import read as shards

FLOW: dict[str, Any] = {
    "name": "test",
    "seed": 7,
    "world": {"size": 32},
    "filter": {
        "input": {"dataset": "world-edits", "count": 10},
        "selections": [{"name": name, "rule": "top", "count": 3} for name in ("full", "selected", "random")],
    },
    "finetune": {
        "editor": {"seed": 30},
        "base": {"edits": {"dataset": "world-edits", "split": "base", "count": 12}, "training": {"steps": 5, "seed": 10}},
        "training": {"steps": 6, "seed": 20},
        "arms": ["selected", "random"],
    },
}


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    flow = FlowConfig.model_validate(FLOW)
    cluster: Any = SimpleNamespace(gpus=0, room=lambda **_: 1)
    context = Context(RunDir(tmp_path / "run"), flow, cluster)
    results = {"selections": dict.fromkeys(("full", "selected", "random"))}
    (context.run.step("finetune").path / "metrics").mkdir(parents=True)
    context.run.step("filter").publish(Index("filter", "key", {}, {}, results=results))
    monkeypatch.setattr(shards, "content_hash", lambda folder: f"content of {folder}")
    return context


def test_each_editor_gets_its_samples_seed_and_settings(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """The base: the samples and steps of finetune.base; an arm: the shards of its selection, from the trained base."""
    trained: dict[str, tuple[Any, Any, Any]] = {}
    drawn: dict[str, Any] = {}

    def train(one: dict[str, Any], editor: Any, samples: Any, training: Any) -> None:
        trained[one["name"]] = (editor, samples, training)
        (Path(one["folder"]) / "editors" / one["name"]).mkdir(parents=True)

    def samples(source: Any, *, seed: int, **given: Any) -> Any:
        drawn.update(source=source, seed=seed, **given)
        return SimpleNamespace(source="of the base", instructions=["word"])

    def from_config(config: Any, patches: Any, instructions: list[str]) -> Any:
        return ("new", config.seed, patches, instructions)

    monkeypatch.setattr(small, "fit", lambda loop, payloads, **_: [loop(payload) for payload in payloads])
    monkeypatch.setattr(small, "_train", train)
    monkeypatch.setattr(small, "samples_of", lambda folder, size: (folder, size))
    monkeypatch.setattr(readers, "samples", samples)
    monkeypatch.setattr("finetune.codec.fit", lambda source, config: f"patches {source}")
    monkeypatch.setattr(editors.Editor, "from_config", from_config)
    monkeypatch.setattr(editors.Editor, "from_directory", lambda folder: ("trained", str(folder)))
    finetune_config = context.flow.finetune
    assert finetune_config is not None
    index = finetune.run(context)
    assert index.results == {"arms": ["base", "selected", "random"]}

    editor, of_base, training = trained.pop("base")
    assert editor == ("new", 37, "patches of the base", ["word"]) and of_base.source == "of the base"
    assert (drawn["source"], drawn["seed"], drawn["world"]) == (finetune_config.base.edits, 7, context.flow.world)
    assert (training.seed, training.steps) == (17, 5)
    base = context.run.step("finetune").path / "editors" / "base"
    assert list(trained) == ["selected", "random"]
    for arm, (editor, of_arm, training) in trained.items():
        assert editor == ("trained", str(base))
        assert of_arm == (shards.folder_in(context, arm), finetune_config.editor.image_size) and of_arm[0].endswith(f"/{arm}")
        assert (training.seed, training.steps) == (27, 6)


def test_an_arm_is_trained_anew_when_its_shards_the_base_or_its_training_change(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes nothing of an editor does not change its key."""
    keys: list[dict[str, str]] = []

    def fit(_: Any, payloads: list[dict[str, Any]], **__: Any) -> None:
        keys.append({one["name"]: one["key"] for payload in payloads for one in payload["editors"]})
        for name in keys[-1]:
            (context.run.step("finetune").path / "editors" / name).mkdir(parents=True, exist_ok=True)

    def changed(*path: str, to: Any) -> set[str]:
        settings = context.flow.model_dump()
        place = settings
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = to
        settings["finetune"]["parallel_arms"] = 3  # changes nothing
        finetune.run(Context(context.run, FlowConfig.model_validate(settings), context.cluster, force=True))
        return {name for name, key in keys[-1].items() if key != keys[0][name]}

    monkeypatch.setattr(small, "fit", fit)
    finetune.run(context)
    everyone = {"base", "selected", "random"}
    assert changed("seed", to=8) == everyone
    assert changed("finetune", "base", "training", "steps", to=9) == everyone
    assert changed("finetune", "editor", "seed", to=31) == everyone
    assert changed("finetune", "training", "steps", to=9) == {"selected", "random"}
    monkeypatch.setattr(shards, "content_hash", lambda folder: f"content of {folder}" + "!" * folder.endswith("/random"))
    assert changed("name", to="other") == {"random"}
