"""The worker of a subscription: the same actions as a queue's worker, on a stream that others read, too.

The consumer group's pending list says which messages the subscription has not settled. Before a worker settles an
entry, it checks that the entry is still pending: a stalled message continues under another entry, so its first worker
can no longer change anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import ServerError
from orchestration_queue.options import WorkerOptions, milliseconds
from orchestration_queue.protocol.call import Call, Reply, all_good
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.protocol.lease import Delivery, Lease, Settlement
from orchestration_queue.protocol.operations import exchanges, membership, worker_registry
from orchestration_queue.protocol.operations.broadcasts import NEW_ONLY, SubjectFilter, check_start, check_subscription
from orchestration_queue.protocol.operations.exchanges import ExchangeResult, Renewal, Wakeup, Why
from orchestration_queue.protocol.operations.membership import Member, Message, Report, Stalled
from orchestration_queue.protocol.outcome import Strategy, Verdict
from orchestration_queue.server import AsyncConnection, Connection, ServerUrl
from orchestration_queue.worker.connections import SignalReader
from orchestration_queue.worker.interfaces import Handler, Middleware, Router
from orchestration_queue.worker.machine import Exchange
from orchestration_queue.worker.queue_io import QueueIO
from orchestration_queue.worker.worker import Worker

__all__ = ["BroadcastIO", "BroadcastWorker"]

log = get_logger("orchestration_queue.worker")

_PAGE, _MOST_PAGES = 100, 100
_FORGOTTEN_MS = 86_400_000
"""Age at which no worker can still hold a trimmed message: the longest lease."""


_LOST = Report((), lambda _: Verdict.LOST)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The replies of a first exchange.

    Attributes:
        held: The entries in question that are still pending for the subscription.
        entries: Entries that were read immediately.
        more: How many entries may be read now.
        room: How many more messages may be active; -1 without a limit.
        is_paused: Whether the broadcast is paused.
    """

    held: frozenset[str]
    entries: Sequence[Message] = ()
    more: int = 0
    room: int = -1
    is_paused: bool = False


