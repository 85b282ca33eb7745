"""The page of rating quality control: targets, annotators, re-annotation queue, agreement by round. Looks like the run's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline import words
from pipeline.report.bar_charts import intervals
from pipeline.report.blocks import Block, Callout, Columns, Fact, Facts, Figure, Fold, Paragraph, Section, Table
from pipeline.report.page import render
from pipeline.report.sections.ratings import STATISTICS, statistics_table
from reward.evaluation.estimate import Estimate
from stages.annotate.agreement.alpha import OVERALL
from stages.annotate.quality import step as annotation_qc
from stages.annotate.quality.judgement import SHOWN
from stages.annotate.ratings.shown_levels import note, shown_levels, summed
from stages.engine import storage
from stages.engine.rundir import RunDir

NAME = "quality.html"
MOST_DRAWN = 60
INTERVALS = (
    "Agreement of all ratings and of the accepted ones. 95 % intervals over groups: they hold for these raters. For other raters of the "
    "same kind see the row 'for new raters' in all statistics, whose interval is over raters and groups."
)


def build(run: RunDir) -> Path:
    """Write ``annotation-qc/quality.html`` from what quality control published; returns its path."""
    folder = run.step(annotation_qc.STEP).path
    figures = storage.read_json(folder / "quality.json")
    verdict = "The targets are met." if figures["met"] else "The targets are not met."
    sections = [_targets(figures), _annotators(figures), _again(figures), *(_round(name, figures) for name in figures["rounds"])]
    page = render(run.path.name, "Rating quality control", verdict, sections, "what quality control published in this run")
    storage.publish_bytes(folder / NAME, page)
    return folder / NAME


def _targets(figures: Mapping[str, Any]) -> Section:
    ratings, overlap, gold = figures["ratings"], figures["overlap"], figures["gold"]
    excluded = "; ".join(f"{words.name(reason)} {words.count(count)}" for reason, count in ratings["excluded"].items())
    facts = Facts(
        [
            Fact("Ratings accepted", words.count(ratings["accepted"]), f"of {words.count(ratings['in'])}"),
            Fact("Not accepted", words.count(ratings["in"] - ratings["accepted"]), excluded),
            Fact("Groups rated by several", words.count(overlap["groups_rated_twice"]), f"of {words.count(overlap['groups'])}"),
            Fact("Gold cells", words.count(gold["cells"]), f"experts named: {len(gold['experts'])}"),
        ]
    )
    rows: list[tuple[str, ...]] = []
    for target in figures["targets"]:
        sign = "lower limit ≥" if target["bound"] == "low" else "≥"
        met = {True: "met", False: "not met", None: "no ratings"}[target["met"]]
        found = [words.cell(target[name], words.score) for name in ("estimate_of_all", "estimate")]
        statistic = STATISTICS[target["statistic"]]
        rows.append((target["round"], words.name(target["dimension"]), statistic, f"{sign} {target['at_least']:.2f}", *found, met))
    blocks: list[Block] = [
        facts,
        Table(
            ("Round", "Dimension", "Statistic", "Wanted", "All ratings", "Accepted", ""),
            rows,
            caption="Targets. The accepted ratings decide.",
            text_columns=3,
        ),
    ]
    sets = overlap["connected_sets"]
    if len(sets) > 1:
        names = " | ".join(", ".join(part[:8]) for part in sets[:6])
        text = f"No group was rated in two of these sets, so severities cannot be compared between them: {names}."
        blocks.append(Callout(f"The raters fall into {len(sets)} sets", text))
    if not any(target["met"] is not None for target in figures["targets"]):
        blocks.append(
            Callout("No target applies", "No target names a round and a dimension that have ratings; see annotate.quality.targets.")
        )
    return Section("targets", "Targets", "Intervals are 95 %, resampled by group. Targets apply to accepted ratings.", blocks)


def _annotators(figures: Mapping[str, Any]) -> Section:
    entries = figures["annotators"]
    columns = ("Annotator", "Status", "", "Groups", "Compared", "κ", "Severity", "Drift", "Gold")
    rows = [
        (
            entry["annotator"],
            entry["status"],
            words.abbreviation(entry["dimension"]),
            words.count(entry.get("groups", 0)),
            words.count(entry.get("compared_groups", 0)),
            words.cell(entry.get("kappa"), words.score),
            words.cell(entry.get("severity"), words.difference),
            words.cell(entry.get("drift"), words.difference),
            words.share(entry["gold"]["within_one"]) if entry["gold"] else "–",
        )
        for entry in entries
    ]
    caption = (
        f"{_legend(entries)}. Compared: groups that others rated too. κ: quadratic weights, with the others. Severity: mean difference "
        "from the others (+ lenient). Drift: its change from the first to the newest groups. Gold: scores at most one level off."
    )
    reasons = {entry["annotator"]: entry for entry in entries if entry["reasons"]}
    blocks: list[Block] = []
    if reasons:
        listed = [(name, entry["status"], "; ".join(entry["reasons"]).replace("_", " ")) for name, entry in reasons.items()]
        blocks.append(Table(("Annotator", "Status", "Reasons"), listed, text_columns=3))
    blocks += _charts(entries)
    blocks += [Table(columns, rows, caption=caption, text_columns=3), _habits(entries)]
    exams = [(e["annotator"], words.name(e["dimension"]), e["exam"]) for e in entries if e["exam"]]
    if exams:
        table = [
            (name, dimension, words.count(x["groups"]), words.cell(x["kappa"], words.score), words.share(x["exact"]),
             words.share(x["within_one"]),
             words.cell(x["severity"], words.difference))
            for name, dimension, x in exams
        ]  # fmt: skip
        heads = ("Annotator", "Dimension", "Gold groups", "κ", "Same as an expert", "At most one level off", "Severity")
        blocks.append(Fold(f"Exams of {len({name for name, _, _ in exams})} annotators", [Table(heads, table, text_columns=2)]))
    lead = "Annotators with problems come first. Annotators with too few groups in common with others have no verdict."
    return Section("annotators", "Annotators", lead, blocks)


def _habits(entries: Sequence[Mapping[str, Any]]) -> Fold:
    """Spread of the scores, groups with equal scores, time."""
    columns = ("Annotator", "", "Mean", "Spread", "Spread against the others", "Groups with one score", "Seconds per group", "Pace")
    rows = [
        (
            entry["annotator"],
            words.abbreviation(entry["dimension"]),
            *(words.cell(entry[name], words.score) for name in ("mean", "spread", "spread_ratio")),
            words.share(entry["equal_groups"]),
            *(words.cell(entry[name], words.score) for name in ("seconds", "pace")),
        )
        for entry in entries
        if entry["dimension"]
    ]
    caption = "Spread: standard deviation of the scores. Pace: seconds over those of the median annotator."
    return Fold("Spread and pace", [Table(columns, rows, caption=caption, text_columns=2)])


def _legend(entries: Sequence[Mapping[str, Any]]) -> str:
    names = dict.fromkeys(entry["dimension"] for entry in entries if entry["dimension"])
    return ", ".join(f"{words.abbreviation(name)}: {words.name(name)}" for name in names)


def _charts(entries: Sequence[Mapping[str, Any]]) -> list[Block]:
    """Kappa and severity of everybody, per dimension."""
    blocks: list[Block] = []
    for dimension in dict.fromkeys(entry["dimension"] for entry in entries if entry["dimension"]):
        pair: list[Block] = []
        for key, label, reference in (("kappa", "κ with the others", None), ("severity", "severity", ("as the others", 0.0))):
            found = [
                (entry["annotator"], value)
                for entry in entries
                if entry["dimension"] == dimension and (value := Estimate.read(entry.get(key)))
            ]
            if found:
                title = f"{words.name(dimension).capitalize()}: {label}"
                drawn = intervals(
                    found[:MOST_DRAWN], title=title, x_label=label, form=words.score, tick_form=words.score, reference=reference
                )
                pair.append(Figure(title, drawn, f"the first {MOST_DRAWN} of {len(found)}" if len(found) > MOST_DRAWN else ""))
        blocks += [Columns(pair)] if pair else []
    return blocks


def _again(figures: Mapping[str, Any]) -> Section:
    again = figures["again"]
    rows = [(words.name(reason), words.count(count)) for reason, count in again["groups"].items()]
    blocks: list[Block] = [
        Table(("Groups to re-annotate", ""), rows, caption="Listed in reannotate.csv.")
        if rows
        else Paragraph("No group needs another rater."),
        Paragraph(f"Adjudication queue (adjudicate.csv): {words.count(again['cells'])} cells."),
    ]
    if figures["again_exceeds"]:
        share = words.share(figures["most_again"])
        text = f"More than {share} of the rated groups are in the queue. Check the rubric before you ask for more ratings."
        blocks.insert(0, Callout("The re-annotation queue is too long", text))
    return Section("again", "Re-annotation queue", f"{words.count(again['rated'])} groups were rated.", blocks)


def _round(name: str, figures: Mapping[str, Any]) -> Section:
    found = figures["rounds"][name]
    levels = [f"{level:g}" for level in shown_levels(figures["scale"])]
    tables = []
    for dimension in words.ordered(found):
        if dimension == OVERALL:
            continue
        entry = found[dimension]
        given = summed(list(entry["level_shares"].values()), figures["scale"])
        shares = "; ".join(f"{level}: {words.share(share)}" for level, share in zip(levels, given, strict=True))
        caption = (
            f"{words.name(dimension)}: how often two raters of the same candidate gave which scores. {words.count(entry['ratings'])} "
            f"ratings by {words.count(entry['raters'])} raters; scores given {shares}. {note(figures['scale'])}"
        )
        counts = [(level, *map(words.count, row)) for level, row in zip(levels, summed(entry["confusion"], figures["scale"]), strict=True)]
        tables.append(Table(("", *levels), counts, caption=caption))
    blocks = [
        _side_by_side(figures["rounds_of_all_ratings"][name], found),
        Fold("All statistics", [statistics_table(found, words.score, "Agreement of the accepted ratings.")]),
        Columns(tables),
    ]
    return Section(f"round-{name}", f"Round {name}", "", blocks)


def _side_by_side(of_all: Mapping[str, Any], accepted: Mapping[str, Any]) -> Table:
    """Four statistics, per dimension of all ratings and of the accepted ones."""
    dimensions = [name for name in words.ordered(accepted) if name != OVERALL]
    rows = [
        (STATISTICS[key], *(words.cell(of[name].get(key), words.score) for name in dimensions for of in (of_all, accepted)))
        for key in SHOWN
    ]
    heads = ("", *(f"{words.name(name)}: {which}" for name in dimensions for which in ("all", "accepted")))
    return Table(heads, rows, caption=INTERVALS)
