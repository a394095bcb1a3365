"""Move a queue between ChasquiMQ's protocol and this package's."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from types import TracebackType
from typing import Self

from orchestration_queue.client import AsyncJob, AsyncQueue, NewJob
from orchestration_queue.errors import PayloadError, ServerError, UsageError
from orchestration_queue.protocol.call import Call, Reply, text
from orchestration_queue.protocol.functions import chasquimq as functions
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import JobState
from orchestration_queue.wires.chasquimq._async.queue import AsyncChasquiQueue
from orchestration_queue.wires.chasquimq.entries import DEFAULT_GROUP, read_fields, read_ms, read_name
from orchestration_queue.wires.chasquimq.envelope import split_member, unpack_envelope
from orchestration_queue.wires.chasquimq.keys import LIBRARY
from orchestration_queue.wires.chasquimq.moving import (
    Moved,
    chasqui_job,
    chasqui_schedule,
    due_ms,
    own_job,
    own_schedule,
)

__all__ = ["AsyncChasquiMove"]

_PAGE = 200
_ALL = 100_000
_LOCK_S = 30
_ROUND_S = 2.0
"""How long a worker of the original may continue after it has lost a lock: it checks once per round."""
_STAYS = (PayloadError, UsageError, ValueError)


class AsyncChasquiMove:
    """Moves the jobs and schedules of a queue from one protocol to the other. A context manager.

    A job is added at its destination before it is removed at its source, with an id derived from its own. So a move
    that was interrupted loses nothing; run it again, and jobs in both places are added once. Running jobs, results,
    events and dead letters stay. Jobs that the other protocol can't represent stay too, and are counted with the
    reason.

    Args:
        theirs: The name of the ChasquiMQ queue.
        ours: The name of the queue of this package.
        url: The server of the ChasquiMQ queue; default ``OQ_URL``, or else the embedded server of this directory.
        our_url: The server of our queue; default: the same.
        prefix: First part of every key of our queue.

    Raises:
        UsageError: A name or a URL is invalid.
    """

    def __init__(
        self,
        theirs: str,
        ours: str,
        *,
        url: str | None = None,
        our_url: str | None = None,
        prefix: str = DEFAULT_PREFIX,
    ) -> None:
        self._theirs = AsyncChasquiQueue(theirs, url=url)
        ours_at = url if our_url is None else our_url
        self._ours = AsyncQueue(ours, url=ours_at, prefix=prefix)
        self._urls = url, ours_at
        self._keys = self._theirs.keys
        self._name = f"move-{uuid.uuid4()}"
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        theirs, ours = self._urls
        await self._stack.enter_async_context(self._theirs)
        await self._stack.enter_async_context(self._ours)
        self._their_calls = await AsyncConnection.open(theirs, libraries=(LIBRARY,))
        self._stack.push_async_callback(self._their_calls.aclose)
        self._our_calls = await AsyncConnection.open(ours, libraries=())
        self._stack.push_async_callback(self._our_calls.aclose)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def to_ours(self) -> Moved:
        """Move ready, delayed and repeatable jobs of the ChasquiMQ queue. Its workers may run meanwhile."""
        moved = Moved()
        async with self._leading(self._keys.promoter_lock):
            await self._move_delayed(moved)
        await self._ready_to_ours(moved)
        async with self._leading(self._keys.scheduler_lock):
            await self._schedules_to_ours(moved)
        return moved

    async def to_theirs(self) -> Moved:
        """Move this package's waiting and repeatable jobs. Its queue is paused meanwhile: no job starts twice."""
        moved, was_paused = Moved(), await self._ours.is_paused()
        await self._ours.pause()
        try:
            moved.jobs = await self._jobs_to_theirs(JobState.WAITING, moved)
            moved.delayed = await self._jobs_to_theirs(JobState.DELAYED, moved)
            await self._schedules_to_theirs(moved)
        finally:
            if not was_paused:
                await self._ours.resume()
        return moved

    async def _call(self, call: Call) -> Reply:
        return await self._their_calls.execute(call)

    @asynccontextmanager
    async def _leading(self, lock: str) -> AsyncIterator[None]:
        """Take over a lock of the queue's workers, so that none of them acts on what it guards."""
        holder = await self._call(Call("SET", (lock,), (self._name, "EX", _LOCK_S, "GET")))
        if holder is not None:
            await asyncio.sleep(_ROUND_S)
        try:
            yield
        finally:
            # It may have expired, and a worker may hold it again.
            if await self._call(Call("GET", (lock,))) == self._name.encode():
                await self._call(Call("DEL", (lock,)))

    async def _move_delayed(self, moved: Moved) -> None:
        offset = 0
        while page := await self._read_delayed(offset):
            await self._call(Call("EXPIRE", (self._keys.promoter_lock,), (_LOCK_S,)))
            found = []
            for member, score in zip(page[::2], page[1::2], strict=True):
                name, packed = split_member(member) or ("", b"")
                found.append((member, self._for_ours(name, packed, read_ms(score), moved)))
            added = await self._add_to_ours(found)
            if added:
                await self._call(Call("ZREM", (self._keys.delayed,), tuple(added)))
            moved.delayed += len(added)
            offset += len(found) - len(added)

    async def _read_delayed(self, offset: int) -> Sequence[bytes]:
        args = (offset, offset + _PAGE - 1, "WITHSCORES")
        page: Sequence[bytes] = await self._call(Call("ZRANGE", (self._keys.delayed,), args))
        return page

    async def _ready_to_ours(self, moved: Moved) -> None:
        await self._create_group()
        stream = self._keys.stream
        # An entry delivered to this name is given to no worker until its lease expires.
        args = ("GROUP", DEFAULT_GROUP, self._name, "COUNT", _PAGE, "STREAMS", stream, ">")
        while reply := await self._call(Call("XREADGROUP", args=args, near=stream)):
            found = []
            for entry_id, flat in reply[0][1]:
                fields = read_fields(flat)
                found.append((entry_id, self._for_ours(read_name(fields), fields.get(b"d", b""), 0, moved)))
            if added := [text(entry_id) for entry_id in await self._add_to_ours(found)]:
                call = functions.acknowledge(stream_key=stream, group=DEFAULT_GROUP, entry_ids=added)
                moved.jobs += int(await self._call(call))

    async def _create_group(self) -> None:
        args = ("CREATE", self._keys.stream, DEFAULT_GROUP, "0", "MKSTREAM")
        try:
            await self._call(Call("XGROUP", args=args, near=self._keys.stream))
        except ServerError as error:
            if error.code != "BUSYGROUP":
                raise

    def _for_ours(self, name: str, packed: bytes, due: int, moved: Moved) -> NewJob | None:
        """Return the converted job; None, counted with the reason, if it must stay."""
        try:
            return own_job(
                self._keys.queue, name, unpack_envelope(packed), timedelta(milliseconds=max(0, due - now_ms()))
            )
        except _STAYS as error:
            moved.left[str(error)] += 1
            return None

    async def _add_to_ours(self, found: Sequence[tuple[bytes, NewJob | None]]) -> list[bytes]:
        """Add jobs to this package's queue; return where they were."""
        jobs = [job for _, job in found if job is not None]
        if jobs:
            await self._ours.add_bulk(jobs)
        return [place for place, job in found if job is not None]

    async def _schedules_to_ours(self, moved: Moved) -> None:
        for found in await self._theirs.schedules(_ALL):
            try:
                if found.spec is None:
                    raise PayloadError("its spec cannot be read")
                await self._ours.schedulers.upsert(found.key, *own_schedule(found.spec, found.fired))
            except _STAYS as error:
                moved.left[str(error)] += 1
            else:
                await self._theirs.remove_schedule(found.key)
                moved.schedules += 1

    async def _jobs_to_theirs(self, state: JobState, moved: Moved) -> int:
        offset = count = 0
        size = await self._size(state)
        while offset < size:
            jobs = await self._ours.jobs(state, limit=_PAGE, offset=offset)
            found = []
            for job, due in zip(jobs, await self._due(jobs), strict=True):
                try:
                    found.append((job, chasqui_job(job.record, now_ms(), due)))
                except _STAYS as error:
                    moved.left[str(error)] += 1
            await self._theirs.add_bulk([new for _, new in found])
            for job, _ in found:
                await job.remove()
            count += len(found)
            # The stream keeps the entries of removed jobs; the other lists do not.
            shrunk, size = size, await self._size(state)
            offset += max(0, _PAGE - (shrunk - size))
        return count

    async def _size(self, state: JobState) -> int:
        counts = await self._ours.counts()
        return counts.waiting if state is JobState.WAITING else counts.delayed

    async def _due(self, jobs: Sequence[AsyncJob]) -> list[int]:
        """Return when each job may start, epoch ms; 0 for at once."""
        calls = [Call("ZSCORE", (self._ours.keys.scheduled,), (job.id,)) for job in jobs]
        return [due_ms(score) for score in await self._our_calls.pipeline(calls, repeatable=True)]

    async def _schedules_to_theirs(self, moved: Moved) -> None:
        for name, entry in (await self._ours.schedulers.list()).items():
            try:
                arguments = chasqui_schedule(name, entry)
                await self._theirs.put_schedule(arguments.pop("name"), arguments.pop("data"), **arguments)
            except _STAYS as error:
                moved.left[str(error)] += 1
            else:
                await self._ours.schedulers.remove(name)
                moved.schedules += 1
