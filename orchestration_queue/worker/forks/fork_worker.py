"""A worker whose jobs run in forks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.options import WorkerOptions
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.protocol.operations import job_records
from orchestration_queue.server import ServerUrl
from orchestration_queue.worker.forks.fork_runner import ForkRunner
from orchestration_queue.worker.worker import Worker

__all__ = ["ForkWorker"]


_MOST_TAKEOVERS = 10
"""How often workers may be lost with a job before it fails: what had begun is refused, and the rest may be repeated."""


class ForkWorker(Worker):
    """A worker whose jobs run in forks: cancellation reaches them, and the registry says how they are isolated.

    Args:
        queue: The queue's name.
        runner: Its handlers, which also are a router.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        options: Concurrency, lease, intervals and limits. `max_stalled` is 10 by default.
        prefix: First part of every key.
    """

    can_resize = False

    def __init__(
        self,
        queue: str,
        runner: ForkRunner,
        *,
        url: str | ServerUrl | None = None,
        options: WorkerOptions | None = None,
        prefix: str = DEFAULT_PREFIX,
    ) -> None:
        options = WorkerOptions.coerce(options, "options")
        if "max_stalled" not in options.model_fields_set:
            options = options.model_copy(update={"max_stalled": _MOST_TAKEOVERS})
        self._runner = runner
        handler: Any = runner
        super().__init__(queue, handler, url=url, options=options, prefix=prefix)

    def _describe(self) -> dict[str, object]:
        """Return additional data for the registry: the isolation of each code, and its reason."""
        return {"isolation": self._runner.decisions}

    def cancel(self, job_id: str) -> bool:
        """Stop a job that runs here; see :meth:`Worker.cancel`. Its process is asked to end, then killed."""
        self._runner.cancel(job_id)
        return super().cancel(job_id)

    async def _stop_revoked(self, job_ids: Sequence[str]) -> None:
        """Stop the revoked ones of these jobs. One exchange."""
        try:
            found = await self.io.calls.follow(
                job_records.jobs([(self.keys, job_id) for job_id in job_ids], ("revoked",))
            )
        except OrchestrationQueueError:
            return  # the heartbeat or the next check detects it
        for record in found:
            if record is not None and record.fields.get("revoked") == "1":
                self.cancel(record.id)
