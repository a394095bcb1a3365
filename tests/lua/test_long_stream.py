"""A job is taken off a long stream without a walk through it, and never runs twice where it was missed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.lua.hand_worker import HandWorker
from tests.lua.wire import NOW, Wire

PAGE = 1000


def fill(wire: Wire, jobs: list[tuple[str, int, int]]) -> None:
    """Write waiting jobs as they are on the wire: id, time of adding and delay, one entry each, in this order."""
    pipeline = wire.client.pipeline(transaction=False)
    for number, (job_id, timestamp, delay) in enumerate(jobs):
        fields: list[str | int] = [
            "id",
            job_id,
            "name",
            "task",
            "state",
            "waiting",
            "timestamp",
            timestamp,
            "delay",
            delay,
        ]
        pipeline.hset(wire.key(f"job:{job_id}"), items=fields)
        pipeline.xadd(wire.key("stream"), {"jobId": job_id, "name": "task"}, id=f"{NOW + number // 7}-{number % 7 + 1}")
    pipeline.execute()


def commands_of_cancel(wire: Wire, job_id: str) -> int:
    before = wire.client.info("commandstats")
    assert wire.call("revoke", jobId=job_id) == "revoked"
    after = wire.client.info("commandstats")
    return sum(
        int(after[name]["calls"]) - int(before.get(name, {"calls": 0})["calls"])
        for name in ("cmdstat_xrange", "cmdstat_xrevrange")
        if name in after
    )


LAYOUTS: dict[str, Callable[[int], tuple[str, int, int]]] = {
    "one by one": lambda n: (str(n + 1), NOW + n // 5, 0),
    "own ids": lambda n: (f"order-{n * 7919 % 100_003}", NOW + n, 0),
    "one bulk": lambda n: (str(n + 1), NOW, 0),
    "all promoted": lambda n: (f"j{n}", NOW - (n * 31 % 5000), 5000 + (n * 31 % 5000) + n),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_job_of_a_long_stream_is_found_by_few_looks(wire: Wire, layout: str) -> None:
    jobs = [LAYOUTS[layout](n) for n in range(6 * PAGE)]
    fill(wire, jobs)
    gone = [job_id for job_id, _, _ in random.Random(7).sample(jobs, 40)] + [jobs[0][0], jobs[-1][0]]
    for job_id in gone:
        assert commands_of_cancel(wire, job_id) <= 45
    assert set(wire.stream_ids()) == {job_id for job_id, _, _ in jobs} - set(gone)
    assert not any("strayEntry" in wire.job(job_id) for job_id in gone)


def disorder(wire: Wire) -> str:
    """A long stream with one job that was retried: its entry is far from where its record points."""
    jobs = [(f"j{n}", NOW + n, 0) for n in range(3 * PAGE)]
    early = jobs.pop(5)
    fill(wire, [*jobs, early])
    return early[0]


def test_an_entry_that_is_missed_is_dropped_by_who_reads_it(wire: Wire) -> None:
    job_id = disorder(wire)
    assert wire.call("revoke", jobId=job_id) == "revoked"
    assert job_id in wire.stream_ids()
    assert wire.zset("failed") == {job_id: NOW}
    worker = HandWorker(wire)
    ran = worker.run()
    assert job_id not in ran
    assert len(ran) == 3 * PAGE - 1
    assert wire.stream() == []
    assert not wire.exists("metrics:failed"), "it failed once, by its cancel, which is not counted"


def test_a_cancelled_job_that_is_retried_runs_once(wire: Wire) -> None:
    job_id = disorder(wire)
    assert wire.call("revoke", jobId=job_id) == "revoked"
    assert wire.call("retryJobs", count=1, timestamp=NOW) == 1
    wire.client.hdel(wire.key(f"job:{job_id}"), "revoked")
    ran = HandWorker(wire).run()
    assert ran.count(job_id) == 1
    assert len(ran) == 3 * PAGE
    assert wire.stream() == []


def test_a_stray_that_an_earlier_release_noted_without_its_id_runs_nothing(wire: Wire) -> None:
    job_id = disorder(wire)
    assert wire.call("revoke", jobId=job_id) == "revoked"
    wire.client.hset(wire.key(f"job:{job_id}"), "strayEntry", "1")
    assert wire.call("retryJobs", count=1, timestamp=NOW) == 1
    wire.client.hdel(wire.key(f"job:{job_id}"), "revoked")
    assert HandWorker(wire).run().count(job_id) == 1


@pytest.mark.parametrize("call", ["priority", "delay"])
def test_a_job_whose_entry_is_missed_changes_and_runs_once(wire: Wire, call: str) -> None:
    job_id = disorder(wire)
    if call == "priority":
        assert wire.call("changePriority", jobId=job_id, newPriority=2) == "ok"
    else:
        assert wire.call("changeDelay", jobId=job_id, newDelay=60_000, now=NOW) == "ok"
    ran = HandWorker(wire).run()
    assert ran.index(job_id) == (0 if call == "priority" else 3 * PAGE - 1)
    assert len(ran) == 3 * PAGE
    assert wire.stream() == []
    assert not wire.exists("scheduled")


def test_stray_entries_are_drained_and_their_jobs_kept(wire: Wire) -> None:
    job_id = disorder(wire)
    assert wire.call("changeDelay", jobId=job_id, newDelay=60_000, now=NOW) == "ok"
    wire.call("drain")
    assert wire.stream() == []
    assert wire.job(job_id)["state"] == "delayed"
    assert HandWorker(wire, now=NOW + 60_000).run() == [job_id]


def test_a_stray_that_nobody_started_is_not_reclaimed(wire: Wire) -> None:
    job_id = disorder(wire)
    wire.open_group()
    while (fetched := wire.fetch("w-dead")) is not None and fetched[1] != job_id:
        pass
    assert wire.call("revoke", jobId=job_id) == "revoked"
    wire.client.hset(wire.key(f"job:{job_id}"), "state", "delayed")
    wire.call("reclaimStalled", consumer="w-2", minIdleMs=0, timestamp=NOW + 60_000)
    assert wire.job(job_id)["state"] == "delayed"
    assert "stalledCount" not in wire.job(job_id)
    assert job_id not in wire.stream_ids()


def test_a_job_that_waits_in_a_list_is_not_taken_for_one_of_the_stream(wire: Wire) -> None:
    fill(wire, [(f"j{n}", NOW + n, 0) for n in range(2 * PAGE)])
    job_id = wire.add(lifo=1)
    assert wire.call("changePriority", jobId=job_id, newPriority=2) == "error:not_in_stream"
    assert wire.call("changeDelay", jobId=job_id, newDelay=5, now=NOW) == "error:not_in_stream"
    assert "strayEntry" not in wire.job(job_id)


MADE_READY: dict[str, Callable[[Wire, str], Any]] = {
    "added": lambda wire, job_id: None,
    "promoted": lambda wire, job_id: (
        wire.call("changeDelay", jobId=job_id, newDelay=5, now=NOW),
        wire.call("promoteJob", jobId=job_id),
    ),
    "due": lambda wire, job_id: (
        wire.call("changeDelay", jobId=job_id, newDelay=5, now=NOW),
        wire.call("promote", now=NOW + 5),
    ),
    "without a delay": lambda wire, job_id: (
        wire.call("changeDelay", jobId=job_id, newDelay=5, now=NOW),
        wire.call("changeDelay", jobId=job_id, newDelay=0, now=NOW),
    ),
    "without a priority": lambda wire, job_id: (
        wire.call("changePriority", jobId=job_id, newPriority=5),
        wire.call("changePriority", jobId=job_id, newPriority=0),
    ),
}


@pytest.mark.parametrize("how", MADE_READY)
def test_the_record_names_the_entry_however_the_job_was_made_ready(wire: Wire, how: str) -> None:
    fill(wire, [(f"j{n}", NOW + n * 7919 % 100_003, 0) for n in range(2 * PAGE)])  # of clocks that disagree
    job_id = wire.add(timestamp=NOW - 12_345)
    wire.add(timestamp=NOW + 12_345)
    MADE_READY[how](wire, job_id)
    entries: Any = wire.client.xrange(wire.key("stream"))
    (entry,) = (entry_id for entry_id, fields in entries if fields["jobId"] == job_id)
    assert wire.hash(f"job:{job_id}")["entry"] == entry
    assert commands_of_cancel(wire, job_id) == 1
    assert job_id not in wire.stream_ids()


def test_an_entry_that_another_library_wrote_later_is_the_one_that_counts(wire: Wire) -> None:
    """It does not know of the record's field, which then names an entry that is gone."""
    job_id = wire.add(timestamp=NOW)
    wire.call("changeDelay", jobId=job_id, newDelay=5, now=NOW)
    wire.client.zrem(wire.key("scheduled"), job_id)
    wire.client.hset(wire.key(f"job:{job_id}"), "state", "waiting")
    wire.client.xadd(wire.key("stream"), {"jobId": job_id, "name": "task"})
    assert HandWorker(wire).run() == [job_id]


