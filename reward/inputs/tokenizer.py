"""Tokenizers: the tiny word-level one of models built from a configuration, and the stock one of pretrained backbones.

The tiny tokenizer lower-cases, drops punctuation and the function words that carry nothing in an edit instruction, and
knows the words it was built from; any other word is <unk>.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

REWARD_TOKEN = "<|Reward|>"
IMAGE_TOKEN = "<|image_pad|>"
VIDEO_TOKEN = "<|video_pad|>"
VISION_START_TOKEN = "<|vision_start|>"
VISION_END_TOKEN = "<|vision_end|>"
PAD_TOKEN = "<pad>"
UNKNOWN_TOKEN = "<unk>"
FUNCTION_WORDS = ("the", "a", "an", "at", "to", "into")

_SPECIAL = (PAD_TOKEN, UNKNOWN_TOKEN, VISION_START_TOKEN, VISION_END_TOKEN, IMAGE_TOKEN, VIDEO_TOKEN, REWARD_TOKEN)


def build_tokenizer(instructions: Iterable[str]) -> PreTrainedTokenizerBase:
    """A word-level tokenizer whose vocabulary is the words of `instructions`, in alphabetical order."""
    normalizer = normalizers.Sequence(
        [
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"[^\w\s]"), " "),
            normalizers.Replace(Regex(rf"\b({'|'.join(FUNCTION_WORDS)})\b"), " "),
        ]
    )
    splitter = pre_tokenizers.WhitespaceSplit()
    words = {word for text in instructions for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))}
    if not words:
        raise ValueError("no words to build a tokenizer from; give the instructions of the training data")
    vocabulary = {token: index for index, token in enumerate([*_SPECIAL, *sorted(words)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN_TOKEN))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitter
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD_TOKEN,
        unk_token=UNKNOWN_TOKEN,
        additional_special_tokens=list(_SPECIAL[2:]),
    )


def load_tokenizer(name: str, *, revision: str | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer of a Hub id or directory, with the reward token added where it lacks it.

    Raises ValueError for a directory whose tokenizer is missing or damaged, and for one that knows no images.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, revision=revision)
    except Exception as error:
        if not Path(name).is_dir():  # transformers says what is wrong with the name or the connection
            raise
        said = str(error).partition("\n")[0]  # damage ends in any exception
        raise ValueError(f"the tokenizer in {name} cannot be read ({type(error).__name__}: {said}); copy the model again") from error
    assert isinstance(tokenizer, PreTrainedTokenizerBase)
    if REWARD_TOKEN not in tokenizer.get_vocab():
        tokenizer.add_tokens([AddedToken(REWARD_TOKEN, special=True)])
    for token in (IMAGE_TOKEN, VIDEO_TOKEN):
        if token not in tokenizer.get_vocab():
            raise ValueError(f"tokenizer {name} has no {token}; expected that of a Qwen2.5-VL model")
    return tokenizer


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, path: Path) -> None:
    """Write the tokenizer's files, without the traces of where it was loaded from."""
    tokenizer.save_pretrained(path)
    file = path / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    kept = {name: value for name, value in settings.items() if name not in ("is_local", "local_files_only", "name_or_path")}
    file.write_text(json.dumps(kept, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def token_id(tokenizer: PreTrainedTokenizerBase, token: str) -> int:
    """The id of a token that the tokenizer knows."""
    return tokenizer.get_vocab()[token]
