"""Published backbones: their files whole, in parts and by rows; each damage is one sentence."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pretrained import write_pretrained
from safetensors.torch import load_file, save_file
from torch import Tensor

from reward import RewardModel
from reward.config import BackboneConfig, HeadConfig, PresentationConfig, RewardModelConfig
from reward.inputs.tokenizer import build_tokenizer, save_tokenizer

WORDS = ["make it red"]
INDEX = "model.safetensors.index.json"


def config(folder: Path, family: str = "qwen2_5_vl") -> RewardModelConfig:
    return RewardModelConfig(
        backbone=BackboneConfig.model_validate({"pretrained": str(folder), "family": family}),
        presentation=PresentationConfig(layout="images", prompt="rubric_first", image_area=256),
        heads=HeadConfig(hidden=(8,)),
    )


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors")


def in_parts(folder: Path) -> None:
    """Two files and an index, as large models come."""
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    files = {name: f"model-0000{1 + 2 * index // len(names)}-of-00002.safetensors" for index, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: weights[name].clone() for name in names if files[name] == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": files}))
    (folder / "model.safetensors").unlink()


def as_pickle(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def with_other_names(folder: Path) -> None:
    """Those of files that newer versions of transformers wrote."""

    def renamed(name: str) -> str:
        return f"model.{name}" if name.startswith("visual.") else name.replace("model.", "model.language_model.", 1)

    rewrite(folder, lambda weights: {renamed(name): tensor for name, tensor in weights.items()} | {"lm_head.weight": torch.zeros(2, 2)})


@pytest.mark.parametrize("layout", [in_parts, as_pickle, with_other_names])
def test_every_layout_of_files_gives_the_same_weights(layout: Callable[[Path], None], tmp_path: Path) -> None:
    folder = write_pretrained(tmp_path / "model", WORDS)
    files = load_file(folder / "model.safetensors")
    expected = RewardModel.from_config(config(folder)).state_dict()
    assert torch.equal(expected["backbone.visual.merger.mlp.0.weight"], files["visual.merger.mlp.0.weight"].float())
    layout(folder)
    found = RewardModel.from_config(config(folder)).state_dict()
    assert list(found) == list(expected) and {tensor.dtype for tensor in found.values()} == {torch.float32}
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []


@pytest.mark.parametrize("grows", [False, True], ids=["as it is", "grown vocabulary"])
def test_weights_that_stay_in_their_files_are_the_same_later(grows: bool, tmp_path: Path) -> None:
    folder = write_pretrained(tmp_path / "model", WORDS)
    if grows:
        save_tokenizer(build_tokenizer([*WORDS, "and some more"]), folder)
    whole = RewardModel.from_config(config(folder), seed=3)
    model = RewardModel.from_config(config(folder), seed=3, unread=True)
    absent = {name for name, parameter in model.named_parameters() if parameter.is_meta}
    embedding = {"backbone.language_model.embed_tokens.weight"} if grows else set()  # what was added is in no file
    assert absent == {name for name, _ in model.named_parameters() if name.startswith("backbone.")} - embedding == set(model.unread)
    assert model.device == torch.device("cpu")
    for (name, here), (_, there) in zip(model.named_buffers(), whole.named_buffers(), strict=True):
        assert torch.equal(here, there), name
    model.read_weights()
    for (name, here), (_, there) in zip(model.state_dict().items(), whole.state_dict().items(), strict=True):
        assert torch.equal(here, there), name


def quantised(folder: Path) -> None:
    rewrite(folder, lambda weights: {name: tensor.to(torch.float8_e4m3fn) for name, tensor in weights.items()})


def not_a_number(folder: Path) -> None:
    rewrite(folder, lambda weights: weights | {"model.norm.weight": weights["model.norm.weight"] * float("nan")})


def a_part_is_missing(folder: Path) -> None:
    in_parts(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()


def a_part_is_another(folder: Path) -> None:
    in_parts(folder)
    (folder / "model-00002-of-00002.safetensors").write_bytes((folder / "model-00001-of-00002.safetensors").read_bytes())


def the_index_is_cut(folder: Path) -> None:
    in_parts(folder)
    os.truncate(folder / INDEX, 100)


def another_width(folder: Path) -> None:
    rewrite(folder, lambda weights: weights | {"model.norm.weight": torch.ones(31)})


def without_a_layer(folder: Path) -> None:
    rewrite(folder, lambda weights: {name: tensor for name, tensor in weights.items() if "layers.1." not in name})


@pytest.mark.parametrize(
    ("break_it", "sentence"),
    [
        (lambda folder: (folder / "config.json").unlink(), r"model has no config\.json; name a directory of pretrained weights"),
        (lambda folder: os.truncate(folder / "config.json", 30), r"config\.json is no configuration of a model \(.*\); copy"),
        (lambda folder: (folder / "model.safetensors").unlink(), r"model has no weights \(none of model\.safetensors, .*\); name"),
        (
            lambda folder: os.truncate(folder / "model.safetensors", 5000),
            r"model\.safetensors cannot be read as a file of weights \(.*\); train, copy or download it again",
        ),
        (a_part_is_missing, r"model lacks model-00002-of-00002\.safetensors, one of 2 files of weights that model\.safetensors\.index"),
        (a_part_is_another, r"model-00002-of-00002\.safetensors lacks model\..*, which model\.safetensors\.index\.json names; download"),
        (the_index_is_cut, r"index\.json is no index of weights \(.*\); copy or download it again"),
        (quantised, r"model\.safetensors has .* as float8_e4m3fn; expected weights that are not quantised"),
        (not_a_number, r"model\.safetensors contains NaN or infinity in model\.norm\.weight"),
        (another_width, r"model has language_model\.norm\.weight of shape \(31,\), its config\.json says \(32,\); download it again"),
        (without_a_layer, r"model lacks 12 weights of a qwen2_5_vl model, first language_model\.layers\.1\."),
    ],
)
def test_damage_is_one_sentence(break_it: Callable[[Path], None], sentence: str, tmp_path: Path) -> None:
    folder = write_pretrained(tmp_path / "model", WORDS)
    break_it(folder)
    with pytest.raises(ValueError, match=sentence) as caught:
        RewardModel.from_config(config(folder))
    assert "\n" not in str(caught.value)


def test_another_family_is_one_sentence(tmp_path: Path) -> None:
    folder = write_pretrained(tmp_path / "model", WORDS, "qwen3_vl")
    with pytest.raises(ValueError, match=r"family is qwen2_5_vl, but .*config\.json is of a qwen3_vl model; set the key to its family"):
        RewardModel.from_config(config(folder))
    assert len(RewardModel.from_config(config(folder, "qwen3_vl")).state_dict()) > 40
