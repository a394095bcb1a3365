"""A queue's repeatable jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from orchestration_queue.options import Duration
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.functions import chasquimq as functions
from orchestration_queue.server.clock import now_ms
from orchestration_queue.wires.chasquimq._async.client import AsyncChasquiClient
from orchestration_queue.wires.chasquimq.checks import build_spec, check_count, check_key
from orchestration_queue.wires.chasquimq.entries import ChasquiSchedule, read_schedules
from orchestration_queue.wires.chasquimq.repeat import MissedFires, first_fire

__all__ = ["AsyncChasquiSchedules"]


class AsyncChasquiSchedules(AsyncChasquiClient):
    """The methods of a queue for repeatable jobs."""

    async def put_schedule(
        self,
        name: str,
        data: Any = None,
        *,
        every: Duration | None = None,
        cron: str | None = None,
        tz: str | None = None,
        key: str = "",
        limit: int | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        missed_fires: MissedFires = "skip",
        max_catchup: int = 1,
    ) -> str:
        """Add a repeatable job, or replace the one with the same key.

        Args:
            name: The name of each job it adds.
            data: Their data.
            every: The interval: a duration, or seconds. It begins now, or at `start`.
            cron: A cron pattern instead, in ChasquiMQ's dialect: if both day fields are restricted, either is enough.
            tz: The pattern's time zone; default UTC.
            key: Its key; default: the name and the pattern.
            limit: After how many runs it ends; default: never. Runs of a replaced one count.
            start: No run before this time.
            end: No run after this time.
            missed_fires: What to do about runs missed while no worker was running: ``skip`` them, ``fire_once`` for all
                of them, or ``fire_all``, up to `max_catchup`.
            max_catchup: How many missed runs ``fire_all`` makes up for.

        Returns:
            Its key.

        Raises:
            ScheduleError: The pattern is invalid, or never occurs.
            UsageError: A value is invalid; nothing was sent.
        """
        spec = build_spec(name, data, every, cron, tz, key, limit, start, end, missed_fires, max_catchup)
        call = functions.put_spec(
            repeats_key=self.keys.repeat,
            spec_key=self.keys.spec(spec.resolved_key),
            next_ms=first_fire(spec, now_ms()),
            name=spec.resolved_key,
            packed=spec.pack(),
        )
        await self._execute(call)
        return spec.resolved_key

    async def schedules(self, limit: int = 100) -> list[ChasquiSchedule]:
        """List the repeatable jobs, by their next run."""
        args = (0, check_count(limit, "limit") - 1, "WITHSCORES")
        due = await self._execute(Call("ZRANGE", (self.keys.repeat,), args), repeatable=True)
        calls = [Call("HMGET", (self.keys.spec(key.decode(errors="replace")),), ("spec", "fired")) for key in due[::2]]
        return read_schedules(due, await self._pipeline(calls, repeatable=True))

    async def remove_schedule(self, key: str) -> bool:
        """Remove a repeatable job; return False if it does not exist."""
        name = check_key(key)
        call = functions.drop_spec(repeats_key=self.keys.repeat, spec_key=self.keys.spec(name), name=name)
        return bool(await self._execute(call))
