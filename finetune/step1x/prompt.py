"""The prompt of Step1X-Edit v1.0's vision-language model, and its tokens, with the oddities that the released weights were trained on.

The released code splits the whole prompt at quotation marks and tokenises what is inside them character by character. Its rules, kept here:
- apostrophes and curly double quotes count as quotation marks, so an apostrophe in a contraction opens a quotation that a later mark, or
  nothing, closes; an open quotation takes in the end of the prompt with its special tokens, which are then spelled out;
- marks among the first 156 characters of the prompt do not count;
- a quoted character is tokenised between curly quotes, and these two tokens are dropped only if they stayed tokens of their own: before a
  space or punctuation mark the tokenizer merges the closing one, and then all tokens stay;
- only what follows the image is taken from the split prompt.
Source: modules/conditioner.py of stepfun-ai/Step1X-Edit at 570eba6, from which `PREFIX` is quoted; it is part of what the weights mean.
"""

from __future__ import annotations

from collections.abc import Iterator

from transformers import PreTrainedTokenizerBase

PREFIX = """Given a user prompt, generate an "Enhanced prompt" that provides detailed visual descriptions suitable for image generation. \
Evaluate the level of detail in the user prompt:
- If the prompt is simple, focus on adding specifics about colors, shapes, sizes, textures, and spatial relationships to create vivid and \
concrete scenes.
- If the prompt is already detailed, refine and enhance the existing details slightly without overcomplicating.

Here are examples of how to transform or refine prompts:
- User Prompt: A cat sleeping -> Enhanced: A small, fluffy white cat curled up in a round shape, sleeping peacefully on a warm sunny \
windowsill, surrounded by pots of blooming red flowers.
- User Prompt: A busy city street -> Enhanced: A bustling city street scene at dusk, featuring glowing street lamps, a diverse crowd of \
people in colorful clothing, and a double-decker bus passing by towering glass skyscrapers.

Please generate only the enhanced description for the prompt below and avoid including any additional commentary or evaluations:
User Prompt:"""

IMAGE, IMAGE_END = "<|image_pad|>", "<|vision_end|>"
_FIRST_MARK = 156
_MARKS = str.maketrans({"“": '"', "”": '"', "'": '"'})
_HEAD = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"


def prompt(instruction: str) -> str:
    """The prompt of Qwen2.5-VL's chat template with numbered images, for one image and an instruction."""
    return f"{_HEAD}{PREFIX}Picture 1: <|vision_start|>{IMAGE}{IMAGE_END}{instruction}<|im_end|>\n<|im_start|>assistant\n"


def token_ids(tokenizer: PreTrainedTokenizerBase, instruction: str, image_tokens: int) -> list[int]:
    """Tokens of the prompt, with `image_tokens` placeholders for the image.

    ValueError when the instruction contains a special token of the model.
    """
    for token in tokenizer.get_added_vocab():
        if token in instruction:
            raise ValueError(f"the instruction {instruction!r} contains {token}, a special token of the model; remove it")
    text = prompt(instruction)
    before, image, _ = text.partition(IMAGE)
    head = [*_ids(tokenizer, before + image * image_tokens)]
    tail = [token for part in quoted_parts(text) for token in _part_ids(tokenizer, part)]
    return head + tail[tail.index(special_id(tokenizer, IMAGE_END)) :]


def prefix_length(tokenizer: PreTrainedTokenizerBase) -> int:
    """Tokens before "Picture 1: ", the last of them the prefix's colon."""
    return len(_ids(tokenizer, _HEAD + PREFIX))


def quoted_parts(text: str) -> Iterator[str]:
    """The prompt in parts: stretches outside quotations with their marks, and quoted characters, each between curly quotes."""
    inside, part = False, ""
    for index, character in enumerate(text.translate(_MARKS)):
        if character == '"' and index >= _FIRST_MARK:
            part += character
            if not inside:
                yield part
                part = ""
            inside = not inside
        elif inside:
            yield f"“{character}”"
        else:
            part += character
    if part:
        yield part


def special_id(tokenizer: PreTrainedTokenizerBase, text: str) -> int:
    """The one token of a special token or of a curly quote; ValueError from a tokenizer that has no such token."""
    ids = _ids(tokenizer, text)
    if len(ids) != 1:
        raise ValueError(f"the tokenizer makes {len(ids)} tokens of {text}, expected one as Qwen2.5-VL's; check the model's folder")
    return ids[0]


def _part_ids(tokenizer: PreTrainedTokenizerBase, part: str) -> list[int]:
    ids = _ids(tokenizer, part)
    return ids[1:-1] if ids[0] == special_id(tokenizer, "“") and ids[-1] == special_id(tokenizer, "”") else ids


def _ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])
