"""The library `orchestration_queue_1` on a queue: its generated calls, sent raw."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.functions.oq1 import Delivered, HandBack, Held, NewJob, Settled
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.placement import add_jobs
from tests.lua.signatures import NOW
from tests.lua.wire import WORKERS, Wire, Word, as_hash

LIBRARY: Final = Path(__file__).parents[2] / "orchestration_queue" / "protocol" / "lua" / "orchestration_queue_1.lua"


def load_own_library(client: redis.Redis) -> None:
    """Put our own library of this checkout on the server."""
    client.function_load(LIBRARY.read_text(), replace=True)


@dataclass(frozen=True)
class Started:
    """A job that an exchange handed over."""

    job_id: str
    entry_id: str
    fields: dict[str, str]

    @property
    def taken_ms(self) -> int:
        """When its lease began."""
        return int(self.fields["processedOn"])

    @property
    def stalled_count(self) -> int:
        """How often it had been taken over by then."""
        return int(self.fields.get("stalledCount", 0))


@dataclass(frozen=True)
class Exchanged:
    """The reply of an exchange."""

    outcomes: str
    started: list[Started]
    notices: list[tuple[str, ...]]
    stopped: str
    letters: list[list[str]] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        """The started jobs."""
        return [job.job_id for job in self.started]


def completed(job: Started, payload: str = "null", **changes: Any) -> Settled:
    """The news that a job is done."""
    return _settled("c", job, payload, changes)


def failed(job: Started, payload: str = "boom", **changes: Any) -> Settled:
    """The news that an attempt failed."""
    return _settled("f", job, payload, changes)


def paused(kind: str, job: Started, payload: str = "", **changes: Any) -> Settled:
    """The settlement of a job that runs again later."""
    return _settled(kind, job, payload, changes)


def _settled(kind: str, job: Started, payload: str, changes: dict[str, Any]) -> Settled:
    known: dict[str, Any] = {
        "kind": kind,
        "job_id": job.job_id,
        "entry_id": job.entry_id,
        "taken_ms": job.taken_ms,
        "stalled_count": job.stalled_count,
        "payload": payload,
        "wait_ms": 0,
        "max_attempts": 0,
        "extend": False,
        "remove_mode": "0",
        "remove_count": 0,
        "remove_age_s": 0,
    }
    return Settled(**(known | changes))


def new_job(name: str = "task", **changes: Any) -> NewJob:
    """A job to add."""
    known: dict[str, Any] = {"job_name": name, "data": "{}", "opts": "{}", "timestamp_ms": NOW}
    return NewJob(**(known | changes))


class Own:
    """Our own library, on the queue of a :class:`Wire`."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.keys = QueueKeys(wire.queue)
        assert self.keys.base == wire.base

    def send(self, call: Call) -> Any:
        """One call, as it goes over the wire."""
        return self.wire.ask(*(word if isinstance(word, (str, int)) else str(word) for word in call.words))

    def refused(self, function: str, keys: Sequence[str], args: Sequence[Word], why: str) -> None:
        """The call must be refused as malformed and leave no trace."""
        match = f"^OQ_BAD_ARGUMENT oq1_{function}: .*{re.escape(why)}"
        with self.wire.unchanged(), pytest.raises(redis.ResponseError, match=match):
            self.wire.ask("FCALL", f"oq1_{function}", len(keys), *keys, *args)

    def exchange_call(
        self,
        *settlements: Settled,
        want: int = 0,
        hand_backs: Sequence[HandBack] = (),
        deliveries: Sequence[Delivered] = (),
        now: int = NOW,
        consumer: str = "w-1",
        honor_pause: bool = True,
        cluster: bool = False,
        dead_letter: str = "",
        skip_events: bool = False,
        skip_metrics: bool = False,
    ) -> Call:
        """The call of one exchange."""
        return oq1.exchange(
            self.keys,
            now_ms=now,
            group=WORKERS,
            consumer=consumer,
            want=want,
            honor_pause=honor_pause,
            cluster=cluster,
            dead_letter=dead_letter,
            skip_events=skip_events,
            skip_metrics=skip_metrics,
            settlements=settlements,
            hand_backs=hand_backs,
            deliveries=deliveries,
        )

    def exchange(self, *settlements: Settled, **values: Any) -> Exchanged:
        """Make one exchange."""
        return self.read(self.send(self.exchange_call(*settlements, **values)))

    @staticmethod
    def read(reply: Any) -> Exchanged:
        """The reply of an exchange."""
        outcomes, started, news, stopped, letters, untold = reply
        jobs = zip(started[::3], started[1::3], started[2::3], strict=True)
        told: list[tuple[str, ...]] = list(zip(*(news[place::4] for place in range(4)), strict=True))
        left = [json.loads(letter) for letter in letters]
        return Exchanged(outcomes, [Started(i, e, as_hash(f)) for i, e, f in jobs], told, stopped, left, untold)

    def take(self, count: int = 1, **values: Any) -> list[Started]:
        """Start exactly this number of jobs."""
        jobs = self.exchange(want=count, **values).started
        assert len(jobs) == count, jobs
        return jobs

    def renew(self, *leases: tuple[str, int], now: int = NOW, stalled_count: int = 0) -> list[int]:
        """Renew leases of jobs that were taken over so often."""
        held = [Held(job_id=job_id, taken_ms=taken_ms, stalled_count=stalled_count) for job_id, taken_ms in leases]
        reply: list[int] = self.send(oq1.renew(self.keys, now_ms=now, leases=held))
        return reply

    def reclaim_call(self, now: int = NOW, **changes: Any) -> Call:
        """The call that takes jobs back."""
        known: dict[str, Any] = {
            "now_ms": now,
            "group": WORKERS,
            "consumer": "sweeper",
            "limit": 1000,
            "min_idle_ms": 0,
            "max_stalled_count": 1,
            "lock_duration_ms": 0,
            "dead_letter": "",
            "cluster": False,
        }
        return oq1.reclaim(self.keys, **(known | changes))

    def reclaim(self, now: int = NOW, **changes: Any) -> tuple[int, list[str], bool, list[str]]:
        """Take jobs back: how many are ready again, which failed, whether there may be more, letters left over."""
        retried, lost, more, letters, *_ = self.send(self.reclaim_call(now, **changes))
        return retried, lost, more == 1, letters

    def add(self, *jobs: NewJob, skip_events: bool = False) -> list[str]:
        """Add jobs in one call."""
        reply: list[str] = self.send(add_jobs(QueueKeys(self.wire.queue), jobs, skip_events=skip_events))
        return reply
