"""The page of quality control: can the ratings be trusted, who needs the lead, what is rated again. Looks like the run's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.report import words
from pipeline.report.blocks import Block, Callout, Columns, Fact, Facts, Figure, Fold, Paragraph, Section, Table
from pipeline.report.charts.intervals import intervals
from pipeline.report.page import render
from reward.evaluation.estimate import Estimate
from stages.annotate.agreement.alpha import OVERALL
from stages.annotate.quality import step as annotation_qc
from stages.engine import storage
from stages.engine.rundir import RunDir

NAME = "quality.html"
STATISTICS = {
    "alpha_ordinal": "Krippendorff's α, ordinal",
    "alpha_interval": "Krippendorff's α, interval",
    "quadratic_weighted_kappa": "Cohen's κ, quadratic weights",
    "ac2_ordinal": "Gwet's AC2, ordinal weights",
    "ac2_quadratic": "Gwet's AC2, quadratic weights",
    "ac1": "Gwet's AC1",
    "icc_1_1": "ICC(1,1)",
    "icc_1_k": "ICC(1,k)",
    "icc_2_1": "ICC(2,1)",
    "icc_2_k": "ICC(2,k)",
    "icc_3_1": "ICC(3,1)",
    "icc_3_k": "ICC(3,k)",
    "exact": "same score",
    "within_one_level": "at most one level apart",
    "direction": "same order of a pair, both strict",
    "rater_predicts_rater": "one rater's order predicts another's",
}
MOST_DRAWN = 60


def build(run: RunDir) -> Path:
    """Write ``annotation-qc/quality.html`` from what quality control published; returns its path."""
    folder = run.step(annotation_qc.STEP).path
    figures = storage.read_json(folder / "quality.json")
    verdict = "The targets are met." if figures["met"] else "The targets are not met."
    sections = [_targets(figures), _annotators(figures), _again(figures), *(_round(name, figures) for name in figures["rounds"])]
    page = render(run.path.name, "Quality control of ratings", verdict, sections, "what quality control published in this run")
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
    rows = []
    for target in figures["targets"]:
        sign = "lower limit ≥" if target["bound"] == "low" else "≥"
        met = {True: "met", False: "not met", None: "no ratings"}[target["met"]]
        found = cell(target["estimate"])
        statistic = STATISTICS[target["statistic"]]
        rows.append((target["round"], words.name(target["dimension"]), statistic, f"{sign} {target['at_least']:.2f}", found, met))
    blocks: list[Block] = [
        facts,
        Table(
            ("Round", "Dimension", "Statistic", "Wanted", "Found", ""), rows, caption="Targets, on the accepted ratings.", text_columns=3
        ),
    ]
    sets = overlap["connected_sets"]
    if len(sets) > 1:
        names = " | ".join(", ".join(part[:8]) for part in sets[:6])
        text = f"No group was rated both inside and outside of these sets, so their severities cannot be compared: {names}."
        blocks.append(Callout(f"The raters fall into {len(sets)} sets", text))
    if not any(target["met"] is not None for target in figures["targets"]):
        blocks.append(
            Callout("Nothing was judged", "No target is about a round and dimension that have ratings; see annotate.quality.targets.")
        )
    return Section(
        "targets", "Can it be trusted?", "Intervals are 95 %, resampled by group. A target is held against accepted ratings.", blocks
    )


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
            cell(entry.get("kappa")),
            cell(entry.get("severity"), signed=True),
            _number(entry.get("drift"), signed=True),
            words.share(entry["gold"]["within_one"]) if entry["gold"] else "–",
        )
        for entry in entries
    ]
    caption = (
        f"{_legend(entries)}. Compared: groups that others rated too. κ: quadratic weights, with the others. Severity: mean difference "
        "from the others (+ lenient). Drift: its change from the first to the newest groups. Gold: scores at most one level off."
    )
    reasons = {entry["annotator"]: entry for entry in entries if entry["reasons"]}
    blocks: list[Block] = [
        Table(
            ("Annotator", "Status", "Why"),
            [(name, entry["status"], "; ".join(entry["reasons"]).replace("_", " ")) for name, entry in reasons.items()],
            text_columns=3,
        )
    ] * bool(reasons)
    blocks += _charts(entries)
    blocks += [Table(columns, rows, caption=caption, text_columns=3), _habits(entries)]
    exams = [(e["annotator"], words.name(e["dimension"]), e["exam"]) for e in entries if e["exam"]]
    if exams:
        table = [
            (name, dimension, words.count(x["groups"]), _number(x["kappa"]), words.share(x["exact"]), words.share(x["within_one"]),
             _number(x["severity"], signed=True))
            for name, dimension, x in exams
        ]  # fmt: skip
        heads = ("Annotator", "Dimension", "Gold groups", "κ", "Same as an expert", "At most one level off", "Severity")
        blocks.append(Fold(f"Exams of {len({name for name, _, _ in exams})} annotators", [Table(heads, table, text_columns=2)]))
    lead = "Trouble first. Who rated too few groups together with others is not judged."
    return Section("annotators", "Who needs me?", lead, blocks)


def _habits(entries: Sequence[Mapping[str, Any]]) -> Fold:
    """Spread of the scores, groups with one score for all, time."""
    columns = ("Annotator", "", "Mean", "Spread", "Spread against the others", "Groups with one score", "Seconds per group", "Pace")
    rows = [
        (
            entry["annotator"],
            words.abbreviation(entry["dimension"]),
            *(_number(entry[name]) for name in ("mean", "spread", "spread_ratio")),
            words.share(entry["equal_groups"]),
            *(_number(entry[name]) for name in ("seconds", "pace")),
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
        Table(("Groups for a further rater", ""), rows, caption="In reannotate.csv.")
        if rows
        else Paragraph("No group needs a further rater."),
        Paragraph(f"Cells to adjudicate, in adjudicate.csv: {words.count(again['cells'])}."),
    ]
    if figures["again_exceeds"]:
        share = words.share(figures["most_again"])
        text = f"More than {share} of the rated groups would be rated again. Look at the rubric before you ask for more ratings."
        blocks.insert(0, Callout("Too many groups to rate again", text))
    return Section("again", "What is rated again?", f"{words.count(again['rated'])} groups were rated.", blocks)


def _round(name: str, figures: Mapping[str, Any]) -> Section:
    found = figures["rounds"][name]
    dimensions = words.ordered(found)
    rows = [
        (label, *(cell(found[dimension].get(key)) for dimension in dimensions))
        for key, label in STATISTICS.items()
        if any(key in found[dimension] for dimension in dimensions)
    ]
    blocks: list[Block] = [Table(("", *map(words.name, dimensions)), rows, caption="Agreement of the accepted ratings.")]
    levels = [f"{level:g}" for level in figures["scale"]]
    tables: list[Block] = []
    for dimension in dimensions:
        if dimension == OVERALL:
            continue
        entry = found[dimension]
        shares = "; ".join(f"{level}: {words.share(share)}" for level, share in entry["level_shares"].items())
        caption = (
            f"{words.name(dimension)}: how often two raters of the same candidate gave which scores. {words.count(entry['ratings'])} "
            f"ratings by {words.count(entry['raters'])} raters; scores given {shares}."
        )
        counts = [(level, *map(words.count, row)) for level, row in zip(levels, entry["confusion"], strict=True)]
        tables.append(Table(("", *levels), counts, caption=caption))
    blocks.append(Columns(tables))
    return Section(f"round-{name}", f"Round {name}", "", blocks)


def cell(value: Any, *, signed: bool = False) -> str:
    """An estimate with its interval; where there is none, why."""
    estimate = Estimate.read(value)
    if estimate:
        return estimate.words(words.difference if signed else words.score)
    return str(value.get("note") or "–") if isinstance(value, dict) else "–"


def _number(value: float | None, *, signed: bool = False) -> str:
    return "–" if value is None else words.difference(value) if signed else words.score(value)
