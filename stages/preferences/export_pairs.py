"""Export of preference pairs with their images, for use without the run directory.

In: a run with finished generate and preferences steps. Out: a new folder in one of the layouts of :mod:`stages.preferences.layouts`,
published as a whole and byte for byte reproducible. No layout contains annotators, only the number of raters of a pair.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from stages.engine import storage
from stages.engine.rundir import RunDir
from stages.preferences.layouts import hub, reference_json
from stages.preferences.layouts.content import Content

Layout = Literal["reference-json", "hub"]


@dataclass(frozen=True)
class Exported:
    """pairs: rows written by split; left_out: rows that the layout cannot represent, by reason."""

    folder: Path
    pairs: dict[str, int]
    left_out: dict[str, int]


def export_pairs(run: RunDir, layout: Layout, target: str | Path, *, licence: str | None = None, path_prefix: str = "") -> Exported:
    """Write the pairs of a run into ``target``, which must not exist or be empty.

    licence: Hub licence id of the published data set, required for ``hub``. path_prefix: prefix of the image paths of ``reference-json``,
    whose trainer opens them without a root folder. Raises ``ValueError`` when a step is not done, options do not fit, or the target
    contains files.
    """
    if layout not in get_args(Layout):
        raise ValueError(f"there is no layout {layout!r} of pairs; use one of {', '.join(get_args(Layout))}")
    if layout == "hub" and not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", licence or ""):
        raise ValueError("--licence: a Hub data set states its licence; give its id, e.g. cc-by-4.0, or other")
    if (layout == "hub" and path_prefix) or (layout != "hub" and licence):
        raise ValueError(f"--{'path-prefix' if layout == 'hub' else 'licence'} does not belong to the layout {layout}; leave it out")
    folder = Path(target).absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{target} exists and is not an empty folder; name a new one")
    content = Content(run)
    partial = storage.partial_folder(folder)
    try:
        counts = hub.write(partial, content, licence or "") if layout == "hub" else reference_json.write(partial, content, path_prefix)
        storage.replace_folder(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Exported(folder, *counts)
