"""What the tests of the provider share: a queue's address for Airflow, tries of tasks, and a worker in a thread."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from airflow.triggers.base import BaseTrigger

from orchestration_queue.worker import ActiveJob, Router, Worker
from tests.workers import QUICK

__all__ = ["FakeInstance", "connection_json", "context_of", "fire", "handle", "rebuild", "serving"]


def connection_json(url: str, **extra: str) -> str:
    """An Airflow connection to a server, as an environment variable holds it."""
    return json.dumps({"conn_type": "orchestration_queue", "host": url, "extra": extra})


@dataclass
class FakeInstance:
    """One try of a task, as a task's code meets it, without Airflow's supervisor."""

    dag_id: str = "nightly"
    run_id: str = "scheduled__2026-01-01T00:00:00+00:00"
    task_id: str = "extract"
    map_index: int = -1
    try_number: int = 1
    id: str = field(default_factory=lambda: uuid4().hex)
    pushed: dict[str, Any] = field(default_factory=dict)

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def xcom_pull(self, *, task_ids: str, key: str, map_indexes: int) -> Any:
        assert (task_ids, map_indexes) == (self.task_id, self.map_index)
        return self.pushed.get(key)


def context_of(instance: FakeInstance) -> Any:
    """The context of a try."""
    return {"ti": instance}


@contextmanager
def serving(queue: str, url: str, handler: Callable[[ActiveJob], Any] | Router) -> Iterator[None]:
    """A worker of a queue, on a thread's event loop."""
    workers: list[Worker] = []

    async def main() -> None:
        workers.append(Worker(queue, handler, url=url, options=QUICK))
        started.set()
        await workers[0].run()

    started = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(main()), name="test-worker")
    thread.start()
    assert started.wait(60)
    try:
        yield
    finally:
        workers[0].stop()
        thread.join(60)


def handle(job: ActiveJob) -> Any:
    """Log a job, and return its data; fail those that are named so."""
    job.log(f"handled {job.data}")
    if job.name == "fail":
        raise ValueError("no luck")
    return {"got": job.data}


async def fire(trigger: BaseTrigger) -> Mapping[str, Any]:
    """Return the payload of a trigger's only event."""
    (event,) = [event async for event in trigger.run()]
    payload: Mapping[str, Any] = event.payload
    return payload


def rebuild(trigger: BaseTrigger) -> Any:
    """The trigger of a deferred task as the triggerer builds it, when it may fire."""
    path, arguments = trigger.serialize()
    assert path == f"{type(trigger).__module__}.{type(trigger).__name__}"
    assert json.loads(json.dumps(arguments)) == arguments
    assert time.time() < arguments["not_before"] < time.time() + 60
    return type(trigger)(**{**arguments, "not_before": 0})
