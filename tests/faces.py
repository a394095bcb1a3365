"""Both faces of the client under one test: the sync face, called from threads, is spoken to as if it were async."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, cast

from orchestration_queue import client
from orchestration_queue.client import (
    AsyncAlerts,
    AsyncBroadcast,
    AsyncFlowProducer,
    AsyncJobSchedulers,
    AsyncProducer,
    AsyncQueue,
    AsyncQueueEvents,
)

__all__ = ["Face"]


class Face:
    """One face's clients, for one server.

    Args:
        name: ``async`` or ``sync``.
        url: The server.
    """

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url

    def _make(self, kind: str, *args: Any, **options: Any) -> Any:
        options = {"url": self.url, **options}
        if self.name == "async":
            return getattr(client, f"Async{kind}")(*args, **options)
        return _Awaited(getattr(client, kind)(*args, **options))

    def queue(self, name: str, **options: Any) -> AsyncQueue:
        return cast(AsyncQueue, self._make("Queue", name, **options))

    def producer(self, name: str, **options: Any) -> AsyncProducer:
        return cast(AsyncProducer, self._make("Producer", name, **options))

    def broadcast(self, name: str, **options: Any) -> AsyncBroadcast:
        return cast(AsyncBroadcast, self._make("Broadcast", name, **options))

    def events(self, name: str, **options: Any) -> AsyncQueueEvents:
        return cast(AsyncQueueEvents, self._make("QueueEvents", name, **options))

    def schedulers(self, name: str, **options: Any) -> AsyncJobSchedulers:
        return cast(AsyncJobSchedulers, self._make("JobSchedulers", name, **options))

    def alerts(self, **options: Any) -> AsyncAlerts:
        return cast(AsyncAlerts, self._make("Alerts", **options))

    def flows(self, **options: Any) -> AsyncFlowProducer:
        return cast(AsyncFlowProducer, self._make("FlowProducer", **options))


class _Awaited:
    """A sync object whose methods are awaited, where its async twin's are."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, "close" if name == "aclose" else name)
        if not inspect.ismethod(value):
            return _wrapped(value)
        if not inspect.iscoroutinefunction(getattr(_twin(self._inner), name)):
            return lambda *args, **options: _wrapped(value(*args, **options))

        async def call(*args: Any, **options: Any) -> Any:
            return _wrapped(await asyncio.to_thread(value, *args, **options))

        return call

    def __repr__(self) -> str:
        return repr(self._inner)

    async def __aenter__(self) -> Any:
        await asyncio.to_thread(self._inner.__enter__)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await asyncio.to_thread(self._inner.__exit__, *error)

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        return await asyncio.to_thread(self._inner.__next__)


def _twin(inner: object) -> type:
    return cast(type, getattr(client, f"Async{type(inner).__name__}"))


def _wrapped(value: Any) -> Any:
    if isinstance(value, list):
        return [_wrapped(item) for item in value]
    is_ours = type(value).__module__.startswith("orchestration_queue.client._sync.")
    return _Awaited(value) if is_ours else value
