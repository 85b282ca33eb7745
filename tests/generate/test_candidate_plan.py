"""The plan of candidates and the draw: numbers, seeds, licences, balance."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from paths import ROOT

from pipeline.planning.plan import plan as plan_text
from stages.config import FlowConfig
from stages.editors import catalogue
from stages.engine import unit_log
from stages.engine.units import UnitRecord
from stages.generate import candidate_plan
from stages.generate.candidate_plan import PlannedEditor, obstacles, planned
from stages.generate.crews import for_workers
from stages.generate.draw import Sound, draw, sound

ODD = [{"name": "odd/plain"}, {"name": "odd/other"}]


@pytest.fixture(autouse=True)
def plugged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "support" / "plugged"))
    catalogue.specs.cache_clear()
    yield
    catalogue.specs.cache_clear()
    sys.modules.pop("odd_editors", None)


def plan(*editors: dict[str, Any], seed: int = 0, **generate: Any) -> list[PlannedEditor]:
    return planned(flow(*editors, seed=seed, **generate))


def flow(*editors: dict[str, Any], seed: int = 0, **generate: Any) -> FlowConfig:
    settings = {"sources": {"dataset": "table", "tables": [{"name": "a", "path": "a"}]}, "editors": editors, "annotate": 2}
    return FlowConfig.model_validate({"name": "x", "seed": seed, "generate": settings | generate})


def test_paths_of_editors_are_those_of_the_folder_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers have another folder."""
    monkeypatch.chdir(tmp_path)
    chosen = flow({"name": "odd/process", "settings": {"weights": "mine", "seconds": 1.0}})
    assert chosen.generate is not None
    here = planned(chosen)
    given = for_workers(chosen, chosen.generate, here)
    monkeypatch.chdir(ROOT)
    there = planned(given)
    assert given.generate is not None and given.generate.editors[0].settings == {"weights": str(tmp_path / "mine"), "seconds": 1.0}
    assert [editor.settings_hash for editor in there] == [editor.settings_hash for editor in here]


def test_candidates_are_shared_evenly() -> None:
    assert [editor.count for editor in plan(*ODD)] == [6, 6]
    assert [editor.count for editor in plan(*ODD, {"name": "odd/closed", "candidates": 4})] == [4, 4, 4]
    assert [editor.count for editor in plan({"name": "odd/plain", "seeds": [5, 7]}, candidates_per_source=2)] == [2]
    for editors, settings, message in (
        (ODD, {"candidates_per_source": 7}, r"candidates_per_source: 7 candidates cannot be shared evenly by 2 editors \(odd/plain, odd/o"),
        ([{"name": "odd/plain", "seeds": [1]}], {"candidates_per_source": 2}, "2 cannot be met, since the seeds and candidates"),
        (
            [ODD[0], {"name": "odd/other", "candidates": 12}],
            {},
            "12 cannot be met, since .* make 12, and the editors without a number of their own are 1",
        ),
        (ODD, {"annotate": 13}, r"generate.annotate: 13 of 12 candidates per source cannot be drawn"),
        ([ODD[0], ODD[0]], {}, "generate.editors: odd/plain with drawn seeds is there 2 times and would make equal candidates"),
        (
            [ODD[0], ODD[0] | {"settings": {"tone": 1}}],
            {},
            r"generate.editors.1: odd/plain is there with other settings in generate.editors.0",
        ),
        (
            [ODD[0], ODD[1] | {"label": "odd/plain"}],
            {},
            r"generate.editors.1: odd/plain is there with the label of odd/plain in generate.edit",
        ),
        ([{"name": "odd/plane"}], {}, r"generate.editors.0.name: there is no editor 'odd/plane'; known: "),
        ([{"name": "odd/plain", "seeds": [1, 2**31]}], {}, "odd/plain has the seed 2147483648: every library takes seeds from 0 to"),
        (
            [{"name": "odd/plain", "settings": {"tome": 1}}],
            {},
            r"generate.editors.0.settings.tome: there is no such setting; the settings of",
        ),
        ([{"name": "trained", "settings": {"path": "no"}}], {}, r"^trained: generate.editors.0.settings.path: there is no directory "),
    ):
        with pytest.raises(ValueError, match=message):
            plan(*editors, **settings)
    with pytest.raises(ValueError, match="odd/plain has seeds and candidates"):
        flow({"name": "odd/plain", "seeds": [1], "candidates": 1})


