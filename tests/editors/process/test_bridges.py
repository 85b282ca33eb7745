"""Each bridge in an interpreter whose model packages are stand-ins: it loads, passes settings and seed on, and returns the image.

The stand-ins have the names that the bridges import, and write down how they are called. That the real packages accept these calls is not
shown here: they need a GPU and their weights.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from interpreters import environment, site_packages
from PIL import Image, ImageOps

from stages.config import FlowConfig
from stages.editors import catalogue
from stages.editors.editor import Edited, EditRequest
from stages.editors.process import child
from stages.editors.process.specs import BRIDGES

CALLS = """
import json, os
from PIL import ImageOps
def called(name, **given):
    with open(os.environ["CALLS"], "a") as file:
        file.write(json.dumps([name, given], default=repr) + "\\n")
"""
TORCH = """
from calls import called
class cuda:
    is_available = staticmethod(lambda: False)
class Generator:
    def __init__(self, device): self.device = device
    def manual_seed(self, seed): self.seed = seed; return self
    def __repr__(self): return f"{self.device} {self.seed}"
bfloat16 = "bfloat16"
def manual_seed(seed): called("seeded", seed=seed)
"""
PIPELINE = """
from calls import called, ImageOps
class {name}:
    @classmethod
    def from_pretrained(cls, weights, **given):
        called("from_pretrained", weights=weights, **given)
        return cls()
    def to(self, device): called("to", device=device); return self
    def enable_model_cpu_offload(self): called("offload")
    def __call__(self, **given):
        (image,) = given.pop("input_images", None) or [given.pop("image")]
        called("{name}", **given)
        self.images = [ImageOps.invert(image)]
        return self
"""
OVIS = """
from calls import called, ImageOps
def pipe_img_edit(model, input_img, prompt, steps, txt_cfg, img_cfg, seed=42):
    called("edit", prompt=prompt, steps=steps, txt_cfg=txt_cfg, img_cfg=img_cfg, seed=seed)
    return [ImageOps.invert(input_img)]
"""
TRANSFORMERS = """
class AutoModelForCausalLM:
    @classmethod
    def from_pretrained(cls, weights, **given):
        return cls(), {"missing_keys": ["vae.0.weight"] if "bad" in weights else []}
    def eval(self): return self
    def to(self, device): return self
"""
BAGEL = {
    "accelerate.py": """
from contextlib import nullcontext as init_empty_weights
from calls import called
def load_checkpoint_and_dispatch(model, checkpoint, **given):
    called("dispatch", checkpoint=checkpoint, **given)
    return model
""",
    "data/data_utils.py": "def add_special_tokens(tokenizer): return tokenizer, {}, 0\n",
    "data/transforms.py": "class ImageTransform:\n    def __init__(self, *sizes): self.sizes = sizes\n",
    "modeling/autoencoder.py": """
class Vae:
    def to(self, device): return self
    def eval(self): return self
def load_ae(local_path): return Vae(), "vae"
""",
    "modeling/qwen2.py": """
class Qwen2Tokenizer:
    @classmethod
    def from_pretrained(cls, path): return cls()
""",
    "modeling/bagel.py": """
from types import SimpleNamespace
class _Config:
    num_hidden_layers = 27
    @classmethod
    def from_json_file(cls, path): return cls()
Qwen2Config = SiglipVisionConfig = _Config
class BagelConfig:
    def __init__(self, **given): self.given = given
def Qwen2ForCausalLM(config): return config.layer_module
def SiglipVisionModel(config): return config.num_hidden_layers
class Bagel:
    def __init__(self, language, vision, config):
        assert (language, vision) == ("Qwen2MoTDecoderLayer", 26)
        embeddings = SimpleNamespace(convert_conv2d_to_linear=lambda config, meta: None)
        self.vit_model = SimpleNamespace(vision_model=SimpleNamespace(embeddings=embeddings))
    def eval(self): return self
""",
    "inferencer.py": """
from calls import called, ImageOps
class InterleaveInferencer:
    def __init__(self, model, vae, tokenizer, vae_transform, vit_transform, token_ids):
        called("inferencer", sizes=[vae_transform.sizes, vit_transform.sizes])
    def __call__(self, image, text, **given):
        called("edit", text=text, **given)
        return {"image": ImageOps.invert(image), "text": None}
