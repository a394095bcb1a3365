"""Dagster Pipes over Valkey streams: external work reports to its step, and a retried step finds it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestration_queue._lazy import lazy_names

if TYPE_CHECKING:
    from orchestration_queue.dagster.pipes.client import PipesQueueClient
    from orchestration_queue.dagster.pipes.session import open_job_pipes, pipes_environment, spark_properties
    from orchestration_queue.dagster.pipes.stream import PipesStreamContextInjector, PipesStreamMessageReader
    from orchestration_queue.dagster.pipes.writer import PipesStreamContextLoader, PipesStreamMessageWriter

__all__ = [
    "PipesQueueClient",
    "PipesStreamContextInjector",
    "PipesStreamContextLoader",
    "PipesStreamMessageReader",
    "PipesStreamMessageWriter",
    "open_job_pipes",
    "pipes_environment",
    "spark_properties",
]

_HOMES = {
    "client": "PipesQueueClient",
    "session": "open_job_pipes pipes_environment spark_properties",
    "stream": "PipesStreamContextInjector PipesStreamMessageReader",
    "writer": "PipesStreamContextLoader PipesStreamMessageWriter",
}
__getattr__, __dir__ = lazy_names(
    __name__, {name: f"dagster.pipes.{home}" for home, names in _HOMES.items() for name in names.split()}
)
