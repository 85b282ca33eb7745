"""Memory, reading and processor time of loading a reward model, in processes of their own (Linux).

    python benchmarks/model_loading.py
    python benchmarks/model_loading.py --hidden 2048 --layers 24 --folder /data/scratch

Saves a model with random weights, and a checkpoint with such weights in bf16 in the published layout. Then each is loaded in a fresh
process that has imported everything: memory is the peak of the resident set above what the process had before, as a multiple of the
weights in bf16 (float32 weights alone are 2); reading is what went through read calls, as a multiple of the file. A worker of fsdp maps the
file to read its rows, which shows in the memory and not in the calls; its load ends when its shards are ready for the first step. Figures
of several workers are of the one that has most. Prints a Markdown table.
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
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from reward.config import RewardModelConfig

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
        for name, load, file, workers in (
            ("saved model, to bf16: scoring on a GPU", partial(_load, Path(folder), "bfloat16"), "saved/model.safetensors", 1),
            ("saved model, to float32: scoring on a CPU", partial(_load, Path(folder), "float32"), "saved/model.safetensors", 1),
            ("bf16 checkpoint, imported to float32", partial(_import, Path(folder)), "published/model.safetensors", 1),
            ("bf16 backbone to float32: a worker of ddp", partial(_backbone, Path(folder)), "published/model.safetensors", 1),
            ("bf16 backbone to float32: a worker of fsdp, of 2", partial(_shard, Path(folder)), "published/model.safetensors", 2),
            ("bf16 backbone to float32: a worker of fsdp, of 4", partial(_shard, Path(folder)), "published/model.safetensors", 4),
        ):
            peak, read, seconds = map(max, zip(*_fresh_group(load, workers), strict=True))
            size = (Path(folder) / file).stat().st_size
            print(f"| {name} | {size / 1e9:.2f} | {peak / (2 * parameters):.2f} | {read / size:.2f} | {seconds:.1f} |")
    return 0


def _fresh(work: Callable[[], T]) -> T:
    """The result of a process that has done nothing else."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work).result()


def _fresh_group(load: Callable[[], object], workers: int) -> list[tuple[int, int, float]]:
    """What `_measured` finds in each of several new processes that torch.distributed joins."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(workers, mp_context=context) as pool:
        return [running.result() for running in [pool.submit(_measured, load, rank, workers, folder) for rank in range(workers)]]


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


def _pretrained(folder: Path) -> RewardModelConfig:
    from reward.config import BackboneConfig, PresentationConfig, RewardModelConfig

    presentation = PresentationConfig(layout="images", prompt="reference", rubrics=RUBRICS)
    return RewardModelConfig(backbone=BackboneConfig(pretrained=str(folder / "published")), presentation=presentation)


def _backbone(folder: Path) -> object:
    from reward import RewardModel

    return RewardModel.from_config(_pretrained(folder))


def _shard(folder: Path) -> object:
    """What a worker of `parallel: fsdp` does before its first step. The block that sharding is for stays open, and so do the shards."""
    from contextlib import ExitStack
    from typing import Any

    from reward import RewardModel
    from reward.trainer.sharding import sharded_copy
    from reward.training.preference_pass import BLOCK_LISTS, take_unread

    model = RewardModel.from_config(_pretrained(folder), unread=True)
    settings: Any = {"parallel": "fsdp", "precision": "bf16", "block_lists": BLOCK_LISTS, "float32": ("heads",)}
    stack = ExitStack()
    return stack, stack.enter_context(sharded_copy(model, **settings, stored=take_unread(model)))


def _measured(load: Callable[[], object], rank: int, workers: int, folder: str) -> tuple[int, int, float]:
    """Peak of resident bytes above the start, bytes read and processor seconds of a load in one of several workers."""
    import torch.distributed as dist

    import reward.model.released  # imports are no part of a load
    import reward.training.train  # noqa: F401

    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=workers)
    before, already, started = _status("VmRSS"), _read(), time.process_time()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    loaded = load()
    measured = _status("VmHWM") - before, _read() - already, time.process_time() - started
    dist.barrier()
    del loaded
    return measured


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
