"""Where the checkout and the real data lie."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"
"""Real images, ratings and votes; a checkout may lack them."""
