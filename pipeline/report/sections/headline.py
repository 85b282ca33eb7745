"""The result of the run in a few sentences, key numbers, and a table of steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipeline import words
from pipeline.flow import STEP_NAMES
from pipeline.report.blocks import Block, Callout, Fact, Facts, Heading, Paragraph, Section, Table
from pipeline.report.published import Published
from pipeline.report.sections.filtering import EVERYTHING, good_shares
from pipeline.report.sections.reward import REFERENCES, reference_figures
from pipeline.report.synthetic import synthetic_parts
from reward.evaluation.estimate import Estimate

STEPS = STEP_NAMES
MAIN_ARM = "selected"
"""The training set that the result is about, where the run has it; else the first that is neither base nor reference."""


def sentence(published: Published) -> str:
    """The result in a few sentences with numbers, or which steps are done while nothing is measured."""
    parts = []
    accuracy, found = pair_accuracy(published), reference_figures(published)
    if accuracy and found:
        reference = REFERENCES[found[0]]
        parts.append(f"On held-out groups the reward model agrees with {reference} on {accuracy.words(words.share)} of the pairs of edits.")
    shares = good_shares(published)
    everything, kept = shares.get(EVERYTHING), shares.get(MAIN_ARM)
    if everything is not None and kept is not None:
        verb = "raises" if kept > everything else "does not raise"
        parts.append(f"Filtering with it {verb} the share of good edits: {words.share(everything)} before, {words.share(kept)} after.")
    effect = main_difference(published)
    if effect:
        arm, reference, score, reference_score, difference = effect
        parts.append(
            f"The editor fine-tuned on “{published.label(arm)}” scores {words.score(score)} of 10, the one fine-tuned on "
            f"“{published.label(reference)}” {words.score(reference_score)}: a difference of {difference.words(words.difference)}"
            f"{'' if difference.clear else ', which may be chance'}."
        )
    if parts:
        return " ".join(parts)
    scored = published.rows("filter", "scores")
    if scored:
        return f"{words.count(scored)} edits were scored and filtered."
    done = [step for step in STEP_NAMES if published.done(step)]
    return f"Nothing is measured yet; done so far: {words.listing(done) or 'no step'}."


def section(published: Published) -> Section:
    """Key numbers, synthetic parts, and the steps with their counts."""
    blocks: list[Block] = []
    facts = _facts(published)
    if facts:
        blocks.append(Facts(facts))
    synthetic = synthetic_parts(published)
    if synthetic:
        text = (
            f"{words.listing([part.what for part in synthetic]).capitalize()}. The section Provenance says what this means for the numbers."
        )
        blocks.append(Callout("Parts of this run are synthetic", text))
    blocks += [Heading("Steps"), _steps(published)]
    if any(published.done(step) for step in STEP_NAMES):
        blocks.append(
            Paragraph(
                "Rows in = rows out + quarantined (+ duplicates, for ratings delivered twice). The section Quarantine lists the reasons."
            )
        )
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


def _facts(published: Published) -> list[Fact]:
    facts = []
    accuracy = pair_accuracy(published)
    if accuracy:
        facts.append(Fact("Held-out pair accuracy", words.share(accuracy.value), _interval(accuracy, words.share)))
    shares = good_shares(published)
    if EVERYTHING in shares and MAIN_ARM in shares:
        value = f"{100 * shares[EVERYTHING]:.0f} → {100 * shares[MAIN_ARM]:.0f} %"
        facts.append(Fact("Good edits, before and after filtering", value, "good in both dimensions by ground-truth quality"))
    effect = main_difference(published)
    if effect:
        arm, reference, score, reference_score, difference = effect
        facts.append(
            Fact(
                "Editor, benchmark overall of 10",
                f"{words.score(reference_score)} → {words.score(score)}",
                f"trained on “{published.label(reference)}” and on “{published.label(arm)}”",
            )
        )
        facts.append(Fact("Paired difference", words.difference(difference.value), _interval(difference, words.difference)))
    scored, counts = published.rows("filter", "scores"), published.index("filter").counts
    if scored and not effect:
        facts.append(Fact("Edits scored", words.count(scored), f"{words.count(counts.get('quarantined', 0))} quarantined"))
    return facts


def _interval(estimate: Estimate, form: Callable[[float], str]) -> str:
    found = words.bounds(estimate, form)
    return f"95 % interval {found}" if found else ""


def _steps(published: Published) -> Table:
    facts = published.manifest.get("steps", {})
    rows = []
    for step in STEP_NAMES:
        index = published.index(step)
        seconds = facts.get(step, {}).get("seconds")
        if not published.done(step):
            rows.append((step, "not done" if published.planned(step) else "not part of this run", "", "", "", "", ""))
            continue
        units = {Path(part.path).parent.name for parts in index.artifacts.values() for part in parts if part.path.startswith("units/")}
        counts = [words.count(index.counts[name]) if name in index.counts else "–" for name in ("in", "out", "quarantined")]
        took = words.duration(seconds) if isinstance(seconds, (int, float)) else "–"
        rows.append((step, "done", *counts, words.count(len(units)) if units else "–", took))
    return Table(("Step", "Status", "Rows in", "Rows out", "Quarantined", "Units", "Time"), rows, text_columns=2)
