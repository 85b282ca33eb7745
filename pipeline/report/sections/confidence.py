"""Does uncertainty predict errors? Accuracy against confidence, what sigma adds to the margin, calibration, ties."""

from __future__ import annotations

from typing import Any

from pipeline import words
from pipeline.report.blocks import Block, Columns, Fact, Facts, Figure, Fold, Heading, Paragraph, Table
from pipeline.report.charts import Bin, Series, calibration, lines
from reward.evaluation.estimate import Estimate

RANKINGS = {"probability": "P of the predicted order", "margin": "size of the margin alone", "sigma": "sigma alone, smallest first"}
"""Ways to order pairs by confidence, and their names on the page."""


def facts(figures: dict[str, Any], rated: dict[str, Any]) -> list[Facts]:
    """Accuracy of the two halves, and the calibration error against what the model predicts: the raters' labels."""
    found = []
    for key, label in (("most_confident_half", "Accuracy, most confident half"), ("rest", "Accuracy, other half")):
        estimate = Estimate.read(figures.get("confidence", {}).get(key))
        if estimate:
            found.append(Fact(label, words.share(estimate.value), words.bounds(estimate, words.share)))
    error = Estimate.read(rated.get("calibration", {}).get("ece"))
    if error:
        interval = words.bounds(error, words.precise)
        note = f"{interval}{', ' if interval else ''}against the raters' labels"
        found.append(Fact("Calibration error (ECE)", f"{error.value:.3f}", note))
    return [Facts(found)] if found else []


def blocks(figures: dict[str, Any], label: str, rated: dict[str, Any], rated_label: str) -> list[Block]:
    """``figures`` are against ``label``; ``rated`` are against what the model predicts: the raters' labels."""
    drawn = [*_curve(figures, label), *_calibration(rated, rated_label)]
    found: list[Block] = [*([Columns(drawn)] if drawn else []), *_rankings(figures), *_ties(rated)]
    return [Heading("Does uncertainty predict errors?"), *found] if found else []


def _curve(figures: dict[str, Any], label: str) -> list[Figure]:
    series = []
    for key, name in RANKINGS.items():
        curve = figures.get("confidence", {}).get("by", {}).get(key, {}).get("curve", [])
        points = [(point["share"], estimate) for point in curve if (estimate := Estimate.read(point))]
        if len(points) < 2:
            continue
        bounded = key == "probability" and all(estimate.low is not None and estimate.high is not None for _, estimate in points)
        band = ([e.low or 0.0 for _, e in points], [e.high or 0.0 for _, e in points]) if bounded else None
        series.append(Series(name, [share for share, _ in points], [estimate.value for _, estimate in points], band))
    if not series:
        return []
    title = f"Accuracy among the most confident pairs, against {label}"
    drawn = lines(
        series, title=title, x_label="most confident share of the pairs", y_label="accuracy", form=words.percent, x_form=words.percent
    )
    caption = (
        "The right end of each line covers all pairs. A falling line means that more confident pairs are right more often. A flat line "
        "means that the confidence predicts nothing. The band is the 95 % interval of the first line."
    )
    return [Figure(title, drawn, caption)]


def _calibration(figures: dict[str, Any], label: str) -> list[Figure]:
    found = figures.get("calibration", {})
    bins = [
        Bin(entry["confidence"], entry["accuracy"], int(entry["count"]))
        for entry in found.get("bins", [])
        if entry.get("count") and Estimate.read(entry.get("confidence")) and Estimate.read(entry.get("accuracy"))
    ]
    if not bins:
        return []
    title = f"Calibration of P(a is better), against {label}"
    parts = ["On the dashed line, confidence equals accuracy. The size of a dot grows with its number of pairs, which is written below it."]
    error, noise, too_sure = (Estimate.read(found.get(key)) for key in ("ece", "ece_noise", "overconfidence"))
    if error:
        parts.append(f"Calibration error (ECE) {error.words('{:.3f}'.format)}, on groups that no calibration was fitted on.")
    if noise:
        parts.append(f"A calibrated model would show {noise.value:.3f} on as many pairs.")
    if too_sure:
        kind = "overconfident" if too_sure.value > 0 else "underconfident"
        amount = f"{abs(100 * too_sure.value):.1f} points"
        parts.append(f"On the whole the model is {amount} {kind}{'' if too_sure.clear else ', which may be chance'}.")
    return [Figure(title, calibration(bins, title=title), " ".join(parts))]


def _rankings(figures: dict[str, Any]) -> list[Block]:
    confidence = figures.get("confidence", {})
    rows = []
    for key, name in RANKINGS.items():
        half = confidence.get("by", {}).get(key, {})
        confident, rest, difference = (Estimate.read(half.get(part)) for part in ("most_confident_half", "rest", "difference"))
        if confident and rest and difference:
            rows.append((name, words.share(confident.value), words.share(rest.value), *_points(difference)))
    if not rows:
        return []
    table = Table(
        ("Pairs ordered by", "Accuracy, confident half", "Accuracy, other half", "Difference in points", "95 % interval"),
        rows,
        caption="Confidence predicts errors where the difference is above zero.",
    )
    added = Estimate.read(confidence.get("sigma_adds"))
    if added is None:
        return [table]
    value, interval = _points(added)
    verdict = "sigma predicts errors better than the margin alone" if added.clear and added.value > 0 else "no demonstrated gain from sigma"
    if added.clear and added.value < 0:
        verdict = "sigma predicts errors worse than the margin alone"
    return [
        table,
        Paragraph(f"Ordering by P instead of the margin alone changes the difference by {value} points ({interval}): {verdict}."),
    ]


def _ties(figures: dict[str, Any]) -> list[Block]:
    found = figures.get("three_way") or {}
    accuracy, never, always = (Estimate.read(found.get(key)) for key in ("accuracy", "never_tie", "always_tie"))
    likelihood, uninformed = Estimate.read(found.get("log_likelihood")), Estimate.read(found.get("log_likelihood_uninformed"))
    rows = [
        (
            words.share(entry["predicted"]),
            words.share(observed.value),
            words.bounds(observed, words.share) or "–",
            words.count(entry["count"]),
        )
        for entry in found.get("ties", [])
        if (observed := Estimate.read({**entry, "value": entry.get("observed")})) and Estimate.read(entry.get("predicted"))
    ]
    if not (accuracy and never and always and likelihood and uninformed and rows):
        return []
    text = (
        f"With the tie threshold of the calibration ({words.score(found['threshold'])}), the most likely of better, equal and worse is "
        f"right for {words.share(accuracy.value)} of all pairs ({words.bounds(accuracy, words.share)}). Never predicting a tie is right "
        f"for {words.share(never.value)}, always predicting one for {words.share(always.value)}. The mean log probability of the observed "
        f"outcome is {words.score(likelihood.value)}; knowing only the share of ties gives {words.score(uninformed.value)}."
    )
    caption = "Predicted P(tie) against the share of pairs that raters called equal, from the least to the most likely ties."
    table = Table(("Predicted P(tie)", "Called equal", "95 % interval", "Pairs"), rows, caption=caption, text_columns=0)
    return [Fold("Ties", [Paragraph(text), table])]


def _points(estimate: Estimate) -> tuple[str, str]:
    """A difference of shares, and its interval, in points."""
    values = (f"{100 * value:+.1f}".replace("-", "−") for value in (estimate.value, estimate.low, estimate.high) if value is not None)
    first, *bounds = values
    return first, " to ".join(bounds) if bounds else "–"
