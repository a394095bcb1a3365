"""Server-sent events of jobs, queues and broadcasts: routes R14-R16, R43 and R44 of glide-mq's proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestration_queue.client import AsyncBroadcast, AsyncRegistration
from orchestration_queue.errors import InvalidNameError, OrchestrationQueueError
from orchestration_queue.http.job_options import addition, check_options, encode_data
from orchestration_queue.http.messages import HttpError, Json, Request, Stream, csv, dump, text_field
from orchestration_queue.http.shapes import event_shape
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import event_log, job_output, job_records
from orchestration_queue.protocol.operations.broadcasts import SubjectFilter
from orchestration_queue.protocol.operations.event_log import Event, gap_after, place
from orchestration_queue.protocol.operations.job_output import is_position

__all__ = [
    "CONNECTED",
    "GAP",
    "KEEPALIVE",
    "job_events",
    "job_stream",
    "message",
    "publish",
    "queue_events",
    "resume_id",
    "subscribe",
]

CONNECTED = b": connected\n\n"
KEEPALIVE = b": keepalive\n\n"
GAP = b"event: gap\ndata: {}\n\n"
"""Sent in place of messages that were dropped. Browsers pass it only to code that listens for it."""
# All three are those of glide-mq's proxy.
_BLOCK_MS = 5000
_OUTPUT_POLL_S = 0.5
_PAGE = 100
_COUNTS = frozenset({"drained", "cleaned", "retried", "paused", "resumed"})
"""Events whose job id has another meaning."""


def message(data: Mapping[str, Any], *, id: str, event: str | None = None) -> bytes:  # noqa: A002  SSE's word
    """Return one server-sent event."""
    name = b"" if event is None else b"event: " + _line(event) + b"\n"
    return b"id: " + _line(id) + b"\n" + name + b"data: " + dump(data) + b"\n\n"


def _line(text: str) -> bytes:
    """Return text without line breaks."""
    return text.replace("\r", " ").replace("\n", " ").encode("utf-8", "replace")


def resume_id(request: Request) -> str:
    """Return the id of the last event that the client received; empty when it sends none."""
    return request.headers.get("last-event-id") or request.query.get("lastId") or ""


async def job_stream(request: Request) -> Stream:
    """Stream a job's output until the job has finished."""
    keys = request.service.keys(request.params["name"])
    return Stream(_output(request, keys, request.params["id"], resume_id(request) or job_output.FIRST_ENTRY))


async def _output(request: Request, keys: QueueKeys, job_id: str, after: str) -> AsyncIterator[bytes]:
    if not is_position(after):
        return
    connection = request.service.connection
    while True:
        # The job first: the entries of a job that has finished are all there will be.
        record = await connection.run(job_records.job(keys, job_id, ("state",)), repeatable=True)
        while entries := await connection.run(job_output.read(keys, job_id, after, _PAGE), repeatable=True):
            for entry in entries:
                yield message(entry.fields, id=entry.id)
            after = entries[-1].id
        if record is None or record.is_finished:
            return
        await asyncio.sleep(_OUTPUT_POLL_S)


async def job_events(request: Request) -> Stream:
    """Stream a job's events until it has finished."""
    queue = request.service.queue(request.params["name"])
    if await queue.find(request.params["id"]) is None:
        raise HttpError(404, "Job not found")
    reader = await _EventSource.start(request, queue.keys)
    return Stream(_of_job(request, reader, request.params["id"]))


async def queue_events(request: Request) -> Stream:
    """Stream a queue's events."""
    keys = request.service.keys(request.params["name"])
    return Stream(_of_queue(await _EventSource.start(request, keys)))


@dataclass(slots=True)
class _EventSource:
    """Reads a queue's events for one client.

    Attributes:
        keys: The queue.
        after: The event after which to read; None if the client sent something else.
    """

    _request: Request
    _registration: AsyncRegistration
    keys: QueueKeys
    after: str | None

    @classmethod
    async def start(cls, request: Request, keys: QueueKeys) -> _EventSource:
        """Start where the client left off, or at the newest event."""
        registration = AsyncRegistration(request.service.connection)
        cursor = resume_id(request) or event_log.NEW_ONLY
        if cursor != event_log.NEW_ONLY and not is_position(cursor):
            return cls(request, registration, keys, None)
        return cls(request, registration, keys, (await registration.start({keys: cursor}))[keys])

    async def read(self, block_ms: int = _BLOCK_MS) -> list[Event]:
        """Return the next events, with a ``gap`` in place of dropped ones; an empty list if none came in time."""
        before = self.after or event_log.FIRST_EVENT
        self._registration.taken[self.keys] = before
        await self._registration.renew()
        waits = await self._request.service.waits()
        found = await waits.run(event_log.events_since({self.keys: before}, block_ms, _PAGE), repeatable=True)
        events = found.get(self.keys, [])
        self.after = events[-1].id if events else before
        if len(events) < _PAGE or place(before) == (0, 0):
            return events  # only a reader that is far behind, and does not start at the beginning, can miss events
        gap = gap_after(before, await self._request.service.connection.follow(event_log.oldest_event(self.keys)))
        return [gap, *events] if gap else events


