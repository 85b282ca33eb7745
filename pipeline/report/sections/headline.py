"""The result of the run: a verdict in one sentence, three figures, one row of pictures, and what of it is synthetic."""

from __future__ import annotations

from pipeline import words
from pipeline.flow import STEP_NAMES
from pipeline.report import editor_scores, scored_edits
from pipeline.report.blocks import Block, Callout, Columns, Fact, Facts, Remark, Section, Strip
from pipeline.report.pictures import picture
from pipeline.report.published import Published
from pipeline.report.sections.filter_league import clustered_mean
from pipeline.report.sections.filtering import EVERYTHING, good_shares, selected_tables
from pipeline.report.sections.reward import CLOSENESS, REFERENCES, reference_figures
from pipeline.report.synthetic import synthetic_parts
from pipeline.report.triptychs import flags
from reward.evaluation.estimate import Estimate
from reward.model.origin import OTHER_DOMAIN
from stages.evaluate_editor.step import COPY, EXACT
from stages.filter.selection.order import first

STEPS = STEP_NAMES
MAIN_ARM = "selected"
"""The training set that the result is about, where the run has it; else the first that is neither base nor reference."""


def verdict(published: Published) -> str:
    """The result in at most 20 words, or how far the run is while nothing is measured."""
    shares, effect = good_shares(published), main_difference(published)
    accuracy, labels = pair_accuracy(published), reference_figures(published)
    everything, kept = shares.get(EVERYTHING), shares.get(MAIN_ARM)
    parts = []
    if everything and kept:
        before, after = words.percent(everything.value), words.percent(kept.value)
        if kept.value > everything.value:
            parts.append(f"Filtering raises good edits from {before} to {after}")
        else:
            parts.append(f"Filtering does not raise good edits ({before} to {after})")
    if effect:
        verb = "gains" if effect[-1].value >= 0 else "loses"
        chance = "" if effect[-1].clear else ", perhaps chance"
        trained = "them" if parts and effect[0] == MAIN_ARM else f"“{effect[0]}”"
        parts.append(f"the editor trained on {trained} {verb} {words.score(abs(effect[-1].value))} of 10{chance}")
    elif accuracy and labels:
        like = "like ground truth" if labels[0] == "truth" else "like raters"
        parts.append(f"the reward model orders {words.percent(accuracy.value)} of held-out pairs {like}")
    if parts:
        text = "; ".join(parts)
        return f"{text[0].upper()}{text[1:]}."
    scored = published.rows("filter", "scores")
    if scored:
        sizes = [f"“{name}” keeps {words.count(table.num_rows)}" for name, table in selected_tables(published).items()]
        return "; ".join([f"{words.count(scored)} edits were scored", *sizes[:1]]) + "."
    done = sum(published.done(step) for step in STEP_NAMES)
    return f"Nothing is measured yet; {done} of {sum(published.planned(step) for step in STEP_NAMES)} steps are done."


def section(published: Published) -> Section:
    """Figures, pictures, one line on synthetic parts."""
    blocks: list[Block] = []
    warning = published.results("filter").get(OTHER_DOMAIN, "")
    if warning:
        blocks.append(Callout(f"{warning[0].upper()}{warning[1:]}.", ""))
    facts = [*_accuracy(published), *_good(published), *_effect(published)] or _counts(published)
    if facts:
        blocks.append(Facts(facts[:3]))
    blocks += _pictures(published) or _ends(published)
    synthetic = synthetic_parts(published)
    if synthetic:
        text = f"Synthetic or simulated in this run: {words.listing([part.name for part in synthetic])}."
        blocks.append(Remark(text, "provenance", "What this means for the numbers"))
    return Section("result", "Result", "", blocks)


def pair_accuracy(published: Published) -> Estimate | None:
    """Held-out accuracy of the reward model on strict pairs of the overall score."""
    found = reference_figures(published)
    return Estimate.read(found[1].get("pair_accuracy", {}).get("overall")) if found else None


def main_difference(published: Published) -> tuple[str, str, float, float, Estimate] | None:
    """(training set, reference, both overall scores, paired difference) of the training set that the run is about."""
    evaluation = published.json("evaluate-editor", "evaluation.json")
    differences = evaluation.get("differences", {})
    arm = MAIN_ARM if MAIN_ARM in differences else next((name for name in differences if name != "base"), None)
    difference = Estimate.read(differences.get(arm)) if arm else None
    reference = evaluation.get("reference_arm", "")
    score, reference_score = (Estimate.read(evaluation.get("arms", {}).get(name, {}).get("overall")) for name in (arm, reference))
    if arm is None or difference is None or score is None or reference_score is None:
        return None
    return arm, reference, score.value, reference_score.value, difference


def _accuracy(published: Published) -> list[Fact]:
    accuracy, found = pair_accuracy(published), reference_figures(published)
    if accuracy is None or found is None:
        return []
    closeness = Estimate.read(found[1].get("baselines", {}).get(CLOSENESS))
    beside = f"; {CLOSENESS} reaches {words.share(closeness.value)}" if closeness else ""
    note = f"{_interval(accuracy, words.share)}; held-out pairs in the order of {REFERENCES[found[0]]}{beside}"
    return [Fact("Accuracy of the reward model", words.share(accuracy.value), note)]


