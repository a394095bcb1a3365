"""Alert rules: set, read, silence and test them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

from orchestration_queue.client._async.client import AsyncClient
from orchestration_queue.client.checks import check_count
from orchestration_queue.client.values import Deadline
from orchestration_queue.errors import AlertNotFoundError, InvalidOptionError, StateError, UsageError
from orchestration_queue.options import Duration, milliseconds
from orchestration_queue.options.alert import MAX_SILENCE, AlertRule, check_alert
from orchestration_queue.options.durations import check_duration
from orchestration_queue.protocol.alerts import (
    Alert,
    AlertEvent,
    AlertState,
    Evaluator,
    Silence,
    compose,
    deliveries_of,
)
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.operations import alerts
from orchestration_queue.protocol.record import when
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms

__all__ = ["AsyncAlerts"]

_Alerts: TypeAlias = list[Alert]
_Events: TypeAlias = list[AlertEvent]
_TEST_TIME = 30
_PAUSE_S = 0.5
_MOST_EVENTS = 10_000


class AsyncAlerts(AsyncClient):
    """The alert rules of all queues with one prefix. A process with ``oq alert run`` evaluates them.

    Args:
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        connection: An open connection to use instead. It stays open on close.
        prefix: First part of every key. Queues with the same prefix share rules.

    Raises:
        InvalidNameError: The prefix is invalid.
        UsageError: Both ``url`` and ``connection`` are given.
    """

    def __init__(
        self, *, url: str | None = None, connection: AsyncConnection | None = None, prefix: str = DEFAULT_PREFIX
    ) -> None:
        super().__init__(url, connection)
        self._keys = QueueKeys("alerts", prefix)

    async def set(self, name: str, rule: AlertRule | Mapping[str, Any]) -> Alert:
        """Add or replace a rule. One that fires keeps its incident until it is evaluated again.

        Args:
            name: Its name: up to 100 letters, digits, dots, hyphens and underscores.
            rule: The rule, or a dict of its fields.

        Raises:
            UsageError: The name or a field is invalid.
        """
        check_alert(name)
        if rule is None:
            raise InvalidOptionError("`rule` must be AlertRule or a dict of its fields, got None.")
        write = alerts.put_rule(self._keys, name, AlertRule.coerce(rule, "rule"))
        await self._connection.run(write, repeatable=True)
        return await self.get(name)

    async def list(self) -> _Alerts:
        """List all rules by name, with what they do at present. One exchange."""
        stored, now = await self._connection.follow(alerts.read_all(self._keys)), now_ms()
        return [stored.alert(name, now) for name in stored.rules]

    async def find(self, name: str) -> Alert | None:
        """Return a rule with what it does at present; None if it does not exist.

        Raises:
            UsageError: The name is invalid.
        """
        check_alert(name)
        stored = await self._connection.follow(alerts.read_all(self._keys))
        return stored.alert(name, now_ms()) if name in stored.rules else None

    async def get(self, name: str) -> Alert:
        """Return a rule with what it does at present.

        Raises:
            AlertNotFoundError: It does not exist.
            UsageError: The name is invalid.
        """
        found = await self.find(name)
        if found is None:
            raise AlertNotFoundError(name)
        return found

    async def remove(self, name: str) -> bool:
        """Remove a rule; return False if it does not exist. If it fires, its receivers get a message that it is over.

        Raises:
            UsageError: The name is invalid.
        """
        return await self._connection.follow(alerts.drop_rule(self._keys, check_alert(name)))

    async def silence(self, name: str, duration: Duration, *, by: str = "") -> datetime | None:
        """Send no messages of a rule for a time. It is evaluated, and its incidents are recorded, as before.

        If it still fires when the silence ends, its receivers get a message then.

        Args:
            name: The rule.
            duration: How long from now, at most 30 days; 0 ends a silence.
            by: Who does it, for the others.

        Returns:
            When the silence ends; None without one.

        Raises:
            AlertNotFoundError: The rule does not exist.
            UsageError: The name or the duration is invalid.
        """
        check_alert(name)
        length = check_duration(duration, "duration")
        if length > MAX_SILENCE:
            raise InvalidOptionError(f"`duration` of a silence must be at most 30 days, got {length}; pass less.")
        if not isinstance(by, str):
            raise UsageError(f"`by` must be a name, got {by!r}.")
        await self.get(name)
        until_ms = now_ms() + milliseconds(length)
        silenced = Silence(until_ms, by) if length else None
        await self._connection.execute(alerts.silence(self._keys, name, silenced), repeatable=True)
        return when(until_ms) if silenced else None

    async def evaluator(self) -> Evaluator | None:
        """Return the process that evaluates the rules, as it was some seconds ago; None without one."""
        return (await self._connection.follow(alerts.read_all(self._keys))).evaluator

    async def history(self, name: str | None = None, *, limit: int = 100) -> _Events:
        """Return the last events, newest first; about 10,000 are kept.

        Args:
            name: The rule, which may have been removed; None for all.
            limit: How many of the events of all rules to read.

        Raises:
            UsageError: The name or the limit is invalid.
        """
        if check_count(limit) > _MOST_EVENTS:
            raise InvalidOptionError(f"`limit` must be at most {_MOST_EVENTS:,}, got {limit!r}; pass less.")
        wanted = None if name is None else check_alert(name)
        events = await self._connection.look(alerts.history(self._keys, limit)) if limit else []
        return [event for event in events if wanted in (None, event.rule)]

    async def test(self, name: str, *, timeout: Duration = _TEST_TIME) -> _Events:  # noqa: ASYNC109  both faces have it
        """Send a test message to each receiver of a rule, by the process that evaluates, and wait for the outcomes.

        Args:
            name: The rule.
            timeout: A duration, or seconds; default 30 s.

        Returns:
            An event for each receiver: ``sent``, or ``unsent`` with the reason in its text.

        Raises:
            AlertNotFoundError: The rule does not exist.
            StateError: No process evaluates rules.
            TimeoutError: An outcome did not come in time; it will be in the history.
            UsageError: The name or the timeout is invalid.
        """
        check_alert(name)
        deadline = Deadline(timeout)
        rule, now = (await self.get(name)).rule, now_ms()
        if await self.evaluator() is None:
            raise StateError("No process evaluates alert rules, so none sends messages; start `oq alert run`.")
        state = AlertState("test", f"test.{secrets.token_hex(8)}", now)
        message = compose(self._keys, name, rule, state, "test", now)
        deliveries = deliveries_of(message, rule.to, now)
        await self._connection.pipeline(alerts.put_deliveries(self._keys, deliveries), atomic=True)
        while True:
            events = await self.history(name, limit=_MOST_EVENTS // 10)
            outcomes = [event for event in events if event.incident == state.incident]
            if len(outcomes) >= len(deliveries):
                return sorted(outcomes, key=lambda event: event.receiver)
            if deadline.remaining == 0:
                raise TimeoutError(f"Not all of the test's messages were sent in {deadline.seconds:g} s.")
            await asyncio.sleep(_PAUSE_S)
