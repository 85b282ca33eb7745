"""Edits: a process that dies, hangs or stops costs what was in work; a change costs the edits of one editor. Editors of a package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from generate_here import sources_here
from paths import ROOT
from PIL import Image

from stages.config import FlowConfig
from stages.editors import catalogue
from stages.engine import storage
from stages.engine.dispatch import CrewFailed
from stages.engine.rundir import RunDir
from stages.engine.units import UnitOutput, UnitRecord, publish_unit
from stages.generate.edit_task import EditTask
from stages.generate.edits import EditWork
from stages.generate.journal import Journal
from stages.generate.settling import Settled, settle

PLUGGED = str(ROOT / "tests" / "support" / "plugged")


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(PLUGGED)
    catalogue.specs.cache_clear()
    yield
    catalogue.specs.cache_clear()
    sys.modules.pop("odd_editors", None)


def settings(tmp_path: Path, *instructions: str, editors: list[dict[str, Any]], **generate: Any) -> dict[str, Any]:
    """A configuration whose sources are an image per instruction."""
    tmp_path.mkdir(exist_ok=True)
    rows = []
    for number, instruction in enumerate(instructions):
        Image.linear_gradient("L").resize((96, 64)).rotate(40 * number).convert("RGB").save(tmp_path / f"{number}.png")
        rows.append(json.dumps({"image": f"{number}.png", "instruction": instruction}))
    (tmp_path / "sources.jsonl").write_text("\n".join(rows))
    sources = {"dataset": "table", "tables": [{"name": "mine", "path": str(tmp_path / "sources.jsonl")}]}
    made = {"sources": sources, "editors": editors, "annotate": 2, "unit_sources": 3, "workers": 2} | generate
    return {"name": "x", "ray": {"dashboard": False}, "generate": made}


class Unit:
    """The unit of one editor for all sources, in this process. ``edits``: how many it made so far."""

    def __init__(self, tmp_path: Path, *instructions: str, seeds: int = 4, **generate: Any) -> None:
        self.traces = tmp_path / "traces"
        editor = {"name": "odd/plain", "candidates": seeds, "settings": {"traces": str(self.traces)}}
        self.flow = FlowConfig.model_validate(settings(tmp_path, *instructions, editors=[editor], **generate))
        (sources,) = sources_here(self.flow)
        storage.publish_bytes(tmp_path / "sources.parquet", storage.table_bytes(sources.tables["sources"]))
        self.task = EditTask(str(tmp_path / "sources.parquet"), seeds * len(instructions), str(tmp_path / "journal"), 100.0)

    def run(self, task: EditTask | None = None) -> UnitOutput:
        return EditWork(self.flow, 0)(task or self.task)

    @property
    def edits(self) -> int:
        return len(self.traces.read_text().splitlines()) if self.traces.exists() else 0


def test_a_rerun_makes_the_edits_that_are_left_and_the_same_bytes(plugged: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = Unit(tmp_path / "a", "one", "two", "three").run().tables["candidates"]
    unit = Unit(tmp_path / "b", "one", "two", "three")
    write, kept = Journal.write, []

    def dies(journal: Journal, first: int, rows: list[dict[str, Any]]) -> None:
        if len(kept) % 3 == 2:
            kept.append("died")
            raise KeyboardInterrupt
        kept.append("written")
        write(journal, first, rows)

    monkeypatch.setattr(Journal, "write", dies)
    while True:
        try:
            made = unit.run().tables["candidates"]
            break
        except KeyboardInterrupt:
            torn = next(iter((tmp_path / "b" / "journal").glob("*.parquet")))
            if kept.count("died") == 1:
                torn.write_bytes(torn.read_bytes()[:-1])
    assert kept.count("died") >= 2
    assert storage.table_bytes(made) == storage.table_bytes(undisturbed)
    batches_lost = 2 * kept.count("died") + 1  # what was being written and what was being edited; and the torn file
    assert 12 < unit.edits <= 12 + 2 * batches_lost
    with pytest.raises(AssertionError):
        unit.run(EditTask(**{**vars(unit.task), "rows": 13}))


def test_what_ends_its_process_is_tried_again_alone_and_fails_alone(plugged: None, tmp_path: Path) -> None:
    """The driver's part, without processes: a batch in work is noted, and held against its candidates."""
    unit = Unit(tmp_path, "one", "two", seeds=2)
    journal, task = Journal(unit.task.journal), unit.task
    assert task.after_death() is None, "nothing was in work"
    for places in [(2, 3), (2, 3), (3,), (3,)]:
        journal.begin(places)
        task = task.after_death() or pytest.fail("these were in work")
        assert task.after_death() is None, "a death while the editor is loaded again is nobody's"
    assert task.deaths == {(2, 3): (2, False), (3,): (2, False)}
    unit.run(task)
    rows = [*Journal(unit.task.journal).rows()]
    assert [row["status"] for row in rows] == ["ok", "ok", "ok", "failed"] and unit.edits == 3
    assert (rows[3]["reason"], rows[3]["image"]) == ("ended-process", None)
    assert [json.loads(row["record"]).get("batch") for row in rows] == [2, 2, 1, None]


