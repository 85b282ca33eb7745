"""Names of encoded pairs, made of everything that decides their content.

A pair whose images, instruction, encoder or working size changes has another name, so an entry that does not belong to it is never found.
"""

from __future__ import annotations

import hashlib
import json

FORMAT = 2
"""Of the entries (`finetune.precompute.entry`), of how images are fitted to their working size, and of what is set aside."""
_DIGITS = 32


def encoding_id(encoders: str, side: int, decoder: str) -> str:
    """What all entries of one encoding have in common.

    encoders: identity of the encoders' weights and settings. side: images have an area of about side ** 2 pixels. decoder: the rule that
    turns files into pixels.
    """
    return _name("encoding", FORMAT, encoders, side, decoder)


def pair_key(encoding: str, *, source_sha256: str, edited_sha256: str, instruction: str) -> str:
    """Name of a pair's entry."""
    return _name("pair", encoding, source_sha256, edited_sha256, instruction)


def null_key(encoding: str, *, source_sha256: str) -> str:
    """Name of the entry with a source's null condition, which all pairs of that source share."""
    return _name("null", encoding, source_sha256)


def _name(*parts: str | int) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_DIGITS]
