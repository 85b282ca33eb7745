"""Edits of a run in the layout in which their benchmark publishes results, so that its own script can judge them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from stages.config import FlowConfig
from stages.engine import images, storage
from stages.engine.rundir import StepFolder
from stages.evaluate_editor.items.item import Item
from stages.evaluate_editor.systems import COPY, EXACT


def write(step: StepFolder, flow: FlowConfig, out: Path, only: Collection[str] = ()) -> dict[str, tuple[int, int]]:
    """Write ``<out>/<system>/...``; per system, how many edits were written and how many there are not. ``only``: these systems.

    Edits have the size in which they were made: a benchmark's script resizes them as it wants. Sources are what editors were given.
    Raises ``ValueError`` where the benchmark has no such layout, for a system that the run does not have, and where the benchmark's files
    are others than those of the run.
    """
    config = flow.evaluate_editor
    index = step.require()
    if config is None or any(index.settings.get(name) != value for name, value in config.items.identity(flow).items()):
        raise ValueError(f"{step.path} was made with other benchmark items than the configuration names; use the run's own configuration")
    systems = [name for name in index.results["overall"] if name not in (COPY, EXACT)]
    unknown = sorted(set(only) - set(systems))
    if unknown:
        raise ValueError(f"--system {unknown[0]}: the run has edits of {', '.join(systems)}")
    counts = {name: (0, 0) for name in systems if not only or name in only}
    first, size, count = 0, config.items.unit_items, config.items.count(flow)
    for part in index.artifacts["benchmark_edits"]:
        rows = storage.read_table(step.path / part.path).to_pylist()
        items = {(item.item_id, item.language): item for item in config.items.read(flow, first, part.rows)}
        first = first + size if first + size < count else 0  # every system's parts begin with the first item
        for row in rows:
            if row["arm"] not in counts:
                continue
            item, (written, missing) = items[row["item_id"], row["language"]], counts[row["arm"]]
            if row["image"] is None or not isinstance(item, Item):
                counts[row["arm"]] = written, missing + 1
                continue
            paths = config.items.edit_paths(item)
            if paths is None:
                raise ValueError("this benchmark publishes no results as folders of images; GEdit-Bench and ImgEdit-Bench do")
            folder = out / row["arm"].replace("/", "-")
            storage.publish_bytes(folder / paths[0], row["image"]["bytes"])
            if paths[1]:
                storage.publish_bytes(folder / paths[1], images.png(item.image))
            counts[row["arm"]] = written + 1, missing
    return counts