def test_one_candidate_alone_is_the_same_image(plugged: None, tmp_path: Path) -> None:
    unit = Unit(tmp_path, "one", "two", "three")
    rows = unit.run().tables["candidates"].to_pylist()
    lost = sorted(Path(unit.task.journal).glob("*.parquet"))[3]
    lost.unlink()
    again = unit.run(EditTask(**{**vars(unit.task), "deaths": {(6, 7): (2, False)}})).tables["candidates"].to_pylist()
    assert unit.edits == 12 + 2
    for before, after in zip(rows, again, strict=True):
        assert {**before, "record": ""} == {**after, "record": ""}


def test_an_editor_that_fails_too_often_stops(plugged: None, tmp_path: Path) -> None:
    failures = {"after": 4, "share": 0.5}
    unit = Unit(tmp_path / "a", "one", "refuse", "raise", "two", seeds=2, failures={"after": 5, "share": 0.7})
    assert set(unit.run().tables) == {"candidates", "failed"}
    statuses = [(row["status"], row["reason"]) for row in Journal(unit.task.journal).rows()]
    assert statuses == [("ok", "")] * 2 + [("failed", "refused")] * 2 + [("failed", "error")] * 2 + [("ok", "")] * 2
    unit = Unit(tmp_path / "b", "one", "refuse", "raise", "two", seeds=2, failures=failures)
    with pytest.raises(
        CrewFailed, match=r"generate.editors.0: odd/plain .* stopped, since 4 of 6 edits failed, the last with 'TypeError: no"
    ):
        unit.run()
    assert {row["status"] for row in Journal(unit.task.journal).rows()} == {"ok"}, "what failed is tried again"
    unit = Unit(tmp_path / "c", "one", "always black", "always black, too", seeds=2, failures=failures)
    with pytest.raises(CrewFailed, match=r"stopped, since 4 of 6 edits failed, the last with 'flagged as black'"):
        unit.run()
    kept = Unit(tmp_path / "d", "one", "always black", "always black, too", seeds=2, failures=failures, outputs={"black": "keep"})
    assert kept.run().tables["flagged-black"].num_rows == 4


