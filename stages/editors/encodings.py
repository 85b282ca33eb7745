"""What the frozen half of an editor makes of sources and instructions, kept in a folder: editors of one base encode each source once.

A file is found by a key of everything that its content depends on, and read with its hash checked; a damaged one is made again. Tensors
keep their type, so an edit is the same whether its encoding was kept or not.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from stages.engine import storage
from stages.engine.ids import settings_hash

if TYPE_CHECKING:
    from PIL import Image

    from finetune.config import SamplingConfig
    from finetune.editing_model import Encoders
    from finetune.sampling import EncodedSource

_FORMAT = 1
_DIGEST = hashlib.sha256().digest_size


class Encodings:
    """``encoders`` whose results are kept. ``identity``: of the encoders' files and settings; ``folder``: None keeps nothing.

    Processes may share the folder: files appear whole.
    """

    def __init__(self, folder: Path | None, encoders: Encoders, identity: str, config: SamplingConfig) -> None:
        self._folder, self._encoders, self._config = folder, encoders, config
        self._identity = [_FORMAT, identity, config.side, config.guidance != 1]

    def of(self, source: Image.Image, instruction: str) -> EncodedSource:
        """Of an RGB source. Raises ``ValueError`` for an instruction that the family cannot read."""
        from finetune.sampling import encode_source

        if self._folder is None:
            return encode_source(self._encoders, source, instruction, self._config)
        pixels = hashlib.sha256(source.tobytes()).hexdigest()
        path = self._folder / f"{settings_hash(self._identity, source.size, pixels, instruction)}.bin"
        kept = _read(path)
        if kept is None:
            kept = encode_source(self._encoders, source, instruction, self._config)
            data = kept.to_bytes()
            storage.publish_bytes(path, hashlib.sha256(data).digest() + data)
        return kept


def _read(path: Path) -> EncodedSource | None:
    """None where there is no file, or a damaged one."""
    from finetune.sampling import EncodedSource

    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    digest, data = content[:_DIGEST], content[_DIGEST:]
    return EncodedSource.from_bytes(data) if hashlib.sha256(data).digest() == digest else None
