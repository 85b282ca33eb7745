"""The report's section on editors, of candidates with records as generate writes them."""

from __future__ import annotations

import json
from pathlib import Path

from rated_run import source

from pipeline.report.blocks import Paragraph, Table
from pipeline.report.published import Published
from pipeline.report.sections import editors
from stages.engine import contracts
from stages.engine.rundir import RunDir
from stages.engine.units import publish_table

RECORDS = {
    "kontext": [
        {"shift": [3.0, 4.0], "zoom": 1.02, "padded": 0.1},
        {"shift": [0.0, 0.0], "zoom": 1.0, "padded": 0.3},
        {"shift": None, "zoom": None, "padded": 0.2},
    ],
    "still": [{"shift": [0.0, 0.0], "zoom": 0.99}],
    "unmeasured": [{"shift": None, "zoom": None}],
}


def published(folder: Path, results: dict) -> Published:
    run = RunDir(folder)
    step = run.step("generate")
    draft, _ = step.begin(settings={}, inputs={}, force=False)
    rows = [
        contracts.candidate(
            candidate_id=f"{editor}{place}",
            source_id="a",
            editor=editor,
            editor_revision="1",
            seed=place,
            settings_hash="",
            record=json.dumps(record),
        )
        for editor, records in RECORDS.items()
        for place, record in enumerate(records)
    ]
    rows.append(rows[0] | {"candidate_id": "failed", "status": "failed", "record": "{}"})
    sources = [source(number, benchmark="gedit-bench" if number < 3 else "") for number in range(5)]
    tables = {"candidates": contracts.table("candidates", rows), "sources": contracts.table("sources", sources)}
    step.publish(draft, artifacts={name: publish_table(step, name, table) for name, table in tables.items()}, results=results)
    return Published(run)


def test_shift_zoom_and_marks_are_shown(tmp_path: Path) -> None:
    figures = {
        "name": "kontext", "licence": "FLUX.1-dev", "failed": {"wrong-size": 1}, "flagged": {}, "per_source": 2, "made": 3, "drawn": 2,
        "settings": {"steps": 50},
    }  # fmt: skip
    near = {"images": 5, "merged": 4, "groups": 2, "largest": 2, "across_declared_splits": 0}
    made, geometry, text = editors.section(published(tmp_path, {"editors": [figures], "near_duplicates": near})).blocks
    assert isinstance(made, Table) and made.rows == [("kontext (steps 50)", "FLUX.1-dev", "wrong size 1", "–", "2", "3", "2")]
    assert isinstance(geometry, Table) and geometry.rows == [
        ("kontext", "2 of 3", "2.50", "4.75", "1.00", "1.90", "20.0\u202f%"),
        ("still", "1 of 1", "0.00", "0.00", "1.00", "1.00", "–"),
    ]
    assert isinstance(text, Paragraph)
    assert "Of 5 source images 4 have a near duplicate." in text.text
    assert "3 of gedit-bench. A reward model that is trained on them has seen" in text.text


def test_nothing_of_candidates_made_elsewhere(tmp_path: Path) -> None:
    assert not editors.section(published(tmp_path, {})).blocks
