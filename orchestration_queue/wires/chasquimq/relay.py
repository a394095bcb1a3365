"""Flow nodes that run on ChasquiMQ's workers."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from orchestration_queue.errors import Failed, JobFailedError, UsageError
from orchestration_queue.flows.node import RelayedNode
from orchestration_queue.server import parse_url
from orchestration_queue.tasks import Tasks
from orchestration_queue.wires.chasquimq._async.client import AsyncChasquiEvents
from orchestration_queue.wires.chasquimq._async.queue import AsyncChasquiQueue
from orchestration_queue.wires.chasquimq.checks import check_name, retry_override
from orchestration_queue.wires.chasquimq.entries import REASONS
from orchestration_queue.wires.chasquimq.envelope import BackoffSpec
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from orchestration_queue.worker import AsyncActiveJob

__all__ = ["ChasquiRef", "add_relay"]

_TASK = "chasquimq"


@dataclass(frozen=True, slots=True)
class ChasquiRef:
    """A ChasquiMQ queue as a node's queue: its job runs there, and the node ends when the job does.

    A node that fails has the dead letter's reason, such as ``retries_exhausted``, as its kind of failure.

    The node itself is a task on a queue of this package, whose worker needs :func:`add_relay`. It adds the job, waits
    for its end, and returns its result, using one slot and one connection meanwhile. A task that is taken over by
    another worker waits for the same job; a retried one adds another.

    Attributes:
        queue: The ChasquiMQ queue.
        via: Our queue whose workers run the task; None: the flow's queue.
        attempts: How often the job's handler may run; None for its worker's option.
        backoff: The pauses between attempts; None for its worker's option.
        results_as: The key of the job's data, which must be a dict, for the results of the node's dependencies by name;
            None passes none.

    Raises:
        UsageError: A value is invalid.

    Examples:
        >>> Node("ocr", queue=ChasquiRef("ocr"), data={"page": 1}).task
        'chasquimq'
    """

    queue: str
    via: str | None = None
    attempts: int | None = None
    backoff: BackoffSpec | timedelta | float | None = None
    results_as: str | None = None

    def __post_init__(self) -> None:
        ChasquiKeys(self.queue)
        retry_override(self.attempts, self.backoff)
        if self.results_as is not None and not isinstance(self.results_as, str):
            raise UsageError(f"`results_as` must be a string, got {self.results_as!r}; pass a key of the job's data.")

    def relay(self, name: str, data: object) -> RelayedNode:
        """Return the task that runs a job with this name and data there.

        Raises:
            UsageError: The name is invalid, or the data can't hold the dependencies' results.
        """
        if self.results_as is not None and not isinstance(data, Mapping | None):
            raise UsageError(
                f"The data of node {name!r} must be a dict for `results_as={self.results_as!r}`, got {data!r}; "
                "pass one, or drop `results_as`."
            )
        override = retry_override(self.attempts, self.backoff)
        arguments = {
            "queue": self.queue,
            "name": check_name(name),
            "data": data,
            "attempts": self.attempts,
            "backoff": override and override.backoff and override.backoff.to_wire(),
            "results_as": self.results_as,
        }
        given = {key: value for key, value in arguments.items() if value is not None}
        return RelayedNode(self.via, _TASK, given)


def add_relay(tasks: Tasks, *, url: str | None = None) -> None:
    """Add the task that runs the nodes of :class:`ChasquiRef`.

    Args:
        tasks: The tasks of the worker that serves the nodes' queue.
        url: The server of the ChasquiMQ queues; default ``OQ_URL``, or else the embedded server of this directory.

    Raises:
        InvalidNameError: There already is a task named ``chasquimq``.
        UsageError: `tasks` is not a :class:`Tasks`, or the URL is invalid.
    """
    if not isinstance(tasks, Tasks):
        raise UsageError(f"`tasks` must be the Tasks of a worker, got {tasks!r}; pass `Tasks()`.")
    if url is not None:
        parse_url(url)

    @tasks.task(name=_TASK)
    async def relay(
        job: AsyncActiveJob,
        queue: str,
        name: str,
        data: Any = None,
        attempts: int | None = None,
        backoff: list[Any] | None = None,
        results_as: str | None = None,
    ) -> Any:
        if results_as is not None:
            data = {**(data or {}), results_as: await job.upstream_results()}
        pauses = None if backoff is None else BackoffSpec.from_wire(backoff)
        async with AsyncChasquiQueue(queue, url=url) as remote:
            sent = await _identify(job, queue, url)
            await remote.add(name, data, attempts=attempts, backoff=pauses, job_id=sent["id"])
            try:
                return await remote.wait(sent["id"], after=sent["after"])
            except JobFailedError as error:
                # Otherwise a retried flow would find this failure as the new attempt's.
                await job.update_progress(None)
                if error.kind not in REASONS:
                    raise
                raise Failed(str(error), kind=error.kind) from None


async def _identify(job: AsyncActiveJob, queue: str, url: str | None) -> dict[str, Any]:
    """Return the id and cursor of this attempt's job, stored before it is added so that a takeover finds them."""
    sent = job.record.progress
    if isinstance(sent, dict) and sent.get("attempt") == job.attempt and {"id", "after"} <= sent.keys():
        return sent
    async with AsyncChasquiEvents(queue, url=url) as events:
        sent = {"id": f"{job.id}:{secrets.token_hex(4)}", "after": await events.start(), "attempt": job.attempt}
    await job.update_progress(sent)
    return sent
