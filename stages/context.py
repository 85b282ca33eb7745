"""Arguments of every step: the run, the configuration, the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stages.config import FlowConfig
from stages.engine.cluster import Cluster
from stages.engine.rundir import RunDir


@dataclass(frozen=True)
class Context:
    """``force`` allows a step to replace what was made with other settings."""

    run: RunDir
    flow: FlowConfig
    cluster: Cluster
    force: bool = False

    def need(self, section: str) -> Any:
        """A section of the configuration. Raises ``ValueError`` where the configuration does not have it."""
        value = getattr(self.flow, section)
        if value is None:
            raise ValueError(f"the configuration has no section {section}: add it, or use a configuration that has one such as demo")
        return value
