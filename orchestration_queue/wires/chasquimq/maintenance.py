"""A worker's periodic work: renew its leases, promote delayed jobs, run repeatable ones."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Awaitable, Callable

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import OrchestrationQueueError, PayloadError, ScheduleError, ServerError
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.functions import chasquimq as functions
from orchestration_queue.server import AsyncConnection, Connection, ServerUrl
from orchestration_queue.server.clock import now_ms
from orchestration_queue.wires.chasquimq.entries import find_envelope, read_ms
from orchestration_queue.wires.chasquimq.envelope import Envelope, pack_envelope
from orchestration_queue.wires.chasquimq.keys import LIBRARY, ChasquiKeys, ulid
from orchestration_queue.wires.chasquimq.options import ChasquiObserver, ChasquiWorkerOptions
from orchestration_queue.wires.chasquimq.repeat import RepeatSpec, due_fires
from orchestration_queue.wires.chasquimq.settling import build_event, report_calls

__all__ = ["ChasquiLeaseRenewer", "Promoter", "Scheduler"]

log = get_logger("orchestration_queue.chasquimq")

_BATCH = 500
# Lock, batch and ticks are those of the original, whose workers lead the same queues.
_LOCK_TTL_S = 5
_MOST = 256
_PROMOTER_TICK_S = 0.1
_SCHEDULER_TICK_S = 1.0
_OUTAGE_S = 0.4


class ChasquiLeaseRenewer:
    """Renews leases three times per lease.

    Args:
        url: The server.
        keys: The queue's keys.
        group: The consumer group.
        consumer: The worker's name in the group.
        lease_s: The lease in seconds.
        on_lost: Called in the thread with the entries that another worker took over.
    """

    def __init__(
        self,
        url: ServerUrl,
        keys: ChasquiKeys,
        group: str,
        consumer: str,
        lease_s: float,
        on_lost: Callable[[list[str]], object],
    ) -> None:
        self._url = url
        self._keys = keys
        self._group = group
        self._consumer = consumer
        self._interval_s = lease_s / 3
        self._on_lost = on_lost
        self._held: dict[str, None] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"oq-chasqui-leases-{keys.queue}", daemon=True)
        self._thread.start()

    def hold(self, entry_id: str) -> None:
        """Renew the lease of an entry from now on."""
        with self._lock:
            self._held[entry_id] = None

    def drop(self, entry_id: str) -> None:
        """Stop renewing the lease of an entry."""
        with self._lock:
            self._held.pop(entry_id, None)

    def __contains__(self, entry_id: str) -> bool:
        return entry_id in self._held

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        connection: Connection | None = None
        try:
            while not self._ended.wait(self._interval_s):
                with self._lock:
                    held = list(self._held)
                try:
                    if held and connection is None:
                        connection = Connection.open(self._url, libraries=(LIBRARY,))
                    if held and connection is not None:
                        self._renew(connection, held)
                except OrchestrationQueueError as error:
                    log.warning("Queue %s: %d leases were not renewed: %s", self._keys.queue, len(held), error)
        finally:
            if connection is not None:
                connection.close()

    def _renew(self, connection: Connection, held: list[str]) -> None:
        for first in range(0, len(held), _BATCH):
            batch = held[first : first + _BATCH]
            call = functions.renew(
                stream_key=self._keys.stream, group=self._group, consumer=self._consumer, entry_ids=batch
            )
            renewed = connection.execute(call, repeatable=True)
            lost = [entry_id for entry_id, is_ours in zip(batch, renewed, strict=True) if not is_ours]
            # One that was settled meanwhile is no longer pending, and not lost.
            if lost := [entry_id for entry_id in lost if entry_id in self._held]:
                self._on_lost(lost)


async def _repeat(what: str, tick: Callable[[], Awaitable[float]]) -> None:
    """Call a function again and again, after as many seconds as it returns; an error is logged once and survived."""
    last = ""
    while True:
        try:
            pause_s, last = await tick(), ""
        except OrchestrationQueueError as error:
            if str(error) != last:
                log.warning("%s failed and is tried again: %s", what, error)
            pause_s, last = _OUTAGE_S, str(error)
        await asyncio.sleep(pause_s)


class _Leader:
    """One of the roles that a queue has a lock for."""

    def __init__(
        self, connection: AsyncConnection, keys: ChasquiKeys, holder: str, options: ChasquiWorkerOptions
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._holder = holder
        self._options = options

    async def _release(self, lock_key: str) -> None:
        await self._connection.execute(functions.release(lock_key=lock_key, holder=self._holder))


class Promoter(_Leader):
    """Promotes jobs that are due, by the server's clock."""

    def __init__(
        self,
        connection: AsyncConnection,
        keys: ChasquiKeys,
        holder: str,
        options: ChasquiWorkerOptions,
        observer: ChasquiObserver,
    ) -> None:
        super().__init__(connection, keys, holder, options)
        self._observer = observer
        self._leads = False

    async def run(self) -> None:
        """Promote until cancelled."""
        await _repeat(f"Promoting the delayed jobs of queue {self._keys.queue}", self._tick)

    async def release(self) -> None:
        """Let another worker lead immediately."""
        await self._release(self._keys.promoter_lock)

    async def _tick(self) -> float:
        keys = self._keys
        call = functions.promote(
            delayed_key=keys.delayed,
            stream_key=keys.stream,
            dead_letters_key=keys.dead_letters,
            lock_key=keys.promoter_lock,
            holder=self._holder,
            ttl_s=_LOCK_TTL_S,
            most=_MOST,
            max_length=self._options.max_length,
            max_dead=self._options.max_dead_letters,
        )
        leads, delayed, *promoted = await self._connection.execute(call)
        if bool(leads) is not self._leads:
            self._leads = bool(leads)
            self._observer.led(self._leads)
        if leads:
            self._observer.promoted(len(promoted), delayed)
        job_ids = [envelope.id for packed in promoted if (envelope := find_envelope(packed))]
        if job_ids:
            calls = [Call("DEL", tuple(keys.index(job_id) for job_id in job_ids))]
            if self._options.emit_events:
                calls += report_calls(keys, [build_event("waiting", job_id) for job_id in job_ids])
            await self._connection.pipeline(calls)
        return 0 if len(promoted) == _MOST else _PROMOTER_TICK_S


