"""The flow of the run with counts."""

from __future__ import annotations

from pipeline import words
from pipeline.flow import STEP_NAMES
from pipeline.report import flow_chart
from pipeline.report.blocks import Figure, Section
from pipeline.report.published import Published
from pipeline.report.sections.filtering import selection_names
from pipeline.report.sections.headline import pair_accuracy

STEPS = STEP_NAMES


def section(published: Published) -> Section:
    """One figure."""
    nodes = _upper(published), _lower(published)
    caption = "Counts are rows of the published artifacts."
    figure = Figure(flow_chart.TITLE, flow_chart.wide(*nodes), caption, narrow=flow_chart.tall(*nodes))
    return Section(
        "flow", "Flow", "Candidate edits and ratings train a reward model. It selects raw edits, which train a better editor.", [figure]
    )


def _upper(published: Published) -> list[flow_chart.Node]:
    rated = published.results("generate").get("annotated_per_source")
    return [
        _node(published, "generate", "Sources", _rows(published, "generate", "sources"), _quarantined(published, "generate")),
        _node(
            published, "generate", "Candidates", _rows(published, "generate", "candidates"), f"{rated} per source to rate" if rated else ""
        ),
        _node(published, "annotate", "Ratings", _ratings(published), _quarantined(published, "annotate")),
        _node(
            published, "preferences", "Preference pairs", _rows(published, "preferences", "pairs"), _quarantined(published, "preferences")
        ),
        _reward_model(published),
    ]


def _reward_model(published: Published) -> flow_chart.Node:
    accuracy = pair_accuracy(published)
    trained, used = published.done("train-reward"), published.results("filter").get("scorer_revision")
    if used and not trained:
        return flow_chart.Node("Reward model", "given", f"revision {used[:8]}")
    note = f"accuracy {words.share(accuracy.value)}" if accuracy else ""
    return _node(published, "train-reward", "Reward model", "trained" if trained else "", note)


def _lower(published: Published) -> list[flow_chart.Node]:
    counts = published.index("filter").counts
    selections = selection_names(published)
    arms = published.results("finetune").get("arms", [])
    verdicts = _rows(published, "evaluate-editor", "verdicts")
    systems = len(published.json("evaluate-editor", "evaluation.json").get("arms", {}))
    listed = ", ".join(selections[:3]) + ("…" if len(selections) > 3 else "")
    delivered = words.count(counts["in"]) if "in" in counts else ""
    return [
        _node(published, "filter", "Raw edits", delivered, _quarantined(published, "filter")),
        _node(published, "filter", "Scored edits", _rows(published, "filter", "scores")),
        _node(published, "filter", "Selections", str(len(selections)) if selections else "", listed),
        _node(
            published, "finetune", "Editors", str(len(arms)) if arms else "", f"base and {len(arms) - 1} variants" if len(arms) > 1 else ""
        ),
        _node(published, "evaluate-editor", "Verdicts", verdicts, f"{systems} systems" if systems else ""),
    ]


def _node(published: Published, step: str, name: str, amount: str, note: str = "") -> flow_chart.Node:
    return flow_chart.Node(name, amount, note, "not done" if published.planned(step) else "not part of this run")


def _rows(published: Published, step: str, artifact: str) -> str:
    rows = published.rows(step, artifact)
    return "" if rows is None else words.count(rows)


def _ratings(published: Published) -> str:
    """Ratings that no later revision has replaced."""
    rows = published.rows("annotate", "ratings")
    return "" if rows is None else words.count(rows - published.results("annotate").get("superseded", 0))


def _quarantined(published: Published, step: str) -> str:
    count = sum(published.index(step).quarantined.values())
    return f"{words.count(count)} quarantined" if count else ""
