"""Estimated cost of scoring and filtering for three sizes of data set on three sizes of cluster.

Compute: FLOP per pair as `pipeline plan` counts them, at an assumed share of an assumed GPU's peak. Cores: assumed seconds per pair to
inspect it, and to prepare it for scoring, on an assumed number of cores per GPU. Both go on while the GPUs compute, and the slower of cores
and GPUs counts; where a gate that compares edits drops, all pairs are inspected before the first is scored. What has to be read per second,
on average, follows from that: every pair is read twice. Nothing is added for a disk or a network that is slower than that, nor for writing
shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline import words
from pipeline.planning.assumptions import PEAK_TFLOPS, UTILISATION
from stages.filter.config import FilterConfig
from stages.filter.gates.config import comparing
from stages.filter.selection.config import SelectionConfig

PAIRS = (46_539, 1_000_000, 100_000_000)
"""ShareGPT-4o-Image's edit split, and larger sets."""
GPUS = (8, 64, 512)
IMAGE_BYTES = 1_000_000
"""Assumed size of an encoded image of one megapixel."""
INSPECT_SECONDS = 0.1
"""Assumed time of a core to inspect a pair of PNG of one megapixel, of which 0.06 s are decoding; measured: docs/gates.md."""
PREPARE_SECONDS = 0.08
"""Assumed time of a core to decode such a pair again (0.06 s) and to resize it to the model's area (0.02 s)."""
CORES_PER_GPU = 2
"""Assumed: cores that inspect and prepare, per GPU: 16 beside 8 GPUs."""
DRIVER_BYTES, PAIR_BYTES = 2_000_000_000, 10
"""Assumed memory of the driver, of which up to 1.6 GB were measured (benchmarks/filter_decisions.py), and per pair: five bytes for what the
gates decided, and up to five for the plan."""


@dataclass(frozen=True)
class Cost:
    """One size of data set on one size of cluster."""

    gpu_hours: float
    wall_hours: float
    limit: str
    input_bytes: float
    shard_bytes: float
    read_bytes_per_second: float
    driver_bytes: float


def cost(pairs: int, gpus: int, flop_per_pair: float, kept: float, *, beside: bool) -> Cost:
    """``kept``: pairs written into shards, all selections together; ``beside``: pairs are inspected while others are scored."""
    gpu_hours = pairs * flop_per_pair / (PEAK_TFLOPS * 1e12 * UTILISATION) / 3600
    inspect_hours, prepare_hours = (pairs * seconds / CORES_PER_GPU / 3600 for seconds in (INSPECT_SECONDS, PREPARE_SECONDS))
    core_hours = prepare_hours + (inspect_hours if beside else 0.0)
    wall_hours = (max(gpu_hours, core_hours) + (0.0 if beside else inspect_hours)) / gpus
    return Cost(
        gpu_hours=gpu_hours,
        wall_hours=wall_hours,
        limit="GPUs" if gpu_hours >= core_hours else "cores",
        input_bytes=pairs * 2 * IMAGE_BYTES,
        shard_bytes=kept * 2 * IMAGE_BYTES,
        read_bytes_per_second=2 * pairs * 2 * IMAGE_BYTES / (wall_hours * 3600),
        driver_bytes=DRIVER_BYTES + pairs * PAIR_BYTES,
    )


def kept(selections: Sequence[SelectionConfig], pairs: int) -> float:
    """Pairs that the selections keep together; one without count and fraction may keep all."""
    total = 0.0
    for choice in selections:
        if choice.count is not None:
            total += min(choice.count, pairs)
        else:
            total += pairs if choice.fraction is None else choice.fraction * pairs
    return total


def table(config: FilterConfig, flop_per_pair: float, scorer: str) -> str:
    """The estimate as text; ``scorer`` names the model whose FLOP were counted."""
    waits = comparing(config.gates)
    rows = []
    for pairs in PAIRS:
        for gpus in GPUS:
            found = cost(pairs, gpus, flop_per_pair, kept(config.selections, pairs), beside=not waits)
            first = gpus == GPUS[0]
            rows.append(
                [
                    f"{pairs:,}" if first else "",
                    _amount(found.gpu_hours) if first else "",
                    str(gpus),
                    words.duration(found.wall_hours * 3600),
                    found.limit,
                    f"{found.read_bytes_per_second / 1e9:,.2f} GB/s",
                    words.size(found.input_bytes) if first else "",
                    words.size(found.shard_bytes) if first else "",
                    words.size(found.driver_bytes) if first else "",
                ]
            )
    header = ["pairs", "GPU hours", "GPUs", "wall time", "limited by", "reading", "images in", "shards out, at most", "driver memory"]
    about = (
        f"filter at other sizes, an estimate: {flop_per_pair:.1e} FLOP per pair ({scorer}), {UTILISATION:.0%} of {PEAK_TFLOPS:.0f} TFLOP/s "
        f"per GPU (A100 or A800),\n{IMAGE_BYTES / 1e6:g} MB per image, {INSPECT_SECONDS:g} s of a core to inspect a pair and "
        f"{PREPARE_SECONDS:g} s to prepare it, {CORES_PER_GPU} cores per GPU; {order(config)}\n"
    )
    return about + words.text_table(header, rows)


def order(config: FilterConfig) -> str:
    """When edits are scored, in words."""
    waits = comparing(config.gates)
    if not waits:
        return "scored as they are inspected"
    return f"all are inspected before the first is scored, because {words.listing(waits)} may drop some"


def _amount(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 0.05 else f"{hours:.1e}"