@pytest.mark.parametrize("damage", ["zz", "", "inf", "nan", "-1", "9" * 40])
def test_damaged_records_of_other_jobs_stop_no_cancel(wire: Wire, damage: str) -> None:
    jobs = [(f"j{n}", NOW + n, 0) for n in range(2 * PAGE)]
    fill(wire, jobs)
    pipeline = wire.client.pipeline(transaction=False)
    for number in range(0, 2 * PAGE, 2):
        for field in ("timestamp", "delay"):
            pipeline.hset(wire.key(f"job:j{number}"), field, damage)
    pipeline.execute()
    for job_id in ("j1", "j1000", "j1001", "j1999"):
        assert wire.call("revoke", jobId=job_id) == "revoked"
        assert wire.job(job_id)["state"] == "failed"


def test_an_entry_whose_id_is_beyond_all_numbers_ends_the_search(wire: Wire) -> None:
    fill(wire, [(f"j{n}", NOW + n, 0) for n in range(2 * PAGE)])
    wire.client.xadd(
        wire.key("stream"), {"jobId": "far", "name": "task"}, id="18446744073709551615-18446744073709551614"
    )
    wire.client.hset(wire.key("job:j7"), "timestamp", 2**70)
    assert wire.call("revoke", jobId="j7") == "revoked"
    assert wire.call("revoke", jobId="j8") == "revoked"
