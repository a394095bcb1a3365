"""What Spark looks for: it registers the ``DefaultSource`` of every module whose name begins with ``pyspark_``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestration_queue.spark.datasource import QueueDataSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> object:
    """Import it when Spark asks for it: its Python workers load this package for its worker alone."""
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from orchestration_queue.spark.datasource import QueueDataSource

    return QueueDataSource