""",
}
OMNIGEN2 = {
    "omnigen2/models/transformers/transformer_omnigen2.py": PIPELINE.format(name="OmniGen2Transformer2DModel"),
    "omnigen2/pipelines/omnigen2/pipeline_omnigen2.py": PIPELINE.format(name="OmniGen2Pipeline"),
}
STEP1X = {"diffusers.py": PIPELINE.format(name="Step1XEditPipeline") + PIPELINE.format(name="Step1XEditPipelineV1P2")}
STAND_INS = OMNIGEN2 | STEP1X | BAGEL | {"test_img_edit.py": OVIS, "transformers.py": TRANSFORMERS, "torch.py": TORCH, "calls.py": CALLS}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Interpreter and checkout, as settings."""
    folder = tmp_path_factory.mktemp("stand-ins")
    python = environment(folder / "env")
    for package in ("torch", "transformers", "diffusers", "accelerate", "flash_attn"):
        about = site_packages(folder / "env") / f"{package}-9.9.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 9.9\n")
    for name, code in STAND_INS.items():
        path = folder / "checkout" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    return {"python": str(python), "checkout": str(folder / "checkout")}


@pytest.mark.parametrize(
    ("name", "edit", "expected"),
    [
        (
            "omnigen2",
            "OmniGen2Pipeline",
            {"width": 32, "height": 16, "num_inference_steps": 50, "text_guidance_scale": 5.0, "image_guidance_scale": 2.0}
            | {"generator": "cpu 12345", "prompt": "invert", "max_sequence_length": 1024, "output_type": "pil"},
        ),
        (
            "bagel",
            "edit",
            {"text": "invert", "think": False, "num_timesteps": 50, "timestep_shift": 3.0, "cfg_text_scale": 4.0, "cfg_img_scale": 2.0}
            | {"cfg_interval": [0.0, 1.0], "cfg_renorm_min": 0.0, "cfg_renorm_type": "text_channel"},
        ),
        ("ovis-u1", "edit", {"prompt": "invert", "steps": 50, "txt_cfg": 6.0, "img_cfg": 1.5, "seed": 12345}),
        (
            "step1x-edit-v1.1",
            "Step1XEditPipeline",
            {"prompt": "invert", "num_inference_steps": 28, "true_cfg_scale": 6.0, "generator": "cpu 12345"},
        ),
        (
            "step1x-edit-v1.2",
            "Step1XEditPipelineV1P2",
            {"prompt": "invert", "num_inference_steps": 50, "true_cfg_scale": 4.0, "generator": "cpu 12345", "size_level": 1024}
            | {"enable_thinking_mode": False, "enable_reflection_mode": False},
        ),
    ],
)
def test_a_bridge_hands_settings_and_seed_to_its_model(
    name: str, edit: str, expected: dict[str, Any], places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    spec = catalogue.find(name, "generate.editors")
    settings = spec.settings(weights="/weights", **places)
    assert spec.missing(settings) == ""
    editor = spec.open(settings, FlowConfig(name="x"))
    image = Image.new("RGB", (32, 16), (10, 20, 30))
    (made,) = editor.edit([EditRequest(image, "invert", 12345)])
    saved = [editor.save_memory(), editor.save_memory()]
    editor.close()
    assert isinstance(made, Edited)
    assert made.image.tobytes() == ImageOps.invert(image).tobytes()
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    ((_, given),) = [call for call in calls if call[0] == edit]
    assert calls.index(["seeded", {"seed": 12345}]) < calls.index([edit, given])
    given.pop("negative_prompt", None)
    assert given == expected
    offloads = name.startswith(("omnigen2", "step1x"))
    assert saved == [offloads, False]
    assert sum(call[0] == "offload" for call in calls) == offloads
    assert dict(made.record)["versions"]["torch"] == "9.9"


def test_what_runs_elsewhere_needs_python_3_9_and_packages_that_are_there() -> None:
    """The bridges' own imports, inside their functions, are their models'."""
    for path in [Path(child.__file__), *BRIDGES.glob("*.py")]:
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                assert all(name.partition(".")[0] in sys.stdlib_module_names for name in names), path


def test_weights_that_lack_tensors_are_not_filled_with_random_ones(places: dict[str, str]) -> None:
    spec = catalogue.find("ovis-u1", "generate.editors")
    with pytest.raises(ValueError, match=r"weights without 1 tensors, such as vae\.0\.weight: they would be random"):
        spec.open(spec.settings(weights="/bad", **places), FlowConfig(name="x"))
