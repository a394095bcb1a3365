"""The primaries of a cluster: each call is sent to the one that serves its slot."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from orchestration_queue.errors import TransportError
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.library import Library
from orchestration_queue.protocol.slots import CLUSTER_SLOTS, Address, SlotMap, read_slot_map
from orchestration_queue.server._async.link import AsyncLink
from orchestration_queue.server._async.node import CONNECT_PAUSES_S, AsyncNode
from orchestration_queue.server._async.subscription import AsyncSubscription
from orchestration_queue.server.clock import Pauses
from orchestration_queue.server.driver_errors import (
    LINK_ERRORS,
    REFUSALS,
    closed,
    error_code,
    reason,
    refused,
    unreachable,
)
from orchestration_queue.server.refusals import Resend, resend_of
from orchestration_queue.server.routed_pipeline import RoutedPipeline
from orchestration_queue.server.time_limits import AsyncConnectLimit, AsyncTimeLimits
from orchestration_queue.server.url import ServerUrl, Timeouts

__all__ = ["AsyncCluster"]

_TRIES_IN_TIME = 4
"""How many nodes may fail to answer within the total timeout."""


class AsyncCluster:
    """The primaries of a cluster. An unknown one is found when a call is redirected to it.

    Args:
        url: A URL of mode ``cluster``.
        libraries: The function libraries to keep loaded on every primary.
        timeouts: How long to wait for a primary that answers, and for its replies.
    """

    def __init__(self, url: ServerUrl, libraries: Sequence[Library], timeouts: Timeouts) -> None:
        self._url = url
        self._libraries = libraries
        self._timeouts = timeouts
        self._timeout_s = timeouts.connect_timeout.total_seconds()
        self._node_timeout = timeouts.connect_timeout / _TRIES_IN_TIME
        self._slots = SlotMap(())
        self._time_limits = AsyncTimeLimits()
        self._closed = False
        self._nodes: dict[Address, AsyncNode] = {}

    def duplicate(self) -> AsyncCluster:
        """Return the same cluster with sockets of its own, which are opened when needed."""
        duplicate = AsyncCluster(self._url, self._libraries, self._timeouts)
        duplicate._slots = self._slots
        return duplicate

    async def greet(self) -> None:
        """Find the primaries, and load the libraries on each of them; on an unreachable one, when it is back.

        Raises:
            TransportError: No primary is reachable.
            ServerError: One refuses the credentials, or the libraries.
        """
        pauses = Pauses(*CONNECT_PAUSES_S)
        while True:
            try:
                await self._refresh()
                return await self._greet_all()
            except TransportError:
                if pauses.waited_s >= self._timeout_s:
                    raise
            await asyncio.sleep(pauses.next_s())

    async def _greet_all(self) -> None:
        unreached = []
        for address in self._slots.primaries:
            try:
                await self._node(address).greet()
            except TransportError as error:
                unreached.append(error)
        if len(unreached) == len(self._slots.primaries):
            raise unreached[0]

    async def urls(self) -> list[ServerUrl]:
        """Return the current URL of each primary."""
        await self._refresh()
        return [self._url.at(address) for address in self._slots.primaries]

    async def subscribe(self, channels: Sequence[str]) -> AsyncSubscription:
        """Subscribe as :meth:`AsyncNode.subscribe` does, on any primary: messages reach all nodes."""
        await self._refresh()
        for address in self._slots.primaries:
            try:
                return await self._node(address).subscribe(channels)
            except TransportError as error:
                unreached = error
        raise unreached

    async def exchange(self, calls: Sequence[Call], *, atomic: bool = False, repeatable: bool = False) -> list[Reply]:
        """Send calls as :meth:`AsyncNode.exchange` does, each to the primary that serves its slot, even if it moves.

        Raises:
            UsageError: The calls of a transaction are for several slots; nothing was sent.
            TransportError: A primary was unreachable; others may have executed their calls.
        """
        pipeline = RoutedPipeline(calls, atomic=atomic, repeatable=repeatable)
        pauses = Pauses(*CONNECT_PAUSES_S)
        while True:
            known = self._slots
            for batch in pipeline.batches(known):
                try:
                    node = self._node(batch.address)
                    answers = await node.exchange(
                        batch.calls, atomic=atomic, repeatable=repeatable, asking=batch.asking
                    )
                except TransportError as error:
                    pipeline.failed(batch, error)
                else:
                    pipeline.answered(batch, answers)
            if not pipeline.is_over and not pipeline.knows_way:
                if self._slots is known and not self._closed:  # if it is not, another caller has just refreshed
                    with suppress(TransportError):
                        await self._refresh(pipeline.hints)
                if self._closed or pauses.waited_s >= self._timeout_s:
                    pipeline.give_up()
                else:
                    await asyncio.sleep(pauses.next_s())
            if pipeline.is_over:
                return pipeline.replies

    def _node(self, address: Address) -> AsyncNode:
        if self._closed:
            raise closed(self._url)
        if node := self._nodes.get(address):
            return node
        timeouts = replace(self._timeouts, connect_timeout=self._node_timeout)
        met = AsyncNode(self._url.at(address), self._libraries, timeouts, in_cluster=True)
        return self._nodes.setdefault(address, met)

    async def _refresh(self, hints: Iterable[Address] = ()) -> None:
        """Ask any node that answers which primary serves which slots, and disconnect from those that no longer do.

        Raises:
            TransportError: None answers.
            ServerError: One refuses the credentials, or is not part of a cluster.
        """
        why = ""
        # First those that redirections name: their slot map is the newest.
        for address in dict.fromkeys((*hints, *self._slots.primaries, *self._url.addresses)):
            url = self._url.at(address)
            # Not a node, which would first load the libraries.
            link = AsyncLink(url, self._node_timeout)
            try:
                async with AsyncConnectLimit(self._time_limits, link, self._node_timeout.total_seconds()):
                    await link.connect()
                    (reply,) = await link.send((CLUSTER_SLOTS,))
            except LINK_ERRORS as error:
                if isinstance(error, REFUSALS) and resend_of(error_code(error)) is Resend.NO:
                    raise refused(url, "the connection", error) from None
                why = reason(error)
                continue
            finally:
                await link.close()
            if isinstance(reply, REFUSALS):
                raise refused(url, "CLUSTER SLOTS", reply)
            if reply:
                self._slots = read_slot_map(reply, address[0])
                await self._disconnect_from(self._nodes.keys() - set(self._slots.primaries))
                return
            why = "no node serves its slots"
        raise unreachable(self._url, self._timeout_s, why)

    async def _disconnect_from(self, addresses: Iterable[Address]) -> None:
        for address in addresses:
            if node := self._nodes.pop(address, None):
                await node.aclose()

    async def aclose(self) -> None:
        """Close every socket."""
        self._closed = True
        self._time_limits.close()
        await self._disconnect_from(list(self._nodes))
