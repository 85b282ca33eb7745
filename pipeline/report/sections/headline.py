"""What the run is and what came out, in one sentence and a table of steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipeline.report import words
from pipeline.report.blocks import Block, Callout, Fact, Facts, Heading, Paragraph, Section, Table
from pipeline.report.published import STEPS, Published
from pipeline.report.sections.filtering import EVERYTHING, good_shares
from pipeline.report.sections.reward import REFERENCES, reference_figures
from pipeline.report.synthetic import synthetic_parts
from reward.evaluation.estimate import Estimate

MAIN_ARM = "selected"
"""The arm that the one-sentence result is about, where the run has it; else the first that is neither base nor reference."""


def sentence(published: Published) -> str:
    """The result in one or a few sentences with numbers; says what is missing while nothing is measured."""
    parts = []
    accuracy, found = pair_accuracy(published), reference_figures(published)
    if accuracy and found:
        of = REFERENCES[found[0]]
        parts.append(f"On held-out groups the reward model orders {accuracy.words(words.share)} of the pairs of edits as {of} do.")
    shares = good_shares(published)
    everything, kept = shares.get(EVERYTHING), shares.get(MAIN_ARM)
    if everything is not None and kept is not None:
        verb = "raises" if kept > everything else "does not raise"
        parts.append(f"Filtering with it {verb} the share of good edits: {words.share(everything)} before, {words.share(kept)} after.")
    effect = main_difference(published)
    if effect:
        arm, reference, score, reference_score, difference = effect
        parts.append(
            f"The editor fine-tuned on “{arm}” scores {words.score(score)} of 10, on “{reference}” {words.score(reference_score)}: "
            f"a difference of {difference.words(words.difference)}{'' if difference.clear else ', which may be chance'}."
        )
    if parts:
        return " ".join(parts)
    scored = published.rows("filter", "scores")
    if scored:
        return f"{words.count(scored)} edits were scored and filtered."
    done = [step for step in STEPS if published.done(step)]
    return f"Nothing is measured yet; done so far: {words.listing(done) or 'no step'}."


def section(published: Published) -> Section:
    """Key numbers, what is synthetic, and the steps with their counts."""
    blocks: list[Block] = []
    facts = _facts(published)
    if facts:
        blocks.append(Facts(facts))
    synthetic = synthetic_parts(published)
    if synthetic:
        text = f"{words.listing([part.what for part in synthetic]).capitalize()}. The end of the page says what that means for the numbers."
        blocks.append(Callout("Parts of this run are synthetic", text))
    blocks += [Heading("Steps"), _steps(published)]
    if any(published.done(step) for step in STEPS):
        blocks.append(
            Paragraph("Rows in = rows out + quarantined (+ duplicates, of ratings that came twice). Quarantine below gives the reasons.")
        )
    return Section("result", "Result", "", blocks)


def pair_accuracy(published: Published) -> Estimate | None:
    """Held-out accuracy of the reward model on strict pairs of the overall score."""
    found = reference_figures(published)
    return Estimate.read(found[1].get("pair_accuracy", {}).get("overall")) if found else None


def main_difference(published: Published) -> tuple[str, str, float, float, Estimate] | None:
    """(arm, reference arm, both overall scores, paired difference) of the arm that the run is about."""
    evaluation = published.json("evaluate-editor", "evaluation.json")
    differences = evaluation.get("differences", {})
    arm = MAIN_ARM if MAIN_ARM in differences else next((name for name in differences if name != "base"), None)
    difference = Estimate.read(differences.get(arm)) if arm else None
    reference = evaluation.get("reference_arm", "")
    score, reference_score = (Estimate.read(evaluation.get("arms", {}).get(name, {}).get("overall")) for name in (arm, reference))
    if arm is None or difference is None or score is None or reference_score is None:
        return None
    return arm, reference, score.value, reference_score.value, difference


def _facts(published: Published) -> list[Fact]:
    facts = []
    accuracy = pair_accuracy(published)
    if accuracy:
        facts.append(Fact("Held-out pair accuracy", words.share(accuracy.value), _interval(accuracy, words.share)))
    shares = good_shares(published)
    if EVERYTHING in shares and MAIN_ARM in shares:
        value = f"{100 * shares[EVERYTHING]:.0f} → {100 * shares[MAIN_ARM]:.0f} %"
        facts.append(Fact("Good edits, before and after filtering", value, "good in both dimensions by the true levels"))
    effect = main_difference(published)
    if effect:
        arm, reference, score, reference_score, difference = effect
        facts.append(
            Fact(
                "Editor, benchmark overall of 10",
                f"{words.score(reference_score)} → {words.score(score)}",
                f"trained on “{reference}” and on “{arm}”",
            )
        )
        facts.append(Fact("Paired difference", words.difference(difference.value), _interval(difference, words.difference)))
    scored, quarantined = published.rows("filter", "scores"), published.index("filter")
    if scored and not effect and quarantined:
        facts.append(Fact("Edits scored", words.count(scored), f"{words.count(quarantined.counts.get('quarantined', 0))} quarantined"))
    return facts


def _interval(estimate: Estimate, form: Callable[[float], str]) -> str:
    return "" if estimate.low is None or estimate.high is None else f"95 % interval {form(estimate.low)} to {form(estimate.high)}"


def _steps(published: Published) -> Table:
    facts = published.manifest.get("steps", {})
    rows = []
    for step in STEPS:
        index = published.index(step)
        seconds = facts.get(step, {}).get("seconds")
        if index is None:
            rows.append((step, "not done" if published.planned(step) else "not part of this run", "", "", "", "", ""))
            continue
        units = {Path(part.path).parent.name for parts in index.artifacts.values() for part in parts if part.path.startswith("units/")}
        counts = [words.count(index.counts[name]) if name in index.counts else "–" for name in ("in", "out", "quarantined")]
        took = words.duration(seconds) if isinstance(seconds, (int, float)) else "–"
        rows.append((step, "done", *counts, words.count(len(units)) if units else "–", took))
    return Table(("Step", "Status", "Rows in", "Rows out", "Quarantined", "Units", "Time"), rows, text_columns=2)