class BroadcastIO(QueueIO):
    """One worker's connections to a broadcast.

    An exchange of the state machine takes two requests: one to read, one to act. While the broadcast is paused, or
    limits how many messages are active, it takes a third, to start what was read.

    Args:
        member: The subscription's worker.
        subjects: Which messages the subscription receives.
        start_from: Where the subscription starts, if it is new.
        calls: Connection for calls.
        waits: Connection for blocking reads.
        options: The worker's options.
        signals: Reads the signals to the broadcast's workers; default: a reader for this worker alone.
    """

    def __init__(
        self,
        member: Member,
        subjects: SubjectFilter,
        start_from: str,
        calls: AsyncConnection,
        waits: AsyncConnection,
        options: WorkerOptions,
        signals: SignalReader | None = None,
    ) -> None:
        super().__init__(member.keys, member.consumer, calls, waits, options, signals)
        self._group, self._start_from = member.subscription, start_from
        self._member = member
        self._subjects = subjects
        self._skipped: list[str] = []
        """Entries that don't match. The next exchange acknowledges them."""
        # Assumed until the first exchange has asked, which therefore reads nothing yet.
        self._is_limited = True
        self._taking = asyncio.Lock()

    def renew(self, connection: Connection, leases: Sequence[Lease], at_ms: int) -> list[Renewal]:
        """Renew the leases of messages that are still pending for the subscription."""
        looks = all_good(connection.pipeline([call for lease in leases for call in self._member.look(lease)]))
        answers = [Member.read_look(*pair) for pair in zip(looks[::2], looks[1::2], strict=True)]
        ours = [lease for lease, answer in zip(leases, answers, strict=True) if answer is not Renewal.LOST]
        all_good(connection.pipeline([self._member.keep(lease, at_ms) for lease in ours]))
        return answers

    async def exchange(self, step: Exchange) -> ExchangeResult:
        """Settle outcomes, return and start deliveries, fetch more."""
        # Two concurrent exchanges would both take the same free capacity.
        async with self._taking if step.want and self._is_limited else nullcontext():
            with self.outages.watch():
                return await self._act(step, await self._check(step))

    async def _check(self, step: Exchange) -> _Seen:
        """Ask which entries are still pending and how many may be read. Without a limit, read them as well."""
        ids = [settlement.lease.entry_id for settlement in step.settle]
        ids += [delivery.entry_id for delivery in (*step.hand_back, *step.start)]
        paused, room, read = (
            worker_registry.is_paused(self._keys),
            self._member.room(),
            self._member.read(max(1, step.want)),
        )
        asks, reads = step.want > 0, step.want > 0 and not self._is_limited
        # If this exchange fails, they are found among the pending entries and skipped again.
        skipped, self._skipped = self._skipped, []
        calls = [
            *(self._member.holds(entry_id).call for entry_id in ids),
            *((paused.call, room.call) if asks else ()),
            *((read.call,) if reads else ()),
            *((self._member.acknowledge(skipped),) if skipped else ()),
        ]
        replies = all_good(await self._calls.pipeline(calls))
        held = frozenset(entry_id for entry_id, reply in zip(ids, replies, strict=False) if reply)
        if not asks:
            return _Seen(held)
        is_paused = self._options.honor_pause and paused.read(replies[len(ids)])
        free = room.read(replies[len(ids) + 1])
        self._is_limited = is_paused or free >= 0
        if reads:
            return _Seen(held, read.read(replies[len(ids) + 2]), 0, free, is_paused)
        more = 0 if is_paused else step.want if free < 0 else min(step.want, free)
        return _Seen(held, (), more, free, is_paused)

    async def _act(self, step: Exchange, seen: _Seen) -> ExchangeResult:
        """Settle, return and start what is still pending for us; read what may be read, and start it too."""
        now = self.clock.now_ms()
        outcomes = [
            self._settle(settlement, now) if settlement.lease.entry_id in seen.held else _LOST
            for settlement in step.settle
        ]
        returned = [message for message in self._select_pending(step.hand_back, seen) if isinstance(message, Message)]
        starting = [*self._select_pending(step.start, seen), *self._select_matching(seen.entries)]
        read = self._member.read(max(1, seen.more))
        replies = iter(
            await self._calls.pipeline(
                [
                    *(call for one in outcomes for call in one.calls),
                    *(call for message in returned for call in self._member.requeue(message)),
                    *((read.call,) if seen.more else ()),
                    *self._start_calls(starting, now),
                ]
            )
        )
        verdicts = tuple(one.read(_take_last(replies, len(one.calls))) for one in outcomes)
        _take_last(replies, 2 * len(returned))
        entries = seen.entries
        if seen.more:
            entries = read.read(_take_last(replies, 1))
        started = await self._read_starts(starting, replies, now)
        if seen.more and (fresh := self._select_matching(entries)):
            started += await self._read_starts(
                fresh, iter(await self._calls.pipeline(self._start_calls(fresh, now))), now
            )
        return ExchangeResult(verdicts, tuple(started), (), _why(step.want, len(entries), seen))

    @staticmethod
    def _select_pending(deliveries: Sequence[Delivery], seen: _Seen) -> list[Delivery]:
        return [delivery for delivery in deliveries if delivery.entry_id in seen.held]

    def _settle(self, settlement: Settlement, now: int) -> Report:
        options = self._options
        return self._member.settle(
            settlement,
            now,
            dead_letter=self.defaults.dead_letter_queue,
            skip_events=not options.emit_events,
            skip_metrics=not options.record_metrics,
        )

    def _start_calls(self, messages: Sequence[Delivery], now: int) -> list[Call]:
        return [call for message in messages for call in self._member.start(message, now)]

    async def _read_starts(self, messages: Sequence[Delivery], replies: Iterator[Reply], now: int) -> list[Lease]:
        """Return the leases of the messages that started; release those that must not start."""
        leases: list[Lease] = []
        revoked: list[Call] = []
        for message in messages:
            attempts, reply = next(replies), next(replies)
            if isinstance(reply, ServerError):
                # It remains pending here, unstarted, and is retried once it has been idle for a lease.
                log.error("Message %s of %s could not be started: %s", message.job_id, self.queue, reply)
                continue
            match self._member.read_start(message, attempts, reply):
                case Lease() as lease:
                    leases.append(lease)
                case "":
                    self._skipped.append(message.entry_id)
                case "REVOKED":
                    revoked.append(self._member.revoked(message, now))
        all_good(await self._calls.pipeline(revoked))
        return leases

    async def _read(self, want: int, block_ms: int) -> Wakeup:
        return Wakeup(self._select_matching(await self._waits.run(self._member.read(want, block_ms))), [])

    async def _read_pending(self) -> list[Delivery]:
        # The reply doesn't say what the messages were that were trimmed meanwhile.
        pending = await self._calls.run(self._member.read_pending())
        return self._select_matching([message for message in pending if message.job_id])

    def _select_matching(self, messages: Sequence[Message]) -> list[Delivery]:
        """Return the entries that match the subscription; the others only need to be acknowledged."""
        wanted: list[Delivery] = []
        for message in messages:
            is_ours = message.retry_of in ("", self._member.subscription) and self._subjects.matches(message.subject)
            if is_ours and message.job_id:
                wanted.append(message)
            else:
                self._skipped.append(message.entry_id)
        return wanted

    async def leave(self) -> None:
        """Remove this worker's registration, and its consumer unless it still has pending messages."""
        if self._skipped:
            await self._calls.execute(self._member.acknowledge(self._skipped))
        await super().leave()

    async def reclaim(self) -> bool:
        """Recover messages of this subscription's workers that stopped renewing them, for any of its workers.

        Returns:
            Whether any message may have become ready.
        """
        min_idle_ms, after, moved = milliseconds(self._options.stalled_interval), "-", False
        sweeping = [exchanges.sweep_suspended(self._keys, self.clock.now_ms())]
        for _ in range(_MOST_PAGES):
            idle = membership.stalled(self._member, min_idle_ms, after, _PAGE)
            page = idle.read(all_good(await self._calls.pipeline([*sweeping, idle.call]))[-1])
            if page:
                moved = await self._autoclaim(page) or moved
            if len(page) < _PAGE:
                break
            sweeping, after = [], f"({page[-1].entry_id}"
        return moved

    async def _autoclaim(self, page: Sequence[Stalled]) -> bool:
        stalled = await self._find_stalled(page)
        calls = [call for message, idle_ms in stalled for call in membership.claim(self._member, message, idle_ms)]
        replies = all_good(await self._calls.pipeline(calls))
        most, now = self._options.max_stalled, self.clock.now_ms()
        moving = [
            call
            for (message, _), claimed, stalls in zip(stalled, replies[::2], replies[1::2], strict=True)
            if claimed  # else another worker was faster
            for call in membership.hand_on(self._member, message, int(stalls or 0), most, now)
        ]
        all_good(await self._calls.pipeline(moving))
        return bool(moving)

    async def _find_stalled(self, page: Sequence[Stalled]) -> list[tuple[Message, int]]:
        """Return the messages that were not renewed for a whole lease, and how long their lease is."""
        entries = [membership.entry(self._member, idle.entry_id) for idle in page]
        replies = all_good(await self._calls.pipeline([entry.call for entry in entries]))
        found = [(idle, entry.read(reply)) for idle, entry, reply in zip(page, entries, replies, strict=True)]
        self._skipped += [idle.entry_id for idle, message in found if not message and idle.idle_ms >= _FORGOTTEN_MS]
        there = [(idle, message) for idle, message in found if message]
        signs = [membership.last_sign(self._member, message) for _, message in there]
        replies = all_good(await self._calls.pipeline([sign.call for sign in signs]))
        stalled: list[tuple[Message, int]] = []
        for (idle, message), sign, reply in zip(there, signs, replies, strict=True):
            if (known := sign.read(reply)) is None:
                self._skipped.append(idle.entry_id)
                continue
            lease, heard_ms = known
            lock_ms = int(lease.lock_ms or self.defaults.forgiven_ms)
            # The renewal in the record may be another subscription's; the age of the entry is not.
            if idle.idle_ms >= lock_ms and self.clock.now_ms() - heard_ms >= lock_ms:
                stalled.append((message, lock_ms))
        return stalled


