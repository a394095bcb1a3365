"""The process that evaluates rules and sends messages: the one that holds the lock, among any number."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from fnmatch import fnmatchcase

from orchestration_queue._logging import get_logger
from orchestration_queue.alerts.evaluation import evaluate
from orchestration_queue.alerts.measuring import measure, measure_memory, measure_pools
from orchestration_queue.alerts.receivers import RECEIVER, Receiver
from orchestration_queue.alerts.sending import NotSentError, send
from orchestration_queue.errors import InvalidOptionError, OrchestrationQueueError, TransportError
from orchestration_queue.options import AlertKind, AlertRule, Duration, milliseconds, seconds
from orchestration_queue.options.durations import check_duration
from orchestration_queue.protocol.alerts import Breach, DueMessage, Evaluator, UnsentMessage
from orchestration_queue.protocol.call import chunks, together
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.operations import alerts, keyspace, queue_settings
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms

__all__ = ["AlertEvaluator"]

log = get_logger("orchestration_queue.alerts")

_TURN_S = 1.0
_LOCK_MS = 10_000
_SHUTDOWN_S = 5.0
"""How long messages in progress may take at the end: less than the lock lasts."""
_SHORTEST, _LONGEST = timedelta(seconds=1), timedelta(hours=1)
_QUEUES_PER_EXCHANGE = 100
_NAMES_S, _NAMES_REST = 60.0, 20
"""A scan of all keys for queues is repeated after a minute, and takes at most a twentieth of the time."""
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 5_000, 300_000
_PAGE = 100
_MOST_UNSENT = 1000
"""Messages that wait for a receiver: the oldest beyond are given up."""
_GIVE_UP_MS = milliseconds(timedelta(hours=24))


class AlertEvaluator:
    """Evaluates the alert rules of a prefix, and sends messages. Several can run: one does it, the others stand by.

    Args:
        receivers: The receivers by name, as :func:`read_receivers` returns them.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        connection: An open connection to use instead. It stays open.
        prefix: First part of every key.
        interval: The time between two evaluations, 1 s to 1 h; default 15 s.

    Attributes:
        is_leader: Whether it evaluates at present.

    Raises:
        InvalidOptionError: The interval is out of range.
        UsageError: Both ``url`` and ``connection`` are given.
    """

    def __init__(
        self,
        receivers: Mapping[str, Receiver],
        *,
        url: str | None = None,
        connection: AsyncConnection | None = None,
        prefix: str = DEFAULT_PREFIX,
        interval: Duration = 15,
    ) -> None:
        length = check_duration(interval, "interval")
        if not _SHORTEST <= length <= _LONGEST:
            raise InvalidOptionError(f"`interval` must be 1 to 3,600 seconds, got {seconds(length):g}; pass 15.")
        self._interval_s = seconds(length)
        self._receivers = dict(receivers)
        self._is_lent = connection is not None
        self._connection = AsyncConnection.resolve(url, connection)
        self._keys = QueueKeys("alerts", prefix)
        self._token = secrets.token_hex(8)
        self._self = Evaluator(socket.gethostname(), os.getpid(), tuple(sorted(self._receivers)))
        self._stopping = asyncio.Event()
        self._due = 0.0
        self._names: tuple[float, list[str]] = (0.0, [])
        self._evaluating: asyncio.Task[None] | None = None
        self._sending: dict[str, asyncio.Task[None]] = {}
        self.is_leader = self._has_lock = False

    def stop(self) -> None:
        """Make :meth:`run` return soon."""
        self._stopping.set()

    async def run(self) -> None:
        """Evaluate and send until :meth:`stop`. Outages of the server are logged, and end nothing."""
        failure = ""
        try:
            while not self._stopping.is_set():
                try:
                    await self._turn()
                    failure = ""
                except OrchestrationQueueError as error:
                    self.is_leader = False
                    if str(error) != failure:
                        log.warning("Alerts are not evaluated: %s", error)
                    failure = str(error)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), _TURN_S)
        finally:
            await self._close()

    async def _turn(self) -> None:
        take = alerts.renew_lock if self._has_lock else alerts.try_lock
        self._has_lock = leads = await self._connection.run(take(self._keys, self._token, _LOCK_MS))
        if leads is not self.is_leader:
            log.info("%s process evaluates the alert rules", "This" if leads else "Another")
            self._due = 0.0
        self.is_leader = leads
        if not self.is_leader:
            return
        await self._connection.execute(alerts.announce(self._keys, self._self, _LOCK_MS), repeatable=True)
        if time.monotonic() >= self._due and (self._evaluating is None or self._evaluating.done()):
            self._due = time.monotonic() + self._interval_s
            # In the background, so that the lock is renewed even if measuring many queues takes long.
            self._evaluating = asyncio.create_task(self._evaluate())
        # Before the outbox is read: it may still hold what these have sent.
        self._sending = {name: task for name, task in self._sending.items() if not task.done()}
        self._send_due(await self._connection.follow(alerts.read_due(self._keys, now_ms(), _LONGEST_PAUSE_MS)))

    async def _close(self) -> None:
        self.is_leader = False
        tasks = [*self._sending.values(), *([self._evaluating] if self._evaluating else [])]
        if tasks:
            # A message that was sent but not recorded would be sent again.
            await asyncio.wait(tasks, timeout=_SHUTDOWN_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(OrchestrationQueueError):
            if self._has_lock:
                await self._connection.pipeline(alerts.unlock(self._keys, self._token))
        if not self._is_lent:
            await self._connection.aclose()

    async def _evaluate(self) -> None:
        error = ""
        try:
            stored = await self._connection.follow(alerts.read_all(self._keys))
            measured, unmeasured = {}, []
            for name, rule in stored.rules.items():
                try:
                    before = stored.states.get(name)
                    measured[name] = await self._measure(rule, before.breaches if before else ())
                except TransportError:
                    raise
                except Exception as cause:  # the rule stays as it is, and others are evaluated
                    log.warning("Rule %s cannot be evaluated: %r", name, cause)
                    unmeasured.append(name)
            error = f"Rules {', '.join(unmeasured)} cannot be measured; see its log." if unmeasured else ""
            evaluation = evaluate(self._keys, stored, measured, now_ms())
            # Another leader may have taken over while this one measured.
            if not await self._connection.run(alerts.renew_lock(self._keys, self._token, _LOCK_MS)):
                return
            await self._connection.pipeline(alerts.write(self._keys, evaluation), atomic=True)
            for event in evaluation.events:
                log.info("Alert rule %s is %s: %s", event.rule, event.event, event.text)
        except OrchestrationQueueError as cause:
            error = str(cause)
            log.warning("The alert rules could not be evaluated: %s", cause)
        self._self = replace(self._self, evaluated_ms=now_ms(), error=error)

    async def _measure(self, rule: AlertRule, known: Sequence[Breach]) -> list[Breach]:
        if rule.kind is AlertKind.MEMORY:
            return await self._measure_memory(rule)
        if rule.kind is AlertKind.POOL_EXHAUSTED:
            return await self._connection.follow(measure_pools(self._keys, rule, now_ms()))
        names = [rule.queue]
        if rule.is_pattern:
            names = [name for name in await self._queues() if fnmatchcase(name, rule.queue)]
        found: list[Breach] = []
        at_ms = now_ms()
        for piece in chunks([QueueKeys(name, self._keys.prefix) for name in names], _QUEUES_PER_EXCHANGE):
            try:
                pages = await self._connection.follow(together([measure(keys, rule, at_ms) for keys in piece]))
            except TransportError:
                raise
            except Exception:  # of one of them
                pages = await self._measure_singly(piece, rule, at_ms, known)
            found += [breach for page in pages for breach in page]
        return found

    async def _measure_singly(
        self, queues: Sequence[QueueKeys], rule: AlertRule, at_ms: int, known: Sequence[Breach]
    ) -> list[list[Breach]]:
        """Measure queues one by one, as one of them cannot be read, for instance a damaged key; it stays as it was."""
        pages = []
        for keys in queues:
            try:
                pages.append(await self._connection.follow(measure(keys, rule, at_ms)))
            except TransportError:
                raise
            except Exception as error:
                log.warning("Queue %s cannot be watched: %s", keys.queue, error)
                pages.append([breach for breach in known if breach.subject.partition("/")[0] == keys.queue])
        return pages

    async def _measure_memory(self, rule: AlertRule) -> list[Breach]:
        found = []
        for primary in await self._connection.primaries():
            async with await AsyncConnection.open(primary, libraries=()) as one:
                found += await one.follow(measure_memory(str(primary), rule))
        return found

    async def _queues(self) -> list[str]:
        """Return the names of all queues but those for dead letters, which wait for no worker; about a minute old."""
        due, names = self._names
        began = time.monotonic()
        if began >= due:
            found: set[str] = set()
            for primary in await self._connection.primaries():
                async with await AsyncConnection.open(primary, libraries=()) as one:
                    found.update(await one.follow(keyspace.queue_names(self._keys.prefix)))
            keys = [QueueKeys(name, self._keys.prefix) for name in found]
            letters = await self._connection.follow(together([queue_settings.dead_letter_queue(each) for each in keys]))
            ended, names = time.monotonic(), sorted(found.difference(letters))
            self._names = (ended + max(_NAMES_S, _NAMES_REST * (ended - began)), names)
        return names

    def _send_due(self, outbox: Sequence[DueMessage]) -> None:
        """Start to send what is due, a task for each receiver that has none."""
        by_receiver: dict[str, list[DueMessage]] = {}
        for due in outbox:
            by_receiver.setdefault(due.to, []).append(due)
        for name, messages in by_receiver.items():
            if name not in self._sending:
                self._sending[name] = asyncio.create_task(self._send_all(messages))

    async def _send_all(self, messages: Sequence[DueMessage]) -> None:
        """Send messages of one receiver, oldest first. Those of an incident wait for earlier ones of the same."""
        try:
            for piece in chunks(messages[:-_MOST_UNSENT], _PAGE):
                for delivery in (await self._read(piece)).values():
                    reason = f"more than {_MOST_UNSENT:,} messages wait for this receiver"
                    await self._record(delivery, reason, is_over=True)
            held: set[str] = set()
            for piece in chunks(messages[-_MOST_UNSENT:], _PAGE):
                await self._send_page(piece, held)
        except OrchestrationQueueError as cause:
            log.warning("Messages to %s could not be read: %s", messages[0].to, cause)

    async def _send_page(self, messages: Sequence[DueMessage], held: set[str]) -> None:
        # A later time comes from an earlier leader, whose clock is ahead.
        early = {each.id for each in messages if 0 < each.next_ms - now_ms() <= _LONGEST_PAUSE_MS}
        deliveries = await self._read([each for each in messages if each.id not in early])
        for due in messages:
            if not self.is_leader:
                return
            delivery = deliveries.get(due.id)
            if due.incident in held or due.id in early or (delivery and not await self._deliver(delivery)):
                held.add(due.incident)

    async def _read(self, messages: Sequence[DueMessage]) -> dict[str, UnsentMessage]:
        """Read messages, and forget those that are damaged, or were removed."""
        found = await self._connection.follow(alerts.read_unsent(self._keys, messages))
        if gone := [each for each in messages if each.id not in found]:
            await self._connection.pipeline([alerts.drop_due(self._keys, gone)])
        return found

    async def _deliver(self, delivery: UnsentMessage) -> bool:
        """Send a message and record the outcome; return whether the message is settled."""
        error = await self._attempt(delivery)
        is_old = now_ms() - delivery.created_ms > _GIVE_UP_MS
        return await self._record(delivery, error, is_over=is_old or delivery.message.get("state") == "test")

    async def _record(self, delivery: UnsentMessage, error: str, *, is_over: bool) -> bool:
        """Record the outcome of an attempt; return whether the message is settled."""
        at_ms = now_ms()
        try:
            if not error or is_over:
                await self._connection.pipeline(alerts.settle_delivery(self._keys, delivery, error), atomic=True)
                return True
            pause_ms = min(_LONGEST_PAUSE_MS, _FIRST_PAUSE_MS * 2 ** min(delivery.attempts, 10))
            failed = replace(delivery, attempts=delivery.attempts + 1, next_ms=at_ms + pause_ms, error=error)
            await self._connection.pipeline(alerts.put_deliveries(self._keys, [failed]), atomic=True)
        except OrchestrationQueueError as cause:
            log.warning("The outcome of a message to %s could not be recorded: %s", delivery.to, cause)
        return False

    async def _attempt(self, delivery: UnsentMessage) -> str:
        """Send a message; return why that failed, empty if it did not."""
        receiver = self._receivers.get(delivery.to)
        if receiver is None:
            variable = RECEIVER + delivery.to.upper().replace("-", "_")
            error = f"{variable} is not set where alerts are evaluated"
        else:
            try:
                await send(receiver, delivery)
            except NotSentError as cause:
                error = str(cause)
            else:
                return ""
        log.warning(
            "A message of alert rule %s was not sent to %s: %s", delivery.message.get("rule"), delivery.to, error
        )
        return error
