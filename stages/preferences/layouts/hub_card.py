"""The card of an exported data set: metadata for the Hub, columns, origin of the pairs, statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from stages.preferences.layouts.content import Content

MEANING = {
    "pair_id": "id of the pair and its label",
    "source_id": "the source that was edited",
    "candidate_id": "the edit",
    "candidate_a": "one edit of the source",
    "candidate_b": "the other edit",
    "editor": "what made the edit",
    "editor_a": "what made a",
    "editor_b": "what made b",
    "instruction": "what the edit should do",
    "task": "kind of edit",
    "language": "language of the instruction",
    "dataset": "where the source comes from",
    "image": "encoded as it came",
    "label": "`a`, `b` or `tie`, of the sum of the dimensions",
    "gap": "sum of a's scores minus sum of b's",
    "origin": "how the row came to be; `plain`: as rated",
    "raters": "number of people who gave the scores",
}


def card(content: Content, counts: Mapping[str, Mapping[str, int]], columns: Mapping[str, Sequence[tuple[str, str]]], licence: str) -> str:
    """Markdown with the Hub's YAML at the top. counts: rows by configuration and split."""
    head = {
        "license": licence,
        "task_categories": ["image-to-image"],
        "tags": ["image-editing", "preference", "reward-model"],
        "configs": [_config(name, splits) for name, splits in counts.items()],
    }
    parts = [
        "---\n" + yaml.safe_dump(head, sort_keys=False) + "---",
        "# Preference pairs of image edits",
        "People rated several edits of one source image and instruction in every dimension; each pair of edits of one source became a row. "
        "A score is the mean over the people who rated all edits of the source. Who they are is not in this data set.",
        f"Scale: {', '.join(f'{level:g}' for level in content.statistics['scale'])}. Dimensions: {', '.join(content.dimensions)}. "
        f"Licence: {licence}. Source images and editors may have terms of their own.",
        "```python\nfrom datasets import load_dataset\n\n"
        'pairs = load_dataset("FOLDER OR ID", "pairs", split="train")\n'
        'edits = load_dataset("FOLDER OR ID", "candidates", split="train")\n'
        'image_of = dict(zip(edits["candidate_id"], range(len(edits))))\nedits[image_of[pairs[0]["candidate_a"]]]["image"]\n```',
    ]
    for name, splits in counts.items():
        parts += [f"## {name}", ", ".join(f"{split}: {count:,} rows" for split, count in splits.items()) + "."]
        parts += [_table(("column", "type", "meaning"), [(f"`{c}`", kind, _meaning(c)) for c, kind in columns[name]])]
    return "\n\n".join([*parts, "## Statistics", *_statistics(content.statistics)]) + "\n"


def _config(name: str, splits: Mapping[str, int]) -> dict[str, Any]:
    files = [{"split": split, "path": f"{name}/{split}-*.parquet"} for split in splits]
    return {"config_name": name} | ({"default": True} if name == "pairs" else {}) | {"data_files": files}


def _meaning(column: str) -> str:
    if column in MEANING:
        return MEANING[column]
    if column.startswith("label_"):
        return f"`a`, `b` or `tie` in {column.removeprefix('label_').replace('_', ' ')}"
    whose = {"a_": "a's mean score in ", "b_": "b's mean score in "}.get(column[:2], "mean score in ")
    return whose + column.removeprefix("a_").removeprefix("b_").replace("_", " ")


def _statistics(statistics: Mapping[str, Any]) -> list[str]:
    pairs, ties = statistics["pairs"], statistics["tie_shares"]
    kinds = list(dict.fromkeys(kind for counts in pairs.values() for kind in counts))
    rates = statistics["win_rates"]
    overall = sorted(((name, entry["overall"]) for name, entry in rates.items()), key=lambda row: (-(row[1]["value"] or 0), row[0]))
    return [
        _table(
            ("split", "groups", *kinds),
            [(split, str(statistics["groups"].get(split, 0)), *(str(counts[kind]) for kind in kinds)) for split, counts in pairs.items()],
        ),
        f"Ties are treated by the rule `{statistics['ties']}`.",
        _table(("tied in", "share of the pairs"), [(name.replace("_", " "), f"{share:.4f}") for name, share in ties.items()]),
        "Share of pairs with other editors' edits that an editor wins overall, a tie counting one half, with a 95 % interval over groups:",
        _table(("editor", "pairs", "won"), [(name, str(rate["n"]), _won(rate)) for name, rate in overall]),
    ]


def _won(rate: Mapping[str, Any]) -> str:
    return rate.get("note", "") if rate["value"] is None else f"{rate['value']:.3f} [{rate['low']:.3f}, {rate['high']:.3f}]"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, ["---"] * len(header), *rows])
