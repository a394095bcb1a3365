"""Any order of commands: each job is in one place, the one that its state says, and every lock has an expiry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from orchestration_queue.wires.qless.commands import LIBRARY

SETS = ("work", "locks", "scheduled", "depends")
PLACES = {
    "waiting": {"work", "scheduled"},  # a job that moved on with a delay says that it waits
    "stalled": {"work"},
    "scheduled": {"scheduled"},
    "depends": {"depends"},
    "running": {"locks"},
    "complete": {"completed"},
    "failed": {"failed"},
}
jids, queues, workers = st.sampled_from("abcdef"), st.sampled_from(("q", "r")), st.sampled_from(("v", "w"))
delays = st.sampled_from((0, 0, 5, 100))
parents, tags = st.sampled_from("xyz"), st.lists(st.sampled_from(("red", "blue")), max_size=2, unique=True)
LONGEST_LOCK_S = 60


class Machine(RuleBasedStateMachine):
    server: Any

    @initialize()
    def begin(self) -> None:
        self.server.flushdb()
        self.now, self.alive, self.removed = 1000.0, set[str](), set[str]()

    def call(self, command: str, *words: str | float) -> Any:
        self.now += 0.5
        return self.server.fcall("qless", 0, command, self.now, *words)

    def held(self, jid: str) -> tuple[Any, ...]:
        return tuple(self.server.hmget(f"ql:j:{jid}", "state", "worker", "queue"))

    @rule(jid=jids, queue=queues, delay=delays, depends=st.lists(jids, max_size=2), retries=st.integers(0, 2))
    def put(self, jid: str, queue: str, delay: float, depends: list[str], retries: int) -> None:
        others = json.dumps([other for other in depends if other != jid])
        self.call("put", "me", queue, jid, "K", "{}", delay, "depends", others, "retries", retries)
        self.alive.add(jid)

    @rule(queue=queues, worker=workers, count=st.integers(1, 4))
    def pop(self, queue: str, worker: str, count: int) -> None:
        for job in json.loads(self.call("pop", queue, worker, count)) or ():
            assert (job["state"], job["worker"], job["queue"]) == ("running", worker, queue)

    @rule(queue=queues, count=st.integers(1, 4))
    def peek(self, queue: str, count: int) -> None:
        assert all(job["queue"] == queue for job in json.loads(self.call("peek", queue, count)) or ())

    @rule(jid=jids, next_queue=st.one_of(st.none(), queues), delay=delays, depends=st.lists(jids, max_size=2))
    def complete(self, jid: str, next_queue: str | None, delay: float, depends: list[str]) -> None:
        state, worker, queue = self.held(jid)
        if state == "running":
            others = json.dumps([other for other in depends if other != jid])
            more = () if next_queue is None else ("next", next_queue, "delay", delay, "depends", others)
            self.call("complete", jid, worker, queue, "{}", *more)

    @rule(jid=jids, queue=queues, delay=delays, tags=tags)
    def requeue(self, jid: str, queue: str, delay: float, tags: list[str]) -> None:
        if jid in self.alive:
            self.call("requeue", "me", queue, jid, "K", "{}", delay, "tags", json.dumps(tags))

    @rule(jid=jids, priority=st.integers(-2, 5), tags=tags, message=st.sampled_from(("noted", "seen")))
    def change(self, jid: str, priority: int, tags: list[str], message: str) -> None:
        if jid in self.alive:
            self.call("priority", jid, priority)
            self.call("log", jid, message)
            self.call("track", "track", jid)
            self.call("tag", "add", jid, *tags)
            self.call("tag", "remove", jid, *tags[:1])

    @rule(jid=jids, others=st.lists(jids, min_size=1, max_size=2))
    def depend(self, jid: str, others: list[str]) -> None:
        if self.held(jid)[0] == "depends":
            self.call("depends", jid, "on", *(other for other in others if other != jid))

    @rule(jid=parents, queue=queues, interval=st.sampled_from((30, 100)), backlog=st.integers(0, 2), tags=tags)
    def recur(self, jid: str, queue: str, interval: int, backlog: int, tags: list[str]) -> None:
        if jid in self.removed:
            return  # it would count from 1 again, and overwrite the jobs that it made, as in the original
        words = ("interval", interval, 0, "backlog", backlog, "tags", json.dumps(tags), "retries", 1)
        self.call("recur", queue, jid, "K", "{}", *words)
        self.call("recur.update", jid, "priority", backlog)

    @rule(jid=parents)
    def unrecur(self, jid: str) -> None:
        self.call("unrecur", jid)
        self.removed.add(jid)

    @rule(queue=queues, verb=st.sampled_from(("pause", "unpause", "unpause", "queue.forget")))
    def switch(self, queue: str, verb: str) -> None:
        self.call(verb, queue)

    @rule(worker=workers)
    def deregister(self, worker: str) -> None:
        self.call("worker.deregister", worker)

    @rule(jid=jids, delay=delays, how=st.sampled_from(("fail", "retry", "heartbeat", "timeout")))
    def end(self, jid: str, delay: float, how: str) -> None:
        state, worker, queue = self.held(jid)
        if state == "running":
            words = {"fail": (worker, "g", "m"), "retry": (queue, worker, delay), "heartbeat": (worker,), "timeout": ()}
            self.call(how, jid, *words[how])

    @rule(jid=jids)
    def cancel(self, jid: str) -> None:
        if not self.server.exists(f"ql:j:{jid}-dependents") and self.held(jid)[0] != "complete":
            self.call("cancel", jid)
            self.alive.discard(jid)

    @rule(queue=queues, group=st.sampled_from(("g", "failed-retries-q", "failed-retries-r")))
    def unfail(self, queue: str, group: str) -> None:
        self.call("unfail", queue, group)

    @rule(jid=jids)
    def undepend(self, jid: str) -> None:
        if self.held(jid)[0] == "depends":
            self.call("depends", jid, "off", "all")

    @rule(seconds=st.sampled_from((6, 61, 200)))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.call("queues")

    @invariant()
    def every_job_is_in_its_place(self) -> None:
        found: dict[str, list[str]] = {}
        existing = set[str]()
        for key in self.server.scan_iter("ql:*", count=1000):
            if key.startswith("ql:q:") and not key.endswith("-recur"):
                place, members = key.rpartition("-")[2], self.server.zrange(key, 0, -1)
            elif key.startswith("ql:j:") and self.server.type(key) == "hash":
                existing.add(key.removeprefix("ql:j:"))
                continue
            elif key.startswith("ql:f:"):
                place, members = "failed", self.server.lrange(key, 0, -1)
            elif key == "ql:completed":
                place, members = "completed", self.server.zrange(key, 0, -1)
            else:
                continue
            for jid in members:
                found.setdefault(jid, []).append(place)
        self.alive |= {jid for jid in existing if jid[0] in "xyz"}  # what recurring jobs have made
        assert found.keys() == self.alive == existing
        for jid, places in found.items():
            assert len(places) == 1, (jid, places)
            assert places[0] in PLACES[self.held(jid)[0]], (jid, places, self.held(jid))

    @invariant()
    def every_lock_expires(self) -> None:
        for queue in ("q", "r"):
            for jid, expires in self.server.zrange(f"ql:q:{queue}-locks", 0, -1, withscores=True):
                assert 0 < expires <= self.now + LONGEST_LOCK_S, (jid, expires, self.now)
                assert self.held(jid)[0] == "running", jid


class BothForms(Machine):
    """Processes of the older form, among those of the newer one."""

    def older(self, name: str, *words: str | float, keys: int = 0) -> Any:
        self.now += 0.5
        return self.server.fcall(f"qless_{name}", keys, *words)

    @rule(jid=jids, queue=queues, delay=delays, depends=st.lists(jids, max_size=2), priority=st.integers(-3, 3))
    def put_older(self, jid: str, queue: str, delay: float, depends: list[str], priority: int) -> None:
        others = [] if delay else [other for other in depends if other != jid]
        words = ("depends", json.dumps(others), "priority", priority)
        assert self.older("put", queue, jid, "K", "{}", self.now, delay, *words, keys=1) == jid
        self.alive.add(jid)

    @rule(queue=queues, worker=workers, count=st.integers(1, 4))
    def pop_older(self, queue: str, worker: str, count: int) -> None:
        for text in self.older("pop", queue, worker, count, self.now, keys=1):
            job = json.loads(text)
            assert (job["state"], job["worker"], job["queue"]) == ("running", worker, queue)

    @rule(jid=jids, next_queue=st.one_of(st.none(), queues), delay=delays)
    def complete_older(self, jid: str, next_queue: str | None, delay: float) -> None:
        state, worker, queue = self.held(jid)
        if state == "running":
            more = () if next_queue is None else ("next", next_queue, "delay", delay)
            assert self.older("complete", jid, worker, queue, self.now, "[]", *more) == self.held(jid)[0]

    @rule(jid=jids, worker=workers)
    def fail_older(self, jid: str, worker: str) -> None:
        assert self.older("fail", jid, worker, "g", "m", self.now) == (jid if jid in self.alive else None)
        assert jid not in self.alive or self.held(jid)[0] == "failed"

    @rule(jid=jids, queue=queues, delay=delays)
    def retry_older(self, jid: str, queue: str, delay: float) -> None:
        state, worker, _ = self.held(jid)
        if state == "running" and self.older("retry", jid, queue, worker, self.now, delay) >= 0:
            assert self.held(jid) == ("scheduled" if delay else "waiting", "", queue)

    @rule(jid=jids, priority=st.integers(-3, 3))
    def prioritize_older(self, jid: str, priority: int) -> None:
        assert self.older("priority", jid, priority) == (priority if jid in self.alive else None)

    @rule(jid=jids)
    def cancel_older(self, jid: str) -> None:
        if not self.server.exists(f"ql:j:{jid}-dependents") and self.held(jid)[0] != "complete":
            self.older("cancel", jid)
            self.alive.discard(jid)

    @rule(jid=jids)
    def look(self, jid: str) -> None:
        text = self.older("get", jid)
        if text is not None:
            older, newer = json.loads(text), json.loads(self.call("get", jid))
            assert older["priority"] == -newer["priority"]
            assert (older["state"], older["queue"] or "") == (newer["state"], newer["queue"])
            assert all(isinstance(older[name], list) for name in ("tags", "dependents", "dependencies", "history"))

    @invariant()
    def ready_jobs_are_ordered_by_their_priorities(self) -> None:
        for queue in ("q", "r"):
            for jid, score in self.server.zrange(f"ql:q:{queue}-work", 0, -1, withscores=True):
                priority = float(self.server.hget(f"ql:j:{jid}", "priority"))
                assert score == float("inf") or -0.001 < score - priority <= 0, (jid, score, priority)


@pytest.fixture
def machine(server: redis.Redis, request: pytest.FixtureRequest) -> Iterator[type[Machine]]:
    server.function_load(LIBRARY.text, replace=True)
    Machine.server = server
    yield request.param
    server.flushdb()


@pytest.mark.parametrize("machine", [Machine, BothForms], indirect=True)
def test_no_job_is_lost_or_in_two_places(machine: type[Machine]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=40))