def test_a_seed_follows_run_source_editor_settings_and_index_only(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, other = plan(*ODD)
    seeds = plain.seeds(0, "source")
    assert len(set(seeds)) == 6 and all(0 <= seed < 2**31 for seed in seeds)
    (more,) = plan({"name": "odd/plain", "candidates": 8})
    assert more.seeds(0, "source")[:6] == seeds, "other editors and further candidates change none"
    changed = plan({"name": "odd/plain", "settings": {"tone": 3}})[0].seeds(0, "source")
    different = [seeds, plain.seeds(1, "source"), plain.seeds(0, "another"), other.seeds(0, "source"), changed]
    assert len({seed for found in different for seed in found}) == 6 * 4 + 12
    monkeypatch.setattr(candidate_plan, "SEEDS", 7)
    assert sorted(plain.seeds(0, "source")) != sorted(set(seeds)) and len(set(plain.seeds(0, "source"))) == 6, "equal hashes move on"
    (listed,) = plan({"name": "odd/plain", "seeds": [3, 0]})
    assert listed.seeds(0, "source") == listed.seeds(1, "another") == [3, 0]


def test_a_licence_that_is_not_open_is_accepted_by_name() -> None:
    asked = flow({"name": "odd/closed"}, ODD[0])
    assert asked.generate is not None
    (sentence,) = obstacles(planned(asked), asked.generate)
    assert sentence == (
        "generate.editors.0: odd/closed has the licence 'Odd-NC': no commercial use; accept it by naming it in generate.accept_licences, "
        "or leave the editor out"
    )
    accepted = flow({"name": "odd/closed"}, ODD[0], accept_licences=["Odd-NC"])
    assert accepted.generate is not None and not obstacles(planned(accepted), accepted.generate)
    another = flow({"name": "odd/closed"}, ODD[0], accept_licences=["Other-NC"])
    assert another.generate is not None and obstacles(planned(another), another.generate) == [sentence]


def test_the_plan_shows_what_it_will_cost(tmp_path: Path) -> None:
    sources = {"dataset": "table", "tables": [{"name": "a", "path": "a.jsonl", "expected": 9557}]}
    asked = flow({"name": "odd/closed", "settings": {"tone": 2}}, ODD[0], sources=sources, annotate=7)
    text = plan_text(asked, tmp_path)
    assert "9,557 sources x 12 = 114,684 edits; 7 of each source are drawn for annotation, 3 or 4 of each editor" in text
    assert "annotation, 1 of each editor as far" in plan_text(flow(*ODD, sources=sources), tmp_path)
    assert "cannot run yet: generate.editors.0: odd/closed has the licence 'Odd-NC'" in text
    (row,) = (line for line in text.splitlines() if line.startswith("odd/closed (tone 2), seeds: 6 drawn"))
    assert re.split(r"  +", row)[1:] == ["57,342", "478", "30 (its authors)", "24 GB: GPUs of 24 GB", "57.3 GB", "Odd-NC, to be accepted"]
    hours = "478 GPU hours: 19.9 days on 1 GPU (a model is loaded once), 2.5 days on 8 GPUs (a model is loaded at most 8 times)"
    assert hours in text and "GPU hours:" not in plan_text(flow(*ODD, sources=sources), tmp_path)
    folder = tmp_path / "generate"
    folder.mkdir()
    closed = planned(asked)[0]
    record = UnitRecord("k", {}, 6, 6, figures={"edits": 6.0, "seconds": 15.0}, family=f"sources {closed.id}")
    (folder / "units.jsonl").write_text(unit_log.line(record))
    assert "2.5 (measured in this run, 6 edits)" in plan_text(asked, tmp_path)
    uneven = flow(*ODD, candidates_per_source=7, sources=sources)
    assert "cannot run yet: generate.candidates_per_source: 7 candidates cannot be shared" in plan_text(uneven, tmp_path)


def candidates(source: int, editors: int = 6, each: int = 2) -> list[Sound]:
    return [Sound(f"s{source}", f"s{source}-e{editor}-{n}", f"e{editor}") for editor in range(editors) for n in range(each)]


def test_the_draw_is_balanced_over_editors() -> None:
    rows = [row for source in range(600) for row in candidates(source)]
    editor_of = {row.candidate_id: row.editor for row in rows}
    drawn = draw(rows, 7, seed=0)
    for found in drawn.values():
        times = Counter(editor_of[name] for name in found)
        assert len(found) == 7 and sorted(times.values()) == [1, 1, 1, 1, 1, 2]
    total = Counter(editor_of[name] for found in drawn.values() for name in found)
    assert max(total.values()) - min(total.values()) < 60, total  # 700 each
    firsts = Counter(name.rpartition("-")[2] for found in drawn.values() for name in found)
    assert abs(firsts["0"] - firsts["1"]) < 200, "either candidate of an editor is drawn"


def test_only_sound_candidates_are_drawn() -> None:
    rows = [{"source_id": "s", "candidate_id": name, "editor": "e", "status": name.strip("0123")} for name in ("ok0", "failed1", "ok2")]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    assert [row.candidate_id for row in sound(pa.table(columns))] == ["ok0", "ok2"]


def test_a_draw_depends_on_its_source_and_the_seed_only() -> None:
    rows = candidates(0) + candidates(1)
    assert draw(rows, 7, 0) == draw(rows[::-1], 7, 0) and draw(candidates(1), 7, 0)["s1"] == draw(rows, 7, 0)["s1"]
    assert draw(rows, 7, 0) != draw(rows, 7, 1)
    assert draw(candidates(0, editors=1, each=8), 4, 0) != draw(candidates(0, editors=1, each=8), 4, 1), "within an editor, too"
    few = [Sound("a", "only", "e0"), Sound("b", "one", "e0"), Sound("b", "two", "e0")]
    assert {source: set(found) for source, found in draw(few, 7, 0).items()} == {"b": {"one", "two"}}
