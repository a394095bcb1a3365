"""Takes jobs for a client, renews their leases and settles them, with the functions that workers use."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from orchestration_queue._logging import get_logger
from orchestration_queue.client._async.client import AsyncQueueClient
from orchestration_queue.client._async.taken_job import AsyncTakenJob
from orchestration_queue.client.checks import check_text
from orchestration_queue.client.values import Deadline
from orchestration_queue.errors import (
    InvalidOptionError,
    JobNotFoundError,
    LeaseLostError,
    ServerError,
    TransportError,
    UsageError,
)
from orchestration_queue.flows.mapping import MAP
from orchestration_queue.options import Duration, milliseconds
from orchestration_queue.options.durations import check_duration
from orchestration_queue.protocol import outcome
from orchestration_queue.protocol.call import all_good
from orchestration_queue.protocol.keys import TAKER, QueueKeys
from orchestration_queue.protocol.lease import Lease, Postponement, Settlement
from orchestration_queue.protocol.operations import (
    dead_letters,
    exchanges,
    job_records,
    queue_settings,
    queue_state,
    worker_registry,
    worker_signals,
)
from orchestration_queue.protocol.operations.exchanges import Renewal, Verdict
from orchestration_queue.protocol.operations.notifications import PendingNotifications, notify_all
from orchestration_queue.protocol.operations.queue_settings import StoredSettings
from orchestration_queue.schedules import SUBMIT_FLOW
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import JobState

__all__ = ["AsyncTaker", "AsyncTaking"]

log = get_logger("orchestration_queue.client")

_MOST_TAKEN = 100
_LONGEST_LOOK_MS = 2000
"""Waiting only notices the stream; prioritized, LIFO and delayed jobs are found by asking again."""
# The default of all workers of this wire.
_MAX_STALLED = 1
_OF_WORKERS = {MAP, SUBMIT_FLOW}
"""Jobs that workers run themselves and takers can't."""
_LATER_MS = 1000
_TOKEN = re.compile(r"([0-9]{1,16})\.([0-9]{1,9})\.((?:[0-9]{1,20}-[0-9]{1,20})?)")
_SHORTEST_LEASE, _LONGEST_LEASE = timedelta(seconds=1), timedelta(days=1)