def _take_last(replies: Iterator[Reply], count: int) -> Reply:
    """Return the last of the next replies, or raise the first error among them."""
    return (all_good([next(replies) for _ in range(count)]) or [None])[-1]


def _why(want: int, read: int, seen: _Seen) -> Why:
    if not want:
        return Why.UNASKED
    if seen.is_paused:
        return Why.PAUSED
    if read == want:
        return Why.ENOUGH
    return Why.FULL if 0 <= seen.room <= read else Why.EMPTY


class BroadcastWorker(Worker):
    """Receives the messages of a broadcast for one subscription, and runs its handler for each.

    Every subscription receives every message, and has its own retries. The workers of one subscription share its
    messages. Delivery is at least once, as with :class:`Worker`.

    Args:
        name: The broadcast's name.
        handler: One handler for all messages, or a router by subject. It receives the message as a job, whose ``name``
            is the subject and whose ``attempt`` counts this subscription's attempts.
        subscription: The subscription's name. It remains when its workers stop, and continues where it was.
        subjects: Patterns of the subjects to receive: ``*`` matches one word, a final ``>`` one or more. None receives
            all. Pass the same to all workers of a subscription.
        start_from: Where a new subscription starts: ``$`` with messages published from now on, ``0-0`` with the oldest
            message that is kept, or a stream entry's id with the messages after it.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        options: As for :class:`Worker`.
        prefix: First part of every key.
        middleware: As for :class:`Worker`.
        strategies: As for :class:`Worker`.

    Raises:
        InvalidNameError: A name is invalid, or a pattern is malformed.
        InvalidOptionError: ``start_from`` is invalid.

    Examples:
        >>> async def mail(job: AsyncActiveJob) -> None:
        ...     print(job.name, job.data)
        >>> worker = BroadcastWorker("shop", mail, subscription="mailer", subjects=["orders.*"])
        >>> asyncio.run(worker.run())  # doctest: +SKIP
    """

    _has_steps = False  # each subscription would read those of the others

    def __init__(
        self,
        name: str,
        handler: Handler | Router,
        *,
        subscription: str,
        subjects: Iterable[str] = (),
        start_from: str = NEW_ONLY,
        url: str | ServerUrl | None = None,
        options: WorkerOptions | Mapping[str, Any] | None = None,
        prefix: str = DEFAULT_PREFIX,
        middleware: Sequence[Middleware] = (),
        strategies: Mapping[str, Strategy] | None = None,
    ) -> None:
        super().__init__(
            name,
            handler,
            url=url,
            options=options,
            prefix=prefix,
            middleware=middleware,
            strategies=strategies,
        )
        self.subscription = check_subscription(subscription)
        self._subjects = SubjectFilter(subjects)
        self._start_from = check_start(start_from)

    def _make_queue_io(self, calls: AsyncConnection, waits: AsyncConnection, signals: SignalReader) -> BroadcastIO:
        member = Member(self.keys, self.subscription, self.id)
        return BroadcastIO(member, self._subjects, self._start_from, calls, waits, self.options, signals)
