"""Step1X-Edit v1.0 as an editor of generate, from tiny random weights in the released layout."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_step1x import write_step1x

from finetune.adapter_files import save_diffusers
from finetune.adapters import add_adapters
from finetune.config import SamplingConfig
from finetune.families import open_model
from finetune.sampling import sample_edits
from finetune.step1x.config import Step1XConfig
from finetune.step1x.encoders import Step1XEncoders
from reward.trainer.config import AdapterConfig
from stages.editors import catalogue
from stages.editors.editor import Edited, EditRequest, Failure
from stages.editors.native import step1x
from stages.editors.native.step1x import Step1XEditor, Step1XSettings

CPU = torch.device("cpu")
FLOW: Any = None


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Step1XConfig]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step1x, "SIDE", 64)
        yield write_step1x(tmp_path_factory.mktemp("released"))


def settings(config: Step1XConfig, **given: Any) -> Step1XSettings:
    values = {"path": config.directory, "dtype": "fp32", "sizes": config.sizes, "conditioning": config.conditioning}
    return Step1XSettings.model_validate(values | given)


def request(instruction: str, seed: int = 0) -> EditRequest:
    pixels = np.random.default_rng(1).integers(0, 256, (48, 80, 3), dtype=np.uint8)
    return EditRequest(Image.fromarray(pixels), instruction, seed)


def test_edits_as_the_documented_sampler_does(config: Step1XConfig) -> None:
    editor = Step1XEditor(settings(config))
    requests = [request("go red"), request("go red", 1)]
    results = editor.edit(requests)
    model: Any = open_model(config, CPU)
    encoders = Step1XEncoders.load(config, CPU)
    expected = sample_edits(
        model, encoders, [one.image for one in requests], ["go red"] * 2, [0, 1], SamplingConfig(steps=28, guidance=6, side=64)
    )
    assert all(isinstance(result, Edited) for result in results)
    assert [result.image.tobytes() for result in results] == [image.tobytes() for image in expected]
    assert expected[0] != expected[1] and expected[0].size == (80, 48)
    record = dict(results[0].record)
    assert record["size"] == [80, 48] and record["weights"]["fingerprint"] and record["device"] == "cpu"


def test_instructions_that_cannot_be_read_fail_alone(config: Step1XConfig) -> None:
    results = Step1XEditor(settings(config)).edit([request(" "), request("go red"), request("long " * 20), request("<|im_end|>")])
    assert isinstance(results[1], Edited)
    failures = [result for result in results if isinstance(result, Failure)]
    assert [failure.reason for failure in failures] == ["empty-instruction", "unreadable-instruction", "unreadable-instruction"]
    assert "tokens, and the model reads 52" in failures[1].message and "control token <|im_end|>" in failures[2].message


def test_adapters_change_edits_and_identity(config: Step1XConfig, tmp_path: Path) -> None:
    model = open_model(config, CPU)
    add_adapters(model, AdapterConfig(rank=2, alpha=2), "split", seed=0, device=CPU)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.fill_(0.1)
    save_diffusers(model, tmp_path / "lora.safetensors", torch.float32)
    identity = catalogue.find(step1x.NAME, "name").identity
    assert identity(settings(config), FLOW) == identity(settings(config), FLOW)
    with_adapters = settings(config, adapters=str(tmp_path / "lora.safetensors"))
    plain, adapted = (Step1XEditor(one).edit([request("go red")])[0] for one in (settings(config), with_adapters))
    assert isinstance(plain, Edited) and isinstance(adapted, Edited) and plain.image != adapted.image
    assert identity(with_adapters, FLOW) != identity(settings(config), FLOW)
    assert identity(settings(config, guidance=5), FLOW) != identity(settings(config), FLOW)


def test_mistakes_are_one_sentence(config: Step1XConfig, tmp_path: Path) -> None:
    spec = catalogue.find(step1x.NAME, "name")
    with pytest.raises(ValueError, match=r"generate\.editors\.0\.settings\.steps: .*greater than or equal to 28"):
        catalogue.settings_of(spec, {"steps": 4}, "generate.editors.0.settings")
    with pytest.raises(ValueError, match=r"there is no file .*nothing\.safetensors"):
        spec.identity(settings(config, denoiser="nothing.safetensors"), FLOW)
    with pytest.raises(ValueError, match=r"there is no \S+/Qwen2\.5-VL-7B-Instruct/config\.json"):
        spec.open(settings(config, path=str(tmp_path)), FLOW)
    assert spec.canvas is not None and spec.canvas(1920, 1080) == spec.canvas(*spec.canvas(1920, 1080))