class AsyncTaker:
    """Takes and settles jobs of one queue.

    Args:
        keys: The queue's keys.
        connection: Connection for calls.
    """

    def __init__(self, keys: QueueKeys, connection: AsyncConnection) -> None:
        self._keys = keys
        self._connection = connection
        self._named_letters = ""
        self._settings = StoredSettings()
        self._ahead_ms: int | None = None

    @property
    def _dead_letters(self) -> str:
        """Return the dead-letter queue that the queue sets, or else the one that its workers named."""
        return self._settings.dead_letter_queue or self._named_letters

    def now_ms(self) -> int:
        """Return the server's time, which decides about leases, in epoch ms."""
        return now_ms() + (self._ahead_ms or 0)

    async def resume(self, lease: Lease) -> Lease:
        """Continue a job that another taker started."""
        await self._open()
        self._settings = await self._connection.look(queue_settings.stored_settings(self._keys))
        lease.record.fill_options(self._settings.job_options)
        return lease

    async def _open(self) -> None:
        """Read the server's time and the dead-letter queue, once."""
        if self._ahead_ms is None:
            opening = await self._connection.follow(worker_registry.open_queue(self._keys))
            self._named_letters = opening.dead_letter_queue
            self._ahead_ms = opening.server_ms - time.time_ns() // 1_000_000

    async def take(self, want: int) -> list[Lease]:
        """Start up to ``want`` jobs. One exchange, and one or two more if there are fewer."""
        await self._open()
        leases = await self._exchange(want)
        if len(leases) < want and await self._find_forgotten():
            leases += await self._exchange(want - len(leases))
        return leases

    async def _exchange(self, want: int) -> list[Lease]:
        now, keys = self.now_ms(), self._keys
        due = worker_signals.tick(keys, now)
        starting = exchanges.exchange(keys, TAKER, now, want=want, cluster=self._connection.is_cluster)
        settings = queue_settings.stored_settings(keys)
        # In this order: what is due becomes ready before jobs are taken.
        calls = [due.call, settings.call, starting.call]
        ticked, stored, exchanged = all_good(await self._connection.pipeline(calls))
        tick, result = due.read(ticked), starting.read(exchanged)
        await self._deliver(result.letters, result.pending)
        runnable = []
        self._settings = settings.read(stored)
        for lease in result.started:
            lease.record.fill_options(self._settings.job_options)
            if (problem := lease.record.problem) is not None:
                await self.settle(outcome.malformed(lease, problem))
            elif lease.record.name in _OF_WORKERS:
                await self.settle(Postponement(lease, now + _LATER_MS))
            else:
                runnable.append(lease)
        return await self._within_rate(runnable, tick)

    async def _within_rate(self, leases: list[Lease], tick: worker_signals.Tick) -> list[Lease]:
        """Count the starts against the queue's rate limit, and put back the jobs above it."""
        limit = queue_settings.stored_rate_limit(tick.rate_max, tick.rate_window_ms)
        if limit is None:
            return leases
        for place in range(len(leases)):
            now = self.now_ms()
            if wait_ms := await self._connection.run(queue_settings.ask_to_start(self._keys, limit, now)):
                for held in leases[place:]:
                    await self.settle(Postponement(held, now + wait_ms))
                return leases[:place]
        return leases

    async def _find_forgotten(self) -> bool:
        """Recover stalled jobs of a queue without workers; return whether there were any."""
        if await self._connection.follow(worker_registry.has_worker(self._keys)):
            return False
        reclaimed = await self._connection.run(
            exchanges.reclaim(
                self._keys,
                TAKER,
                lease_ms := self._settings.lease_ms or worker_registry.USUAL_LEASE_MS,
                _MAX_STALLED,
                lease_ms,
                self.now_ms(),
                dead_letter=self._dead_letters,
                cluster=self._connection.is_cluster,
            )
        )
        await self._deliver(reclaimed.letters, reclaimed.pending)
        return reclaimed.retried > 0

    async def renew(self, leases: Sequence[Lease], lease: timedelta | None) -> list[Renewal]:
        """Renew leases for at least ``lease``; None renews as workers do."""
        # A worker that looks for stalled jobs adds its own lease to the last renewal, so this is a minimum.
        at_ms = self.now_ms() + (milliseconds(lease) if lease else 0)
        return await self._connection.run(exchanges.renew(self._keys, leases, at_ms))

    async def settle(self, settlement: Settlement) -> Verdict:
        """Report an outcome. A failure is also added to the job's history, and a final one to the dead letters."""
        now, keys = self.now_ms(), self._keys
        operation = exchanges.exchange(
            keys, TAKER, now, settle=[settlement], cluster=self._connection.is_cluster, dead_letter=self._dead_letters
        )
        notes = exchanges.attempt_notes(keys, TAKER, socket.gethostname(), now, [settlement])
        *_, reply = await self._connection.pipeline([operation.call] if notes is None else [notes, operation.call])
        result = operation.read(all_good([reply])[0])
        await self._deliver(result.letters, result.pending)
        if result.verdicts[0] in (Verdict.RETRYING, Verdict.DELAYED):
            # If the signal is lost, the next tick of a worker finds the job.
            with suppress(TransportError):
                await self._connection.pipeline([worker_signals.wake_for_due(keys, now)])
        return result.verdicts[0]

    async def _deliver(self, letters: Sequence[bytes], pending: PendingNotifications) -> None:
        """Do what one call could not: add dead letters on other servers, and notify dependents."""
        try:
            if letters:
                await self._connection.follow(dead_letters.post(self._keys, letters, self.now_ms()))
            if pending:
                await self._connection.follow(notify_all([(self._keys, pending)], self.now_ms()))
        except ServerError as error:
            log.error("Dead letters or notifications of queue %s are left to a worker: %s", self._keys.queue, error)


