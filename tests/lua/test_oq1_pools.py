"""`oq1_acquirePools` and its like: never more than the slots, none lost, in order of arrival, whichever worker dies."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest

from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.functions.oq1 import Claim, Parked, PoolLease, Skipped
from tests.lua.oq1 import Own
from tests.lua.wire import NOW, Wire, Word

LEASE_MS = 30_000
GRACE_MS = 10_000


class Pools:
    """The functions of pools, with keys beside those of the test's queue."""

    def __init__(self, wire: Wire) -> None:
        self.own = Own(wire)
        self.base = f"{wire.base}:pools:"
        self.slots_key = self.base + "slots"
        self.now = NOW

    def token(self, job: str) -> str:
        return self.own.keys.member(job)

    def jobs(self, tokens: list[str]) -> list[str]:
        return [token.rpartition(":")[2] for token in tokens]

    def set(self, pool: str, slots: int) -> list[str]:
        return self.jobs(self.own.send(oq1.set_pool(slots_key=self.slots_key, now_ms=self.now, pool=pool, count=slots)))

    def acquire(self, job: str, taken: int = 1, /, **weights: int) -> tuple[str, Any, list[str]]:
        claims = [Claim(pool=pool, weight=weight) for pool, weight in weights.items()]
        verdict, detail, woken = self.own.send(
            oq1.acquire_pools(
                slots_key=self.slots_key,
                claims=claims,
                now_ms=self.now,
                token=self.token(job),
                taken_ms=taken,
                lease_ms=LEASE_MS,
            )
        )
        return verdict, detail, self.jobs(woken)

    def release(self, job: str, taken: int = 1, /, *pools: str) -> list[str]:
        claims = [Claim(pool=pool, weight=1) for pool in pools]
        return self.jobs(
            self.own.send(
                oq1.release_pools(
                    slots_key=self.slots_key, claims=claims, now_ms=self.now, token=self.token(job), taken_ms=taken
                )
            )
        )

    def renew(self, job: str, taken: int = 1, /, **weights: int) -> list[int]:
        leases = [
            PoolLease(token=self.token(job), taken_ms=taken, lease_ms=LEASE_MS, pool=pool, weight=weight)
            for pool, weight in weights.items()
        ]
        reply: list[int] = self.own.send(oq1.renew_pools(slots_key=self.slots_key, leases=leases, now_ms=self.now))
        return reply

    def skip(self, job: str, *, gone: bool) -> list[str]:
        waiters = [Skipped(token=self.token(job), gone=gone)]
        return self.jobs(self.own.send(oq1.skip_waiters(slots_key=self.slots_key, waiters=waiters, now_ms=self.now)))

    def remove(self, pool: str) -> str:
        reply: str = self.own.send(oq1.remove_pool(slots_key=self.slots_key, now_ms=self.now, pool=pool))
        return reply

    def held(self, pool: str) -> dict[str, int]:
        """Slots by job of the live holders."""
        stored = self.own.wire.ask("HGETALL", f"{self.base}holders:{pool}")
        words = {token.rpartition(":")[2]: text.split() for token, text in stored.items()}
        return {job: int(weight) for job, (until, weight, _) in words.items() if int(until) > self.now}

    def waiting(self, pool: str) -> list[str]:
        return self.jobs(self.own.wire.ask("ZRANGE", f"{self.base}waiters:{pool}", 0, -1))


@pytest.fixture
def pools(wire: Wire) -> Pools:
    pools = Pools(wire)
    pools.set("p", 2)
    return pools


def test_slots_are_taken_once_and_given_back(pools: Pools) -> None:
    assert pools.acquire("a", 1, p=2) == ("held", 0, [])
    assert pools.acquire("a", 1, p=2) == ("held", 0, []), "a repeated call takes them once"
    assert pools.held("p") == {"a": 2}
    assert pools.acquire("b", 1, p=1)[0] == "wait"
    assert pools.release("a", 1, "p") == ["b"]
    assert pools.release("a", 1, "p") == [], "a job is woken once"
    assert pools.acquire("b", 2, p=1) == ("held", 0, [])
    assert pools.waiting("p") == []


