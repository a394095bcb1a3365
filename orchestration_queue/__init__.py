"""Pipelines as Dagster assets, run by a fleet of workers over a Valkey queue, with Spark for the big work."""

from __future__ import annotations

from orchestration_queue._version import __version__

__all__ = ["__version__"]
