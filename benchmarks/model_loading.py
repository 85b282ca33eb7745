"""Memory, reading and processor time of loading a reward model, in processes of their own (Linux).

    python benchmarks/model_loading.py
    python benchmarks/model_loading.py --hidden 2048 --layers 24 --folder /data/scratch

Saves a model with random weights, and a checkpoint with such weights in bf16 in the published layout. Then each is loaded in a fresh
process that has imported everything: memory is the peak of the resident set above what the process had before, as a multiple of the
weights in bf16 (float32 weights alone are 2); reading is what went through read calls, as a multiple of the file. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
DIMENSIONS = ("instruction_following", "visual_quality")
RUBRICS = dict.fromkeys(DIMENSIONS, "Rate it: {instruction}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=None, help="where the models are written; they are removed at the end")
    parser.add_argument("--hidden", type=int, default=1024, help="width of the language model")
    parser.add_argument("--layers", type=int, default=12, help="its layers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="model-loading-") as folder:
        parameters = _fresh(partial(_write, Path(folder), options.hidden, options.layers))
        print(f"{parameters / 1e6:.0f} M parameters, {2 * parameters / 1e9:.2f} GB in bf16\n")
        print("| loaded | file (GB) | peak memory / bf16 size | read / file | processor seconds |\n|---|---|---|---|---|")
        for name, load, file in (
            ("saved model, to bf16", partial(_load, Path(folder), "bfloat16"), "saved/model.safetensors"),
            ("saved model, to float32", partial(_load, Path(folder), "float32"), "saved/model.safetensors"),
            ("bf16 checkpoint, imported to float32", partial(_import, Path(folder)), "published/model.safetensors"),
            ("bf16 backbone, under new heads in float32", partial(_backbone, Path(folder)), "published/model.safetensors"),
        ):
            peak, read, seconds = _fresh(partial(_measured, load))
            size = (Path(folder) / file).stat().st_size
            print(f"| {name} | {size / 1e9:.2f} | {peak / (2 * parameters):.2f} | {read / size:.2f} | {seconds:.1f} |")
    return 0


def _fresh(work: Callable[[], T]) -> T:
    """The result of a process that has done nothing else."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work).result()


def _write(folder: Path, hidden: int, layers: int) -> int:
    """A saved model, and the same weights in the published layout. Returns the number of parameters."""
    from safetensors.torch import save_file

    from reward import RewardModel
    from reward.config import BackboneConfig, HeadConfig, PresentationConfig, RewardModelConfig
    from reward.inputs.tokenizer import save_tokenizer
    from reward.model.released import EMBEDDING

    backbone = BackboneConfig(text_hidden=hidden, text_intermediate=4 * hidden, text_layers=layers, text_heads=8, text_kv_heads=2)
    presentation = PresentationConfig(layout="images", prompt="reference", rubrics=RUBRICS)
    config = RewardModelConfig(backbone=backbone, presentation=presentation, heads=HeadConfig(hidden=(1024, 16), dropout=0.05))
    model = RewardModel.from_config(config, [" ".join(f"word{number}" for number in range(20_000))])
    model.save(folder / "saved")
    weights = {}
    for name, tensor in model.state_dict().items():
        head, _, rest = name.removeprefix("heads.of.").partition(".mlp.")
        if head in DIMENSIONS:
            weights[f"rm_heads.head_{DIMENSIONS.index(head)}.{rest}"] = tensor.bfloat16()
        elif name.startswith("backbone."):
            weights[f"model.{name.removeprefix('backbone.')}"] = tensor.bfloat16()
    assert EMBEDDING in weights
    model.backbone.config.save_pretrained(folder / "published")
    save_tokenizer(model.tokenizer, folder / "published")
    save_file(weights, folder / "published" / "model.safetensors")
    return sum(parameter.numel() for parameter in model.parameters())


def _load(folder: Path, dtype: str) -> object:
    import torch

    from reward import RewardModel

    return RewardModel.load(folder / "saved", dtype=getattr(torch, dtype))


def _import(folder: Path) -> object:
    from reward.model.released import import_released

    return import_released(folder / "published", prompts=RUBRICS)


def _backbone(folder: Path) -> object:
    from reward import RewardModel
    from reward.config import BackboneConfig, PresentationConfig, RewardModelConfig

    presentation = PresentationConfig(layout="images", prompt="reference", rubrics=RUBRICS)
    pretrained = BackboneConfig(pretrained=str(folder / "published"))
    return RewardModel.from_config(RewardModelConfig(backbone=pretrained, presentation=presentation))


def _measured(load: Callable[[], object]) -> tuple[int, int, float]:
    """Peak of resident bytes above the start, bytes read and processor seconds of a load."""
    import reward.model.released  # noqa: F401  imports are no part of a load

    before, already, started = _status("VmRSS"), _read(), time.process_time()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    loaded = load()
    seconds, read, peak = time.process_time() - started, _read() - already, _status("VmHWM") - before
    del loaded
    return peak, read, seconds


def _status(field: str) -> int:
    """Bytes of a field of the process's status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _read() -> int:
    """Bytes that this process has read by calls."""
    return next(int(line.split()[1]) for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("rchar:"))


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main())
