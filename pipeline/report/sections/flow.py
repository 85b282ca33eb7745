"""The flow of the run with counts."""

from __future__ import annotations

from pipeline.report import words
from pipeline.report.blocks import Figure, Section
from pipeline.report.charts import flow
from pipeline.report.published import Published
from pipeline.report.sections.headline import pair_accuracy


def section(published: Published) -> Section:
    """One figure."""
    chart = flow.Flow(_upper(published), _lower(published))
    figure = Figure(flow.TITLE, flow.wide(chart), "Counts are rows of the published artifacts.", narrow=flow.tall(chart))
    return Section(
        "flow", "Flow", "From candidate edits and ratings to a reward model; with it, from raw edits to a better editor.", [figure]
    )


def _upper(published: Published) -> list[flow.Node]:
    generate, annotate = published.index("generate"), published.index("annotate")
    rated = published.results("generate").get("annotated_per_source")
    accuracy = pair_accuracy(published)
    trained = published.done("train-reward")
    return [
        flow.Node("Sources", _rows(published, "generate", "sources"), _quarantined(generate)),
        flow.Node("Candidates", _rows(published, "generate", "candidates"), f"{rated} per source to rate" if rated else ""),
        flow.Node("Ratings", _rows(published, "annotate", "ratings"), _quarantined(annotate)),
        flow.Node("Preference pairs", _rows(published, "preferences", "pairs"), _quarantined(published.index("preferences"))),
        flow.Node("Reward model", "trained" if trained else "", f"accuracy {words.share(accuracy.value)}" if accuracy else ""),
    ]


def _lower(published: Published) -> list[flow.Node]:
    index = published.index("filter")
    selections = published.results("filter").get("selections", {})
    selections = selections if isinstance(selections, dict) else {}
    arms = published.results("finetune").get("arms", [])
    evaluation = published.json("evaluate-editor", "evaluation.json")
    judged = published.rows("evaluate-editor", "verdicts")
    return [
        flow.Node("Raw edits", words.count(index.counts["in"]) if index and "in" in index.counts else "", _quarantined(index)),
        flow.Node("Scored edits", _rows(published, "filter", "scores")),
        flow.Node(
            "Selections", str(len(selections)) if selections else "", ", ".join(list(selections)[:3]) + ("…" if len(selections) > 3 else "")
        ),
        flow.Node("Editors", str(len(arms)) if arms else "", f"base and {len(arms) - 1} arms" if len(arms) > 1 else ""),
        flow.Node("Verdicts", words.count(judged) if judged else "", f"{len(evaluation.get('arms', {}))} systems" if judged else ""),
    ]


def _rows(published: Published, step: str, artifact: str) -> str:
    rows = published.rows(step, artifact)
    return "" if rows is None else words.count(rows)


def _quarantined(index) -> str:
    count = sum(index.quarantined.values()) if index else 0
    return f"{words.count(count)} quarantined" if count else ""
