"""A job is taken off a long list without a search through it, and keys of another type stop no call."""

from __future__ import annotations

import pytest

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
def test_a_lifo_job_without_a_time_is_found_all_the_same(wire: Wire, field: str) -> None:
    fill(wire, "lifo", "lifo", 1)
    wire.make_job(str(MIDDLE), timestamp=field)
    assert wire.call("removeJob", jobId=str(MIDDLE)) == 1
    assert wire.ask("LPOS", wire.key("lifo"), MIDDLE) is None


def test_jobs_find_their_place_beside_a_tombstone_of_the_priority_list(wire: Wire) -> None:
    fill(wire, "priority", "priority", 5, "LPUSH")
    assert wire.call("revoke", jobId=str(MIDDLE)) == "revoked"
    wire.ask("LTRIM", wire.key("priority"), MIDDLE, MIDDLE + 1)
    for job_id, priority in (("less", 7), ("more", 3), ("same", 5)):
        wire.make_job(job_id, state="prioritized", priority=priority)
        wire.ask("ZADD", wire.key("scheduled"), due(NOW, priority), job_id)
    assert wire.call("promote") == 3
    assert wire.elements("priority") == ["less", "same", "{removed}5", str(MIDDLE - 1), "more"]


def test_a_group_of_another_type_is_set_aside(wire: Wire) -> None:
    job_id = wire.add(orderingKey="one", groupConcurrency=2)
    wire.ask("DEL", wire.key("group:one"))
    wire.ask("SET", wire.key("group:one"), "foreign")
    assert wire.take()[0] == job_id
    assert wire.get("damaged:group:one") == "foreign"
    assert 0 < wire.ask("TTL", wire.key("damaged:group:one")) <= 7 * 86400
