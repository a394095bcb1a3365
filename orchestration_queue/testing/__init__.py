"""Tools for testing pipelines: a real server, real workers that run until nothing is left, assertions, time travel.

Installed together with pytest, the fixtures are available without an import: ``oq_server``, ``oq_queue``,
``oq_async_queue``, ``oq_worker``, ``oq_clock``, ``oq_default_server``. docs/how-to/test-your-pipelines.md shows them.

The names below are imported when first used: pytest loads this package in every project that installed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestration_queue._lazy import lazy_names

if TYPE_CHECKING:
    from orchestration_queue.testing.assertions import (
        JobCriteria,
        assert_enqueued,
        assert_failed,
        assert_not_enqueued,
        enqueued,
    )
    from orchestration_queue.testing.draining import drain, drain_async
    from orchestration_queue.testing.environment import StartWorker, ephemeral_server, running_worker
    from orchestration_queue.testing.time_machine import TimeMachine

__all__ = [
    "JobCriteria",
    "StartWorker",
    "TimeMachine",
    "assert_enqueued",
    "assert_failed",
    "assert_not_enqueued",
    "drain",
    "drain_async",
    "enqueued",
    "ephemeral_server",
    "running_worker",
]

_HOMES = {
    "assertions": "JobCriteria assert_enqueued assert_failed assert_not_enqueued enqueued",
    "draining": "drain drain_async",
    "environment": "StartWorker ephemeral_server running_worker",
    "time_machine": "TimeMachine",
}
__getattr__, __dir__ = lazy_names(
    __name__, {name: f"testing.{home}" for home, names in _HOMES.items() for name in names.split()}
)
