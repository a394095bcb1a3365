"""A job is taken off a long list without a search through it, and keys of another type stop no call."""

from __future__ import annotations

import pytest

from tests.lua.hand_worker import HandWorker
from tests.lua.wire import NOW, Wire, due

JOBS = 42_000
MIDDLE = JOBS // 2
FILL = """
for n = 1, tonumber(ARGV[1]) do
  redis.call("HSET", KEYS[2] .. n, "state", "waiting", "timestamp", n, ARGV[2], ARGV[3])
  redis.call(ARGV[4], KEYS[1], n)
end
"""


def fill(wire: Wire, name: str, field: str, value: int, push: str = "RPUSH") -> None:
    wire.ask("EVAL", FILL, 2, wire.key(name), wire.key("job:"), JOBS, field, value, push)


def test_a_lifo_job_is_found_by_its_time_and_leaves_a_tombstone(wire: Wire) -> None:
    fill(wire, "lifo", "lifo", 1)
    gone = [1, 3, MIDDLE, JOBS - 2, JOBS]
    wire.ask("HDEL", wire.key("job:3"), "timestamp")
    assert [wire.call("revoke", jobId=str(job_id)) for job_id in gone] == ["revoked"] * 5
    assert [wire.ask("LPOS", wire.key("lifo"), job_id) for job_id in gone] == [None] * 5
    assert wire.ask("LINDEX", wire.key("lifo"), MIDDLE - 3) == "{removed}0"
    assert wire.ask("LLEN", wire.key("lifo")) == JOBS - 4
    left = wire.ask("LTRIM", wire.key("lifo"), MIDDLE - 3, MIDDLE - 2), wire.call("popLists", count=2)
    assert left[1] == [str(MIDDLE + 1), "{removed}0"]
    assert wire.call("moveToActive", jobId="{removed}0") == ""


@pytest.mark.parametrize("field", ["nan", ""])
def test_a_lifo_job_without_a_time_is_left_and_runs_nothing(wire: Wire, field: str) -> None:
    fill(wire, "lifo", "lifo", 1)
    wire.make_job(str(MIDDLE), timestamp=field)
    assert wire.call("revoke", jobId=str(MIDDLE)) == "revoked"
    wire.ask("LTRIM", wire.key("lifo"), MIDDLE - 2, MIDDLE - 1)
    assert HandWorker(wire).run() == [str(MIDDLE - 1)]
    assert wire.state(str(MIDDLE)) == "failed"
    assert wire.list_active() == 0


def test_a_list_element_of_a_job_that_runs_counts_as_nothing(wire: Wire) -> None:
    fill(wire, "priority", "priority", 5, "LPUSH")
    job_id = str(MIDDLE)
    assert wire.call("revoke", jobId=job_id) == "revoked"
    wire.ask("HSET", wire.key(f"job:{job_id}"), "state", "waiting")
    wire.ask("HDEL", wire.key(f"job:{job_id}"), "revoked")
    wire.ask("DEL", wire.key("priority"))
    wire.ask("RPUSH", wire.key("priority"), job_id, job_id)
    first, second = HandWorker(wire, consumer="w-1"), HandWorker(wire, consumer="w-2")
    assert first.take() == job_id
    assert second.take() is None
    first.finish(job_id)
    assert wire.state(job_id) == "completed"
    assert wire.list_active() == 0
    assert not wire.exists("list-active:jobs")


def test_jobs_find_their_place_beside_one_left_in_the_priority_list(wire: Wire) -> None:
    fill(wire, "priority", "priority", 5, "LPUSH")
    assert wire.call("revoke", jobId=str(MIDDLE)) == "revoked"
    wire.ask("LTRIM", wire.key("priority"), MIDDLE, MIDDLE + 1)
    for job_id, priority in (("less", 7), ("more", 3), ("same", 5)):
        wire.make_job(job_id, state="prioritized", priority=priority)
        wire.ask("ZADD", wire.key("scheduled"), due(NOW, priority), job_id)
    assert wire.call("promote") == 3
    assert wire.elements("priority") == ["less", "same", str(MIDDLE), str(MIDDLE - 1), "more"]


def test_a_group_of_another_type_is_set_aside(wire: Wire) -> None:
    job_id = wire.add(orderingKey="one", groupConcurrency=2)
    wire.ask("DEL", wire.key("group:one"))
    wire.ask("SET", wire.key("group:one"), "foreign")
    assert wire.take()[0] == job_id
    assert wire.get("damaged:group:one") == "foreign"
    assert 0 < wire.ask("TTL", wire.key("damaged:group:one")) <= 7 * 86400


@pytest.mark.parametrize(("priority", "place"), [(1, 0), (2, 500), (4, 2600), (6, 2600), (8, 2600)])
def test_a_promoted_job_takes_its_place_near_an_end_or_the_last(wire: Wire, priority: int, place: int) -> None:
    """From the right, where a worker pops: 500 jobs of priority 2, 1,000 of 3, 1,100 of 5; 4 is far from both ends."""
    pipeline = wire.client.pipeline(transaction=False)
    listed = [(f"{of}-{n}", of) for of, jobs in ((2, 500), (3, 1000), (5, 1100)) for n in range(jobs)]
    for job_id, of in listed:
        pipeline.hset(wire.key(f"job:{job_id}"), mapping={"state": "waiting", "priority": of, "timestamp": NOW})
        pipeline.lpush(wire.key("priority"), job_id)
    pipeline.execute()
    for job_id in ("a", "b", "c"):
        wire.make_job(job_id, state="prioritized", priority=priority)
        wire.ask("ZADD", wire.key("scheduled"), due(NOW, priority), job_id)
    assert wire.call("promote") == 3
    found = wire.elements("priority")[::-1]
    assert found[place : place + 3] == ["a", "b", "c"]
    assert [job_id for job_id in found if job_id not in ("a", "b", "c")] == [job_id for job_id, _ in listed]
