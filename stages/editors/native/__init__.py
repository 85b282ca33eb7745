"""Editors that run in this process, on the pipelines of diffusers: one adapter, and a description per model."""
