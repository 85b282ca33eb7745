"""Base class of the configurations of the stages."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Config(BaseModel):
    """Base of the configurations of the stages: typed, frozen, no unknown keys, finite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RayConfig(Config):
    """The local Ray cluster; with --address only `dashboard` has no effect."""

    num_cpus: int | None = Field(
        None, gt=0, description="Logical CPUs of a local cluster; default: the cores, at least 4; at most 16 per core"
    )
    object_store_mb: int = Field(300, ge=80, description="Object store of a local cluster in MiB")
    dashboard: bool = Field(True, description="Start the Ray dashboard")
    temp_dir: str | None = Field(None, description="Folder for Ray's sockets and logs (short path); default: Ray's own")
