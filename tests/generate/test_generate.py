"""Generate: balanced groups of candidates, sources of one's own, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from generate_here import sources_here
from PIL import Image

from pipeline import config
from stages.context import Context
from stages.datasets import readers
from stages.engine.cluster import Cluster
from stages.engine.config import RayConfig
from stages.engine.rundir import RunDir
from stages.generate import step as generate
from stages.generate.sources import unit_key

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


def test_groups_are_complete_and_the_draw_is_even(cluster: Cluster, tmp_path: Path) -> None:
    made = context(tmp_path, WORLD, cluster)
    index = generate.run(made)
    folder = made.run.step("generate")
    sources, candidates, drawn = (folder.read(name).to_pylist() for name in ("sources", "candidates", "drawn"))
    assert index.counts == {"in": 10, "out": 10, "quarantined": 0} and index.results["failed_candidates"] == 0
    assert [source["split"] for source in sources] == ["train"] * 6 + ["validation"] * 4
    assert len({source["source_id"] for source in sources}) == 10 and len({c["candidate_id"] for c in candidates}) == 30
    editor_of = {c["candidate_id"]: c["editor"] for c in candidates}
    for source in sources:
        group = [c for c in candidates if c["source_id"] == source["source_id"]]
        assert sorted((c["editor"], c["seed"]) for c in group) == [("world/anvil", 0), ("world/quill", 0), ("world/quill", 1)]
        chosen = [editor_of[row["candidate_id"]] for row in drawn if row["source_id"] == source["source_id"]]
        assert sorted(chosen) == ["world/anvil", "world/quill"], "one of each editor"
    assert {c["licence"] for c in candidates} == {"Apache-2.0"} and {c["seed"] for c in candidates} == {0, 1}
    quill, anvil = index.results["editors"]
    assert (quill["made"], quill["drawn"], anvil["made"], anvil["drawn"], quill["seeds"]) == (20, 10, 10, 10, [0, 1])
    assert not list((folder.path / "unfinished").iterdir())


def test_sources_of_ones_own(tmp_path: Path) -> None:
    """The work of a unit, without Ray: bad rows are set aside."""
    rows = [
        {"image": "0.png", "instruction": "make it red"},
        {"image": "1.png", "instruction": "  "},
        {"image": "no.png", "instruction": "a"},
    ]
    write_table(tmp_path, [*rows, {"image": "cut.png", "instruction": "b"}, {"instruction": "c"}, {"image": "2.png", "instruction": "d"}])
    (output,) = sources_here(context(tmp_path, TABLE, Cluster(RayConfig())).flow)
    assert (output.rows_in, output.rows_out) == (6, 2)
    assert [row.reason for row in output.quarantine] == ["empty-instruction", "missing-image", "undecodable-image", "missing-image"]
    assert output.tables["sources"].column("image").to_pylist()[0]["bytes"] == (tmp_path / "0.png").read_bytes()


def test_refusals(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"generate.editors.0.name: there is no editor 'world/quil'; known: .*world/quill"):
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
    with pytest.raises(ValueError, match=r"none of the 3 candidates could be made: ValueError: a toy editor edits only sources of the toy"):
        generate.run(context(tmp_path, TABLE, cluster))
    assert not [*tmp_path.rglob("candidates.parquet")], "what failed is tried again by the next command"
    write_table(tmp_path, [{"image": "no.png", "instruction": "a"}])
    with pytest.raises(ValueError, match=r"generate.sources: no row can be used \(missing-image 1\); e.g. sources.jsonl\[0\]: "):
        generate.run(context(tmp_path, TABLE, cluster))


def test_a_units_name_follows_what_its_sources_are_made_of(tmp_path: Path) -> None:
    """The folder of the images and the table's place belong to it; the number of actors and the split do not."""
    write_table(tmp_path, [{"image": "0.png", "instruction": "a"}])

    def key(*overrides: str) -> str:
        flow = context(tmp_path, TABLE, Cluster(RayConfig()), *overrides).flow
        assert flow.generate is not None and flow.generate.sources is not None
        (piece,) = readers.plan(flow.generate.sources, seed=0, world=None, unit_rows=10, key="generate.sources", edited=False)
        return unit_key(piece)

    assert key() == key("generate.workers=5") == key("generate.sources.validation_share=0.25")
    assert key() != key(f"generate.sources.tables.0.images={tmp_path / 'other'}")


def test_a_table_that_is_listed_twice_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    write_table(tmp_path, [{"image": "0.png", "instruction": "a"}])
    twice = TABLE.replace("[{name: mine, path: TABLE}]", "[{name: mine, path: TABLE}, {name: mine, path: TABLE}]")
    with pytest.raises(ValueError, match=r"generate.sources: the same rows of .* are listed 2 times; name each table once"):
        generate.run(context(tmp_path, twice, cluster))