def test_the_first_keeps_its_place_before_those_that_need_less(pools: Pools) -> None:
    pools.acquire("a", 1, p=1)
    assert pools.acquire("all", 1, p=2)[0] == "wait"
    assert pools.acquire("b", 1, p=1)[0] == "wait", "a slot is free, but an earlier job waits for it"
    assert pools.release("a", 1, "p") == ["all"]
    assert pools.acquire("b", 1, p=1)[0] == "wait"
    assert pools.acquire("all", 2, p=2)[0] == "held"
    assert pools.release("all", 2, "p") == ["b"]


def test_a_woken_job_that_does_not_come_lets_others_go_first_and_keeps_its_place(pools: Pools) -> None:
    pools.acquire("a", 1, p=2)
    pools.acquire("b", 1, p=2)
    pools.acquire("c", 1, p=2)
    assert pools.release("a", 1, "p") == ["b"]
    pools.now += GRACE_MS
    assert pools.acquire("c", 2, p=2)[0] == "held"
    assert pools.acquire("b", 2, p=2)[0] == "wait"
    assert pools.acquire("d", 1, p=2)[0] == "wait"
    assert pools.release("c", 2, "p") == ["b"], "it came first"


def test_a_job_that_is_gone_or_comes_later_is_skipped_at_once(pools: Pools) -> None:
    pools.acquire("a", 1, p=2)
    for job in ("b", "c", "d"):
        pools.acquire(job, 1, p=2)
    assert pools.release("a", 1, "p") == ["b"]
    assert pools.skip("b", gone=True) == ["c"]
    assert pools.waiting("p") == ["c", "d"]
    assert pools.skip("c", gone=False) == ["d"]
    assert pools.waiting("p") == ["c", "d"], "it keeps its place"
    assert pools.skip("unknown", gone=True) == []


def test_several_pools_are_taken_together_or_not_at_all(pools: Pools) -> None:
    pools.set("q", 1)
    pools.acquire("a", 1, q=1)
    assert pools.acquire("b", 1, p=2, q=1)[0] == "wait"
    assert (pools.held("p"), pools.held("q")) == ({}, {"a": 1})
    assert pools.waiting("p") == pools.waiting("q") == ["b"]
    assert pools.release("a", 1, "q") == ["b"]
    assert pools.acquire("b", 2, p=2, q=1)[0] == "held"
    assert (pools.held("p"), pools.held("q")) == ({"b": 2}, {"b": 1})
    assert pools.waiting("p") == pools.waiting("q") == []


def test_a_job_that_could_never_run_is_in_nobody_s_way(pools: Pools) -> None:
    assert pools.acquire("big", 1, p=3)[0] == "wait"
    assert pools.acquire("a", 1, p=2)[0] == "held"
    assert pools.set("p", 5) == ["big"]


def test_the_lease_of_a_dead_holder_runs_out(pools: Pools) -> None:
    pools.acquire("a", 1, p=2)
    pools.now += LEASE_MS - 1
    assert pools.acquire("b", 1, p=1)[0] == "wait"
    assert pools.renew("a", 1, p=2) == [1]
    pools.now += LEASE_MS
    assert pools.acquire("b", 2, p=1)[0] == "held"
    assert pools.held("p") == {"b": 1}


def test_a_later_attempt_keeps_its_slots_from_an_earlier_one(pools: Pools) -> None:
    pools.acquire("a", 5, p=2)
    assert pools.acquire("a", 9, p=2)[0] == "held", "its job, taken over"
    assert pools.acquire("a", 5, p=2)[:2] == ("late", 0)
    assert pools.renew("a", 5, p=2) == [0]
    assert pools.release("a", 5, "p") == []
    assert pools.held("p") == {"a": 2}


def test_unknown_pools_are_named_and_those_in_use_stay(pools: Pools) -> None:
    assert pools.acquire("a", 1, p=1, nowhere=1)[:2] == ("unknown", "nowhere")
    assert pools.held("p") == {}
    assert pools.renew("a", 1, nowhere=1) == [0]
    pools.acquire("a", 1, p=2)
    assert pools.remove("p") == "in_use"
    pools.acquire("b", 1, p=2)
    pools.release("a", 1, "p")
    assert pools.remove("p") == "in_use"
    pools.skip("b", gone=True)
    assert pools.remove("p") == "removed"
    assert pools.remove("p") == "not_found"


