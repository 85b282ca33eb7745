"""The smallest backbone that still learns; tests that train or score share it."""

from __future__ import annotations

from reward.config import BackboneConfig

BACKBONE = BackboneConfig(
    text_hidden=32,
    text_intermediate=32,
    text_heads=2,
    text_kv_heads=1,
    vision_hidden=16,
    vision_intermediate=16,
    vision_heads=2,
    patch_size=8,
)