def settled(unit: Unit, tmp_path: Path, **generate: Any) -> tuple[list[dict[str, Any]], Settled]:
    """The candidates of a unit, and what was decided of the last edits, with other settings of generate."""
    assert unit.flow.generate is not None
    changed = FlowConfig.model_validate(unit.flow.model_dump(exclude_unset=True) | {"generate": unit.flow.generate.model_dump() | generate})
    assert changed.generate is not None
    folder, rows, tasks = RunDir(tmp_path / "run").step("generate"), [], [unit.task]
    for turn in range(20):
        task = tasks.pop(0)
        output = unit.run(task)
        record = UnitRecord(f"k{turn}", publish_unit(folder.path, f"k{turn}", output.tables), output.rows_in, output.rows_out)
        found = settle(folder, record, task.retries, changed.generate)
        rows += folder.read_table("candidates", found.kept).to_pylist() + found.failed
        for again in found.again:
            journal = str(tmp_path / f"journal-{turn}-{len(tasks)}")
            tasks.append(EditTask(task.sources, len(again), journal, task.seconds, retries=tuple(again)))
        if not tasks:
            return rows, found
    pytest.fail("this must end")


def test_a_flagged_edit_gets_another_seed_or_fails(plugged: None, tmp_path: Path) -> None:
    """The word "black" makes a black image with even seeds, "always black" with all; of what is dropped nothing stays."""
    unit = Unit(tmp_path, "one", "black", "always black", seeds=6, failures={"share": 1.0})
    rows, _ = settled(unit, tmp_path / "a", outputs={"new_seeds": 8})
    planned = unit.edits
    assert len({row["candidate_id"] for row in rows}) == len(rows) == 18
    sound = [row for row in rows if row["status"] == "ok"]
    redone = [row for row in sound if "flagged_seeds" in json.loads(row["record"])]
    assert len(sound) == 12 and 0 < len(redone) < 6 and all(row["seed"] % 2 for row in redone)
    for row in redone:
        flagged = json.loads(row["record"])["flagged_seeds"]
        assert set(map(tuple, flagged.values())) == {("black",)} and all(int(seed) % 2 == 0 for seed in flagged)
    failed = [row for row in rows if row["status"] == "failed"]
    assert {(row["reason"], row["image"], row["record"]) for row in failed} == {("black", None, "{}")} and len(failed) == 6
    assert failed[0]["error"].startswith("the edit is flagged as black (brightness 0, contrast 0")
    measures = json.loads(sound[0]["record"])["measures"]
    assert set(measures) == {"brightness", "contrast", "smoothness", "largest_change", "size_difference"}
    kept, _ = settled(unit, tmp_path / "kept", outputs={"black": "keep"})
    assert {(row["status"], *row["flags"]) for row in kept} >= {("ok", "black")} and len(kept) == 18
    dropped, _ = settled(unit, tmp_path / "dropped", outputs={"black": "drop"})
    assert len(dropped) == 18 and {row["reason"] for row in dropped if row["status"] == "failed"} == {"black"}
    assert unit.edits == planned, "another policy makes no edit again"


def test_what_failed_is_tried_as_often_as_asked(plugged: None, tmp_path: Path) -> None:
    unit = Unit(tmp_path, "one", "refuse", seeds=3)
    for tries, edits in ((1, 6), (2, 6 + 3), (3, 9 + 2 * 3)):
        rows, found = settled(unit, tmp_path / str(tries), failures={"tries": tries})
        assert unit.edits == edits and len(found.failed) == 3 and len(rows) == 6


INSTRUCTIONS = ("one", "crash", "two", "always black", "hang", "refuse", "five")
RUNS = """
import json, sys
from pathlib import Path
from stages.config import FlowConfig
from stages.context import Context
from stages.engine.cluster import Cluster
from stages.engine.config import RayConfig
from stages.engine.rundir import RunDir
from stages.generate import step
cluster = Cluster(RayConfig(dashboard=False, object_store_mb=100))
for given in sys.argv[2:]:
    flow = FlowConfig.model_validate(json.loads(given))
    try:
        step.run(Context(RunDir(sys.argv[1]), flow, cluster, force=True))
        print("done", flush=True)
    except ValueError as error:
        print(error, flush=True)
cluster.close()
"""


