"""What tests of pipelines need: a real server, real workers until nothing is left to do, assertions, time travel.

Installed together with pytest, the fixtures are there without an import: ``oq_server``, ``oq_queue``,
``oq_async_queue``, ``oq_worker``, ``oq_clock``, ``oq_default_server``. docs/how-to/test-your-pipelines.md shows them.

The names below are loaded when they are first used: pytest loads this package in every project that installed it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestration_queue.testing.assertions import assert_enqueued, assert_not_enqueued, enqueued
    from orchestration_queue.testing.background import running_worker
    from orchestration_queue.testing.draining import drain, drain_async
    from orchestration_queue.testing.server import ephemeral_server
    from orchestration_queue.testing.time_machine import TimeMachine

__all__ = [
    "TimeMachine",
    "assert_enqueued",
    "assert_not_enqueued",
    "drain",
    "drain_async",
    "enqueued",
    "ephemeral_server",
    "running_worker",
]

_HOME_OF = {
    "TimeMachine": "time_machine",
    "assert_enqueued": "assertions",
    "assert_not_enqueued": "assertions",
    "drain": "draining",
    "drain_async": "draining",
    "enqueued": "assertions",
    "ephemeral_server": "server",
    "running_worker": "background",
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