def _good(published: Published) -> list[Fact]:
    shares = good_shares(published)
    if EVERYTHING not in shares or MAIN_ARM not in shares:
        return []
    before, after = shares[EVERYTHING], shares[MAIN_ARM]
    note = f"{_interval(after, words.share)}; unfiltered {words.share(before.value)} ({words.bounds(before, words.share)})"
    return [Fact("Good edits after filtering", words.share(after.value), note)]


def _effect(published: Published) -> list[Fact]:
    effect = main_difference(published)
    if effect is None:
        return []
    arm, reference, score, reference_score, difference = effect
    scores = f"{words.score(reference_score)} trained on “{published.label(reference)}”, {words.score(score)} on “{published.label(arm)}”"
    return [Fact("Gain of the editor, of 10", words.difference(difference.value), f"{_interval(difference, words.difference)}; {scores}")]


def _counts(published: Published) -> list[Fact]:
    """Figures of a run that only filters."""
    edits, counts = scored_edits.read(published), published.index("filter").counts
    if edits is None:
        return []
    left_out = ", ".join(f"{words.count(counts[name])} {name}" for name in ("quarantined", "gated") if counts.get(name))
    facts = [Fact("Edits scored", words.count(len(edits.overall)), f"of {words.count(counts['in'])}{f'; {left_out}' if left_out else ''}")]
    for name, table in list(selected_tables(published).items())[:1]:
        kept = edits.kept(table)
        facts.append(Fact(f"Kept by “{name}”", words.count(int(kept.sum())), f"{words.share(float(kept.mean()))} of the scored edits"))
        for dimension, values in list(edits.likert.items())[:1] if kept.any() else ():
            after, before = clustered_mean(values[kept], edits.source[kept]), clustered_mean(values, edits.source)
            mean = f"{_interval(after, words.score)}; mean of the kept edits, of all scored {words.score(before.value)}"
            note = f"{words.name(dimension)}, {mean}"
            facts.append(Fact("Predicted rating", words.score(after.value), note))
    return facts


def _pictures(published: Published) -> list[Block]:
    """The benchmark item whose gain is nearest to the mean gain: source, both trained editors, exact edit."""
    effect = main_difference(published)
    samples = published.table("evaluate-editor", "samples", ["item_id", "instruction", "arm", "image"])
    if effect is None or samples is None:
        return []
    arm, reference, *_, difference = effect
    rows = {(row["item_id"], row["arm"]): row for row in samples.to_pylist()}
    items = {item for item, _ in rows}
    scores = {key: row["overall"] for key, row in editor_scores.verdicts_of(published, items).items()}
    gains = {
        item: scores[item, arm] - scores[item, reference]
        for item in sorted(items)
        if None not in (scores.get((item, arm)), scores.get((item, reference))) and {(item, arm), (item, reference)} <= rows.keys()
    }
    if not gains:
        return []
    shown = min(gains, key=lambda item: (abs(gains[item] - difference.value), item))
    names = {COPY: "source", reference: f"trained on “{published.label(reference)}”", arm: f"trained on “{published.label(arm)}”"}
    names[EXACT] = "exact edit"
    pictures = []
    for system, name in names.items():
        row = rows.get((shown, system))
        if row is not None:
            judged = [f"{words.score(scores[shown, system])} of 10"] if system in (arm, reference) else []
            pictures.append(picture(row["image"]["bytes"], alt=f"{name}: {row['instruction']}", lines=[name, *judged]))
    return [Strip(rows[shown, arm]["instruction"], pictures, "The benchmark item whose gain is nearest to the mean gain.")]


def _ends(published: Published) -> list[Block]:
    """Of a run without trained editors: the edits with the highest and the lowest score."""
    edits = scored_edits.read(published)
    if edits is None:
        return []
    strips = []
    ids = edits.table["sample_id"]
    for title, key in (("highest", -edits.overall), ("lowest", edits.overall)):
        place = int(first(key, ids, 1)[0])
        name = ids[place].as_py()
        table = published.table("filter", "examples", ["source", "edited", "instruction"], where=("sample_id", [name]))
        for row in table.to_pylist() if table else []:
            parts = (("source", row["source"]["bytes"]), ("edited", row["edited"]["bytes"]))
            pictures = [picture(data, alt=f"{part}: {row['instruction']}", lines=[part]) for part, data in parts]
            remarks = [f"The {title} score, {words.score(float(edits.overall[place]))}", flags(edits.table["flags"][place].as_py())]
            strips.append(Strip(row["instruction"], pictures, "; ".join(filter(None, remarks))))
    return [Columns(strips)] if strips else []


def _interval(estimate: Estimate, form: words.Form) -> str:
    found = words.bounds(estimate, form)
    return f"95 % interval {found}" if found else "no interval"
