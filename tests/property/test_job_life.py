"""The whole life of jobs as random histories of raw calls: none lost, none in two places, every counter right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.lua.hand_worker import HandWorker
from tests.lua.wire import Wire, Word, load_library
from tests.property.documented import Bucket, Limit, Standing, Window, answer, kept

PLACES = {
    "delayed": "scheduled",
    "prioritized": "scheduled",
    "suspended": "suspended",
    "completed": "completed",
    "failed": "failed",
}
"""Where a job of each state is; the other states take a closer look."""

READY = ("stream", "lifo", "priority")
DONE = {"completed", "failed"}
GROUPS: dict[str, dict[str, Word]] = {
    "narrow": {"groupConcurrency": 1},
    "wide": {"groupConcurrency": 3},
    "paced": {"groupConcurrency": 9, "groupRateMax": 2, "groupRateDuration": 100},
    "paid": {"groupConcurrency": 9, "tbCapacity": 3000, "tbRefillRate": 1000},
}
"""Ordering keys, and what each limits."""
RETENTION: st.SearchStrategy[dict[str, Word]] = st.sampled_from(
    [
        {},
        {},
        {"removeMode": "true"},
        {"removeMode": "count", "removeCount": 2},
        {"removeMode": "age_count", "removeCount": 3, "removeAge": 1},
        {"removeMode": "age_count", "removeAge": 1},
    ]
)
THROTTLE_MS = 60
PICK = st.integers(0, 2**16)
"""Chooses one of the jobs that a rule may act on."""

PLACEMENT: st.SearchStrategy[dict[str, Word]] = st.sampled_from(
    [
        {},
        {"delay": 20},
        {"priority": 2},
        {"priority": 1, "delay": 30},
        {"lifo": 1},
        {"ttl": 400},
        {"delay": 9, "ttl": 5},
    ]
)


class JobLife(RuleBasedStateMachine):
    """A queue, one worker with as many slots as it likes, and what the calls so far must have led to."""

    def __init__(self, client: redis.Redis) -> None:
        super().__init__()
        client.flushall()
        self.wire = Wire(client)
        self.worker = HandWorker(self.wire)
        self.alive: set[str] = set()
        self.finished: set[str] = set()
        self.children: dict[str, set[str]] = {}
        self.leftovers: dict[str, str] = {}
        """Entries of active jobs that were removed: their worker does not know yet."""
        self.jobs: dict[str, dict[str, str]] = {}
        self.limits: dict[str, Limit] = {"paced": Window(2, 100), "paid": Bucket(3000, 1000, 3000)}
        self.standing: dict[str, Standing] = {}
        """The last job of each deduplication id."""
        self.begun = 0
        """How many starts are accounted for."""
        self.holds: dict[str, int] = {}
        """Until when each ordering key is held back."""
        self.put_down: set[str] = set()
        """Jobs that were parked as their ordering key was held back, and have not started again: without a slot."""
        self.turns: dict[str, int] = {}
        """The sequence number of the last job that started, by ordering key."""

    # -- choosing ----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Read every job that should exist."""
        ids = sorted(self.alive)
        pipeline = self.wire.client.pipeline(transaction=False)
        for job_id in ids:
            pipeline.hgetall(self.wire.key(f"job:{job_id}"))
        self.jobs = dict(zip(ids, pipeline.execute(), strict=True))

    def pick(self, number: int, states: Iterable[str] | None = None) -> str | None:
        """One job in one of these states."""
        wanted = None if states is None else set(states)
        ids = [i for i, job in self.jobs.items() if wanted is None or job["state"] in wanted]
        return ids[number % len(ids)] if ids else None

    def pick_held(self, number: int) -> str:
        return sorted(self.worker.held)[number % len(self.worker.held)]

    def settle_held(self, number: int, function: str, **values: Word) -> tuple[str, Any]:
        """Call a function that ends a held job's time with its worker."""
        job_id = self.pick_held(number)
        values = {"jobId": job_id, "entryId": self.worker.held.pop(job_id), **values}
        return job_id, self.wire.call(function, **values)

    # -- adding ------------------------------------------------------------------------------------------------

    @initialize()
    def open(self) -> None:
        self.wire.open_group()

    @rule(placement=PLACEMENT)
    def add(self, placement: dict[str, Word]) -> None:
        self.alive.add(self.wire.add(**{"timestamp": self.worker.now, **placement}))

    @rule(
        placement=PLACEMENT.filter(lambda values: "lifo" not in values),
        group=st.sampled_from(sorted(GROUPS)),
        cost=st.sampled_from([0, 1000, 2000, 3000]),
    )
    def add_to_group(self, placement: dict[str, Word], group: str, cost: int) -> None:
        values = {"timestamp": self.worker.now, "orderingKey": group, "cost": cost, **GROUPS[group], **placement}
        self.alive.add(self.wire.add(**values))

    @rule(name=st.sampled_from(["mine", "yours"]), placement=PLACEMENT)
    def add_named(self, name: str, placement: dict[str, Word]) -> None:
        """An id of one's own is taken as long as its job is there, unless that expired and no parent waits for it."""
        if name in self.leftovers:
            return  # the removed job's worker would settle the new one: the wire's calls name only the id
        reply = self.wire.add(**{"timestamp": self.worker.now, "customJobId": name, **placement})
        is_awaited = any(name in children for children in self.children.values())
        is_free = name not in self.alive or (self.has_expired(name) and not is_awaited)
        assert reply == (name if is_free else "duplicate")
        self.alive.add(name)

    @rule(
        dedup_id=st.sampled_from("ab"),
        group=st.sampled_from(["", *sorted(GROUPS)]),
        mode=st.sampled_from(["simple", "throttle", "debounce"]),
        delay=st.sampled_from([0, 15]),
    )
    def add_once(self, dedup_id: str, group: str, mode: str, delay: int) -> None:
        standing, now = self.standing.get(dedup_id), self.worker.now
        state = self.jobs.get(standing.job_id, {}).get("state") if standing else None
        expected = answer(mode, THROTTLE_MS, standing, state, now)
        values: dict[str, Word] = {"mode": mode, "ttlMs": THROTTLE_MS, "delay": delay, "timestamp": now}
        reply = self.wire.call("dedup", dedupId=dedup_id, **values, orderingKey=group, **GROUPS.get(group, {}))
        assert (reply == "skipped") == (expected == "skipped"), f"{reply}, although {mode} says it is {expected}"
        if reply != "skipped":
            if standing and expected == "replaces":
                self.alive.discard(standing.job_id)
            self.standing[dedup_id] = Standing(reply, now)
            self.alive.add(reply)

    @rule(count=st.integers(1, 3), group=st.sampled_from(["", "wide"]))
    def add_flow(self, count: int, group: str) -> None:
        opts = f'{{"ordering":{{"key":"{group}","concurrency":3}}}}' if group else "{}"
        ids = self.wire.flow_ids(*({"opts": opts} for _ in range(count)), timestamp=self.worker.now)
        self.alive |= set(ids)
        self.children[ids[0]] = set(ids[1:])

    @rule(parent=PICK, child=PICK)
    def register_parent(self, parent: int, child: int) -> None:
        """Another parent of a job that has no children itself; a completed one counts at once."""
        parent_id = self.pick(parent, ["waiting-children"])
        child_id = self.pick(child)
        if parent_id is None or child_id is None or child_id in self.children:
            return
        values = {"childJobId": child_id, "parentId": parent_id, "depsMember": self.wire.key(child_id)}
        is_done = self.jobs[child_id]["state"] == "completed"
        assert self.wire.call("registerParent", **values) == ("already_completed" if is_done else "ok")
        self.children[parent_id].add(child_id)

    @precondition(lambda self: self.worker.held)
    @rule(number=PICK)
    def wait_for_a_new_child(self, number: int) -> None:
        """A running job adds a child, and waits for it. One of a group would keep its slot, if the child never came."""
        parent, now = self.pick_held(number), self.worker.now
        if "groupKey" in self.jobs[parent]:
            return
        child = self.wire.call(
            "addJob", self.wire.key(f"deps:{parent}"), parentId=parent, parentQueue="q", timestamp=now
        )
        self.alive.add(child)
        self.children.setdefault(parent, set()).add(child)
        assert self.settle_held(number, "moveToWaitingChildren", now=now)[1] == "ok"

    # -- working -----------------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([0, 10, 100, 1000]))
    def tick(self, ms: int) -> None:
        self.worker.now += ms
        self.worker.tick()

    @rule()
    def take(self) -> None:
        """Jobs with a priority come first, the lowest number leading; then the newest LIFO job; then the stream."""
        urgent, lifo = self.wire.elements("priority"), self.wire.elements("lifo")
        before = len(self.worker.fetched)
        self.worker.take()
        first = self.worker.fetched[before : before + 1]
        if urgent:
            assert first[0] in urgent
            assert self.priority(first[0]) == min(map(self.priority, urgent))
        elif lifo:
            assert first == lifo[-1:]

    @rule(name=st.sampled_from(["lifo", "priority"]), limit=st.integers(0, 5), count=st.integers(1, 3))
    def take_within_a_limit(self, name: str, limit: int, count: int) -> None:
        """The queue's own limit, which counts jobs of the stream and of lists, holds for what is taken off a list."""
        self.wire.ask("HSET", self.wire.key("meta"), "globalConcurrency", limit)
        room = max(limit - len(self.wire.pending()) - self.wire.list_active(), 0)
        assert self.wire.call("checkConcurrency") == (room if limit else -1)
        ready = self.wire.elements(name)[::-1]
        taken = self.wire.call("rpopAndReserve", list=name, count=count)
        assert taken == ready[: min(room, count) if limit else count]
        for job_id in taken:
            self.worker.start(job_id, "")
        self.wire.ask("HDEL", self.wire.key("meta"), "globalConcurrency")

    @precondition(lambda self: self.worker.held)
    @rule(number=PICK, retention=RETENTION)
    def finish_and_take_next(self, number: int, retention: dict[str, Word]) -> None:
        job_id = self.pick_held(number)
        expected = self.kept("completed", job_id, retention)
        self.worker.finish(job_id, **retention)
        self.finished.add(job_id)
        self.lose("completed", expected)

    @precondition(lambda self: self.worker.held)
    @rule(number=PICK, retention=RETENTION)
    def finish(self, number: int, retention: dict[str, Word]) -> None:
        keys, parent = self.worker.parent_of(job_id := self.pick_held(number))
        expected = self.kept("completed", job_id, retention)
        values = {"jobId": job_id, "entryId": self.worker.held.pop(job_id), "timestamp": self.worker.now, **parent}
        assert self.wire.call("complete", *keys, **values, **retention) == 1
        self.finished.add(job_id)
        self.lose("completed", expected)

    @precondition(lambda self: self.worker.held)
    @rule(number=PICK, attempts=st.sampled_from([0, 1, 3]), retention=RETENTION)
    def fail(self, number: int, attempts: int, retention: dict[str, Word]) -> None:
        values: dict[str, Word] = {"maxAttempts": attempts, "backoffDelay": 25, "timestamp": self.worker.now}
        job_id = self.pick_held(number)
        expected = self.kept("failed", job_id, retention)
        made = int(self.jobs[job_id]["attemptsMade"]) + 1
        reply = self.settle_held(number, "fail", **values, **retention)[1]
        assert reply == ("retrying" if made < attempts else "failed")
        if reply == "failed":
            self.lose("failed", expected)

    def kept(self, name: str, job_id: str, retention: dict[str, Word]) -> set[str]:
        """Return which jobs are in a set of finished ones when one more finishes."""
        mode, count, age_s = (retention.get(key, 0) for key in ("removeMode", "removeCount", "removeAge"))
        return kept(self.wire.zset(name), job_id, self.worker.now, str(mode), int(count), int(age_s))

    def lose(self, name: str, expected: set[str]) -> None:
        """Check which finished jobs are left, and forget those that retention removed."""
        left = set(self.wire.zset(name))
        assert left == expected, f"{name} keeps {left ^ expected} otherwise than stated"
        self.alive -= {i for i in self.alive if not self.wire.exists(f"job:{i}")}
        assert left <= self.alive

    @rule(name=st.sampled_from(["completed", "failed"]), age_ms=st.sampled_from([0, 50]), limit=st.integers(0, 3))
    def clean(self, name: str, age_ms: int, limit: int) -> None:
        cutoff = self.worker.now - age_ms
        oldest_first = sorted(self.wire.zset(name).items(), key=lambda item: (item[1], item[0]))
        removed = [job_id for job_id, at in oldest_first if at <= cutoff][:limit]
        assert self.wire.call("clean", set=name, cutoff=cutoff, limit=limit) == removed
        self.alive -= set(removed)

    @rule(
        group=st.sampled_from(sorted(GROUPS)), ms=st.sampled_from([1, 40]), extend=st.sampled_from(["max", "replace"])
    )
    def hold_back(self, group: str, ms: int, extend: str) -> None:
        """Anyone holds an ordering key back."""
        if self.wire.group(group):
            values: dict[str, str | int] = {
                "groupKey": group,
                "durationMs": ms,
                "timestamp": self.worker.now,
                "extend": extend,
            }
            self.note_hold(group, ms, extend, self.wire.call("rateLimitGroupExternal", **values))

    @precondition(lambda self: any("groupKey" in self.jobs.get(job_id, {}) for job_id in self.worker.held))
    @rule(
        number=PICK,
        ms=st.sampled_from([1, 40]),
        position=st.sampled_from(["front", "back"]),
        extend=st.sampled_from(["max", "replace"]),
    )
    def put_down_and_hold_back(self, number: int, ms: int, position: str, extend: str) -> None:
        """A job that runs holds its ordering key back, and runs again later."""
        job_id = self.pick_held(number)
        if group := self.jobs[job_id].get("groupKey"):
            values: dict[str, Word] = {"durationMs": ms, "requeuePosition": position, "extend": extend}
            _, reply = self.settle_held(number, "rateLimitGroup", timestamp=self.worker.now, **values)
            self.note_hold(group, ms, extend, int(reply))
            self.put_down.add(job_id)

    def note_hold(self, group: str, ms: int, extend: str, until: int) -> None:
        asked = self.worker.now + ms
        assert until == asked or (extend == "max" and until > asked)
        self.holds[group] = until

    @precondition(lambda self: self.worker.held)
    @rule(number=PICK)
    def defer(self, number: int) -> None:
        assert self.settle_held(number, "deferActive")[1] == 1

    @precondition(lambda self: self.worker.held)
    @rule(number=PICK, ms=st.sampled_from([0, 40]))
    def put_off(self, number: int, ms: int) -> None:
        now = self.worker.now
        assert self.settle_held(number, "moveActiveToDelayed", now=now, delayedUntil=now + ms)[1] == "ok"

    @precondition(lambda self: self.worker.held)
    @rule(number=PICK, ms=st.sampled_from([0, 50]))
    def suspend(self, number: int, ms: int) -> None:
        assert self.settle_held(number, "suspend", now=self.worker.now, timeoutMs=ms)[1] == "ok"

    @rule(number=PICK)
    def signal(self, number: int) -> None:
        if job_id := self.pick(number, ["suspended"]):
            assert self.wire.call("signal", jobId=job_id, now=self.worker.now) == "ok"

    @rule()
    def sweep_suspended(self) -> None:
        self.wire.call("sweepSuspended", now=self.worker.now)

    @rule(limit=st.integers(0, 2))
    def reclaim(self, limit: int) -> None:
        """Every worker went silent long ago."""
        self.worker.now += 10**6
        values = {"timestamp": self.worker.now, "maxStalledCount": limit}
        assert self.wire.call("reclaimStalledListJobs", **values) == list(self.worker.held.values()).count("")
        self.wire.call("reclaimStalled", **values)
        self.worker.held.clear()
        self.leftovers.clear()

    @rule(counted=st.booleans(), limit=st.integers(1, 2))
    def die_after_popping(self, counted: bool, limit: int) -> None:
        """A worker takes a job off a list and is never seen again; the others go silent, too."""
        if self.wire.call("popLists") and counted:
            self.wire.ask("INCRBY", self.wire.key("list-active"), 1)
        for _ in range(3):
            self.worker.now += 10**6
            self.wire.call("reclaimStalledListJobs", timestamp=self.worker.now, maxStalledCount=limit)
        self.worker.held = {job_id: entry_id for job_id, entry_id in self.worker.held.items() if entry_id}

    # -- changing ----------------------------------------------------------------------------------------------

    @rule(number=PICK)
    def promote_job(self, number: int) -> None:
        if job_id := self.pick(number, ["delayed"]):
            assert self.wire.call("promoteJob", jobId=job_id) == "ok"

    @rule(number=PICK, priority=st.integers(0, 3))
    def change_priority(self, number: int, priority: int) -> None:
        if job_id := self.pick(number):
            self.wire.call("changePriority", jobId=job_id, newPriority=priority)

    @rule(number=PICK, delay=st.sampled_from([0, 35]))
    def change_delay(self, number: int, delay: int) -> None:
        if job_id := self.pick(number):
            self.wire.call("changeDelay", jobId=job_id, newDelay=delay, now=self.worker.now)

    @rule(number=PICK)
    def revoke(self, number: int) -> None:
        if job_id := self.pick(number):
            idle = self.jobs[job_id]["state"] in ("waiting", "delayed", "prioritized", "group-waiting")
            reply = self.wire.call("revoke", jobId=job_id, timestamp=self.worker.now)
            assert reply == ("revoked" if idle else "flagged")

    @rule(number=PICK)
    def remove(self, number: int) -> None:
        if job_id := self.pick(number):
            assert self.wire.call("removeJob", jobId=job_id) == 1
            self.alive.discard(job_id)
            if job_id in self.worker.held:
                self.leftovers[job_id] = self.worker.held.pop(job_id)

    @precondition(lambda self: self.leftovers)
    @rule(function=st.sampled_from(["complete", "fail"]))
    def settle_a_removed_job(self, function: str) -> None:
        job_id, entry_id = self.leftovers.popitem()
        self.wire.call(function, jobId=job_id, entryId=entry_id, timestamp=self.worker.now)

    @rule(delayed=st.sampled_from([0, 1]))
    def drain(self, delayed: int) -> None:
        self.wire.call("drain", drainDelayed=delayed)
        gone = {i for i in self.alive if not self.wire.exists(f"job:{i}")}
        assert {self.jobs[i]["state"] for i in gone} <= {"waiting", "delayed", "prioritized"}
        self.alive -= gone

    @rule(name=st.sampled_from(["pause", "resume"]))
    def switch(self, name: str) -> None:
        assert self.wire.call(name) == 1

    @precondition(lambda self: not any(job["state"] == "failed" and "groupKey" in job for job in self.jobs.values()))
    @rule()
    def retry_failed(self) -> None:
        """Only without grouped jobs: those keep their old sequence, which upstream's wire cannot repair."""
        count = sum(job["state"] == "failed" for job in self.jobs.values())
        assert self.wire.call("retryJobs", timestamp=self.worker.now) == count

    @rule()
    def heal(self) -> None:
        assert self.wire.call("healListActive") == 0

    # -- what must hold ----------------------------------------------------------------------------------------

    @invariant()
    def everything_adds_up(self) -> None:
        self.look()
        self.no_job_is_a_ghost()
        self.every_job_is_in_its_one_place()
        self.what_is_active_is_held()
        self.list_jobs_are_counted()
        self.group_slots_add_up()
        self.starts_keep_to_order_and_limits()
        self.parents_wait_for_all_children()

    def every_job_is_in_its_one_place(self) -> None:
        places = self.places()
        for job_id, job in self.jobs.items():
            assert job, f"job {job_id} is lost"
            found = places.pop(job_id, Counter())
            assert self.is_at_home(job_id, job, found), f"{job_id} is {job['state']} and is in {dict(found)}"
        astray = {i: found for i, found in places.items() if set(found) - set(READY)}
        assert not astray, f"removed jobs are still in {astray}"

    def is_at_home(self, job_id: str, job: dict[str, str], found: Counter[str]) -> bool:
        state = job["state"]
        if state == "waiting":
            return found.total() == 1 and set(found) <= set(READY) and job_id not in self.worker.held
        if state == "active":
            return found == Counter(["stream"] if self.worker.held[job_id] else [])
        if state == "group-waiting":
            return found == Counter([f"groupq:{job['groupKey']}"])
        return found == Counter([PLACES[state]] if state in PLACES else [])

    def places(self) -> dict[str, Counter[str]]:
        """Every structure that holds each id, as often as it does."""
        found: dict[str, Counter[str]] = {}

        def note(place: str, ids: Iterable[str]) -> None:
            for job_id in ids:
                found.setdefault(job_id, Counter())[place] += 1

        note("stream", self.wire.stream_ids())
        for name in ("lifo", "priority"):
            note(name, self.wire.elements(name))
        for name in ("scheduled", "suspended", "completed", "failed", *(f"groupq:{group}" for group in GROUPS)):
            note(name, self.wire.zset(name))
        return found

    def no_job_is_a_ghost(self) -> None:
        assert self.wire.names("job:") == {f"job:{job_id}" for job_id in self.alive}

    def what_is_active_is_held(self) -> None:
        assert {i for i, job in self.jobs.items() if job["state"] == "active"} == set(self.worker.held)
        entries = {entry_id for entry_id in self.worker.held.values() if entry_id}
        assert set(self.wire.pending()) == entries | (set(self.leftovers.values()) - {""})

    def list_jobs_are_counted(self) -> None:
        from_lists = sorted(job_id for job_id, entry_id in self.worker.held.items() if not entry_id)
        assert self.wire.list_active() == len(from_lists)

    def group_slots_add_up(self) -> None:
        for group, limits in GROUPS.items():
            limit = int(limits["groupConcurrency"])
            holders = [i for i in set(self.worker.started) if self.holds_slot(i, group)]
            active = int(self.wire.group(group).get("active", 0))
            assert active == len(holders), f"{group} counts {active}, and {sorted(holders)} hold slots"
            assert active <= limit

    def holds_slot(self, job_id: str, group: str) -> bool:
        job = self.jobs.get(job_id)
        if job is not None and job["state"] == "active":
            self.put_down.discard(job_id)
        elif job is not None and job["state"] == "group-waiting":
            self.put_down.add(job_id)
        is_of_group = job is not None and job.get("groupKey") == group and job["state"] not in DONE
        return is_of_group and job_id not in self.put_down

    def starts_keep_to_order_and_limits(self) -> None:
        """First attempts of an ordering key start in the order in which its jobs were added; each start is paid for."""
        for place in range(self.begun, len(self.worker.started)):
            job_id = self.worker.started[place]
            job = self.jobs.get(job_id) or {}
            if group := job.get("groupKey"):
                turn = int(job["orderingSeq"])
                is_first = turn > self.turns.get(group, 0)
                assert self.worker.now >= self.holds.get(group, 0), f"{job_id} started while {group} was held back"
                assert is_first or job_id in self.worker.started[:place], f"{job_id} overtook others of {group}"
                self.turns[group] = max(turn, self.turns.get(group, 0))
                if limit := self.limits.get(group):
                    limit.start(self.worker.now, int(job.get("cost", 1000)), is_first)
        self.begun = len(self.worker.started)
        for group, limit in self.limits.items():
            fields = self.wire.group(group)
            assert limit.agrees(fields, self.worker.now), f"{group} is {fields}, not {limit}"

    def priority(self, job_id: str) -> int:
        return int(self.jobs[job_id]["priority"])

    def has_expired(self, job_id: str) -> bool:
        """Whether a job never ran, and its time to live is over."""
        job = self.jobs[job_id]
        is_over = self.worker.now >= int(job.get("expireAt", 2**53))
        return is_over and "processedOn" not in job and job["state"] not in DONE

    def parents_wait_for_all_children(self) -> None:
        for parent, children in self.children.items():
            job = self.jobs.get(parent)
            if job and job["state"] in ("waiting", "active", "completed"):
                assert children <= self.finished, f"{parent} was released before {sorted(children - self.finished)}"

    def teardown(self) -> None:
        """Whatever happened, all that can still run does, and no group sleeps."""
        self.look()
        for job_id, job in self.jobs.items():
            if job["state"] == "suspended":
                self.wire.call("signal", jobId=job_id, now=self.worker.now)
        while self.leftovers:
            self.settle_a_removed_job("complete")
        self.worker.run(slots=4)
        self.look()
        for job_id, job in self.jobs.items():
            orphaned = job["state"] == "waiting-children" and any(
                child not in self.finished and self.jobs.get(child, {"state": "gone"})["state"] != "completed"
                for child in self.children[job_id]
            )
            assert job["state"] in DONE or orphaned, f"{job_id} sleeps as {job['state']}"
        assert {group: self.wire.group(group).get("active", "0") for group in GROUPS} == dict.fromkeys(GROUPS, "0")
        self.heal()
        assert self.wire.names("list-active") <= {"list-active"}, "the index of active list jobs leaks"
        assert self.wire.list_active() == 0


@pytest.mark.timeout(400)  # to shrink a failure takes up to five minutes
def test_no_history_loses_a_job(server_url: str, request: pytest.FixtureRequest) -> None:
    """Replay one with ``--hypothesis-seed=N``, or with the blob that a failure prints."""
    client = redis.Redis(unix_socket_path=server_url.removeprefix("unix://"), decode_responses=True, protocol=2)
    load_library(client)
    machine: Callable[[], RuleBasedStateMachine] = lambda: JobLife(client)  # noqa: E731
    run_state_machine_as_test(
        machine,  # type: ignore[arg-type]
        settings=settings(
            max_examples=request.config.getoption("--fuzz-runs") or 60,
            stateful_step_count=40,
            deadline=None,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
    client.close()
