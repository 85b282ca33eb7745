"""The pictures of README.md from a finished run of the demo: examples of scored edits, and the first screen of the report.

    python benchmarks/readme_pictures.py runs/demo

The examples are not chosen: the first held-out source of each edit kind, up to four, by the order of the run. Shown are the lowest and the
highest score among its rated edits, and whether the cut of the filter's selection would keep them. The report needs chromium.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from PIL import Image

from stages.engine.rundir import RunDir

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
GROUPS = 4
SELECTION = "selected"
INK, GOOD, BAD = "#1f2328", "#1a7f37", "#b35900"


def main() -> None:
    run = RunDir(sys.argv[1])
    IMAGES.mkdir(exist_ok=True)
    cut = min(run.step("filter").read("scores").filter(_in_selection(run))["overall_mean"].to_pylist())
    _draw(_groups(run), cut).savefig(IMAGES / "edits.png", dpi=110, facecolor="white")
    _screenshot(run.path / "report.html", IMAGES / "report.png")
    for name in ("edits.png", "report.png"):
        print(f"docs/images/{name}: {(IMAGES / name).stat().st_size / 1e3:.0f} kB")


def _in_selection(run: RunDir) -> Any:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    kept = pq.read_table(run.step("filter").path / "selections" / f"{SELECTION}.parquet")["sample_id"].combine_chunks()
    return pc.is_in(pc.field("sample_id"), kept)


def _groups(run: RunDir) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Held-out sources, each of another edit kind, with the lowest and the highest scored of their rated edits."""
    scores = {row["sample_id"]: row for row in run.step("evaluate-reward").read("scores").to_pylist()}
    edits: dict[str, list[dict[str, Any]]] = {}
    for row in run.step("generate").read("candidates", ["candidate_id", "source_id", "image"]).to_pylist():
        if row["candidate_id"] in scores:
            edits.setdefault(row["source_id"], []).append(row | scores[row["candidate_id"]])
    found: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {}
    for source in run.step("generate").read("sources").to_pylist():
        rated = sorted(edits.get(source["source_id"], []), key=lambda row: row["overall_mean"])
        if rated:
            found.setdefault(source["task"], (source, [rated[0], rated[-1]]))
    return list(found.values())[:GROUPS]


def _draw(groups: list[tuple[dict[str, Any], list[dict[str, Any]]]], cut: float) -> Any:
    """One column per source: the source, its lowest scored edit, its highest scored edit."""
    figure, axes = plt.subplots(3, len(groups), figsize=(8.4, 7.8), squeeze=False, layout="constrained")
    for column, (source, edits) in enumerate(groups):
        _show(axes[0][column], source["image"]["bytes"], textwrap.fill(f"“{source['instruction']}”", 26), INK)
        for row, edit in enumerate(edits, start=1):
            likert = {entry["dimension"]: entry["likert"] for entry in edit["dimensions"]}
            kept = edit["overall_mean"] >= cut
            words = [
                f"score {edit['overall_mean']:+.2f}: {'kept' if kept else 'dropped'}",
                f"instruction {likert['instruction_following']:.1f} of 4",
                f"quality {likert['visual_quality']:.1f} of 4",
            ]
            _show(axes[row][column], edit["image"]["bytes"], "\n".join(words), GOOD if kept else BAD)
    for row, label in enumerate(("source", "lowest score", "highest score")):
        axes[row][0].set_ylabel(label, fontsize=10, color=INK)
    return figure


def _show(axis: Any, image: bytes, caption: str, colour: str) -> None:
    axis.imshow(Image.open(io.BytesIO(image)).convert("RGB"), interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_xlabel(caption, fontsize=9, color=colour)
    for spine in axis.spines.values():
        spine.set_color(colour)
        spine.set_linewidth(1.5)


def _screenshot(page: Path, target: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("the picture of the report needs chromium; docs/images/report.png is unchanged")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,700"]
    subprocess.run([browser, *flags, f"--screenshot={target}", page.resolve().as_uri()], check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    main()