class AsyncTaking(AsyncQueueClient):
    """Takes jobs without a worker."""

    _taker: AsyncTaker | None = None

    async def take(self, count: int = 1, *, lease: Duration | None = None, wait: Duration = 0) -> list[AsyncTakenJob]:
        """Take jobs to run them here: in a notebook, a cloud function, another framework.

        The jobs become active. Each must be completed, failed, retried or released, or have its lease renewed with
        :meth:`AsyncTakenJob.heartbeat`; otherwise a worker takes it over. Pause, order, concurrency and rate limit of
        the queue apply as for workers. Budgets of flows and token limits apply to workers only, and only workers run
        the internal jobs of flows and schedules. If no worker is registered, this also recovers stalled jobs.

        Args:
            count: At most this many, up to 100.
            lease: Minimum time until a heartbeat is needed: a duration or seconds, from 1 second to a day. A worker
                that takes over waits for its own lease in addition. None: the lease of workers.
            wait: How long to wait for the first job: a duration or seconds.

        Returns:
            The jobs; an empty list if there are none.

        Raises:
            UsageError: ``count``, ``lease`` or ``wait`` is out of range.
            TransportError: The server was unreachable. Jobs in a lost reply return when their leases expire.
        """
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST_TAKEN:
            raise InvalidOptionError(f"`count` must be a whole number from 1 to {_MOST_TAKEN}, got {count!r}.")
        span = _check_lease(lease)
        deadline = Deadline(check_duration(wait, "wait"))
        taker = self._get_taker()
        while not (leases := await taker.take(count)) and not deadline.has_passed:
            last = await self._connection.follow(queue_state.handed_out_until(self.keys))
            # At least 1, since BLOCK 0 waits forever.
            block_ms = min(_LONGEST_LOOK_MS, max(1, round(deadline.left * 1000)))
            await self._connection.execute(exchanges.next_entry(self.keys, last, block_ms), repeatable=True)
        if span is not None and leases:
            await taker.renew(leases, span)
        return [AsyncTakenJob(taker, self._job(held.record), held, span) for held in leases]

    async def taken(self, job_id: str, token: str, *, lease: Duration | None = None) -> AsyncTakenJob:
        """Return a job that another process took, to continue it here: one function takes, another completes.

        Args:
            job_id: The job.
            token: The ``token`` of the job that :meth:`take` returned there.
            lease: The ``lease`` passed to :meth:`take`, for heartbeats.

        Raises:
            JobNotFoundError: The job no longer exists.
            LeaseLostError: It is finished, or another worker has it now.
            UsageError: The token is invalid, or the lease is out of range.
        """
        check_text(job_id, "job_id")
        matched = _TOKEN.fullmatch(token) if isinstance(token, str) else None
        if matched is None:
            raise UsageError(f"`token` must be the `token` of a taken job, got {token!r:.80}.")
        span = _check_lease(lease)
        record = await self._connection.run(job_records.job(self.keys, job_id))
        if record is None:
            raise JobNotFoundError(self.name, job_id)
        taken_ms, stalled_count = matched[1], int(matched[2])
        is_ours = record.fields.get("processedOn") == taken_ms and record.stalled_count == stalled_count
        if record.state != JobState.ACTIVE or not is_ours:
            raise LeaseLostError(self.name, job_id)
        taker = self._get_taker()
        held = await taker.resume(Lease(record, matched[3]))
        return AsyncTakenJob(taker, self._job(held.record), held, span)

    def _get_taker(self) -> AsyncTaker:
        if self._taker is None:
            self._taker = AsyncTaker(self.keys, self._connection)
        return self._taker


def _check_lease(lease: Duration | None) -> timedelta | None:
    span = None if lease is None else check_duration(lease, "lease")
    if span is not None and not _SHORTEST_LEASE <= span <= _LONGEST_LEASE:
        raise InvalidOptionError(f"`lease` must be from 1 second to a day, got {lease!r}.")
    return span
