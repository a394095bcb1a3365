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
GROUPS = {"narrow": 1, "wide": 3}
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

    @rule(placement=PLACEMENT.filter(lambda values: "lifo" not in values), group=st.sampled_from(sorted(GROUPS)))
    def add_to_group(self, placement: dict[str, Word], group: str) -> None:
        values = {"timestamp": self.worker.now, "orderingKey": group, "groupConcurrency": GROUPS[group], **placement}
        self.alive.add(self.wire.add(**values))

    @rule(group=st.sampled_from(["", *sorted(GROUPS)]), mode=st.sampled_from(["simple", "debounce"]))
    def add_once(self, group: str, mode: str) -> None:
        before = set(self.wire.names("job:"))
        values: dict[str, Word] = {"mode": mode, "delay": 15, "timestamp": self.worker.now, "orderingKey": group}
        reply = self.wire.call("dedup", **values, groupConcurrency=GROUPS.get(group, 0))
        if reply != "skipped":
            after = set(self.wire.names("job:"))
            assert len(before - after) <= (1 if mode == "debounce" else 0)
            self.alive = (self.alive - {name.removeprefix("job:") for name in before - after}) | {reply}

    @rule(count=st.integers(1, 3), group=st.sampled_from(["", "wide"]))
    def add_flow(self, count: int, group: str) -> None:
        opts = f'{{"ordering":{{"key":"{group}","concurrency":3}}}}' if group else "{}"
        ids = self.wire.flow_ids(*({"opts": opts} for _ in range(count)), timestamp=self.worker.now)
        self.alive |= set(ids)
        self.children[ids[0]] = set(ids[1:])

    # -- working -----------------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([0, 10, 100, 1000]))
    def tick(self, ms: int) -> None:
        self.worker.now += ms
        self.worker.tick()

    @rule()
    def take(self) -> None:
        self.worker.take()

    @precondition(lambda self: self.worker.held)
    @rule(number=PICK)
    def finish_and_take_next(self, number: int) -> None:
        job_id = self.pick_held(number)
        self.worker.finish(job_id)
        self.finished.add(job_id)

    @precondition(lambda self: self.worker.held)
    @rule(number=PICK)
    def finish(self, number: int) -> None:
        keys, parent = self.worker.parent_of(job_id := self.pick_held(number))
        values = {"jobId": job_id, "entryId": self.worker.held.pop(job_id), "timestamp": self.worker.now, **parent}
        assert self.wire.call("complete", *keys, **values) == 1
        self.finished.add(job_id)

    @precondition(lambda self: self.worker.held)
    @rule(number=PICK, attempts=st.sampled_from([0, 1, 3]))
    def fail(self, number: int, attempts: int) -> None:
        values: dict[str, Word] = {"maxAttempts": attempts, "backoffDelay": 25, "timestamp": self.worker.now}
        made = int(self.jobs[self.pick_held(number)]["attemptsMade"]) + 1
        assert self.settle_held(number, "fail", **values)[1] == ("retrying" if made < attempts else "failed")

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
        for group, limit in GROUPS.items():
            holders = [i for i in set(self.worker.started) if self.holds_slot(i, group)]
            active = int(self.wire.group(group).get("active", 0))
            assert active == len(holders), f"{group} counts {active}, and {sorted(holders)} hold slots"
            assert active <= limit

    def holds_slot(self, job_id: str, group: str) -> bool:
        job = self.jobs.get(job_id)
        return job is not None and job.get("groupKey") == group and job["state"] not in DONE

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
                self.jobs.get(child, {"state": "gone"})["state"] != "completed" for child in self.children[job_id]
            )
            assert job["state"] in DONE or orphaned, f"{job_id} sleeps as {job['state']}"
        assert {group: self.wire.group(group).get("active", "0") for group in GROUPS} == dict.fromkeys(GROUPS, "0")
        self.heal()
        assert self.wire.names("list-active") <= {"list-active"}, "the index of active list jobs leaks"
        assert self.wire.list_active() == 0


@pytest.mark.timeout(400)  # to shrink a failure takes up to five minutes
def test_no_history_loses_a_job(server_url: str) -> None:
    """Replay one with ``--hypothesis-seed=N``, or with the blob that a failure prints."""
    client = redis.Redis(unix_socket_path=server_url.removeprefix("unix://"), decode_responses=True, protocol=2)
    load_library(client)
    machine: Callable[[], RuleBasedStateMachine] = lambda: JobLife(client)  # noqa: E731
    run_state_machine_as_test(
        machine,  # type: ignore[arg-type]
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
    client.close()
