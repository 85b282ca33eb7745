"""`pipeline rehearse`: training and scoring at full size, without weights, data or a GPU."""

from __future__ import annotations

import click

from pipeline.commands.common import CONFIG, EXAMPLE, OVERRIDES, RUN, Finite, Options, takes
from pipeline.planning.assumptions import PEAK_TFLOPS, UTILISATION


@click.command(
    help="Read a configuration; run a training step and a scoring pass of its reward model on torch's meta device, and print tokens, "
    "operations, memory, kernels, hours and cost. What would not run on a GPU, or would make it wait, ends the command with its place in "
    "the source. Writes nothing, downloads nothing.\n\n" + EXAMPLE.format(command="rehearse", more=" --ranks 8 --price 2.50")
)
@takes(CONFIG, RUN, OVERRIDES)
@click.option("--ranks", type=click.IntRange(min=1), metavar="N", help="GPUs that train; default: reward.workers.")
@click.option(
    "--efficiency",
    type=Finite(min=0, max=1, min_open=True),
    default=UTILISATION,
    show_default=True,
    help="Share of the peak that the model gets (MFU); an assumption.",
)
@click.option(
    "--peak-tflops",
    type=Finite(min=0, min_open=True),
    default=PEAK_TFLOPS,
    show_default=True,
    help="Dense bf16 TFLOP/s of a GPU; the default is an A100's or A800's, an H100 has 989.",
)
@click.option("--price", type=Finite(min=0), metavar="AMOUNT", help="Price of a GPU hour; without it no cost is printed.")
def rehearse(options: Options, ranks: int | None, efficiency: float, peak_tflops: float, price: float | None) -> None:
    flow = options.loaded.flow
    from pipeline.planning import rehearsal

    hardware = rehearsal.Hardware(ranks=ranks or flow.reward.workers, peak_tflops=peak_tflops, efficiency=efficiency, price=price)
    print(rehearsal.report(flow, hardware))
