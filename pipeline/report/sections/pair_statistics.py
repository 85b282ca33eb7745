"""Statistics of the preference pairs: win rates of editors, ties, pairs by split, scores by editor and by kind of edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline import words
from pipeline.report import near_duplicates
from pipeline.report.bar_charts import intervals, stacked
from pipeline.report.blocks import Block, Columns, Figure, Fold, Heading, Paragraph, Table
from reward.evaluation.estimate import Estimate
from stages.annotate.agreement.alpha import OVERALL
from stages.annotate.ratings.shown_levels import note, shown_levels, summed

RULES = {
    "opposed": "An overall tie whose dimensions disagree becomes two pairs with opposite labels (tie-disentangled). Other ties stay ties.",
    "all": "Every overall tie becomes two pairs with opposite labels: tie-disentangled where its dimensions disagree, else tie-doubled.",
    "soft": "An overall tie whose dimensions disagree becomes one pair with the target 0.5 (tie-soft). Other ties stay ties.",
    "off": "All ties stay ties.",
}
"""What each value of ``preferences.ties`` does."""


def blocks(statistics: Mapping[str, Any]) -> list[Block]:
    """Blocks of what ``statistics.json`` contains."""
    ties = _ties(statistics)
    made = [*_league(statistics), *([Fold("Ties", ties)] if ties else [])]
    return made + _pairs(statistics) + _made_elsewhere(statistics) + _distributions(statistics) + _means(statistics)


def _league(statistics: Mapping[str, Any]) -> list[Block]:
    rates = statistics.get("win_rates", {})
    rows = [(name, estimate) for name, value in rates.items() if (estimate := Estimate.read(value.get(OVERALL)))]
    if not rows:
        return []
    rows.sort(key=lambda row: -row[1].value)
    title = "Win rates of the editors"
    drawn = intervals(rows, title=title, x_label="share of pairs won, overall", reference=("even", 0.5))
    return [Figure(title, drawn, "How often an editor's candidate is rated above another editor's; a tie counts half.")]


def _ties(statistics: Mapping[str, Any]) -> list[Block]:
    paper = statistics.get("paper_tie_shares", {})
    labels = {"opposed": "overall, while the dimensions disagree"}
    rows = [
        (labels.get(name, words.name(name)), words.share(estimate.value), words.share(paper[name]) if name in paper else "–")
        for name in words.ordered(statistics.get("tie_shares", {}))
        if (estimate := Estimate.read(statistics["tie_shares"][name]))
    ]
    caption = "Share of candidate pairs with equal scores, beside the paper's EditReward-Data."
    return [Table(("Tied in", "This run", "Paper"), rows, caption=caption)] if rows else []


def _pairs(statistics: Mapping[str, Any]) -> list[Block]:
    pairs, groups = statistics.get("pairs", {}), statistics.get("groups", {})
    kinds = list(dict.fromkeys(kind for counts in pairs.values() for kind in counts))
    rows = [
        (split, words.count(groups[split]) if split in groups else "–", *(words.count(counts.get(kind, 0)) for kind in kinds))
        for split, counts in pairs.items()
    ]
    caption = f"Preference pairs by split and kind. {RULES.get(statistics.get('ties', ''), '')}".strip()
    return [Table(("Split", "Complete groups", *map(words.name, kinds)), rows, caption=caption)] if rows else []


def _made_elsewhere(statistics: Mapping[str, Any]) -> list[Block]:
    """Labels by split and dimension, editors by split, near duplicates, pairs of the data set, and what was set aside."""
    found = statistics.get("made_elsewhere")
    if not found:
        return []
    labels = [
        (split, words.name(name), words.count(entry["decided"]), words.count(entry["tie"]))
        for split, by_dimension in found["labels"].items()
        for name, entry in by_dimension.items()
    ]
    splits = sorted({split for counts in found["editors"].values() for split in counts})
    editors = [(name, *(words.count(counts.get(split, 0)) for split in splits)) for name, counts in found["editors"].items()]
    dropped = [
        (step, reason, words.count(count)) for step in ("generate", "annotate") for reason, count in found["dropped"][step].items()
    ] + [("annotate", "the same score again", words.count(found["dropped"]["duplicates"]))]
    tables: list[Block] = [
        Table(("Split", "Labels", "Decided", "Tie"), labels, caption="Pairs by label, each once.", text_columns=2),
        Table(("Editor", *splits), editors, caption="Rated candidates of complete groups by editor and split."),
        Table(("Step", "Set aside", "Rows"), dropped, caption="Edits that generate, and scores that annotate set aside.", text_columns=2),
    ]
    return [Heading("Candidates made elsewhere"), Paragraph(" ".join(_sentences(found))), Columns(tables)]


def _sentences(found: Mapping[str, Any]) -> list[str]:
    said = near_duplicates.sentences(found["near_duplicates"])
    if "compared" in found:
        pairs = found["compared"]
        said.append(
            f"All pairs of a complete group are used: {words.count(pairs['pairs'])}, of which {words.count(pairs['both'])} are among the "
            f"{words.count(pairs['in_files'])} pairs of the files of ratings."
        )
    return said


def _distributions(statistics: Mapping[str, Any]) -> list[Block]:
    """How often each score was given, per editor and per kind of edit, one drawing per dimension."""
    made: list[Block] = []
    for key, label in (("by_editor", "editor"), ("by_task", "kind of edit")):
        entries = statistics.get("score_shares", {}).get(key, {})
        drawn: list[Block] = []
        for dimension in sorted({name for entry in entries.values() for name, value in entry.items() if value["levels"]}):
            there = {name: entry[dimension] for name, entry in entries.items() if entry.get(dimension, {}).get("levels")}
            order = sorted(there, key=lambda name: (-there[name]["mean"], name))
            scale = [float(level) for level in there[order[0]]["levels"]]
            levels = [f"{level:g}" for level in shown_levels(scale)]
            title = f"{words.name(dimension).capitalize()} by {label}"
            rows = {
                (name if key == "by_editor" else words.name(name)) or "–": summed(list(there[name]["levels"].values()), scale).tolist()
                for name in order
            }
            drawn.append(Figure(title, stacked(rows, levels, title=title, x_label="share of the ratings, highest mean first"), note(scale)))
        made += [Heading(f"Scores by {label}"), Columns(drawn)] if drawn else []
    return made


def _means(statistics: Mapping[str, Any]) -> list[Block]:
    """Mean score and win rate by editor, mean score by task."""
    shares, rates = statistics.get("score_shares", {}), statistics.get("win_rates", {})
    tables = []
    for key, label in (("by_editor", "Editor"), ("by_task", "Task")):
        entries = shares.get(key, {})
        dimensions = sorted({name for entry in entries.values() for name in entry})
        rows = []
        for name, entry in entries.items():
            cells = [words.score(entry[d]["mean"]) if d in entry else "–" for d in dimensions]
            won = [words.cell(rates.get(name, {}).get(d), words.share) for d in (*dimensions, OVERALL)] if key == "by_editor" else []
            rows.append((name or "–", words.count(max(entry[d]["ratings"] for d in entry)), *cells, *won))
        if rows:
            won_columns = [f"{words.name(d)}, pairs won" for d in (*dimensions, OVERALL)] if key == "by_editor" else []
            tables.append(Table((label, "Ratings", *(f"{words.name(d)}, mean" for d in dimensions), *won_columns), rows))
    return [Fold("Mean scores by editor and by task", tables)] if tables else []
