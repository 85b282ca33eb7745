"""Published checkpoints through the code that a user calls, against recorded numbers of the public implementation (tiny scale)."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from command import pipeline, refusal
from PIL import Image
from safetensors.torch import load_file, save_file

from pipeline.commands import reward as reward_command
from reward import EditSample, RewardModel, Score, score
from reward.inputs.images import patchify
from reward.model import reference_prompts
from reward.model.aggregation import aggregate
from reward.model.backbone import FAMILIES, encode
from reward.model.reference_prompts import COLLATOR_FILE, PROMPTS_FILE, read_reference_prompts, unknown_revision
from reward.model.released import import_needs, import_released
from reward.training.losses import uncertainty_released

torch.set_num_threads(1)

CASES = ("case_a", "case_b")
MODES = {"1d": "flat", "mrope": "mrope"}
DIMENSIONS = {"instruction_following": "dim1", "visual_quality": "dim2"}
PARITY, GRADIENTS = 1e-4, 1e-4


@dataclass(frozen=True)
class Case:
    """One recorded case, and the texts of its prompts laid out like a clone of the public repository.

    ``checkpoint`` is its model under a configuration that says bfloat16, as the published ones do. ``opaque`` has its images without
    transparency: the reference drops it and shows hidden colours, which our decoder never does.
    """

    folder: Path
    checkpoint: Path
    opaque: Path
    inputs: dict[str, Any]
    arrays: Any
    clone: Path

    @property
    def area(self) -> tuple[int, int]:
        return self.inputs["min_pixels"], self.inputs["max_pixels"]

    def model(self, mode: str, area: tuple[int, int] | None = None) -> RewardModel:
        prompts = read_reference_prompts(self.clone)
        return import_released(self.checkpoint, prompts=prompts, positions=MODES[mode], image_area=area or self.area)

    def samples(self, side: str) -> list[EditSample]:
        return [
            EditSample(
                (self.opaque / pair["source"]).read_bytes(), pair["instruction"], (self.opaque / pair[f"edited_{side}"]).read_bytes()
            )
            for pair in self.inputs["pairs"]
        ]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, shared_data: Path, tmp_path: Path) -> Case:
    folder = shared_data / "parity" / request.param
    inputs = json.loads((folder / "inputs.json").read_text())
    (tmp_path / "opaque" / "images").mkdir(parents=True)
    for path in (folder / "images").iterdir():
        with Image.open(path) as image:
            image.convert("RGB").save(tmp_path / "opaque" / "images" / path.name)
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(folder / "model", checkpoint)
    settings = json.loads((checkpoint / "config.json").read_text()) | {"torch_dtype": "bfloat16"}
    settings["vision_config"]["dtype"] = "bfloat16"
    (checkpoint / "config.json").write_text(json.dumps(settings))
    return Case(folder, checkpoint, tmp_path / "opaque", inputs, np.load(folder / "arrays.npz"), write_clone(tmp_path / "clone", inputs))


def write_clone(clone: Path, inputs: dict[str, Any]) -> Path:
    """The texts in the places and under the names that the public repository has them."""
    (clone / PROMPTS_FILE).parent.mkdir(parents=True)
    following, quality = (inputs["prompt_templates"][name] for name in ("dim1", "dim2"))
    (clone / PROMPTS_FILE).write_text(
        f"INSTRUCTION_EDIT_FOLLOWING = {following!r}\nINSTRUCTION_EDIT_QUALITY = {quality!r}\nraise SystemExit('this file was executed')\n"
    )
    (clone / COLLATOR_FILE).write_text(f"import torchvision_is_not_here\nprompt_with_special_token = {inputs['suffix']!r}\n")
    return clone


@pytest.mark.parametrize("mode", MODES)
def test_tokens_pixels_and_positions(case: Case, mode: str) -> None:
    model = case.model(mode)
    for side in "AB":
        for number, sample in enumerate(case.samples(side)):
            prepared = model.prepare(source=sample.source, candidates=[sample.edited], instruction=sample.instruction)
            tree = prepared.tree
            ids = torch.cat([torch.tensor(model.prompt.root), tree.input_ids])
            root_positions = torch.arange(len(model.prompt.root)).expand(3, -1)
            positions = torch.cat([root_positions, tree.position_ids], dim=1)
            leaves = [path for _, path in tree.paths[-2:]]
            for dimension, path in zip(DIMENSIONS.values(), leaves, strict=True):
                length = int(case.arrays[f"reward_index.{side}.{dimension}"][number]) + 1  # what follows cannot be read
                assert ids[path].tolist() == case.arrays[f"input_ids.{side}.{dimension}"][number, :length].tolist()
                assert (positions[:, path].numpy() == case.arrays[f"position_ids.{mode}.{side}.{dimension}"][:, number, :length]).all()
            statistics = FAMILIES["qwen2_5_vl"].statistics
            names = (case.inputs["pairs"][number]["source"], case.inputs["pairs"][number][f"edited_{side}"])
            items = [item for stack in prepared.stacks for item in stack]
            for name, item in zip(names, items, strict=True):
                pixels = patchify(item[None], patch_size=model.patch_size, merge_size=model.prompt.merge_size, statistics=statistics)
                assert np.abs(pixels.numpy() - case.arrays[f"pixel_values.{Path(name).stem}"]).max() < 1e-6


@pytest.mark.parametrize("mode", MODES)
def test_hidden_states_and_heads(case: Case, mode: str) -> None:
    model = case.model(mode)
    for side in "AB":
        sets = [model.prepare(source=s.source, candidates=[s.edited], instruction=s.instruction) for s in case.samples(side)]
        batch = model.collate(sets)
        with torch.no_grad():
            read = batch.reads.flatten()
            states = encode(model.backbone, batch, keep=read, reward_vectors=model.reward_embedding)
            output = model(batch)
        for column, dimension in enumerate(DIMENSIONS.values()):
            hidden = case.arrays[f"hidden.{mode}.{side}.{dimension}"]
            assert np.abs(states.unflatten(0, batch.reads.shape)[:, column].numpy() - hidden).max() < PARITY
            head = case.arrays[f"head.{mode}.{side}.{dimension}"]
            assert np.abs(output.mean[:, column].numpy() - head[:, 0]).max() < PARITY
            assert np.abs(output.sigma[:, column].log().numpy() - head[:, 1]).max() < PARITY
        for rule in ("mean", "min", "sum"):
            pooled = case.arrays[f"pooled.{mode}.{side}.{rule}"]
            mu, sigma = aggregate(output.mean, output.sigma, f"reference_{rule}")
            assert np.abs(mu.numpy() - pooled[:, 0]).max() < PARITY and np.abs(sigma.log().numpy() - pooled[:, 1]).max() < PARITY


@pytest.mark.parametrize("mode", MODES)
def test_scores_of_the_public_call_at_its_own_size(case: Case, mode: str) -> None:
    """`full.*`: images of 200,704 pixels, as published; through `score`, with the root cached and sources shared."""
    model = case.model(mode, area=(200704, 200704))
    for side in "AB":
        found = score(model=model, samples=case.samples(side))
        expected = case.arrays[f"full.pooled.{mode}.{side}.mean"]
        grids = case.arrays[f"full.image_grid_thw.{side}"]
        lengths = case.arrays[f"full.lengths.{side}"]
        for number, result in enumerate(found):
            assert isinstance(result, Score)
            assert result.overall_mean == pytest.approx(expected[number, 0], abs=PARITY)
            assert np.log(result.overall_sigma) == pytest.approx(expected[number, 1], abs=PARITY)
            sample = case.samples(side)[number]
            prepared = model.prepare(source=sample.source, candidates=[sample.edited], instruction=sample.instruction)
            batch = model.collate([prepared])
            sizes = [list(grid) for grid, stack in zip(batch.grids, batch.stacks, strict=True) for _ in stack]
            assert sizes == grids[2 * number : 2 * number + 2, 1:].tolist()
            closing = model.tokenizer(case.inputs["pairs"][number]["rendered"]["dim1"].partition("<|Reward|>")[2], add_special_tokens=False)
            for column, (_, path) in enumerate(prepared.tree.paths[-2:]):
                assert len(path) + len(closing["input_ids"]) == lengths[number, column]


def test_gradients_of_the_training_loss(case: Case) -> None:
    """The released loss on the pooled outputs of both pairs, in one packed pass where the reference makes four."""
    recorded = json.loads((case.folder / "losses.json").read_text())["training_gradient"]
    model = case.model("1d").eval()  # without dropout, as recorded
    (a, b) = (
        model(model.collate([model.prepare(source=s.source, candidates=[s.edited], instruction=s.instruction) for s in case.samples(side)]))
        for side in "AB"
    )
    loss = uncertainty_released(a.overall_mean, a.overall_sigma, b.overall_mean, b.overall_sigma, torch.ones(2)).mean()
    assert float(loss.detach()) == pytest.approx(recorded["loss"], abs=PARITY)
    loss.backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    reward_token = found.pop("reward_embedding")
    assert reward_token is not None
    names = {f"model.{name.removeprefix('backbone.')}": name for name in found if name.startswith("backbone.")}
    for number, dimension in enumerate(DIMENSIONS):
        for layer in (0, 3, 5):
            for part in ("weight", "bias"):
                names[f"rm_heads.head_{number}.{layer}.{part}"] = f"heads.of.{dimension}.mlp.{layer}.{part}"
    assert names.keys() == {name for name, norm in recorded["norms"].items() if norm is not None}
    for theirs, ours in names.items():
        gradient = found[ours]
        assert gradient is not None, ours
        squares = gradient.double().square().sum()
        if theirs == "model.language_model.embed_tokens.weight":  # theirs holds the reward token's row
            squares = squares + reward_token.double().square().sum()
        assert float(squares.sqrt()) == pytest.approx(recorded["norms"][theirs], rel=GRADIENTS), theirs
    arrays = {
        "grad.reward_token_row": reward_token[0],
        "grad.head_0.last_weight": found["heads.of.instruction_following.mlp.5.weight"],
        "grad.head_1.last_weight": found["heads.of.visual_quality.mlp.5.weight"],
        "grad.final_norm": found["backbone.language_model.norm.weight"],
        "grad.vision_merger_bias": found["backbone.visual.merger.mlp.2.bias"],
    }
    for name, gradient in arrays.items():
        expected = case.arrays[name]
        assert gradient is not None
        assert np.abs(gradient.numpy() - expected).max() < GRADIENTS * np.abs(expected).max(), name


def test_weights_are_float32_whatever_the_files_name(case: Case, tmp_path: Path) -> None:
    model, texts = case.model("1d"), read_reference_prompts(case.clone)
    plain = import_released(case.folder / "model", prompts=texts, image_area=case.area)  # its configuration says float32
    plain.save(tmp_path / "plain")
    file = case.checkpoint / "model.safetensors"
    halves = {name: tensor.bfloat16() for name, tensor in load_file(file).items()}
    save_file(halves, file)
    rounded = import_released(case.checkpoint, prompts=texts, image_area=case.area)
    for one, other in ((model, plain), (RewardModel.load(tmp_path / "plain"), plain)):
        for tensors in ("parameters", "buffers"):
            found, expected = (dict(getattr(of, f"named_{tensors}")()) for of in (one, other))
            assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)
    for name, parameter in rounded.named_parameters():
        assert parameter.dtype == torch.float32 and torch.equal(parameter, dict(plain.named_parameters())[name].bfloat16().float()), name
    settings = json.loads((tmp_path / "plain" / "config.json").read_text())
    settings["backbone"] |= {"dtype": "bfloat16"}  # as models saved by earlier versions may say
    settings["backbone"]["text_config"] |= {"dtype": "bfloat16"}
    settings["backbone"]["vision_config"] |= {"dtype": "bfloat16"}
    (tmp_path / "plain" / "config.json").write_text(json.dumps(settings))
    for dtype in (torch.float32, torch.bfloat16):
        loaded = RewardModel.load(tmp_path / "plain", dtype=dtype)
        for name, parameter in loaded.named_parameters():
            wanted = dtype if name.startswith("backbone.") else torch.float32
            assert torch.equal(parameter, dict(plain.named_parameters())[name].to(wanted)) and parameter.dtype == wanted, name
        for name, frequencies in loaded.named_buffers():  # of the rotary positions
            assert "inv_freq" in name and torch.equal(frequencies, dict(plain.named_buffers())[name]), name


def test_a_pickled_checkpoint_gives_the_same_model(case: Case, tmp_path: Path) -> None:
    folder = tmp_path / "pickled"
    shutil.copytree(case.folder / "model", folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "model.pth")
    (folder / "model.safetensors").unlink()
    model = import_released(folder, prompts=read_reference_prompts(case.clone), image_area=case.area)
    assert score(model=model, samples=case.samples("A")) == score(model=case.model("1d"), samples=case.samples("A"))


class Command:
    """A pickle that would run something."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("this pickle was executed",)


