"""Read a worker's jobs: new ones, and those whose workers stopped renewing their leases."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import OrchestrationQueueError, PayloadError, ServerError
from orchestration_queue.options import seconds
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.functions import chasquimq as functions
from orchestration_queue.server import AsyncConnection
from orchestration_queue.wires.chasquimq.entries import read_fields, read_name
from orchestration_queue.wires.chasquimq.envelope import Envelope, unpack_envelope
from orchestration_queue.wires.chasquimq.jobs import ChasquiJob
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from orchestration_queue.wires.chasquimq.options import ChasquiWorkerOptions
from orchestration_queue.wires.limits import StartLimiter
from orchestration_queue.worker.connections import Waker

__all__ = ["ChasquiDelivery", "Entry", "Reader", "Rejection", "check_entry"]

log = get_logger("orchestration_queue.chasquimq")

_BLOCK_S = 1.0
_PAUSED_S = 0.25
_OUTAGE_S = 0.4


@dataclass(frozen=True, slots=True)
class ChasquiDelivery:
    """A job to run.

    Attributes:
        entry_id: Its entry in the stream.
        name: Its name.
        packed: Its envelope as it was stored.
        envelope: Its envelope.
        job: The job as its handler sees it.
        max_attempts: How often its handler may run.
    """

    entry_id: str
    name: str
    packed: bytes
    envelope: Envelope
    job: ChasquiJob
    max_attempts: int

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.job.attempt + 1


@dataclass(frozen=True, slots=True)
class Rejection:
    """An entry that can't run.

    Attributes:
        entry_id: The entry.
        packed: The job as it was stored.
        name: Its name, if the original keeps it.
        reason: Why it can't run.
        detail: What is wrong with it.
        attempt: How many attempts have failed.
    """

    entry_id: str
    packed: bytes
    name: str
    reason: str
    detail: str = ""
    attempt: int = 0


def check_entry(
    queue: str, entry_id: str, flat: Sequence[bytes] | None, deliveries: int, options: ChasquiWorkerOptions
) -> ChasquiDelivery | Rejection:
    """Decide whether an entry can run.

    Args:
        queue: The queue's name.
        entry_id: The entry.
        flat: Its fields and values.
        deliveries: How often it had been delivered before: each time its worker died, or lost its lease.
        options: The worker's limits.
    """
    fields = read_fields(flat)
    name, packed = read_name(fields), fields.get(b"d")
    if packed is None:
        return Rejection(entry_id, b"", "", "malformed", "missing or non-bytes payload field")
    if len(packed) > options.max_payload_bytes:
        return Rejection(entry_id, packed, name, "oversize_payload")
    try:
        envelope = unpack_envelope(packed)
    except PayloadError as error:
        return Rejection(entry_id, packed, "", "decode_failed", str(error))
    retry = envelope.retry
    own = None if retry is None else retry.max_attempts
    max_attempts = options.attempts if own is None else own
    # The original counts one delivery less, so it runs a job whose workers die once too often.
    failed = max(envelope.attempt, deliveries)
    if failed >= max_attempts:
        return Rejection(entry_id, packed, name, "retries_exhausted", attempt=failed)
    try:
        job = ChasquiJob.read(queue, name, envelope.with_attempt(failed))
    except PayloadError as error:
        # No retry can repair this; the original retries and fails them all.
        return Rejection(entry_id, packed, name, "decode_failed", str(error), failed)
    return ChasquiDelivery(entry_id, name, packed, envelope, job, max_attempts)


@dataclass(frozen=True, slots=True)
class Entry:
    """A delivered entry.

    Attributes:
        id: Its id in the stream.
        flat: Its fields and values; None when it was removed meanwhile.
        deliveries: How often it had been delivered before.
    """

    id: str
    flat: Sequence[bytes] | None
    deliveries: int = 0


class Reader:
    """Reads entries for one worker.

    Args:
        calls: A connection for calls that return immediately.
        waits: A separate connection for the blocking read.
        keys: The queue's keys.
        consumer: The worker's name in the group.
        options: The worker's options.
    """

    def __init__(
        self,
        calls: AsyncConnection,
        waits: AsyncConnection,
        keys: ChasquiKeys,
        consumer: str,
        options: ChasquiWorkerOptions,
    ) -> None:
        self._calls = calls
        self._waits = waits
        self._keys = keys
        self._consumer = consumer
        self._options = options
        lease_s = seconds(options.lease)
        # A claim is a call of its own here; the original claims with each read (decision 0016).
        self._claim_interval_s = min(5.0, lease_s / 4)
        self._next_claim = self._next_look = 0.0
        self._is_out = False
        self._is_paused = False
        self._is_waiting = False
        limit = options.rate_limit
        self._limiter = StartLimiter(limit, calls, keys.starts) if limit else None
        self.is_drained = False
        self._waker = Waker(calls, waits, keys.stream)

    async def wake(self) -> None:
        """End a blocking read. Entries that it may just have received are returned."""
        await self._waker.wake_while(lambda: self._is_waiting)

    async def watch(self) -> None:
        """Check beside the reads whether the queue is paused, and end the one that blocks. Runs until cancelled."""
        while True:
            await asyncio.sleep(_PAUSED_S)
            if not self._is_paused:
                with suppress(OrchestrationQueueError):  # the next read checks itself, and reports it
                    if await self._look():
                        await self.wake()

    async def _look(self) -> bool:
        """Find out whether the queue is paused."""
        reply = await self._calls.execute(Call("EXISTS", (self._keys.paused,)), repeatable=True)
        self._is_paused = bool(reply)
        self._next_look = asyncio.get_running_loop().time() + 2 * _PAUSED_S
        return self._is_paused

    async def create_group(self) -> None:
        """Create the queue's stream and group if needed."""
        args = ("CREATE", self._keys.stream, self._options.group, "0", "MKSTREAM")
        try:
            await self._calls.execute(Call("XGROUP", args=args, near=self._keys.stream), repeatable=True)
        except ServerError as error:
            if error.code != "BUSYGROUP" and not (error.code == "OOM" and await self._has_group()):
                raise

    async def _has_group(self) -> bool:
        """Whether the group exists; a full server refuses to create it even then, but can be drained."""
        pending = Call("XPENDING", (self._keys.stream,), (self._options.group,))
        try:
            await self._calls.execute(pending, repeatable=True)
        except ServerError:
            return False
        return True

    async def leave(self) -> None:
        """Remove the worker from the group, unless it still has jobs."""
        group = self._options.group
        pending = Call("XPENDING", (self._keys.stream,), (group, "-", "+", 1, self._consumer))
        with suppress(OrchestrationQueueError):
            # DELCONSUMER drops pending entries, which no worker could take over then.
            if not await self._calls.execute(pending, repeatable=True):
                args = ("DELCONSUMER", self._keys.stream, group, self._consumer)
                await self._calls.execute(Call("XGROUP", args=args, near=self._keys.stream))

    async def read(self, most: int) -> list[Entry]:
        """Return up to `most` entries; none after a second without any, while the queue is paused, or in an outage."""
        try:
            self.is_drained = False
            entries = await self._read(most)
        except OrchestrationQueueError as error:
            if isinstance(error, ServerError) and error.code == "NOGROUP":
                # The stream was deleted, and the group with it.
                with suppress(OrchestrationQueueError):
                    await self.create_group()
            elif not self._is_out:
                log.warning("Queue %s cannot be read and is tried again: %s", self._keys.queue, error)
            self._is_out = True
            self._waker.forget()
            await asyncio.sleep(_OUTAGE_S)
            return []
        self._is_out = False
        return entries

    async def _read(self, most: int) -> list[Entry]:
        # A round trip here would delay new jobs: only if `watch` has had no reply recently.
        is_asked = self._is_paused or asyncio.get_running_loop().time() >= self._next_look
        if is_asked and await self._look():
            await asyncio.sleep(_PAUSED_S)
            return []
        if self._limiter is None:
            return await self._take(most, _BLOCK_S)
        granted = await self._limiter.reserve(most)
        if not granted:
            await asyncio.sleep(self._limiter.pause_s())
            return []
        entries: list[Entry] = []
        try:
            entries = await self._take(granted, min(_BLOCK_S, self._limiter.left_s()))
        finally:
            await self._limiter.give_back(granted - len(entries))
        return entries

    async def _take(self, most: int, block_s: float) -> list[Entry]:
        now = asyncio.get_running_loop().time()
        if now >= self._next_claim:
            entries = await self._claim(most)
            if len(entries) < most:
                self._next_claim = now + self._claim_interval_s
            if entries:
                return entries
        return await self._read_new(most, block_s)

    async def _claim(self, most: int) -> list[Entry]:
        lease_ms = int(seconds(self._options.lease) * 1000)
        call = functions.claim(
            stream_key=self._keys.stream,
            group=self._options.group,
            consumer=self._consumer,
            idle_ms=lease_ms,
            most=most,
        )
        claimed = await self._calls.execute(call)
        return [Entry(entry_id.decode(), flat, deliveries) for entry_id, flat, deliveries in claimed]

    async def _read_new(self, most: int, block_s: float) -> list[Entry]:
        # At least 1, since BLOCK 0 waits forever.
        block_ms = max(1, int(min(block_s, self._claim_interval_s) * 1000))
        head = ("GROUP", self._options.group, self._consumer, "COUNT", most, "BLOCK", block_ms)
        args = (*head, "STREAMS", self._keys.stream, ">")
        await self._waker.prepare()
        if self._is_paused:
            return []
        self._is_waiting = True
        try:
            reply = await self._waits.execute(Call("XREADGROUP", args=args, near=self._keys.stream))
        finally:
            self._is_waiting = False
        self.is_drained = not reply and not self._is_paused
        return [Entry(entry_id.decode(), flat) for _, entries in reply or () for entry_id, flat in entries]
