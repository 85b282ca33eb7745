"""The report's part on pairs: the configured rule for ties in words, and scores by editor and kind of edit as drawings."""

from __future__ import annotations

from pathlib import Path

import pytest
from rated_run import EDITORS, make_run

from pipeline.report.blocks import Block, Columns, Figure, Fold, Table
from pipeline.report.sections.pair_statistics import RULES, blocks
from reward.inputs.groups import Ties
from stages.annotate import step as annotate
from stages.context import Context
from stages.engine import storage
from stages.preferences import step as preferences
from stages.preferences.config import PreferencesConfig


def flat(found: list[Block]) -> list[Block]:
    return [inner for block in found for inner in (flat(list(block.blocks)) if isinstance(block, Columns | Fold) else [block])]


def statistics(path: Path, ties: Ties) -> dict:
    context = make_run(path, groups=20)
    context = Context(context.run, context.flow.model_copy(update={"preferences": PreferencesConfig(ties=ties)}), context.cluster)
    annotate.ingest(context, annotate.simulate(context))
    preferences.run(context)
    return storage.read_json(context.run.path / "preferences" / "statistics.json")


@pytest.mark.parametrize("ties", ["opposed", "all", "soft", "off"])
def test_the_caption_says_the_rule_and_the_kinds_that_it_names_are_columns(tmp_path: Path, ties: Ties) -> None:
    tables = [block for block in flat(blocks(statistics(tmp_path, ties))) if isinstance(block, Table)]
    (pairs,) = (table for table in tables if table.columns[0] == "Split")
    assert pairs.caption.endswith(RULES[ties]) and sum(rule in pairs.caption for rule in RULES.values()) == 1
    for kind in ("tie-disentangled", "tie-doubled", "tie-soft"):
        assert (kind in RULES[ties]) == (kind.replace("-", " ") in pairs.columns)
    (shares,) = (table for table in tables if table.columns[0] == "Tied in")
    assert {row[2] for row in shares.rows} == {"38.3\u202f%", "32.8\u202f%", "20.7\u202f%", "–"}, "the paper's shares stand beside ours"


def test_scores_are_drawn_by_editor_and_by_kind_of_edit(tmp_path: Path) -> None:
    found = statistics(tmp_path, "opposed")
    figures = {block.title: block.svg for block in flat(blocks(found)) if isinstance(block, Figure)}
    assert set(figures) == {
        "Win rates of the editors",
        *(f"{d} by {by}" for d in ("Instruction following", "Visual quality") for by in ("editor", "kind of edit")),
    }
    drawn = figures["Instruction following by editor"]
    for editor in EDITORS:
        entry = found["score_shares"]["by_editor"][editor]["instruction_following"]
        assert f"{editor}: 1 {100 * entry['levels']['1']:.0f}\u202f%" in drawn
    assert "remove: 1 " in figures["Visual quality by kind of edit"]
    assert blocks({}) == []