def test_a_run_goes_on_around_its_bad_editors_and_redoes_only_what_changed(tmp_path: Path) -> None:
    """Processes that end and hang, an editor that cannot be loaded; it is repaired, one is changed, one is added; other policies."""
    traces = tmp_path / "traces"
    counted = {"traces": str(traces)}
    plain = {"name": "odd/plain", "candidates": 2, "settings": counted}
    other = {"name": "odd/other", "seeds": [4], "settings": counted | {"wild": True}}

    def flow(
        *editors: dict[str, Any], failures: dict[str, Any] | None = None, instructions: Sequence[str] = INSTRUCTIONS, **generate: Any
    ) -> str:
        rules = {"seconds": 5.0} | (failures or {})
        return json.dumps(settings(tmp_path / str(len(instructions)), *instructions, editors=[*editors], failures=rules, **generate))

    changed = plain | {"settings": counted | {"tone": 5}}
    added = {"name": "odd/plain", "label": "brighter", "seeds": [9], "settings": counted | {"tone": 6}}
    runs = [
        flow(plain, other | {"settings": {"loads": False}}),
        flow(plain, other),
        flow(changed, other),
        flow(changed, other, added),
        flow(changed, other, added, outputs={"black": "keep"}),
        flow(changed, added, failures={"tries": 2}),
        flow(changed, added, failures={"tries": 2}, outputs={"content_filter": "odd", "content": "keep"}),
        flow(changed, added, failures={"tries": 2}, outputs={"content_filter": "odd"}),
        flow(changed, added, failures={"tries": 2}, outputs={"content_filter": "raising"}),
        flow(
            changed,
            added,
            failures={"tries": 2},
            outputs={"content_filter": "odd"},
            instructions=(*INSTRUCTIONS, "six"),
            split_distance=None,
        ),
        flow(changed, other | {"settings": {"loads": False, "tone": 9}}, failures={"stop_all": True}),
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), PLUGGED, os.environ.get("PYTHONPATH", "")])}
    counts: list[Counter[str]] = []
    command = [sys.executable, "-c", RUNS, str(tmp_path / "run"), *runs]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = []
        for line in (line for line in process.stdout if "(raylet)" not in line):
            said.append(line.strip())
            counts.append(Counter(entry.split()[0] for entry in traces.read_text().splitlines()))
    assert said[1:-1] == [*["done"] * 7, said[8], "done"]
    assert said[8].startswith("generate.outputs.content_filter: raising raised an error at candidate ") and "no such thing" in said[8]
    assert "generate.editors.1: odd/other" in said[0] and "cannot be loaded (OSError: the weights are not there)" in said[0]
    assert said[0].endswith("; the other editors have finished; what is made stays: run it again after a repair")
    assert said[-1].endswith("cannot be loaded (OSError: the weights are not there)"), "the command ends at once"
    tried = counts[1]["odd/other"]
    first, again = 14, 2 * 2  # black edits are made again with two other seeds
    assert [found["odd/plain"] for found in counts[:3]] == [first, first + again, 2 * (first + again)], "only what changed is made"
    with_added = 2 * (first + again) + 7 + 2
    filtered = with_added + 3  # the other policy and the content filters make no edit; one more source redoes the last unit only
    assert [found["odd/plain"] for found in counts[3:]] == [with_added, with_added, *[filtered] * 4, *[filtered + 2 * 3] * 2]
    assert [found["odd/other"] for found in counts] == [0, *[tried] * 10]
    assert 5 + 2 + 2 * 2 <= tried <= 5 + 2 + 2 * 8, "two edits end their process, in a batch twice and then alone twice"
    index = RunDir(tmp_path / "run").step("generate").require()
    assert [(figures["name"], figures["editor"], figures["made"], figures["failed"]) for figures in index.results["editors"]] == [
        ("odd/plain", "odd/plain", 10, {"black": 2, "content": 2, "refused": 2}),
        ("brighter", "odd/plain", 5, {"black": 1, "content": 1, "refused": 1}),
    ]