@pytest.mark.parametrize("key", ["holders:p", "waiters:p", "waiting", "arrivals"])
def test_damaged_state_is_dropped_and_heartbeats_restore_the_holders(pools: Pools, key: str) -> None:
    pools.acquire("a", 1, p=2)
    pools.acquire("b", 1, p=1)
    client = pools.own.wire.client
    client.delete(pools.base + key)
    client.set(pools.base + key, "of another type")
    assert pools.renew("a", 1, p=2) == [1]
    assert pools.held("p") == {"a": 2}
    assert pools.acquire("b", 2, p=1)[0] == "wait"
    assert pools.release("a", 1, "p") == ["b"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pools":1}', '{"pools":{}}', '{"pools":{"p":1},"arrival":"soon"}'])
def test_a_waiter_that_cannot_be_read_is_dropped(pools: Pools, text: str) -> None:
    pools.acquire("a", 1, p=2)
    pools.acquire("odd", 1, p=1)
    pools.acquire("b", 1, p=1)
    pools.own.wire.client.hset(pools.base + "waiting", pools.token("odd"), text)
    assert pools.release("a", 1, "p") == ["b"]
    assert pools.waiting("p") == ["b"]


def test_malformed_calls_are_refused(pools: Pools) -> None:
    own, keys = pools.own, [pools.slots_key]
    nine: list[Word] = ["p", 1] * 9
    leases: list[Word] = ["t", 1, 1, "p", 1] * 101
    tokens: list[Word] = ["t", 1] * 101
    own.refused("acquirePools", keys, [NOW, "t", 1, 1000, 0], "1 to 8 pools")
    own.refused("acquirePools", keys, [NOW, "t", 1, 1000, 9, *nine], "1 to 8 pools")
    own.refused("acquirePools", keys, [NOW, "t", 1, 1000, 1, "p", 0], "at least 1 slot")
    own.refused("acquirePools", keys, [NOW, "t", 1, 0, 1, "p", 1], "a lease of 0 ms")
    own.refused("releasePools", keys, [NOW, "t", 1, 0], "1 to 8 pools")
    own.refused("renewPools", keys, [NOW, 1, "t", 1, 0, "p", 1], "at least 1")
    own.refused("renewPools", keys, [NOW, 101, *leases], "at most 100")
    own.refused("skipWaiters", keys, [NOW, 101, *tokens], "at most 100")
    own.refused("setPool", keys, [NOW, "a:b", 1], "not the name of a pool")
    own.refused("setPool", keys, [NOW, "", 1], "not the name of a pool")
    own.refused("setPool", keys, [NOW, "p", 1001], "0 to 1000 slots")
    stream = [own.keys.stream, own.keys.scheduled, own.keys.events, own.keys.priority]
    own.refused("startParked", stream, [101, *["j"] * 101], "at most 100")


def test_parked_jobs_start_before_the_backlog_and_the_others_say_why_not(wire: Wire) -> None:
    own = Own(wire)
    wire.active(customJobId="active")
    wire.add(customJobId="backlog")
    for job in ("parked", "urgent"):
        wire.add(customJobId=job, delay=10**9, priority=int(job == "urgent"))
    wire.make_job("ended", state="completed")
    wire.make_job("suspended", state="suspended")
    jobs = ["parked", "urgent", "active", "ended", "gone", "suspended"]
    call = oq1.start_parked(own.keys, jobs=[Parked(job_id=job) for job in jobs])
    assert own.send(call) == "rraggl"
    assert own.send(call) == "rraggl", "a repeated call starts nothing twice"
    assert own.exchange(want=3).ids[:2] == ["parked", "urgent"]
    wire.call("pause")
    assert own.send(call) == "l" * len(jobs)


class Chaos:
    """Workers that take jobs, hold slots, die, lose replies and come back; time passes as the test says."""

    def __init__(self, pools: Pools, seed: int) -> None:
        self.pools, self.random = pools, random.Random(seed)
        self.slots = {"p": 4, "q": 2}
        for pool, slots in self.slots.items():
            pools.set(pool, slots)
        self.weights: dict[str, dict[str, int]] = {}
        self.held: dict[str, int] = {}
        self.ready: list[str] = []
        self.parked: dict[str, int] = {}
        self.dead: dict[str, int] = {}
        self.taken = 0
        self.done = 0

    def wake(self, jobs: list[str]) -> None:
        for job in jobs:
            if self.random.random() < 0.1:
                continue  # the reply was lost
            if job in self.dead:
                self.wake(self.pools.skip(job, gone=False))
                continue
            assert job in self.parked or job in self.ready, f"{job} was woken and does not wait"
            if self.parked.pop(job, None) is not None:
                self.ready.append(job)

    def add(self) -> None:
        job = f"j{len(self.weights)}"
        names = self.random.sample(sorted(self.slots), self.random.choice([1, 1, 2]))
        self.weights[job] = {name: self.random.randint(1, self.slots[name]) for name in names}
        self.ready.append(job)

    def ask(self) -> None:
        if not self.ready:
            return
        job = self.ready.pop(0)
        self.taken += 1
        if self.random.random() < 0.05:
            self.dead[job] = self.pools.now + LEASE_MS  # before it asked
            return
        verdict, sleep_ms, woken = self.pools.acquire(job, self.taken, **self.weights[job])
        assert verdict in ("held", "wait")
        if verdict == "held":
            self.held[job] = self.taken
        else:
            self.parked[job] = self.pools.now + sleep_ms
        self.wake(woken)

    def end(self) -> None:
        if self.held:
            job = self.random.choice(sorted(self.held))
            woken = self.pools.release(job, self.held.pop(job), *self.weights[job])
            self.done += 1
            self.wake(woken)

    def kill(self) -> None:
        if self.held:
            job = self.random.choice(sorted(self.held))
            del self.held[job]
            self.dead[job] = self.pools.now + LEASE_MS

    def beat(self) -> None:
        for job, taken in self.held.items():
            assert self.pools.renew(job, taken, **self.weights[job]) == [1] * len(self.weights[job])

    def wait(self, ms: int) -> None:
        self.pools.now += ms
        self.beat()
        for sleepers in (self.parked, self.dead):
            for job in [job for job, until in sleepers.items() if until <= self.pools.now]:
                del sleepers[job]
                self.ready.append(job)

    def check(self) -> None:
        for pool, slots in self.slots.items():
            held = self.pools.held(pool)
            assert sum(held.values()) <= slots
            for job in self.held:
                assert held.get(job, 0) == self.weights[job].get(pool, 0)
            assert set(held) <= set(self.held) | set(self.dead), "a slot is held by no one"


@pytest.mark.parametrize("seed", range(int(os.environ.get("OQ_POOL_CHAOS", "1"))))
def test_chaos_loses_no_slot_and_starves_no_job(pools: Pools, seed: int) -> None:
    chaos = Chaos(pools, seed)
    acts = [chaos.add] * 3 + [chaos.ask] * 5 + [chaos.end] * 3 + [chaos.kill, lambda: chaos.wait(1000)]
    for _ in range(300):
        chaos.random.choice(acts)()
        chaos.check()
    for _ in range(2000):
        if chaos.done == len(chaos.weights):
            break
        chaos.ask() if chaos.ready else chaos.end() if chaos.held else chaos.wait(5000)
        chaos.check()
    assert chaos.done == len(chaos.weights), f"{len(chaos.weights) - chaos.done} jobs starve"
    assert (pools.waiting("p"), pools.waiting("q"), pools.held("p"), pools.held("q")) == ([], [], {}, {})
    assert not pools.own.wire.client.exists(pools.base + "waiting")


def test_in_a_quiet_pool_jobs_start_in_the_order_in_which_they_came(pools: Pools) -> None:
    pools.acquire("first", 1, p=2)
    jobs = [f"j{number}" for number in range(30)]
    for number, job in enumerate(jobs):
        pools.acquire(job, 1, p=1 + number % 2)
    started: list[str] = []
    held = ["first"]
    while held:
        for job in pools.release(held.pop(0), 10**9, "p"):
            assert pools.acquire(job, 2, p=1 + int(job[1:]) % 2)[0] == "held"
            started.append(job)
            held.append(job)
    assert started == jobs


def test_what_waits_is_text_that_others_can_read(pools: Pools) -> None:
    pools.acquire("a", 1, p=2)
    pools.acquire("b", 1, p=1)
    stored = pools.own.wire.ask("HGET", pools.base + "waiting", pools.token("b"))
    assert json.loads(stored)["pools"] == {"p": 1}
