"""One server: a few sockets, opened when needed and replaced when they break."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

from redis.exceptions import BusyLoadingError
from redis.exceptions import ConnectionError as NoConnectionError

from orchestration_queue.errors import ServerError, TransportError
from orchestration_queue.options import as_timedelta
from orchestration_queue.protocol.call import Call, Reply, pack, wait_s
from orchestration_queue.protocol.library import Library
from orchestration_queue.server._async.library import ensure_libraries
from orchestration_queue.server._async.link import AsyncLink
from orchestration_queue.server._async.sentinel import AsyncSentinelWatch
from orchestration_queue.server._async.subscription import AsyncSubscription
from orchestration_queue.server.clock import Pauses
from orchestration_queue.server.driver_errors import (
    LINK_ERRORS,
    REFUSALS,
    closed,
    crowded,
    error_code,
    interrupted,
    lacks_function,
    overdue,
    reason,
    refused,
    server_code,
    unreachable,
)
from orchestration_queue.server.embedded.server import EmbeddedServer
from orchestration_queue.server.refusals import Resend, resend_of
from orchestration_queue.server.time_limits import AsyncConnectLimit, AsyncTimeLimits
from orchestration_queue.server.url import ServerUrl, Timeouts

__all__ = ["CONNECT_PAUSES_S", "AsyncNode"]

_MOST_SOCKETS = 32
"""Maximum sockets; further concurrent calls wait for one. More would gain nothing."""
_KEPT_IDLE_S = 30.0
"""How long sockets stay open that only a burst of concurrent calls needed."""
_LOADING_TIMEOUT_S = 60.0
"""How long to wait for a server that is loading its data after a restart."""
_REPEATS = 3
"""How often a repeatable call is sent again after its connection broke."""
_WAITING = frozenset({"BLMOVE", "BLPOP", "BRPOP", "BZPOPMIN", "WAIT", "WAITAOF", "XREAD", "XREADGROUP"})
"""Commands whose replies may wait for something to happen."""
CONNECT_PAUSES_S = 0.01, 0.25
"""The first and the maximum pause between two attempts to connect."""
_ROLE = Call("ROLE")

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

Answered: TypeAlias = tuple[Sequence[Call], list[Reply]]
"""Calls that were sent, with their replies."""


class _Generation:
    """Counts how often a node and its duplicates had to stop using the sockets opened until then."""

    number = 0


class _Converse(Protocol[T_co]):
    """How one caller uses a link."""

    async def __call__(self, link: AsyncLink) -> T_co: ...


class AsyncNode:
    """One server, for any number of concurrent tasks.

    Args:
        url: Its URL.
        libraries: The function libraries to keep loaded.
        timeouts: How long to wait for the server.
        in_cluster: It is a primary of a cluster: if it is unreachable, or now a replica, another takes its place, so it
            is tried once only. Any other server may just be starting, and is tried for ``connect_timeout``, or longer
            while it loads its data.
        generation: Shared with the node that this one duplicates.
    """

    def __init__(
        self,
        url: ServerUrl,
        libraries: Sequence[Library],
        timeouts: Timeouts,
        *,
        in_cluster: bool = False,
        generation: _Generation | None = None,
    ) -> None:
        self._url = url
        self._libraries = libraries
        self._timeouts = timeouts
        self._timeout_s = timeouts.timeout.total_seconds()
        self._connect_timeout_s = timeouts.connect_timeout.total_seconds()
        self._in_cluster = in_cluster
        self._embedded = EmbeddedServer(url.path, as_timedelta(url.grace)) if url.kind == "embedded" else None
        self._closed = False
        self._watch = AsyncSentinelWatch(url) if url.mode == "sentinel" else None
        self._inherited: list[object] = []
        self._generation = generation or _Generation()
        self._start_afresh()

    def _start_afresh(self) -> None:
        """Reset the sockets: at the start, and in a forked child, where they are the parent's."""
        self._process = os.getpid()
        self._idle: list[AsyncLink] = []
        self._time_limits = AsyncTimeLimits()
        self._room = asyncio.Semaphore(_MOST_SOCKETS)

    def duplicate(self) -> AsyncNode:
        """Return the same server with sockets of its own, which are opened when needed."""
        # With sentinels each learns of a failover by itself.
        generation = None if self._watch else self._generation
        return AsyncNode(self._url, self._libraries, self._timeouts, in_cluster=self._in_cluster, generation=generation)

    async def greet(self) -> None:
        """Open a socket and keep it for the next call. Each new socket loads the libraries.

        Raises:
            TransportError: The server is unreachable.
            ServerError: It refuses the credentials, or the libraries.
        """
        async with self._room:
            await self._give_back(await self._connect())

    async def exchange(
        self, calls: Sequence[Call], *, atomic: bool = False, repeatable: bool = False, asking: bool = False
    ) -> list[Reply]:
        """Send calls in one exchange; resend those that were refused for a reason that passes.

        They were not applied: the server had lost its functions, is no longer the primary, or is busy.

        Args:
            calls: What to send.
            atomic: In one transaction.
            repeatable: Executing them twice is harmless, so send them again if the connection breaks.
            asking: The slot is moving to this node.

        Returns:
            One reply per call; a refusal is the driver's exception. If a transaction's call is refused, so that none
            was executed, the others' replies are meaningless.

        Raises:
            TransportError: The server was unreachable.
        """
        generation = self._generation.number
        if atomic or asking:
            replies = await self._send(calls, atomic, repeatable, asking)
        else:
            converse = partial(AsyncLink.exchange, packed=pack(calls), count=len(calls))
            replies = await self._with_link(calls, converse, repeatable=repeatable)
        if not [reply for reply in replies if isinstance(reply, REFUSALS)]:
            return replies
        return await self._resend(calls, replies, generation, atomic=atomic, repeatable=repeatable, asking=asking)

    async def _resend(
        self,
        calls: Sequence[Call],
        replies: list[Reply],
        generation: int,
        *,
        atomic: bool = False,
        repeatable: bool = False,
        asking: bool = False,
    ) -> list[Reply]:
        """Send refused calls again until they are accepted, or the reason lasts for too long.

        Args:
            calls: All calls of the exchange.
            replies: Their replies; those of the resent calls are replaced.
            generation: The generation of the socket they were sent on, or an earlier one.
            atomic: As for :meth:`exchange`.
            repeatable: As for :meth:`exchange`.
            asking: As for :meth:`exchange`.
        """
        pauses = Pauses(*CONNECT_PAUSES_S)
        had_functions = False
        while True:
            refusals = {
                index: (lacks_function(call, reply), self._resend_of(reply))
                for index, (call, reply) in enumerate(zip(calls, replies, strict=True))
                if isinstance(reply, REFUSALS)
            }
            lost = [index for index, (lacks, _) in refusals.items() if lacks]
            passing = {
                index: resend
                for index, (_, resend) in refusals.items()
                if resend is not Resend.NO and pauses.waited_s < self._patience_s(resend)
            }
            # A transaction in which one function was missing has applied the rest.
            if had_functions or (atomic and len(lost) < len(calls)):
                lost = []
            if not lost and not passing:
                return replies
            had_functions = had_functions or bool(lost)
            # A transaction refused for a passing reason has applied nothing. A confirmation of replicas is about the
            # writes before it on its connection.
            resent = [
                index
                for index, call in enumerate(calls)
                if atomic or index in lost or index in passing or call.name in ("WAIT", "WAITAOF")
            ]
            try:
                if Resend.RECONNECT in passing.values():
                    await self._leave(generation)
                    generation = self._generation.number
                # Each new socket loads the libraries that the server lacks.
                if lost or Resend.RECONNECT in passing.values():
                    await self.greet()
                again = await self._send([calls[index] for index in resent], atomic, repeatable, asking)
            except TransportError as error:
                # The calls that are not repeated were answered before: they are applied.
                error.maybe_applied |= len(resent) < len(calls)
                raise
            for index, reply in zip(resent, again, strict=True):
                replies[index] = reply
            if any(isinstance(reply, REFUSALS) for reply in again):
                await asyncio.sleep(pauses.next_s())

    def _patience_s(self, resend: Resend) -> float:
        return self._timeout_s if resend is Resend.WAIT_LONG else self._connect_timeout_s

    def _resend_of(self, reply: BaseException) -> Resend:
        """Return how a refused call is sent again on this node."""
        code = server_code(reply)
        resend = resend_of(code)
        # In a cluster, a call that may have another primary now asks which one it is.
        is_routed = self._in_cluster and (resend is Resend.RECONNECT or code in ("CLUSTERDOWN", "TRYAGAIN"))
        return Resend.NO if is_routed else resend

    async def _send(self, calls: Sequence[Call], atomic: bool, repeatable: bool, asking: bool) -> list[Reply]:
        frame = 3 if asking else 2
        # MULTI, EXEC and an ASKING before them have replies as well. Outside of a transaction, ASKING covers one
        # command only, so that each call has its own.
        count = len(calls) + frame if atomic else 2 * len(calls) if asking else len(calls)
        converse = partial(AsyncLink.exchange, packed=pack(calls, atomic=atomic, asking=asking), count=count)
        replies = await self._with_link(calls, converse, repeatable=repeatable)
        if not atomic:
            return replies[1::2] if asking else replies
        *queued, outcome = replies[frame - 1 :]
        if isinstance(outcome, list):
            return outcome
        # EXEC was refused because a call was, and that refusal says why.
        return queued if any(isinstance(reply, REFUSALS) for reply in queued) else [outcome] * len(queued)

    async def exchange_each(self, batches: Iterator[Sequence[Call]]) -> list[Answered]:
        """Send batches of calls, each taken from the iterator and sent while the server works on the previous one.

        Nothing more is sent once the first call of a batch is refused; the batch after it was then sent already.

        Args:
            batches: What to send; an iterator can build each batch when it is requested.

        Returns:
            Each batch that was sent, with what :meth:`exchange` returns.

        Raises:
            TransportError: The server was unreachable, or the connection broke: any batch may have been applied.
        """
        done: list[Answered] = []
        while True:
            said: list[Call] = []
            is_lost = False
            generation = self._generation.number
            for calls, replies in await self._with_link(
                said, partial(_overlap, batches=batches, said=said), repeatable=False
            ):
                first = replies[0]
                if isinstance(first, REFUSALS):
                    is_lost |= lacks_function(calls[0], first) or self._resend_of(first) is not Resend.NO
                if any(isinstance(reply, REFUSALS) for reply in replies):
                    await self._resend(calls, replies, generation)
                done.append((calls, replies))
            if not is_lost or any(isinstance(replies[0], REFUSALS) for _, replies in done):
                return done

    async def subscribe(self, channels: Sequence[str]) -> AsyncSubscription:
        """Subscribe to channels, on a socket of their own that the caller closes.

        Raises:
            TransportError: The server was unreachable.
            ServerError: It refused.
        """
        subscription = AsyncSubscription(await self._connect(), self._url, self._timeout_s)
        try:
            await subscription.start(channels)
        except BaseException:
            await subscription.aclose()
            raise
        return subscription

    async def _with_link(self, calls: Sequence[Call], converse: _Converse[T], *, repeatable: bool) -> T:
        """Make an exchange on a link; a link that breaks is not used again."""
        if self._process != os.getpid():
            # Kept, since closing them here would remove them from the event loop's epoll set, which parent and child
            # share.
            self._inherited = [self._idle, self._watch]
            self._watch = AsyncSentinelWatch(self._url) if self._watch else None
            self._start_afresh()
        limit_s = self._timeout_s
        if waiting := [call for call in calls if call.name in _WAITING]:
            limit_s += sum(map(wait_s, waiting))
        asked = time.monotonic()
        async with self._room:
            if time.monotonic() - asked > self._timeout_s:
                raise crowded(self._url, calls, self._timeout_s)
            repeats = _REPEATS if repeatable else 0
            was_sent = False
            while True:
                try:
                    link = await self._take_link()
                except TransportError as error:
                    # An earlier try may have been executed.
                    error.maybe_applied |= was_sent
                    raise
                limits = self._time_limits
                try:
                    # Before the attempt: even a request that was written in part may be executed.
                    was_sent = True
                    limits.begin(link, limit_s)
                    replies = await converse(link)
                except LINK_ERRORS as error:
                    is_overdue = limits.is_overdue(link, error)
                    limits.forget(link)
                    link.abort()
                    await link.close()
                    if is_overdue:
                        # What holds for this socket is likely to hold for the others. A new one shows it sooner.
                        await self._leave(link.generation)
                        raise overdue(self._url, calls, limit_s) from None
                    if not repeats:
                        raise interrupted(self._url, calls, error) from None
                    repeats -= 1
                    continue
                except BaseException:
                    link.abort()
                    await link.close()  # cancelled half-way: the replies to this call must not be read by the next one
                    raise
                finally:
                    limits.busy.discard(link)
                await self._give_back(link)
                return replies

    async def _take_link(self) -> AsyncLink:
        while True:
            if self._closed:
                raise closed(self._url)
            if self._watch is not None and await self._watch.has_news():
                await self._leave(self._generation.number)
            try:
                # The most recently used one, so that sockets of a burst stay idle and are closed.
                link = self._idle.pop()
                is_usable = await link.is_fresh()
            except IndexError:  # none is idle, or another thread was faster
                link, is_usable = await self._connect(), True
            if is_usable and link.generation == self._generation.number:
                return link
            await link.close()  # the server closed the connection, or is no longer the primary

    async def leave_old_primary(self) -> None:
        """Abort the calls in progress if sentinels are replacing the primary: a blocking read would stay there."""
        if self._watch is not None and await self._watch.has_news():
            await self._leave(self._generation.number)
            for link in tuple(self._time_limits.busy):
                link.abort()

    async def _leave(self, generation: int) -> None:
        """Stop using all links of this generation; those in use are closed when their calls have ended."""
        if generation == self._generation.number:  # otherwise another caller was faster
            self._generation.number += 1
            pool, self._idle = self._idle, []
            await _close_all(pool)

    async def _give_back(self, link: AsyncLink) -> None:
        if self._closed or link.generation != self._generation.number:
            await link.close()
        else:
            pool = self._idle
            link.used_at = time.monotonic()
            pool.append(link)
            if len(pool) > 1:
                await _close_stale(pool, link.used_at)

    async def _connect(self) -> AsyncLink:
        """Connect, and retry while the server may just be starting or restarting."""
        pauses = Pauses(*CONNECT_PAUSES_S)
        while True:
            try:
                # Before connecting: a failover that begins meanwhile must make this link stale.
                generation = self._generation.number
                link = await self._prepare(AsyncLink(await self._whereabouts(), self._timeouts.connect_timeout))
            except ServerError as error:  # it refuses a library
                if self._in_cluster or resend_of(error.code) is Resend.NO or pauses.waited_s >= self._connect_timeout_s:
                    raise
            except LINK_ERRORS as error:
                is_loading = isinstance(error, BusyLoadingError)
                is_refused = isinstance(error, REFUSALS) and not is_loading
                limit_s = _LOADING_TIMEOUT_S if is_loading else self._connect_timeout_s
                is_over = self._in_cluster or pauses.waited_s >= limit_s
                if is_refused and (is_over or resend_of(error_code(error)) is Resend.NO):
                    raise refused(self._url, "the connection", error) from None
                if is_over:
                    raise unreachable(self._url, pauses.waited_s, reason(error)) from None
            else:
                link.generation = generation
                return link
            await asyncio.sleep(pauses.next_s())

    async def _whereabouts(self) -> ServerUrl:
        """Return the server's current address."""
        if self._embedded:
            return replace(self._url, kind="unix", path=self._embedded.ensure())
        return self._url if self._watch is None else await self._watch.find_primary()

    async def _prepare(self, link: AsyncLink) -> AsyncLink:
        """Connect, and load the libraries: after a failover this may be another server than before."""
        try:
            async with AsyncConnectLimit(self._time_limits, link, self._connect_timeout_s):
                await link.connect()
                if self._in_cluster or self._url.mode == "sentinel":
                    (role,) = await link.send((_ROLE,))
                    # Sentinels and slot maps may still name a primary that has been demoted.
                    if isinstance(role, list) and role[0] != b"master":
                        if self._watch is not None:
                            await self._watch.forget()
                        raise NoConnectionError("it is a replica, though announced as the primary")
                await ensure_libraries(link, self._url, self._libraries)
        except BaseException:
            link.abort()  # a TLS connection would wait for the server's farewell
            await link.close()
            raise
        return link

    async def aclose(self) -> None:
        """Close every socket. An embedded server stops when its last user in any process has closed."""
        self._closed = True
        if self._process == os.getpid():
            self._time_limits.close()
            await _close_all(self._idle)
            if self._watch is not None:
                await self._watch.forget()
        if self._embedded:
            self._embedded.leave()


async def _overlap(link: AsyncLink, batches: Iterator[Sequence[Call]], said: list[Call]) -> list[Answered]:
    """Send batches until one is refused or none is left, one ahead of the replies; ``said`` takes their calls."""
    answered: list[Answered] = []
    under_way: Sequence[Call] = ()
    for calls in batches:
        await link.write(pack(calls))
        said += calls
        if under_way:
            answered.append((under_way, await link.read(len(under_way))))
        under_way = calls
        if answered and isinstance(answered[-1][1][0], REFUSALS):
            break
    if under_way:
        answered.append((under_way, await link.read(len(under_way))))
    return answered


async def _close_stale(pool: list[AsyncLink], now: float) -> None:
    """Close the link that has been idle the longest, if it was idle for long enough."""
    with suppress(IndexError):  # another thread was faster
        if now - pool[0].used_at > _KEPT_IDLE_S:
            await pool.pop(0).close()


async def _close_all(pool: list[AsyncLink]) -> None:
    while pool:
        try:
            link = pool.pop()
        except IndexError:  # another thread was faster
            return
        await link.close()
