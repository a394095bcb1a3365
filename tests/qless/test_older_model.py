"""Random calls of the older form do what its documentation says: replies, jobs, order, and counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import redis

from tests.qless.older import Older
from tests.qless.older_model import DAY, Model, ModelJob, Rank

QUEUES, WORKERS, TAGS, GROUPS = ("a", "b"), ("w1", "w2"), ("red", "blue", "7"), ("g1", "g2")
JIDS = tuple(f"j{number}" for number in range(7))
DATA = ("{}", "[]", '{"a":1.50}', '"text"', "17", '{"list":[],"b":"/"}')
STATES = ("running", "stalled", "scheduled", "depends")


def test_random_calls_do_what_the_document_says(older: Older, request: pytest.FixtureRequest) -> None:
    for seed in range(request.config.getoption("--fuzz-runs") or 15):
        older.server.flushall()
        play = Play(older, seed)
        try:
            for _ in range(80):
                play.step()
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}\n" + "\n".join(map(repr, play.said)), pytrace=False)


class Play:
    """Calls the library and the model, and compares them."""

    def __init__(self, older: Older, seed: int) -> None:
        self.older, self.random, self.model = older, Random(seed), Model()
        self.now = 1_000_000.0
        self.said: list[tuple[Any, ...]] = []
        self._calls: tuple[tuple[int, Callable[[], None]], ...] = (
            (12, self.put),
            (12, self.pop),
            (4, self.peek),
            (8, self.complete),
            (4, self.fail),
            (5, self.retry),
            (4, self.heartbeat),
            (3, self.cancel),
            (4, self.depends),
            (3, self.priority),
            (3, self.tag),
        )

    def step(self) -> None:
        """Make one call in both, and compare all that can be read."""
        self.now += self.random.choice((0.25, 1, 3.75, 11, 59, 61, 400))
        if self.random.random() < 0.01:
            self.now += DAY
        weights = [weight for weight, _ in self._calls]
        self.random.choices([call for _, call in self._calls], weights)[0]()
        self.compare()

    def call(self, name: str, *words: str | float, keys: int = 0) -> Any:
        self.said.append((name, *words))
        return self.older(name, *words, keys=keys)

    def some(self) -> list[str]:
        return self.random.sample(JIDS, self.random.randint(1, 2))

    def maybe_data(self) -> tuple[str, ...]:
        return (self.random.choice(DATA),) if self.random.random() < 0.5 else ()

    # -- calls -------------------------------------------------------------------------------------------------

    def put(self) -> None:
        queue, jid, data = (self.random.choice(names) for names in (QUEUES, JIDS, DATA))
        options: dict[str, Any] = {}
        if self.random.random() < 0.5:
            options["priority"] = self.random.choice((0, 5, -3, 2.5))
        if self.random.random() < 0.4:
            options["tags"] = self.random.sample(TAGS, self.random.randint(0, 2))
        if self.random.random() < 0.5:
            options["retries"] = self.random.choice((0, 1, 2))
        delay = self.random.choice((0, 0, 0, 5, 70))
        if not delay and self.random.random() < 0.4:
            options["depends"] = [other for other in self.some() if other != jid]
        words = [item for name in options for item in (name, _word(options[name]))]
        reply = self.call("put", queue, jid, "K", data, self.now, delay, *words, keys=1)
        assert reply == self.model.put(self.now, queue, jid, data, delay, options)

    def pop(self) -> None:
        queue, worker, count = self.random.choice(QUEUES), self.random.choice(WORKERS), self.random.choice((1, 2, 9))
        texts = self.call("pop", queue, worker, count, self.now, keys=1)
        found = [json.loads(text)["jid"] for text in texts]
        self.model.seen[worker] = self.now
        order = self.take_expired(queue, count)
        if len(order) < count:
            order += self.model.ready(self.now, queue)
        self.check_order(found, order, count)
        for jid in found:
            self.model.start(self.now, self.model.jobs[jid], worker)

    def take_expired(self, queue: str, count: int) -> list[Rank]:
        """Return whose lock expired, up to the count. On the way, those that used up their retries fail."""
        taken: list[Rank] = []
        for rank in self.model.expired(self.now, queue):
            if len(taken) < count and self.model.lose(self.now, self.model.jobs[rank[3]]):
                taken.append(rank)
        return taken

    def peek(self) -> None:
        queue, count = self.random.choice(QUEUES), self.random.choice((1, 2, 9))
        texts = self.call("peek", queue, count, self.now, keys=1)
        order = self.model.expired(self.now, queue)
        if len(order) < count:
            order += self.model.ready(self.now, queue)
        self.check_order([json.loads(text)["jid"] for text in texts], order, count)

    def check_order(self, found: list[str], order: list[Rank], count: int) -> None:
        ranks = {rank[3]: rank[:3] for rank in order}
        assert [ranks.get(jid) for jid in found] == [rank[:3] for rank in order[:count]], f"{found}, not {order}"

    def complete(self) -> None:
        jid, worker, data = (self.random.choice(names) for names in (JIDS, WORKERS, DATA))
        onward: dict[str, Any] = {}
        if self.random.random() < 0.4:
            onward["next"] = self.random.choice(QUEUES)
            kind = self.random.choice(("", "delay", "depends"))
            if kind:
                onward[kind] = self.random.choice((0, 5, 70)) if kind == "delay" else self.some()
        words = [item for name in onward for item in (name, _word(onward[name]))]
        if jid in onward.get("depends", ()):
            return
        reply = self.call("complete", jid, worker, self.random.choice(QUEUES), self.now, data, *words)
        assert reply == self.model.complete(self.now, jid, worker, data, onward)

    def fail(self) -> None:
        jid, worker, group = (self.random.choice(names) for names in (JIDS, WORKERS, GROUPS))
        data = self.maybe_data()
        reply = self.call("fail", jid, worker, group, "why", self.now, *data)
        assert reply == self.model.fail(self.now, jid, worker, group, "why", *(data or (None,)))

    def retry(self) -> None:
        jid, queue, worker = (self.random.choice(names) for names in (JIDS, QUEUES, WORKERS))
        delay = self.random.choice((0, 0, 5, 70))
        reply = self.call("retry", jid, queue, worker, self.now, delay)
        assert reply == self.model.retry(self.now, jid, queue, worker, delay)

    def heartbeat(self) -> None:
        jid, worker, data = self.random.choice(JIDS), self.random.choice(WORKERS), self.maybe_data()
        reply = self.call("heartbeat", jid, worker, self.now, *data)
        assert (reply and float(reply)) == self.model.heartbeat(self.now, jid, worker, *(data or (None,)))

    def cancel(self) -> None:
        jids = self.some()
        try:
            self.call("cancel", *jids)
        except redis.ResponseError:
            assert not self.model.cancel(jids)
        else:
            assert self.model.cancel(jids)

    def depends(self) -> None:
        jid, change = self.random.choice(JIDS), self.random.choice(("on", "off"))
        others = [other for other in self.some() if other != jid]
        if change == "off" and self.random.random() < 0.3:
            others = ["all"]
        if others:
            assert self.call("depends", jid, change, *others) == self.model.depends(jid, change, others)

    def priority(self) -> None:
        jid, priority = self.random.choice(JIDS), self.random.choice((0, 5, -3, 2.5))
        reply = self.call("priority", jid, priority)
        assert (None if reply is None else float(reply)) == self.model.priority(jid, priority)

    def tag(self) -> None:
        verb, jid = self.random.choice(("add", "remove")), self.random.choice(JIDS)
        tags = [self.random.choice(TAGS) for _ in range(self.random.randint(1, 2))]
        reply = self.call("tag", verb, jid, self.now, *tags)
        assert (reply and json.loads(reply)) == self.model.tag(verb, jid, tags)

    # -- what can be read --------------------------------------------------------------------------------------

    def compare(self) -> None:
        for jid in JIDS:
            text, job = self.older("get", jid), self.model.jobs.get(jid)
            assert (text and _read(text)) == (job and self.shown(job)), jid
        counts = {queue["name"]: queue for queue in self.older.json("queues", self.now)}
        for queue in QUEUES:
            states = self.states(queue)
            assert {name: sorted(self.older("jobs", name, self.now, queue)) for name in STATES} == states, queue
            known = counts.get(queue, dict.fromkeys((*STATES, "waiting"), 0))
            waiting = len(self.model.of(queue, "waiting"))
            expected = {**{name: len(jids) for name, jids in states.items()}, "waiting": waiting}
            assert {name: known[name] for name in expected} == expected, queue
            self.compare_stats(queue)
        groups = {group: jids for group, jids in self.model.failed.items() if jids}
        assert self.older.json("failed") == {group: len(jids) for group, jids in groups.items()}
        for group, jids in groups.items():
            assert [job["jid"] for job in self.older.json("failed", group)["jobs"]] == jids
        for tag in TAGS:
            tagged = {jid for jid, job in self.model.jobs.items() if tag in job.tags}
            assert set(self.older.json("tag", "get", tag)["jobs"]) == tagged, tag
        for worker in WORKERS:
            held = self.model.held(self.now, worker)
            found = self.older.json("workers", self.now, worker)
            assert set(found["jobs"]) == {job.jid for job in held if job.expires > self.now}, worker
            assert set(found["stalled"]) == {job.jid for job in held if job.expires <= self.now}, worker

    def states(self, queue: str) -> dict[str, list[str]]:
        running = self.model.of(queue, "running")
        return {
            "running": sorted(job.jid for job in running if job.expires > self.now),
            "stalled": sorted(job.jid for job in running if job.expires <= self.now),
            **{name: sorted(job.jid for job in self.model.of(queue, name)) for name in STATES[2:]},
        }

    def compare_stats(self, queue: str) -> None:
        day = self.now - self.now % DAY
        stats = self.older.json("stats", queue, self.now)
        found = {name: stats[name] for name in ("failures", "failed", "retries")}
        found |= {name: stats[name]["total"] for name in ("wait", "run")}
        assert found == {name: self.model.stats[day, queue, name] for name in found}, queue

    def shown(self, job: ModelJob) -> dict[str, Any]:
        return {
            "state": job.state,
            "queue": None if job.state == "complete" else job.queue,
            "priority": job.priority,
            "tags": sorted(job.tags),
            "data": json.loads(job.data),
            "worker": job.worker,
            "retries": job.retries,
            "remaining": job.remaining,
            "expires": job.expires,
            "dependencies": sorted(job.needs),
            "dependents": sorted(self.model.dependents(job.jid)),
            "failure": job.failure and job.failure[:2],
        }


def _word(value: Any) -> str | float:
    return json.dumps(value) if isinstance(value, list) else value


def _read(text: str) -> dict[str, Any]:
    """Return of a job what the model has."""
    job = json.loads(text)
    names = ("state", "queue", "priority", "data", "worker", "retries", "remaining", "expires")
    failure = job["failure"]
    return {
        **{name: job[name] for name in names},
        **{name: sorted(job[name]) for name in ("tags", "dependencies", "dependents")},
        "failure": (failure["group"], failure["message"]) if failure else None,
    }
