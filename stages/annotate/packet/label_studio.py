"""The packet for Label Studio: one task per group, and the labeling configuration.

In: the blind groups of the packet. Out: the texts of ``tasks.json`` and ``labeling-config.xml``. A task has ``group_id``, ``instruction``,
``source`` and, for index i from 0, ``cid<i>`` (the candidate) and ``c<i>`` (its image); ``project`` and ``rubric_version`` are for ingest.
In an annotation, the control ``<dimension>_<i>`` belongs to the object ``edit_<i>``, and its one choice is the score as text.

Images are HyperText objects, because Label Studio shows these larger than its Image objects and without drawing tools. Their address is
relative to LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT, which must be the packet's folder (docs/annotation.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import quoteattr

from stages.annotate.ratings.rating_task import RatingTask


def tasks(groups: Sequence[Mapping[str, Any]], task: RatingTask) -> str:
    """JSON list of tasks. groups: as in ``groups.jsonl``."""
    most = max((len(group["candidates"]) for group in groups), default=0)
    made = []
    for group in groups:
        data: dict[str, Any] = {
            "group_id": group["group_id"],
            "project": task.project,
            "rubric_version": task.rubric_version,
            "instruction": group["instruction"],
            "source": _image(group["source_image"]),
        }
        for place in range(most):
            there = place < len(group["candidates"])
            data[f"cid{place}"] = group["candidates"][place]["candidate_id"] if there else ""
            data[f"c{place}"] = _image(group["candidates"][place]["image"]) if there else "<p>no edit here: leave it out</p>"
        made.append({"data": data})
    return json.dumps(made, ensure_ascii=False, indent=1) + "\n"


def labeling_config(groups: Sequence[Mapping[str, Any]], task: RatingTask, names: Sequence[str]) -> str:
    """XML with one Choices control per index and dimension, required where every group has a candidate at that index. names: of the
    levels."""
    counts = [len(group["candidates"]) for group in groups]
    levels = list(zip(task.scale.levels, names, strict=True))
    lines = ["<View>", '  <Text name="instruction" value="$instruction"/>', '  <View style="display:flex;flex-wrap:wrap;gap:12px">']
    lines += [
        '    <View style="width:31%">',
        '      <Header value="Source"/>',
        '      <HyperText name="source" value="$source"/>',
        "    </View>",
    ]
    for place in range(max(counts, default=0)):
        required = "true" if place < min(counts) else "false"
        lines += ['    <View style="width:31%">', f'      <Header value="Edit {place + 1}"/>']
        lines += [f'      <HyperText name="edit_{place}" value="$c{place}"/>']
        for dimension in task.dimensions:
            lines += [f'      <Header size="5" value={quoteattr(dimension.replace("_", " ").capitalize())}/>']
            control = f'name="{dimension}_{place}" toName="edit_{place}"'
            lines += [f'      <Choices {control} choice="single" showInline="true" required="{required}">']
            lines += [f'        <Choice value="{level:g}" hint={quoteattr(name)}/>' for level, name in reversed(levels)]
            lines += ["      </Choices>"]
        lines += ["    </View>"]
    return "\n".join([*lines, "  </View>", '  <TextArea name="comment" toName="instruction" placeholder="Comment"/>', "</View>"]) + "\n"


def _image(name: str) -> str:
    """HTML of an image of the packet. The name needs no escaping: it is a hash with an extension."""
    return f'<img src="/data/local-files/?d={name}" style="width:100%">'
