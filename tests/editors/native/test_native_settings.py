"""What a user may set, what is refused, and what names the weights."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import tiny_editors
import torch
from safetensors.torch import load_file, save_file

from stages.config import FlowConfig
from stages.editors import catalogue
from stages.editors.native import loading, models, versions, weights
from stages.editors.native.adapter import NativeEditor
from stages.generate.candidate_plan import planned

KEY = "generate.editors.0.settings"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def settings(name: str, **given: Any) -> Any:
    return catalogue.settings_of(catalogue.find(name, "name"), given, KEY)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_editors.save("flux-kontext", tmp_path_factory.mktemp("weights") / "kontext")


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("qwen-image-edit-2511", {"steps": 8}, "settings.steps: .*takes 40 steps, and fewer make another editor"),
        (
            "flux-kontext",
            {"negative_prompt": "blur"},
            "settings.negative_prompt: there is no such setting; the settings of flux-kontext are: ",
        ),
        ("flux2-klein-4b", {"guidance": 4.0}, "settings.guidance: there is no such setting"),
        ("qwen-image-edit", {"guidance": 1.0}, "settings.guidance: .*greater than 1"),
        ("longcat-image-edit", {"attention": "sage"}, "settings.attention: Input should be 'auto'"),
        ("longcat-image-edit", {"dtype": "int8"}, "settings.dtype: Input should be 'bf16' or 'fp32'"),
    ],
)
def test_a_setting_that_makes_another_editor_is_refused(name: str, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        settings(name, **given)


def test_the_settings_are_the_authors_values() -> None:
    values = {model.name: settings(model.name).model_dump() for model in models.MODELS}
    sampling = {name: tuple(value.get(key) for key in ("steps", "guidance", "negative_prompt")) for name, value in values.items()}
    assert sampling == {
        "flux-kontext": (28, 2.5, None),
        "qwen-image-edit": (50, 4.0, " "),
        "qwen-image-edit-2509": (40, 4.0, " "),
        "qwen-image-edit-2511": (40, 4.0, " "),
        "flux2-klein-4b-base": (50, 4.0, ""),
        "flux2-klein-4b": (4, None, None),
        "longcat-image-edit": (50, 4.5, ""),
        "firered-image-edit": (40, 4.0, " "),
    }
    assert [model.name for model in models.MODELS if not model.licence.open] == ["flux-kontext"]


def test_identity_follows_what_changes_edits_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    spec = catalogue.find("flux-kontext", "name")

    def identity(**given: Any) -> str:
        return json.dumps(spec.identity(settings("flux-kontext", **given), None), sort_keys=True)  # ty: ignore

    assert identity() == identity(offload="model") != identity(steps=30)
    assert identity(revision=COMMIT) != identity() != identity(dtype="fp32")
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert identity(path=str(folder)) == identity(path=str(copy))
    file = copy / "transformer" / "diffusion_pytorch_model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    assert identity(path=str(folder)) != identity(path=str(copy))


def test_large_files_are_sampled_to_their_ends(tmp_path: Path) -> None:
    file = tmp_path / "model_index.json"
    content = bytearray(weights.SAMPLES * weights.SAMPLE_BYTES * 3)
    file.write_bytes(content)
    before = weights.fingerprint(tmp_path)
    content[-1] = 1
    file.write_bytes(content)
    assert weights.fingerprint(tmp_path) != before


def test_weights_that_are_not_there_or_of_another_pipeline_are_one_sentence(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"flux-kontext: settings.path: .* has no model_index.json; give the directory"):
        NativeEditor(models.FLUX_KONTEXT, settings("flux-kontext", path=str(tmp_path)))
    with pytest.raises(ValueError, match="contains a FluxKontextPipeline, and this editor is a QwenImageEditPlusPipeline"):
        NativeEditor(models.FIRERED_IMAGE_EDIT, settings("firered-image-edit", path=str(folder)))
    broken = shutil.copytree(folder, tmp_path / "broken")
    (broken / "vae" / "config.json").unlink()
    given = settings("flux-kontext", path=str(broken))
    for look in (lambda: NativeEditor(models.FLUX_KONTEXT, given), lambda: catalogue.find("flux-kontext", "name").identity(given, None)):
        with pytest.raises(ValueError, match=r"flux-kontext: (settings.path: )?there is no \S+/vae/config.json"):
            look()
    with pytest.raises(ValueError, match=r"flux-kontext: settings.attention: xformers cannot be used here: "):
        NativeEditor(models.FLUX_KONTEXT, settings("flux-kontext", path=str(folder), attention="xformers"))
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match=r"flux-kontext: settings.offload: layers frees memory of a GPU, and there is none"):
            NativeEditor(models.FLUX_KONTEXT, settings("flux-kontext", path=str(folder), offload="layers"))


def test_a_reader_sees_the_whole_key_of_a_setting(tmp_path: Path) -> None:
    editors = [{"name": "qwen-image-edit", "candidates": 2, "settings": {"path": str(tmp_path)}}]
    section = {"sources": {"dataset": "table", "tables": [{"name": "a", "path": "a"}]}, "annotate": 2, "editors": editors}
    with pytest.raises(ValueError, match=r"^qwen-image-edit: generate\.editors\.0\.settings\.path: \S+ has no model_index\.json"):
        planned(FlowConfig.model_validate({"name": "x", "generate": section}))
    assert catalogue.under_key("my.settings.path is odd", "generate.editors.0") == "generate.editors.0: my.settings.path is odd"


def test_a_matrix_that_is_not_in_the_files_is_refused(folder: Path, tmp_path: Path) -> None:
    """transformers draws it at random and logs a line."""
    copy = shutil.copytree(folder, tmp_path / "copy")
    file = copy / "text_encoder_2" / "model.safetensors"
    tensors = load_file(file)
    del tensors["encoder.block.0.layer.0.SelfAttention.k.weight"]
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(
        ValueError, match=r"flux-kontext: 1 matrices, .*SelfAttention.k.weight first, are not those of the files in \S+/text_encoder_2;"
    ):
        NativeEditor(models.FLUX_KONTEXT, settings("flux-kontext", path=str(copy)))


def test_main_on_the_hub_becomes_the_commit(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    cache = tmp_path / f"models--{models.FLUX_KONTEXT.hub.replace('/', '--')}"
    shutil.copytree(folder, cache / "snapshots" / COMMIT)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(COMMIT)
    editor = NativeEditor(models.FLUX_KONTEXT, settings("flux-kontext", dtype="fp32"))
    assert editor._revision == COMMIT
    with pytest.raises(ValueError, match=r"qwen-image-edit: the weights .* \(revision main\) cannot be had .*settings.path"):
        NativeEditor(models.QWEN_IMAGE_EDIT, settings("qwen-image-edit"))


def test_untested_versions_warn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "TESTED", {"diffusers": "0.1", "transformers": versions.TESTED["transformers"]})
    versions.installed.cache_clear()
    with pytest.warns(UserWarning, match=r"not tested with diffusers .* \(tested: 0.1\)"):
        versions.installed()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        versions.installed()
    monkeypatch.undo()
    versions.installed.cache_clear()


def test_the_least_offloading_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = SimpleNamespace(components={"vae": torch.nn.Linear(256, 255), "transformer": torch.nn.Linear(256, 511), "tokenizer": None})

    def least(kib: int) -> str:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (loading.ACTIVATIONS + kib * 1024, 0))
        return loading._least(parts)

    assert [least(kib) for kib in (800, 600, 300)] == ["none", "model", "layers"]  # of 256 and 512 KiB
