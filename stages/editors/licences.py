"""Licences of editors' weights that several editors share (not legal advice)."""

from __future__ import annotations

from stages.editors.editor import Licence

APACHE = Licence("Apache-2.0")
FLUX_DEV = Licence(
    "FLUX.1 [dev] Non-Commercial License",
    terms="Run it for non-commercial purposes only, with a content filter or human review of its edits, and do not train a model that "
    "competes with FLUX.1 [dev] or FLUX.1 Kontext [dev] on them.",
    open=False,
)
