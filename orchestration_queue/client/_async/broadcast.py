"""Publish to a broadcast, and manage its subscriptions."""

from __future__ import annotations

from typing import Any

from orchestration_queue.client._async.events import AsyncQueueEvents
from orchestration_queue.client._async.job import AsyncJob
from orchestration_queue.client._async.producer import AsyncAdder, Placed
from orchestration_queue.errors import ServerError
from orchestration_queue.protocol.call import all_good
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.protocol.operations import additions, broadcasts, worker_registry
from orchestration_queue.protocol.operations.additions import GivenOptions, NewJob, as_options
from orchestration_queue.protocol.operations.broadcasts import NEW_ONLY, Subscription, check_subject
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms

__all__ = ["AsyncBroadcast"]


class AsyncBroadcast(AsyncAdder):
    """Messages that every subscription receives. It connects when first used.

    On the wire it is a queue whose jobs stay in the stream. Don't use its name for a queue as well.

    Args:
        name: The broadcast's name: up to 256 characters, without ``:`` ``{`` ``}``.
        max_messages: Keep exactly this many of the newest messages, retries included. Subscriptions that have not read
            older ones lose them. None keeps all.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        connection: An open connection to use instead. It stays open on close.
        prefix: First part of every key.
        codec: How message data are written; see :class:`AsyncQueue`.
        emit_events: Emit an event for each message. Disable to save one stream entry per message.

    Raises:
        InvalidNameError: The broadcast's name is invalid.
        InvalidOptionError: ``max_messages`` is not a positive number.
        UsageError: Both ``url`` and ``connection`` are given, or there is no such codec.
    """

    def __init__(
        self,
        name: str,
        *,
        max_messages: int | None = None,
        url: str | None = None,
        connection: AsyncConnection | None = None,
        prefix: str = DEFAULT_PREFIX,
        codec: str = "json",
        emit_events: bool = True,
    ) -> None:
        super().__init__(name, url=url, connection=connection, prefix=prefix, codec=codec, emit_events=emit_events)
        self.max_messages = broadcasts.check_length(max_messages)

    async def publish(self, subject: str, data: Any = None, options: GivenOptions = None) -> AsyncJob:
        """Publish a message to all existing subscriptions, and to those that will start from an earlier message.

        Args:
            subject: What it is about: words separated by dots, such as ``orders.created``.
            data: Its payload, anything the codec can write.
            options: Its id, delay, attempts, backoff, timeout, ttl, lease or deduplication. Options that order, group
                or remove jobs are refused.

        Returns:
            The message, as a job. If a message with its id or deduplication id already existed, that message, with
            ``is_new`` False; nothing was published.

        Raises:
            UsageError: The subject, the data or an option is invalid; nothing was sent.
        """
        checked = broadcasts.check_options(as_options(options))
        placed = await self._send_message(NewJob(check_subject(subject), data, checked))
        return (await self._jobs([placed]))[0]

    async def _send_message(self, message: NewJob) -> Placed:
        """Add one message and trim the stream, in one exchange."""
        job = self._encode(message)
        at_ms = now_ms()
        adding_it = additions.add(self.keys, job, at_ms, skip_events=self._skip_events)
        trimming = [broadcasts.trim(self.keys, self.max_messages)] if self.max_messages else []
        calls = [adding_it.call, *trimming]
        replies = all_good(await self._connection.pipeline(calls))
        return Placed(job, adding_it.read(replies[0]), at_ms)

    async def subscribe(self, subscription: str, start_from: str = NEW_ONLY) -> bool:
        """Create a subscription before its first worker starts, which would otherwise create it.

        Args:
            subscription: Its name.
            start_from: ``$`` for messages published from now on, ``0-0`` for all messages that are kept, or a stream
                entry's id for the messages after it.

        Returns:
            False if it already existed; its position is unchanged.

        Raises:
            InvalidNameError: The subscription's name is invalid.
            InvalidOptionError: ``start_from`` is none of these.
        """
        name, start = broadcasts.check_subscription(subscription), broadcasts.check_start(start_from)
        try:
            await self._connection.execute(worker_registry.create_group(self.keys, name, start))
        except ServerError as error:
            if error.code != "BUSYGROUP":
                raise
            return False
        return True

    async def unsubscribe(self, subscription: str) -> bool:
        """Remove a subscription with its unread messages; return False if it does not exist.

        A worker that still serves it creates it again.

        Raises:
            InvalidNameError: The subscription's name is invalid.
        """
        call = broadcasts.unsubscribe(self.keys, broadcasts.check_subscription(subscription))
        try:
            return bool(await self._connection.execute(call))
        except ServerError as error:
            if not broadcasts.is_unused(error):
                raise
            return False

    async def subscriptions(self) -> list[Subscription]:
        """List all subscriptions by name, with their positions and how many messages their workers have."""
        try:
            return await self._connection.look(broadcasts.subscriptions(self.keys))
        except ServerError as error:
            if not broadcasts.is_unused(error):
                raise
            return []

    def events(self, after: str = "$") -> AsyncQueueEvents:
        """Iterate over the messages' events as they happen, per subscription; see :class:`AsyncQueueEvents`."""
        return AsyncQueueEvents(self.name, connection=self._connection, prefix=self.keys.prefix, after=after)
