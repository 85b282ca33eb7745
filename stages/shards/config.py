"""Configuration of the shards that a selection is written to."""

from __future__ import annotations

from pydantic import Field

from stages.engine.config import Config


class ShardsConfig(Config):
    """Webdataset shards."""

    samples_per_shard: int = Field(1000, ge=1, description="Samples in one tar at most")
    bytes_per_shard: int | None = Field(
        None, ge=1, description="Bytes of images in one tar at most, where that comes first; a larger sample has a tar of its own"
    )
    shuffle_seed: int | None = Field(0, description="Order of the samples; null keeps the order of the selection (best first)")
    target: str | None = Field(None, description="Folder or URL to write to; default: the run directory")