def test_layouts_that_are_not_those_of_a_published_checkpoint(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = read_reference_prompts(case.clone)
    folder = tmp_path / "odd"
    shutil.copytree(case.folder / "model", folder)
    file = folder / "model.safetensors"
    weights = load_file(file)

    def refused(changed: dict[str, torch.Tensor], message: str) -> None:
        save_file(changed, file)
        with pytest.raises(ValueError, match=message):
            import_released(folder, prompts=prompts)

    refused({"something": torch.zeros(2)}, "has no model.language_model.embed_tokens.weight: not the layout")
    refused({k: v for k, v in weights.items() if not k.startswith("rm_heads.head_1")}, "has other heads than a published")
    refused(
        {k: v for k, v in weights.items() if "layers.1.mlp" not in k},
        "does not fit its config.json in 3 places, e.g. backbone.language_model.layers.1.mlp",
    )
    refused(weights | {"rm_heads.head_0.5.bias": torch.tensor([float("nan"), 0.0])}, "contains NaN or infinity in rm_heads.head_0.5.bias")
    few = weights | {"model.language_model.embed_tokens.weight": weights["model.language_model.embed_tokens.weight"][:100].clone()}
    refused(few, "tokens, the checkpoint 100 rows")
    for content, message in (
        ('{"model_type": "qwen3_vl"}', "has a qwen3_vl model"),
        ('{"model_', r"config\.json is no configuration of a model"),
    ):
        (folder / "config.json").write_text(content)
        with pytest.raises(ValueError, match=message):
            import_released(folder, prompts=prompts)
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match=r"has no config\.json; name the model that the checkpoint was made from with --base"):
        import_released(folder, prompts=prompts)
    save_file(weights, file)
    model = import_released(folder, prompts=prompts, base=str(case.folder / "model"), image_area=case.area)
    assert score(model=model, samples=case.samples("B")) == score(model=case.model("1d"), samples=case.samples("B"))
    file.unlink()
    with pytest.raises(ValueError, match=r"contains none of model\.safetensors, model\.pth"):
        import_released(folder, prompts=prompts, base=str(case.folder / "model"))
    torch.save({"model.language_model.embed_tokens.weight": Command()}, folder / "model.pth")
    with pytest.raises(ValueError, match="cannot be read as a file of weights"):
        import_released(folder, prompts=prompts, base=str(case.folder / "model"))
    assert "executed" not in capsys.readouterr().out