class Scheduler(_Leader):
    """Runs repeatable jobs, by this process's clock."""

    async def run(self) -> None:
        """Run schedules until cancelled."""
        self._skipped: set[bytes] = set()
        await _repeat(f"Firing the repeatable jobs of queue {self._keys.queue}", self._tick)

    async def release(self) -> None:
        """Let another worker lead immediately."""
        await self._release(self._keys.scheduler_lock)

    async def _tick(self) -> float:
        now = now_ms()
        call = functions.due(
            repeats_key=self._keys.repeat,
            lock_key=self._keys.scheduler_lock,
            holder=self._holder,
            ttl_s=_LOCK_TTL_S,
            now_ms=now,
            most=_MOST,
        )
        _, earliest, *due = await self._connection.execute(call)
        following = [read_ms(earliest)]
        for key, score, packed in due:
            following.append(await self._fire(key, score, packed, now))
        # Those that were skipped stay due: without any other, the next tick would find only them.
        if len(due) == _MOST and any(following[1:]):
            return 0
        ahead = [at - now_ms() for at in following if at > now]
        return max(0.0, min([_SCHEDULER_TICK_S, *(at / 1000 for at in ahead)]))

    async def _fire(self, key: bytes, score: bytes, packed: bytes, now: int) -> int:
        """Fire one repeatable job and return when it is due next; 0 when it is not."""
        try:
            name, spec = _read_key(key), RepeatSpec.unpack(packed)
            fires, following = due_fires(spec, read_ms(score), now)
        except PayloadError as error:
            await self._reject(key, packed, str(error))
            return 0
        except (ScheduleError, ValueError, OverflowError, OSError) as error:
            # Another client's scheduler may be able to read it, or to reach its time.
            self._skip(key, error)
            return 0
        if following is not None and spec.end_before_ms is not None and following > spec.end_before_ms:
            following = None
        call = functions.fire(
            stream_key=self._keys.stream,
            repeats_key=self._keys.repeat,
            spec_key=self._keys.spec(name),
            name=name,
            score=score.decode(),
            next_ms=following or 0,
            fire_limit=spec.limit or 0,
            max_length=self._options.max_length,
            job_name=spec.job_name,
            envelopes=[pack_envelope(_new_envelope(spec, now)) for _ in fires],
        )
        try:
            await self._connection.execute(call)
        except ServerError as error:
            self._skip(key, error)
            return 0
        return following or 0

    def _skip(self, key: bytes, error: Exception) -> None:
        if key not in self._skipped:
            log.error("Queue %s: the repeatable job %r does not fire: %s", self._keys.queue, key, error)
        self._skipped.add(key)

    async def _reject(self, key: bytes, packed: bytes, detail: str) -> None:
        log.error("Queue %s: the repeatable job %r becomes a dead letter: %s", self._keys.queue, key, detail)
        call = functions.reject_spec(
            repeats_key=self._keys.repeat,
            dead_letters_key=self._keys.dead_letters,
            name=key,
            packed=packed,
            max_dead=self._options.max_dead_letters,
            detail=detail,
        )
        await self._connection.execute(call)


def _read_key(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise PayloadError(
            f"The key {key!r} of the repeatable job is not UTF-8; check which client wrote it."
        ) from None


def _new_envelope(spec: RepeatSpec, now: int) -> Envelope:
    return Envelope(ulid(now, secrets.randbits(80)), spec.payload, now)
