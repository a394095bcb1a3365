"""An exchange leaves exactly what the wire's own functions leave when a worker calls them one by one.

Random histories are played on two queues of one server: one uses exchanges, the other makes the same calls one by one.
After every step both queues must hold the same, except for the ids of stream entries.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orchestration_queue.protocol.functions.oq1 import Delivered, HandBack, Settled
from tests.lua.oq1 import Own, Started, completed, failed, paused
from tests.lua.oq1_reference import OneByOne, renamed, same_but_for_entries
from tests.lua.wire import NOW, Wire, Word

JOBS: dict[str, dict[str, Word]] = {
    "plain": {},
    "urgent": {"priority": 2},
    "lifo": {"lifo": 1},
    "delayed": {"delay": 40},
    "short-lived": {"ttl": 60},
    "ordered": {"orderingKey": "o"},
    "paired": {"orderingKey": "p", "groupConcurrency": 2},
    "windowed": {"orderingKey": "w", "groupConcurrency": 3, "groupRateMax": 2, "groupRateDuration": 70},
    "metered": {"orderingKey": "m", "groupConcurrency": 3, "tbCapacity": 3000, "tbRefillRate": 9000, "cost": 2000},
    "urgent ordered": {"orderingKey": "o", "priority": 1},
}
RETENTION: tuple[dict[str, Any], ...] = ({}, {"remove_mode": "true"}, {"remove_mode": "count", "remove_count": 2})

FATES = ("front", "back", "fail")
NOT_DONE = ("delayed", "delayed with data", "children", "suspended", "suspended for a while", *FATES, "replace")

ending = st.sampled_from(["c", "c", "f", "retry"]) | st.sampled_from(NOT_DONE)
outcome = st.tuples(st.integers(0, 7), ending, st.sampled_from(RETENTION), st.booleans())
step = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(sorted(JOBS)), st.integers(1, 3)),
    st.tuples(st.just("add flow"), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("exchange"), st.lists(outcome, max_size=4), st.integers(0, 4)),
    st.tuples(st.just("exchange"), st.lists(outcome, max_size=4), st.integers(0, 4)),
    st.tuples(st.just("read"), st.integers(1, 3)),
    st.tuples(st.just("return"), st.integers(1, 2)),
    st.tuples(st.just("later"), st.sampled_from([1, 30, 50, 200])),
    st.tuples(st.just("promote")),
    st.tuples(st.just("revoke"), st.integers(0, 9)),
    st.tuples(st.just("signal"), st.integers(0, 9)),
    st.tuples(st.just("sweep")),
    st.tuples(st.just("remove"), st.integers(0, 9)),
    st.tuples(st.just("reclaim")),
    st.tuples(st.just("limit"), st.integers(0, 3)),
    st.tuples(st.just("pause"), st.booleans()),
)


class Side:
    """One of the two queues, and the worker that holds its jobs."""

    def __init__(self, wire: Wire, worker: Own | OneByOne) -> None:
        self.wire = wire
        self.worker = worker
        self.now = NOW
        self.ids: list[str] = []
        self.held: list[Started] = []
        self.told: list[Settled] = []
        self.delivered: list[Delivered] = []
        wire.open_group()

    def play(self, action: str, *args: Any) -> Any:
        """Do one step; what it answers must be the same on both sides."""
        return getattr(self, "_" + action.replace(" ", "_"))(*args)

    def _add(self, kind: str, count: int) -> None:
        self.ids += [self.wire.add(kind, timestamp=self.now, **JOBS[kind]) for _ in range(count)]

    def _add_flow(self, children: int, registered: bool) -> None:
        first, *others = self.wire.flow_ids(*({} for _ in range(children)), timestamp=self.now)
        self.ids += [first, *others]
        if registered:
            (other,) = self.wire.flow_ids(timestamp=self.now)
            self.ids.append(other)
            member = self.wire.key(others[0])
            self.wire.call("registerParent", childJobId=others[0], parentId=other, depsMember=member)

    def _exchange(self, outcomes: list[tuple[int, str, dict[str, Any], bool]], want: int) -> Any:
        before = tuple(self.told)
        told = [self._outcome(before, *outcome) for outcome in outcomes]
        settlements = dict.fromkeys(settlement for settlement in told if settlement)
        deliveries, self.delivered = self.delivered, []
        return self._exchanged(*settlements, want=want, deliveries=deliveries)

    def _exchanged(self, *settlements: Settled, **values: Any) -> Any:
        reply = self.worker.exchange(*settlements, now=self.now, **values)
        self.held += reply.started
        started = []
        for job in reply.started:
            fields = {name: value for name, value in job.fields.items() if name not in ("takenBy", "history", "entry")}
            started.append((job.job_id, bool(job.entry_id), renamed(fields, self.wire)))
        return reply.outcomes, started

    def _outcome(
        self, before: tuple[Settled, ...], index: int, kind: str, retention: dict[str, Any], again: bool
    ) -> Settled | None:
        if again or not self.held:
            # A reply was lost: the same is reported again in a later exchange.
            return before[index % len(before)] if before else None
        job = self.held.pop(index % len(self.held))
        if kind in NOT_DONE:
            self.told.append(self._pause_of(job, kind))
        elif kind == "c":
            self.told.append(completed(job, f'"{job.job_id}"', **retention))
        else:
            attempts = 3 if kind == "retry" else 0
            self.told.append(failed(job, max_attempts=attempts, wait_ms=20, **retention))
        return self.told[-1]

    def _pause_of(self, job: Started, kind: str) -> Settled:
        match kind:
            case "delayed":
                return paused("d", job, wait_ms=self.now - 10)
            case "delayed with data":
                return paused("d", job, '{"step":2}', wait_ms=self.now + 40)
            case "children":
                return paused("w", job)
            case "suspended":
                return paused("s", job)
            case "suspended for a while":
                return paused("s", job, "asked", wait_ms=60)
            case "replace":
                return paused("g", job, "front", wait_ms=10)
        return paused("g", job, kind, wait_ms=40, extend=True)

    def _read(self, count: int) -> None:
        entries = OneByOne(self.wire).fetch(count)
        self.delivered += [Delivered(job_id=job_id, entry_id=entry_id) for entry_id, job_id in entries]

    def _return(self, count: int) -> Any:
        back, self.delivered = self.delivered[:count], self.delivered[count:]
        returned = [HandBack(job_id=delivery.job_id, entry_id=delivery.entry_id) for delivery in back]
        return self._exchanged(hand_backs=[*returned, *returned])

    def _later(self, ms: int) -> None:
        self.now += ms

    def _promote(self) -> Any:
        return self.wire.call("promote", now=self.now), self.wire.call("promoteRateLimited", now=self.now)

    def _revoke(self, index: int) -> Any:
        return self.wire.call("revoke", jobId=self._id(index), timestamp=self.now)

    def _signal(self, index: int) -> Any:
        return self.wire.call("signal", jobId=self._id(index), now=self.now)

    def _sweep(self) -> Any:
        return self.wire.call("sweepSuspended", now=self.now)

    def _remove(self, index: int) -> Any:
        return self.wire.call("removeJob", jobId=self._id(index))

    def _id(self, index: int) -> str:
        return self.ids[index % len(self.ids)] if self.ids else "none"

    def _reclaim(self) -> None:
        if isinstance(self.worker, Own):
            self.worker.reclaim(self.now, lock_duration_ms=100)
        else:
            names = {"minIdleMs": 0, "maxStalledCount": 1, "timestamp": self.now}
            # A job that was read, and never started, stalls while its record says that it waits.
            may_end = [job_id for job_id in self.ids if self.wire.state(job_id) in ("active", "suspended", "waiting")]
            held = {job_id: self.worker.dependents(job_id) for job_id in may_end}
            self.wire.call("reclaimStalled", workerLockDuration=100, **names)
            self.wire.call("reclaimStalledListJobs", workerLockDuration=100, **names)
            self.wire.call("sweepSuspended", now=self.now)
            for job_id in self.wire.zset("failed").keys() & held.keys():
                self.worker.failed(job_id, held[job_id])
            self.worker.decide(self.now)

    def _limit(self, most: int) -> None:
        self.wire.ask("HSET", self.wire.key("meta"), "globalConcurrency", most)

    def _pause(self, paused: bool) -> None:
        self.wire.call("pause" if paused else "resume")


@pytest.fixture
def pair(wire: Wire) -> tuple[Wire, Wire]:
    return wire.sibling("left"), wire.sibling("right")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(step, max_size=25))
@example([("add flow", 1, False), ("read", 1), ("reclaim",), ("read", 1), ("reclaim",)])
def test_random_histories_end_alike(pair: tuple[Wire, Wire], history: list[tuple[Any, ...]]) -> None:
    pair[0].client.flushall()
    own, reference = Side(pair[0], Own(pair[0])), Side(pair[1], OneByOne(pair[1]))
    for action, *args in history:
        assert own.play(action, *args) == reference.play(action, *args), (action, args)
        assert same_but_for_entries(own.wire) == same_but_for_entries(reference.wire), (action, args)