async def _of_queue(reader: _EventSource) -> AsyncIterator[bytes]:
    yield CONNECTED
    if reader.after is None:
        return
    while True:
        events = await reader.read()
        for event in events:
            yield message(event_shape(event), id=event.id, event=event.type)
        if not events:
            yield KEEPALIVE


async def _of_job(request: Request, reader: _EventSource, job_id: str) -> AsyncIterator[bytes]:
    yield CONNECTED
    if reader.after is None:
        return
    loop = asyncio.get_running_loop()
    looked = loop.time()
    while True:
        events = await reader.read()
        for event in events:
            if event.is_gap or (event.job_id == job_id and event.type not in _COUNTS):
                yield message(event_shape(event), id=event.id, event=event.type)
                if event.type in ("completed", "failed"):
                    return
        # On a busy queue no read is ever idle, but this stream must end even if the job's last event was dropped.
        if len(events) < _PAGE and loop.time() - looked >= _BLOCK_MS / 1000 - 0.1:
            looked = loop.time()
            record = await request.service.connection.look(job_records.job(reader.keys, job_id, ("state",)))
            if record is None or record.is_finished:
                async for last in _rest(reader, job_id):
                    yield last
                return
            yield KEEPALIVE


async def _rest(reader: _EventSource, job_id: str) -> AsyncIterator[bytes]:
    """Yield the job's events that came between the last read and its state."""
    try:
        events = await reader.read(block_ms=1)
    except OrchestrationQueueError:
        return
    for event in events:
        if event.job_id == job_id and event.type not in _COUNTS:
            yield message(event_shape(event), id=event.id, event=event.type)


# As in glide-mq's proxy.
_HEARTBEAT_S = 15.0


async def publish(request: Request) -> Json:
    """Publish a message under a subject to every subscription."""
    subject = text_field(request.fields, "subject")
    options = check_options(request.fields.get("opts"))
    for key in ("priority", "lifo"):
        # Readers of a broadcast read only the stream, so a message in another list would reach none of them.
        options = {name: value for name, value in options.items() if name != key}
    job = addition(subject, encode_data(request.fields.get("data"), request.service.codec), options)
    added = await request.service.add(request.params["name"], job)
    return Json({"id": added.job_id, "subject": subject}, 201) if added.is_new else Json({"skipped": True})


async def subscribe(request: Request) -> Stream:
    """Stream the messages of a subscription; every client of it gets each message once.

    A client that reconnects with ``Last-Event-ID`` gets what others got meanwhile, or else an event ``gap``.
    """
    service, name = request.service, request.params["name"]
    subscription = request.query.get("subscription")
    if not subscription:
        raise HttpError(400, "Missing required query param: subscription")
    service.keys(name)
    try:
        subjects = SubjectFilter(csv(request.query, "subjects") or ())
    except InvalidNameError as error:
        raise HttpError(400, str(error)) from None
    if not subscription.strip():
        raise HttpError(500, "Internal server error")
    broadcast = AsyncBroadcast(name, connection=service.connection, prefix=service.prefix)
    await broadcast.subscribe(subscription)
    return Stream(_messages(request, name, subscription, subjects))


async def _messages(request: Request, name: str, subscription: str, subjects: SubjectFilter) -> AsyncIterator[bytes]:
    service, after = request.service, resume_id(request)
    async with service.subscriptions.joined(service.connection.url, name, subscription, subjects, after) as client:
        yield CONNECTED
        if client.has_gap:
            yield GAP
        while True:
            try:
                async with asyncio.timeout(_HEARTBEAT_S):
                    item = await client.next()
            except TimeoutError:
                yield KEEPALIVE
                continue
            if item is None:
                return
            yield item
            # Resumed once the item is written: only then is the message done.
            client.sent()