def test_a_clone_that_is_none(tmp_path: Path, shared_data: Path) -> None:
    with pytest.raises(ValueError, match=r"prompts.py cannot be read .*--reference-prompts needs a clone"):
        read_reference_prompts(tmp_path)
    inputs = json.loads((shared_data / "parity" / "case_a" / "inputs.json").read_text())
    clone = write_clone(tmp_path / "clone", inputs)
    (clone / PROMPTS_FILE).write_text("INSTRUCTION_EDIT_QUALITY = 'x {text_prompt}'\nINSTRUCTION_EDIT_FOLLOWING = 1\n")
    with pytest.raises(ValueError, match=r"prompts.py has no text INSTRUCTION_EDIT_FOLLOWING"):
        read_reference_prompts(clone)
    (clone / PROMPTS_FILE).write_text("INSTRUCTION_EDIT_QUALITY = 'x {text_prompt}'\nINSTRUCTION_EDIT_FOLLOWING = 'y {prompt}'\n")
    with pytest.raises(ValueError, match=r"INSTRUCTION_EDIT_FOLLOWING in .* has the fields \['prompt'\], expected {text_prompt} once"):
        read_reference_prompts(clone)


def test_the_command_imports_and_scores(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "imported"
    area = f"{case.area[0]}-{case.area[1]}"
    arguments = ["--reference-prompts", str(case.clone), "--image-area", area]
    imported = pipeline("reward", "import", case.folder / "model", out, *arguments)
    said = imported.output
    other = unknown_revision(read_reference_prompts(case.clone))
    assert other is not None and f"have hash {other}, which is no published revision" in imported.stderr
    assert f"- rubrics: of another revision than the published ones (hash {other})" in (out / "README.md").read_text()
    size, written = ((folder / "model.safetensors").stat().st_size for folder in (case.folder / "model", out))
    needs = import_needs(case.folder / "model")
    assert (needs.fetched, needs.read) == (0, size) and abs(needs.written - written) < 0.02 * written < needs.memory
    assert f"fetches 0.0 MB, reads {size / 1e6:.1f} MB, writes {needs.written / 1e6:.1f} MB" in said
    pair = case.inputs["pairs"][0]
    asked = ("--source", case.opaque / pair["source"], "--instruction", pair["instruction"])
    shown = pipeline("reward", "score", out, *asked, "--edited", case.opaque / pair["edited_A"], "--edited", case.opaque / pair["edited_B"])
    for side in "AB":
        assert f"{case.arrays[f'score.1d.{side}'][0]:.3f}" in shown.stdout
    half = tmp_path / "half"
    shutil.copytree(case.folder / "model", half)
    (half / "model.safetensors").write_bytes((half / "model.safetensors").read_bytes()[: size // 2])
    assert "half/model.safetensors cannot be read" in refusal("reward", "import", half, tmp_path / "other", *arguments)
    (half / "model.safetensors").rename(half / "model.safetensors.index.json")
    assert "has its weights in several files" in refusal("reward", "import", half, tmp_path / "other", *arguments)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    monkeypatch.setattr(reward_command, "_available_memory", lambda: 1000)
    given = ("reward", "import", case.folder / "model", tmp_path / "other", *arguments)
    assert f"has 0.0 MB free, and {needs.written / 1e6:.1f} MB are needed" in refusal(*given)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    monkeypatch.setattr(reference_prompts, "PUBLISHED_RUBRICS", other)
    warned = pipeline(*given).stderr
    assert "warning: 0.0 MB of memory" in warned and "published revision" not in warned
    assert "rubrics" not in (tmp_path / "other" / "README.md").read_text()
    assert "contains none of" in refusal("reward", "import", case.folder / "images", tmp_path / "third", *arguments)
    assert "is not empty" in refusal("reward", "import", case.folder / "model", out, *arguments)
    assert "cannot be decoded" in refusal("reward", "score", out, *asked, "--edited", case.folder / "inputs.json")
