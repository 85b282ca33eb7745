"""Two processes joined by torch.distributed. They are forked from one that has imported the libraries once for all tests of a process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE = 300
"""Seconds that the processes may take before a test gives them up."""
IMPORTED = ["reward", "finetune.training.small", "finetune.training.train", "stages.engine.training_group"]

Joined = Callable[[], list[int | None]]


def start(work: Callable[..., Any], folder: Path, *given: Any) -> Joined:
    """Begin ``work(folder, *given)`` in both; its result of rank N goes to ``rank<N>.pt`` in ``folder``. Returns a wait for exit codes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    processes = [context.Process(target=_run, args=(rank, work, folder, *given)) for rank in range(2)]
    for process in processes:
        process.start()

    def joined() -> list[int | None]:
        for process in processes:
            process.join(PATIENCE)
            process.kill()
        return [process.exitcode for process in processes]

    return joined


def _run(rank: int, work: Callable[..., Any], folder: Path, *given: Any) -> None:
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    torch.save(work(folder, *given), folder / f"rank{rank}.pt")
    torch.distributed.destroy_process_group()
