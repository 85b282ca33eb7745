"""Generate: balanced groups of candidates, sources of one's own, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pipeline import config
from stages.context import Context
from stages.datasets import readers
from stages.editors import catalogue
from stages.editors.editor import Edited, EditorSpec, EditRequest, Licence
from stages.engine.cluster import Cluster
from stages.engine.config import RayConfig
from stages.engine.rundir import RunDir
from stages.generate import step as generate

WORLD = """\
name: x
world: {size: 32}
generate:
  sources: {dataset: world, train: 6, validation: 4}
  editors:
    - {name: world/quill, seeds: [0, 1]}
    - {name: world/anvil, seeds: [0]}
  annotate: 2
  unit_sources: 3
"""
TABLE = WORLD.replace(
    "{dataset: world, train: 6, validation: 4}", "{dataset: table, tables: [{name: mine, path: TABLE}], validation_share: 0.5}"
)


def context(tmp_path: Path, text: str, cluster: Cluster, *overrides: str) -> Context:
    path = tmp_path / "x.yaml"
    path.write_text(text.replace("TABLE", str(tmp_path / "sources.jsonl")))
    return Context(RunDir(tmp_path / "run"), config.load(path, overrides).flow, cluster)


def write_table(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    for number in range(4):
        Image.new("RGB", (40, 30), (60 * number, 10, 200)).save(tmp_path / f"{number}.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "0.png").read_bytes()[:40])
    (tmp_path / "sources.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


class Tinting:
    """An editor that works on any image, and fails on one seed."""

    def edit(self, batch: Sequence[EditRequest]) -> list[Edited]:
        if any(request.seed == 1 for request in batch):
            raise RuntimeError("out of memory")
        return [Edited(request.image) for request in batch]

    def save_memory(self) -> bool:
        return False

    def close(self) -> None:
        pass


def test_groups_are_complete_and_the_choice_is_even(cluster: Cluster, tmp_path: Path) -> None:
    made = context(tmp_path, WORLD, cluster)
    index = generate.run(made)
    folder = made.run.step("generate")
    drawn, candidates = folder.read("sources").to_pylist(), folder.read("candidates").to_pylist()
    assert index.counts == {"in": 10, "out": 10, "quarantined": 0} and index.results["failed_candidates"] == 0
    assert [source["split"] for source in drawn] == ["train"] * 6 + ["validation"] * 4
    assert len({source["source_id"] for source in drawn}) == 10 and len({c["candidate_id"] for c in candidates}) == 30
    for source in drawn:
        group = [c for c in candidates if c["source_id"] == source["source_id"]]
        assert sorted((c["editor"], c["seed"]) for c in group) == [("world/anvil", 0), ("world/quill", 0), ("world/quill", 1)]
        assert sum(c["annotate"] for c in group) == 2
    assert len({c["editor"] + str(c["seed"]) for c in candidates if not c["annotate"]}) > 1  # not always the same one is left out


def test_own_sources_and_a_failing_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work of a unit, without Ray: bad rows are set aside, failed candidates stay and are not annotated."""
    rows = [
        {"image": "0.png", "instruction": "make it red"},
        {"image": "1.png", "instruction": "  "},
        {"image": "no.png", "instruction": "a"},
    ]
    write_table(tmp_path, [*rows, {"image": "cut.png", "instruction": "b"}, {"instruction": "c"}, {"image": "2.png", "instruction": "d"}])
    tinting = EditorSpec("tinting", "test", Licence("MIT"), lambda settings, flow: Tinting())
    monkeypatch.setattr(catalogue, "specs", lambda: {"world/quill": tinting, "world/anvil": tinting})
    flow = context(tmp_path, TABLE, Cluster(RayConfig())).flow
    assert flow.generate is not None
    (piece,) = readers.plan(flow.generate.sources, seed=0, world=None, unit_rows=10, key="generate.sources", edited=False)
    output = generate._make_work(flow, flow.generate)(piece)
    assert (output.rows_in, output.rows_out) == (6, 2)
    assert [row.reason for row in output.quarantine] == ["empty-instruction", "missing-image", "undecodable-image", "missing-image"]
    candidates = output.tables["candidates"].to_pylist()
    assert [(c["seed"], c["status"], c["error"], c["annotate"]) for c in candidates[:3]] == [
        (0, "ok", "", True),
        (1, "failed", "out of memory", False),
        (0, "ok", "", True),
    ]
    assert output.tables["sources"].column("image").to_pylist()[0]["bytes"] == (tmp_path / "0.png").read_bytes()


def test_refusals(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no editor 'world/quil'; known: world/quill"):
        generate.run(context(tmp_path, WORLD, cluster, "generate.editors.0.name=world/quil"))
    with pytest.raises(ValueError, match=r"generate.editors: world/anvil with seed 0 is there 2 times and would make equal candidates"):
        generate.run(context(tmp_path, WORLD.replace("seeds: [0]", "seeds: [0, 2, 0]"), cluster))
    with pytest.raises(ValueError, match=r"generate.annotate: 4 of 3 candidates"):
        generate.run(context(tmp_path, WORLD, cluster, "generate.annotate=4"))
    with pytest.raises(ValueError, match=r"generate.sources.tables.0: there is no file .*sources.jsonl"):
        generate.run(context(tmp_path, TABLE, cluster))
    write_table(tmp_path, [{"image": "0.png", "instruction": "a"}])
    with pytest.raises(ValueError, match=r"has 1 rows, the configuration expects 7 of mine"):
        generate.run(context(tmp_path, TABLE, cluster, "generate.sources.tables.0.expected=7"))
    with pytest.raises(
        ValueError, match=r"none of the 3 candidates could be made: a toy editor edits only sources of the toy world, not of mine"
    ):
        generate.run(context(tmp_path, TABLE, cluster))
    write_table(tmp_path, [{"image": "0.png", "instruction": "a"}, {"image": "0.png", "instruction": "a"}])
    with pytest.raises(ValueError, match=r"two rows have the same image and the instruction 'a'; remove one"):
        generate.run(context(tmp_path, TABLE, cluster))


def test_a_units_name_follows_what_its_sources_are_made_of(tmp_path: Path) -> None:
    """The split, the folder of the images and the table's place belong to it; the number of actors does not."""
    write_table(tmp_path, [{"image": "0.png", "instruction": "a"}])

    def key(*overrides: str) -> str:
        flow = context(tmp_path, TABLE, Cluster(RayConfig()), *overrides).flow
        assert flow.generate is not None
        (piece,) = readers.plan(flow.generate.sources, seed=0, world=None, unit_rows=10, key="generate.sources", edited=False)
        return generate._unit_key(piece, flow.generate.sources, {})

    assert key() == key("generate.workers=5")
    assert len({key(), key("generate.sources.validation_share=0.25"), key(f"generate.sources.tables.0.images={tmp_path / 'other'}")}) == 3


def test_a_table_that_is_listed_twice_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    write_table(tmp_path, [{"image": "0.png", "instruction": "a"}])
    twice = TABLE.replace("[{name: mine, path: TABLE}]", "[{name: mine, path: TABLE}, {name: mine, path: TABLE}]")
    with pytest.raises(ValueError, match=r"generate.sources: the same rows of .* are listed 2 times; name each table once"):
        generate.run(context(tmp_path, twice, cluster))
