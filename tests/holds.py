"""How long calls hold a server: the processor time that it spends on the longest of their exchanges."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import redis

from orchestration_queue.protocol.call import Call
from orchestration_queue.server.instrumentation import exchange_hooks

__all__ = ["Hold", "Judge", "watch_commands"]


class Hold(NamedTuple):
    """What a call did to the server.

    Attributes:
        exchange_ms: Processor time that the server spent on the longest of the call's exchanges, all commands of a
            pipeline or a transaction together.
        words: What that exchange carried.
        median_ms: The median over the call's exchanges.
        command_ms: The longest command by the server's slow log. It counts what other processes take of the processor.
    """

    exchange_ms: float
    words: str
    median_ms: float
    command_ms: float


def watch_commands(client: redis.Redis, call: Callable[[], object]) -> tuple[float, str]:
    """Make a call; return the milliseconds of its longest command by the slow log, and that command."""
    client.slowlog_reset()
    call()
    entries: list[dict[str, Any]] = client.slowlog_get(10_000)
    own = [entry for entry in entries if not entry["command"].startswith((b"SLOWLOG", b"INFO"))]
    longest = max(own, key=lambda entry: entry["duration"], default=None)
    if longest is None:
        return 0.0, ""
    return longest["duration"] / 1000, b" ".join(longest["command"].split()[:2]).decode()


class Judge:
    """Asks the server itself."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._before = 0.0
        self._spent: list[tuple[float, str]] = []
        client.config_set("slowlog-log-slower-than", 100)
        client.config_set("slowlog-max-len", 10_000)

    def hold(self, call: Callable[[], object]) -> Hold:
        """Make a call."""
        self._client.slowlog_reset()  # freeing a long one takes 20 ms, which is not the call's
        with self._watching():
            command_ms, _ = watch_commands(self._client, call)
        return Hold(*max(self._spent), statistics.median(spent_ms for spent_ms, _ in self._spent), command_ms)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        self._spent = []
        self._before = self._spent_ms()
        exchange_hooks.append(self._note)
        try:
            yield
        finally:
            exchange_hooks.remove(self._note)

    def _note(self, calls: Sequence[Call], _took: float, _failed: object) -> None:
        spent_ms = self._spent_ms()
        names = dict.fromkeys(call.name for call in calls)
        self._spent.append((spent_ms - self._before, f"{len(calls)} x {', '.join(names)}"))
        self._before = spent_ms

    def _spent_ms(self) -> float:
        """The processor time of the server's main thread, which runs all commands."""
        usage: dict[str, float] = self._client.info("cpu")
        return 1000 * (usage["used_cpu_user_main_thread"] + usage["used_cpu_sys_main_thread"])
