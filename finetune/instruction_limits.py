"""Why encoders cannot read an instruction in full. Pipelines cut long ones and take control tokens as such, without an error."""

from __future__ import annotations

from typing import Any


def too_long(count: int, limit: int) -> str:
    """Empty where the tokens are not more than the limit."""
    return f"the instruction has {count} tokens, and the model reads {limit}" if count > limit else ""


def control_token(tokenizer: Any, text: str) -> str:
    """Empty where the text contains none of the tokens that mark turns and images of a chat."""
    found = next((token for token in tokenizer.get_added_vocab() if token in text), None)
    return f"the instruction contains the control token {found}" if found is not None else ""


def unknown_characters(tokenizer: Any, text: str) -> str:
    """Empty where T5's tokenizer, a fast one, knows all letters and digits; others become one token that says nothing."""
    tokens = tokenizer(text, return_offsets_mapping=True)
    spans = (span for token, span in zip(tokens.input_ids, tokens.offset_mapping, strict=True) if token == tokenizer.unk_token_id)
    unknown = "".join(character for start, end in spans for character in text[start:end] if character.isalnum())
    return f"T5 does not know the characters {unknown[:20]!r} of the instruction; translate it into English" if unknown else ""
