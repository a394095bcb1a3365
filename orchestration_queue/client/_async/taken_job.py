"""A job that a client took from a queue and must finish before its lease expires."""

from __future__ import annotations

import random
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from orchestration_queue.errors import Failed, LeaseLostError, PayloadError, UsageError
from orchestration_queue.options import Duration, milliseconds
from orchestration_queue.options.durations import check_duration
from orchestration_queue.protocol import outcome
from orchestration_queue.protocol.lease import Failure, Lease, Postponement, Settlement
from orchestration_queue.protocol.operations.exchanges import Renewal, Verdict

if TYPE_CHECKING:
    from orchestration_queue.client._async.job import AsyncJob
    from orchestration_queue.client._async.taker import AsyncTaker

__all__ = ["AsyncTakenJob"]


class AsyncTakenJob:
    """A job that this client took and must finish: :meth:`complete`, :meth:`fail`, :meth:`retry` or :meth:`release`.

    As a context manager, it completes the job at the end of the block unless the block finished it. If an exception
    leaves the block, the job fails with it, and the exception propagates. Ctrl-C and cancellation release the job.

    Attributes:
        job: The job, for its log, progress, usage and children.
        lease: Minimum time until a heartbeat is needed; None for the lease of the queue's workers.
    """

    def __init__(self, taker: AsyncTaker, job: AsyncJob, held: Lease, lease: timedelta | None) -> None:
        self.job = job
        self.lease = lease
        self._taker = taker
        self._held = held
        self._is_settled = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.name!r} of queue {self.job.queue}>"

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def name(self) -> str:
        """What kind of job it is: the task's name."""
        return self._held.record.name

    @property
    def data(self) -> Any:
        """Its payload.

        Raises:
            PayloadError: It was written with another serializer, or is damaged.
        """
        return self._held.record.data

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._held.record.attempts_made + 1

    @property
    def token(self) -> str:
        """Identifies this attempt; pass it with the id to :meth:`AsyncQueue.taken` to continue in another process."""
        return f"{self._held.taken_ms}.{self._held.stalled_count}.{self._held.entry_id}"

    async def heartbeat(self) -> bool:
        """Renew the lease, as workers do every half of it.

        Returns:
            False if the job was cancelled: fail it, or let its lease expire.

        Raises:
            LeaseLostError: Another worker has the job now, or it was removed.
            UsageError: It is already finished.
        """
        self._check_open()
        renewed = await self._taker.renew([self._held], self.lease)
        if renewed[0] is Renewal.LOST:
            self._is_settled = True
            raise LeaseLostError(self.job.queue, self.id)
        return renewed[0] is Renewal.RENEWED

    async def complete(self, result: Any = None) -> None:
        """Complete the job.

        Args:
            result: What its handler would return.

        Raises:
            PayloadError: The result can't be written; the job is not finished.
            LeaseLostError: Another worker has the job now, so this outcome was discarded.
            UsageError: It is already finished.
        """
        self._check_open()
        settlement = outcome.completed(self._held, result)
        if isinstance(settlement, Failure):
            raise PayloadError(settlement.reason)
        await self._settle(settlement)

    async def fail(self, error: BaseException | str) -> bool:
        """Count a failed attempt, with its kind, reason and traceback, as a worker does when a handler raises.

        Args:
            error: What went wrong: an exception, or a string.

        Returns:
            Whether the job is retried: it has attempts left, and the error is not an ``UnrecoverableError``.

        Raises:
            LeaseLostError: Another worker has the job now, so this outcome was discarded.
            UsageError: It is neither an exception nor a string, or the job is already finished.
        """
        self._check_open()
        if isinstance(error, str) and error:
            error = Failed(error, kind="failed")
        if not isinstance(error, BaseException):
            raise UsageError(f"`error` must be an exception or a non-empty text, got {error!r}.")
        chance = random.random()  # noqa: S311  jitter, not a secret
        failure = outcome.failed(self._held, outcome.without_exit(error), chance)
        return await self._settle(failure) is Verdict.RETRYING

    async def retry(self, delay: Duration = 0, *, reason: str = "retried by its taker") -> None:
        """Count a failed attempt, and run the job again, even if it has no attempts left.

        Args:
            delay: When: a duration, or seconds.
            reason: Why, for its history.

        Raises:
            LeaseLostError: Another worker has the job now, so this outcome was discarded.
            UsageError: The delay is not a duration, or the job is already finished.
        """
        self._check_open()
        wait_ms = milliseconds(check_duration(delay, "delay"))
        # The server counts this attempt as failed; one more is always left.
        attempts = self._held.record.attempts_made + 2
        await self._settle(Failure(self._held, reason, max_attempts=attempts, backoff_ms=wait_ms, kind="retried"))

    async def release(self, delay: Duration = 0) -> None:
        """Return the job to its queue without counting an attempt; another worker runs it.

        Args:
            delay: How long to wait at least: a duration, or seconds.

        Raises:
            LeaseLostError: Another worker has the job now.
            UsageError: The delay is not a duration, or the job is already finished.
        """
        self._check_open()
        wait_ms = milliseconds(check_duration(delay, "delay"))
        await self._settle(Postponement(self._held, self._taker.now_ms() + wait_ms))

    async def _settle(self, settlement: Settlement) -> Verdict:
        verdict = await self._taker.settle(settlement)
        self._is_settled = True
        if verdict is Verdict.LOST:
            raise LeaseLostError(self.job.queue, self.id)
        return verdict

    def _check_open(self) -> None:
        if self._is_settled:
            raise UsageError(f"Job {self.id!r} of queue {self.job.queue!r} is finished, or was lost; take another one.")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_settled:
            return
        if error is None:
            await self.complete()
        elif isinstance(error, Exception):
            await self.fail(error)
        else:
            await self.release()
