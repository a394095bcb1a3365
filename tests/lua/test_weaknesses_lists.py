"""What upstream's library does badly and ours must not: the priority and LIFO lists. By the number of the weakness."""

from __future__ import annotations

import pytest

from tests.lua.hand_worker import HandWorker
from tests.lua.wire import NOW, Wire, Word

LATER = NOW + 60_000


# -- W1: popped and never started


@pytest.mark.parametrize("counted", [True, False], ids=["counted", "not yet counted"])
@pytest.mark.parametrize("values", [{"lifo": 1}, {"priority": 2}], ids=str)
@pytest.mark.parametrize("pop", ["popLists", "rpopAndReserve"])
def test_w1_a_popped_job_of_a_dead_worker_comes_back(
    wire: Wire, pop: str, values: dict[str, Word], counted: bool
) -> None:
    job_id = wire.add(**values)
    wire.call("promote")
    if pop == "popLists":
        assert wire.call(pop) == [job_id]
        if counted:
            wire.ask("INCRBY", wire.key("list-active"), 1)
    else:
        assert wire.call(pop, list=next(iter(values))) == [job_id]
    wire.call("reclaimStalledListJobs", timestamp=NOW, minIdleMs=30_000)
    assert wire.call("popLists") == [], "its worker may yet start it"
    for round_ in (1, 2):
        wire.call("reclaimStalledListJobs", timestamp=NOW + round_ * 40_000, minIdleMs=30_000)
    assert wire.list_active() == 0
    assert HandWorker(wire, now=LATER).run() == [job_id]
    assert wire.list_active() == 0


def test_w1_a_popped_job_that_starts_in_time_is_left_alone(wire: Wire) -> None:
    job_id = wire.add(lifo=1)
    assert wire.call("popLists") == [job_id]
    wire.ask("INCRBY", wire.key("list-active"), 1)
    wire.call("reclaimStalledListJobs", timestamp=NOW, minIdleMs=30_000)
    wire.call("moveToActive", jobId=job_id, timestamp=NOW + 29_000)
    wire.call("reclaimStalledListJobs", timestamp=NOW + 40_000, minIdleMs=30_000)
    assert (wire.state(job_id), wire.list_active()) == ("active", 1)
    assert wire.elements("lifo") == []


def test_w1_a_popped_job_that_its_group_parked_is_not_lost(wire: Wire) -> None:
    first, entry_id = wire.active(orderingKey="k")
    second = wire.add(orderingKey="k", priority=1)
    worker = HandWorker(wire)
    worker.tick()
    assert worker.take() is None
    wire.call("complete", jobId=first, entryId=entry_id)
    assert wire.stream_ids() == [second]
    for round_ in (1, 2, 3):
        wire.call("reclaimStalledListJobs", timestamp=NOW + round_ * 10**6)
    assert wire.elements("priority") == []
    assert wire.stream_ids() == [second]


def test_w1_nothing_is_remembered_of_jobs_that_are_done(wire: Wire) -> None:
    for values in ({"lifo": 1}, {"priority": 1}, {"priority": 2, "ttl": 5}, {"lifo": 1}):
        wire.add(**values)
    wire.call("promote")
    wire.make_job("4", revoked=1)
    assert HandWorker(wire, now=NOW + 9).run() == ["2", "1"]
    assert wire.names("list-active") <= {"list-active"}
    assert wire.list_active() == 0


# -- W9, W10, W11: finding the active list jobs


def find_all(wire: Wire) -> tuple[object, object, object]:
    """What the three functions that look for active list jobs find, the one that changes most last."""
    return (
        wire.call("getActiveListJobIds"),
        wire.call("healListActive"),
        wire.call("reclaimStalledListJobs", timestamp=LATER),
    )


def active_by_another_program(wire: Wire, job_id: str) -> None:
    wire.make_job(job_id, state="active", lifo=1, lastActive=NOW)
    wire.ask("INCR", wire.key("list-active"))


def test_w9_locks_and_counters_beside_a_job_are_no_jobs(wire: Wire) -> None:
    active_by_another_program(wire, "7")
    wire.ask("SET", wire.key("job:7:usage-lock"), "token")
    wire.set_fields("job:7:sub:audit", a=1, state="active", lifo=1, lastActive=NOW)
    assert find_all(wire) == (["7"], 0, 1)


@pytest.mark.parametrize("queue", ["t[1]", "a*", "a?", "b\\", "[", "^x"])
def test_w11_a_queue_name_is_no_pattern(wire: Wire, queue: str) -> None:
    own = wire.sibling(queue)
    for other in ("t1", "ab", "abc", "b", "x"):
        active_by_another_program(wire.sibling(other), "other")
    active_by_another_program(own, "mine")
    assert find_all(own) == (["mine"], 0, 1)
    assert own.elements("lifo") == ["mine"]


@pytest.mark.parametrize("start", ["moveToActive", "completeAndFetchNext"])
def test_w10_what_the_library_activated_is_found_without_a_scan(wire: Wire, start: str) -> None:
    job_id, entry_id = wire.active(customJobId="first")
    wire.add(lifo=1)
    if start == "completeAndFetchNext":
        assert wire.call(start, jobId=job_id, entryId=entry_id)[2] == "1"
    else:
        wire.take_from_list()
    wire.client.config_resetstat()
    assert find_all(wire) == (["1"], 0, 1)
    assert scans(wire) == set()


def scans(wire: Wire) -> set[str]:
    """Commands that read all keys since the statistics were reset."""
    return {"cmdstat_scan", "cmdstat_keys"} & set(wire.client.info("commandstats"))


