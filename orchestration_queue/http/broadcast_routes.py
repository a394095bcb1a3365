"""Publishing messages, and receiving them as server-sent events: routes R43 and R44 of glide-mq's proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from orchestration_queue.client import AsyncBroadcast
from orchestration_queue.errors import InvalidNameError
from orchestration_queue.http.event_routes import CONNECTED, GAP, KEEPALIVE, resume_id
from orchestration_queue.http.job_options import addition, check_options, encode_data
from orchestration_queue.http.messages import HttpError, Json, Request, Stream
from orchestration_queue.http.parameters import csv, text_field
from orchestration_queue.protocol.operations.broadcasts import SubjectFilter

__all__ = ["publish", "subscribe"]

_HEARTBEAT_S = 15.0


async def publish(request: Request) -> Json:
    """Publish a message under a subject to every subscription."""
    subject = text_field(request.fields, "subject")
    options = check_options(request.fields.get("opts"))
    for key in ("priority", "lifo"):
        # Readers of a broadcast read the stream alone, so a message in another list would reach none of them.
        options = {name: value for name, value in options.items() if name != key}
    job = addition(subject, encode_data(request.fields.get("data"), request.service.codec), options)
    added = await request.service.add(request.params["name"], job)
    return Json({"id": added.job_id, "subject": subject}, 201) if added.is_new else Json({"skipped": True})


async def subscribe(request: Request) -> Stream:
    """Stream the messages of a subscription; every client of it gets each message once.

    A client that comes back with ``Last-Event-ID`` gets what others got meanwhile, or else an event ``gap``.
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
            client.sent()
