"""The rubric texts of the public EditReward code, read from a clone that the user has; they are not ours to ship.

The files are parsed, never executed: only string constants at the top level of two modules are read.
"""

from __future__ import annotations

import ast
import hashlib
import json
import string
from pathlib import Path

from reward.inputs.tokenizer import REWARD_TOKEN

PROMPTS_FILE, COLLATOR_FILE = "EditReward/dataset/prompts.py", "EditReward/dataset/data_collator_qwen_edit.py"
NAMES = {"instruction_following": "INSTRUCTION_EDIT_FOLLOWING", "visual_quality": "INSTRUCTION_EDIT_QUALITY"}
"""Which constant is the rubric of which dimension: the released heads read them in this order."""
PUBLISHED_RUBRICS = "14e55d38892872ce"
"""Hash of the rubrics that `read_reference_prompts` finds in every revision of the public repository, from c8bb3a3 to edb027e."""
SUFFIX = "prompt_with_special_token"
FIELD = "text_prompt"


def read_reference_prompts(clone: str | Path) -> dict[str, str]:
    """One rubric per dimension, with {instruction} once and the reward token, from a clone of TIGER-AI-Lab/EditReward.

    Raises ValueError naming the file and what is missing in it.
    """
    clone = Path(clone)
    constants = _string_constants(clone / PROMPTS_FILE)
    suffix = _required(_string_constants(clone / COLLATOR_FILE), SUFFIX, clone / COLLATOR_FILE)
    if suffix.count(REWARD_TOKEN) != 1:
        raise ValueError(f"{SUFFIX} in {clone / COLLATOR_FILE} has {suffix.count(REWARD_TOKEN)} times {REWARD_TOKEN}, expected it once")
    return {
        dimension: _with_mark(_required(constants, name, clone / PROMPTS_FILE), name, clone / PROMPTS_FILE) + suffix
        for dimension, name in NAMES.items()
    }


def unknown_revision(prompts: dict[str, str]) -> str | None:
    """The hash of rubrics that no published checkpoint was trained with, as far as is known; None for the known ones."""
    digest = hashlib.sha256(json.dumps(prompts, sort_keys=True).encode()).hexdigest()[: len(PUBLISHED_RUBRICS)]
    return None if digest == PUBLISHED_RUBRICS else digest


def _required(constants: dict[str, str], name: str, file: Path) -> str:
    if name not in constants:
        raise ValueError(f"{file} has no text {name}; expected a clone of the public EditReward repository")
    return constants[name]


def _with_mark(template: str, name: str, file: Path) -> str:
    """The template with its format field replaced by our mark."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{name} in {file} is no format template ({error})") from error
    fields = [field for _, field, _, _ in parts if field is not None]
    if fields != [FIELD]:
        raise ValueError(f"{name} in {file} has the fields {fields}, expected {{{FIELD}}} once")
    return "".join(literal + ("{instruction}" if field is not None else "") for literal, field, _, _ in parts)


def _string_constants(file: Path) -> dict[str, str]:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{file} cannot be read ({error}); --reference-prompts needs a clone of the public EditReward repository"
        ) from error
    found = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str):
            found |= {target.id: statement.value.value for target in statement.targets if isinstance(target, ast.Name)}
    return found