def test_w10_what_another_program_activated_is_scanned_for_once(wire: Wire) -> None:
    active_by_another_program(wire, "theirs")
    wire.client.config_resetstat()
    assert wire.call("getActiveListJobIds") == ["theirs"]
    assert scans(wire) == {"cmdstat_scan"}
    wire.client.config_resetstat()
    assert find_all(wire) == (["theirs"], 0, 1)
    assert scans(wire) == set()


def test_w10_jobs_of_both_kinds_of_workers_are_found_together(wire: Wire) -> None:
    wire.active(lifo=1, customJobId="ours")
    active_by_another_program(wire, "theirs")
    assert sorted(wire.call("getActiveListJobIds")) == ["ours", "theirs"]
    assert wire.call("healListActive") == 0
    assert wire.call("reclaimStalledListJobs", timestamp=LATER) == 2
    assert sorted(wire.elements("lifo")) == ["ours", "theirs"]
    assert wire.list_active() == 0


# -- W13, W14: priorities


@pytest.mark.parametrize(
    ("jobs", "reply"),
    [
        ([{"delay": 10**9}, {"priority": 3}], 0),
        ([{"delay": 900}, {"delay": 300, "priority": 3}], NOW + 300),
        ([{"delay": 900}, {"delay": 700, "priority": 1}, {"delay": 500, "priority": 2048}], NOW + 500),
        ([{"delay": 100}, {"delay": 700, "priority": 1}], NOW + 100),
    ],
)
def test_w13_a_far_job_of_a_low_band_hides_no_nearer_one(wire: Wire, jobs: list[dict[str, Word]], reply: int) -> None:
    for values in jobs:
        wire.add(**values)
    assert wire.call("nextDue") == reply


def test_w14_a_later_promotion_does_not_queue_behind_lesser_jobs(wire: Wire) -> None:
    for priorities in ([5, 3], [1, 5, 4], [3, 2]):
        for priority in priorities:
            wire.add(priority=priority, customJobId=f"p{priority}-{len(wire.names('job:'))}")
        wire.call("promote")
    order = [wire.call("popLists")[0] for _ in range(7)]
    assert order == ["p1-2", "p2-6", "p3-1", "p3-5", "p4-4", "p5-0", "p5-3"]


def test_w14_a_job_promoted_by_hand_finds_its_place(wire: Wire) -> None:
    for job_id, priority in (("p1", 1), ("p3", 3)):
        wire.add(priority=priority, customJobId=job_id)
    wire.call("promote")
    wire.add(priority=2, delay=10**9, customJobId="p2")
    wire.call("promoteJob", jobId="p2")
    assert [wire.call("popLists")[0] for _ in range(3)] == ["p1", "p2", "p3"]


def test_w14_a_stalled_job_finds_its_place(wire: Wire) -> None:
    for job_id, priority in (("p1", 1), ("p3", 3)):
        wire.add(priority=priority, customJobId=job_id)
    wire.call("promote")
    assert wire.take_from_list() == "p1"
    assert wire.call("reclaimStalledListJobs", timestamp=LATER) == 1
    assert [wire.call("popLists")[0] for _ in range(2)] == ["p1", "p3"]


# -- W12: where a job was taken from


@pytest.mark.parametrize("values", [{"lifo": 1}, {"priority": 2}], ids=str)
@pytest.mark.parametrize("detour", ["deferActive", "suspend"])
def test_w12_a_list_job_that_comes_back_by_the_stream_is_no_list_job(
    wire: Wire, values: dict[str, Word], detour: str
) -> None:
    job_id, _ = wire.active(**values)
    assert wire.call(detour, jobId=job_id) in (1, "ok")
    if detour == "suspend":
        wire.call("signal", jobId=job_id)
    listed, _ = wire.active(lifo=1)
    assert wire.take()[0] == job_id
    assert wire.call("getActiveListJobIds") == [listed]
    assert wire.call("healListActive") == 0
    assert wire.call("reclaimStalledListJobs", timestamp=LATER, maxStalledCount=9) == 1
    assert wire.state(job_id) == "active"
    wire.ask("SET", wire.key("list-active"), 1)
    wire.call("removeJob", jobId=job_id)
    assert wire.list_active() == 1


# -- W36, W42: counts and elements


def test_w36_a_count_below_zero_is_healed(wire: Wire) -> None:
    wire.ask("SET", wire.key("list-active"), -3)
    wire.call("healListActive")
    assert wire.list_active() == 0


def test_w36_a_count_below_zero_makes_no_room(wire: Wire) -> None:
    wire.ask("SET", wire.key("list-active"), -3)
    wire.ask("HSET", wire.key("meta"), "globalConcurrency", 1)
    for _ in range(3):
        wire.add(lifo=1)
    assert wire.call("checkConcurrency") == 1
    assert wire.call("rpopAndReserve", list="lifo", count=3) == ["3"]


@pytest.mark.parametrize("settle", ["complete", "fail", "completeAndFetchNext"])
def test_w36_a_job_removed_while_active_is_counted_out_once(wire: Wire, settle: str) -> None:
    job_id, _ = wire.active(lifo=1)
    wire.active(lifo=1)
    wire.call("removeJob", jobId=job_id)
    assert wire.list_active() == 1
    wire.call(settle, jobId=job_id)
    assert wire.list_active() == 1


@pytest.mark.parametrize("leave", ["revoke", "removeJob"])
@pytest.mark.parametrize("values", [{"lifo": 1}, {"priority": 2}], ids=str)
def test_w42_a_job_that_leaves_takes_its_list_element_along(wire: Wire, leave: str, values: dict[str, Word]) -> None:
    stays, leaves = wire.add(**values), wire.add(**values)
    wire.call("promote")
    wire.call(leave, jobId=leaves)
    assert wire.elements("lifo") + wire.elements("priority") == [stays]
