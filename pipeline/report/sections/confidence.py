"""Whether the reward model's confidence can be believed: accuracy against confidence, what sigma adds, calibration, ties."""

from __future__ import annotations

from typing import Any

from pipeline.report import words
from pipeline.report.blocks import Block, Columns, Fact, Facts, Figure, Heading, Paragraph, Table
from pipeline.report.charts import axes
from pipeline.report.charts.calibration import Bin, calibration
from pipeline.report.charts.lines import Series, lines
from reward.evaluation.estimate import Estimate

RANKINGS = {"probability": "P of the predicted order", "margin": "size of the margin alone", "sigma": "sigma alone, smallest first"}
"""Ways to order pairs by confidence, and how the page calls them."""


def facts(figures: dict[str, Any], rated: dict[str, Any]) -> list[Facts]:
    """Accuracy of the two halves, and the calibration error against what the model predicts: the raters' labels."""
    found = []
    for key, label in (("most_confident_half", "Accuracy, most confident half"), ("rest", "Accuracy, other half")):
        estimate = Estimate.read(figures.get("confidence", {}).get(key))
        if estimate:
            found.append(Fact(label, words.share(estimate.value), _bounds(estimate)))
    error = Estimate.read(rated.get("calibration", {}).get("ece"))
    if error:
        found.append(Fact("Calibration error (ECE)", f"{error.value:.3f}", _error_note(error)))
    return [Facts(found)] if found else []


def blocks(figures: dict[str, Any], label: str, rated: dict[str, Any], rated_label: str) -> list[Block]:
    """``figures`` are against ``label``; ``rated`` are against what the model predicts: the raters' labels."""
    found: list[Block] = [*_columns([*_curve(figures, label), *_calibration(rated, rated_label)]), *_rankings(figures), *_ties(rated)]
    return [Heading("Confidence"), *found] if found else []


def _error_note(error: Estimate) -> str:
    bounds = "" if error.low is None or error.high is None else f"{error.low:.3f} to {error.high:.3f}, "
    return f"{bounds}against the raters' labels"


def _columns(figures: list[Figure]) -> list[Columns]:
    return [Columns(figures)] if figures else []


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
        series, title=title, x_label="most confident share of the pairs", y_label="accuracy", form=axes.percent, x_form=axes.percent
    )
    caption = (
        "At the right end are all pairs. A line that falls to the right orders pairs by how likely the model is to be right; a flat one "
        "knows nothing of it. The band is the 95 % interval of the first line."
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
    parts = ["On the dashed line confidence equals accuracy; dots grow with the number of pairs, which is written below them."]
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
        caption="Confidence says something where the difference is above zero.",
    )
    added = Estimate.read(confidence.get("sigma_adds"))
    if added is None:
        return [table]
    value, interval = _points(added)
    verdict = "sigma adds to what the margin says" if added.clear and added.value > 0 else "sigma adds nothing that can be told from chance"
    if added.clear and added.value < 0:
        verdict = "sigma takes away from what the margin says"
    return [
        table,
        Paragraph(f"Ordering by P instead of the margin alone changes the difference by {value} points ({interval}): {verdict}."),
    ]


def _ties(figures: dict[str, Any]) -> list[Block]:
    found = figures.get("three_way") or {}
    accuracy, never, always = (Estimate.read(found.get(key)) for key in ("accuracy", "never_tie", "always_tie"))
    likelihood, uninformed = Estimate.read(found.get("log_likelihood")), Estimate.read(found.get("log_likelihood_uninformed"))
    rows = [
        (words.share(entry["predicted"]), words.share(observed.value), _bounds(observed) or "–", words.count(entry["count"]))
        for entry in found.get("ties", [])
        if (observed := Estimate.read({**entry, "value": entry.get("observed")})) and Estimate.read(entry.get("predicted"))
    ]
    if not (accuracy and never and always and likelihood and uninformed and rows):
        return []
    text = (
        f"With the tie threshold of the calibration ({words.score(found['threshold'])}), the most likely of better, equal and worse is "
        f"right for {words.share(accuracy.value)} of all pairs ({_bounds(accuracy)}). Never naming a tie is right for "
        f"{words.share(never.value)}, always naming one for {words.share(always.value)}. The true outcome's mean log probability is "
        f"{words.score(likelihood.value)}; knowing only the share of ties gives {words.score(uninformed.value)}."
    )
    caption = "P(tie) against how often people called the pair equal, from the least to the most likely ties."
    table = Table(("Predicted P(tie)", "Called equal", "95 % interval", "Pairs"), rows, caption=caption, text_columns=0)
    return [Heading("Ties"), Paragraph(text), table]


def _bounds(estimate: Estimate) -> str:
    """The interval of a share."""
    return "" if estimate.low is None or estimate.high is None else f"{words.share(estimate.low)} to {words.share(estimate.high)}"


def _points(estimate: Estimate) -> tuple[str, str]:
    """A difference of shares, and its interval, in points."""
    values = (f"{100 * value:+.1f}".replace("-", "−") for value in (estimate.value, estimate.low, estimate.high) if value is not None)
    first, *bounds = values
    return first, " to ".join(bounds) if bounds else "–"
