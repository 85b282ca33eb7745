"""Columns of published tables, so that a configuration names the data set instead of its columns.

Checked against: the data set cards of TIGER-Lab/OmniEdit-Filtered-1.2M, UCSC-VLAA/GPT-Image-Edit-1.5M, osunlp/MagicBrush and
stepfun-ai/GEdit-Bench; the READMEs of PKU-YuanGroup/ImgEdit (data and Benchmark/Basic) and of apple/pico-banana-400k with its mapping
script. facebook/emu_edit_test_set, Bin1117/AnyEdit, and the test sets that come as archives (AnyBench of AnyEdit,
MagicBrush): as public code reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

from stages.datasets.io.text_tables import KEY

REQUIRED = ("source", "instruction", "edited")
OPTIONAL = ("id", "task", "language", "licence")
SPLIT = "split"
EDITOR, SEED = "editor", "seed"


@dataclass(frozen=True)
class Preset:
    """Column by role, and the licence of rows that name none. ``edited`` is absent where a benchmark has sources only. ``benchmark``: its
    name, where the data set is one. ``id_folders``: images lie in folders that are named as their own names begin, up to the first hyphen.
    """

    columns: dict[str, str]
    licence: str = ""
    benchmark: str = ""
    id_folders: bool = False


OWN = Preset({role: role for role in (*REQUIRED, *OPTIONAL)})
"""The columns of a user's own table. The optional ones are used where they exist."""
OWN_SOURCES = Preset({**OWN.columns, "source": "image"})
"""The same of a user's own table of sources."""

PRESETS = {
    "omniedit": Preset(
        {"source": "src_img", "instruction": "edited_prompt_list", "edited": "edited_img", "id": "omni_edit_id", "task": "task"},
        "MIT, as the card of TIGER-Lab/OmniEdit-Filtered-1.2M says",
    ),
    "gpt-image-edit": Preset(
        {"source": "input", "instruction": "instruction", "edited": "output", "id": "output", "task": "task"},
        "CC-BY-4.0, as the card of UCSC-VLAA/GPT-Image-Edit-1.5M says; made with GPT-Image-1, whose terms apply to some uses",
    ),
    "imgedit": Preset(
        {"source": "input_images", "instruction": "prompt", "edited": "output_images"}, "unverified, see the card of sysuyy/ImgEdit"
    ),
    "pico-banana": Preset(
        {"source": "local_input_image", "instruction": "text", "edited": "output_image", "id": "output_image", "task": "edit_type"},
        "CC-BY-NC-ND-4.0, sources CC-BY-2.0, as the README of apple/pico-banana-400k says",
    ),
    "magicbrush": Preset(
        {"source": "source_img", "instruction": "instruction", "edited": "target_img", "id": "img_id"},
        "CC-BY-4.0, as the card of osunlp/MagicBrush says",
    ),
    "magicbrush-test": Preset(
        {"source": "input", "instruction": "instruction", "edited": "output", "id": "output"},
        "CC-BY-4.0, as the README of MagicBrush says",
        benchmark="magicbrush-test",
        id_folders=True,
    ),
    "gedit-bench": Preset(
        {"source": "input_image", "instruction": "instruction", "id": "key", "task": "task_type", "language": "instruction_language"},
        "MIT, as the card of stepfun-ai/GEdit-Bench says",
        benchmark="gedit-bench",
    ),
    "imgedit-bench": Preset({"source": "id", "instruction": "prompt", "id": KEY, "task": "edit_type"}, benchmark="imgedit-bench"),
    "anyedit": Preset(
        {"source": "image_file", "instruction": "edit_instruction", "edited": "edited_file", "task": "edit_type"},
        "CC-BY-4.0, as the card of Bin1117/AnyEdit says",
    ),
    "anybench": Preset({"source": "image_file", "instruction": "edit", "edited": "edited_file", "task": "edit_type"}, benchmark="anybench"),
    "emu-edit": Preset(
        {"source": "image", "instruction": "instruction", "id": "idx", "task": "task"},
        "CC-BY-NC-4.0, as users of facebook/emu_edit_test_set say",
        benchmark="emu-edit",
    ),
}


def known(name: str) -> str:
    """The name of a preset. Raises ``ValueError`` when there is none of that name."""
    if name not in PRESETS:
        raise ValueError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
    return name
