"""`pipeline editor-bench`: how far two judges agree, and a run's edits in the layout of the benchmark's own script."""

from __future__ import annotations

from pathlib import Path

import click

from pipeline import words
from pipeline.commands.common import EXAMPLE, Options, common


@click.group(name="editor-bench")
def editor_bench() -> None:
    """Compare judges of edits; export edits to the benchmark's own script.

    \b
    Example:
      pipeline editor-bench agreement --run runs/gedit
    """


@editor_bench.command(name="agreement")
@click.option(
    "--run", "runs", multiple=True, required=True, metavar="DIR", help="Run whose verdicts are compared; may be given several times."
)
@click.option("--resamples", type=click.IntRange(min=100), default=2000, show_default=True, help="Bootstrap resamples, of items.")
def agreement(runs: tuple[str, ...], resamples: int) -> None:
    """Read the verdicts of runs; print how far every two judges agree on the same edits, with 95 % intervals. Writes nothing.

    The judges are those of evaluate_editor.judge and further_judges; of two runs, edits count as the same where their pixels are.

    \b
    Example:
      pipeline editor-bench agreement --run runs/gedit \\
        --run runs/gedit-other-judge
    """
    from reward.evaluation.bootstrap import Bootstrap
    from stages.engine import steps
    from stages.engine.rundir import RunDir
    from stages.evaluate_editor.agreement import agreements

    columns = ["item_id", "language", "arm", "edit_id", "judge_revision", "overall", "status"]
    for run in runs:
        if not RunDir(run).path.is_dir():
            raise ValueError(f"--run {run}: there is no run directory; `pipeline run evaluate-editor --run {run} --config FILE` makes one")
    rows = [row for run in runs for row in RunDir(run).step(steps.EVALUATE_EDITOR).read("verdicts", columns).to_pylist()]
    for found in agreements(rows, Bootstrap(resamples)):
        print(f"{found.a} and {found.b}: {words.count(found.edits)} edits judged by both, {words.count(found.failed)} by one of them only")
        for name, estimate in (
            ("rank correlation of edits' scores (Spearman)", found.spearman),
            ("order of the systems (Kendall's tau-b)", found.systems),
            ("pairs of edits of one item in the same order, where both have a preference", found.pairs),
            ("pairs of edits with the same outcome: better, equal, worse", found.outcomes),
            (f"mean score of {found.b} minus that of {found.a}", found.offset),
        ):
            print(f"  {name}: {estimate}")


@editor_bench.command(
    name="export",
    help="Read the edits of a run; write them into folders as the benchmark publishes results, so that its own script can judge them.\n\n"
    + EXAMPLE.format(command="editor-bench export --target results", more=""),
)
@common
@click.option("--target", required=True, metavar="DIR", help="Folder to write into; each system gets one in it.")
@click.option("--system", "systems", multiple=True, metavar="NAME", help="Export this system only; may be given several times.")
def export_edits(options: Options, target: str, systems: tuple[str, ...]) -> None:
    from stages.engine import steps
    from stages.evaluate_editor import results_layout

    step = options.run.step(steps.EVALUATE_EDITOR)
    for name, (written, missing) in results_layout.write(step, options.loaded.flow, Path(target), systems).items():
        there_is_not = f", {words.count(missing)} are missing" if missing else ""
        print(f"{target}/{name.replace('/', '-')}: {words.count(written)} edits{there_is_not}")
