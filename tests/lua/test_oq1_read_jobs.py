"""`oq1_readJobs`: some fields of many jobs in one reply, whose size is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_records
from tests.lua.oq1 import Own
from tests.lua.wire import Wire, Word

FIELDS = ("id", "name", "data")


@pytest.fixture
def own(wire: Wire) -> Own:
    return Own(wire)


def make(own: Own, count: int, data: str = "{}") -> list[str]:
    """Jobs with the ids 1 and up."""
    for number in range(1, count + 1):
        own.wire.ask("HSET", own.wire.key(f"job:{number}"), "id", number, "name", f"n{number}", "data", data)
    return [str(number) for number in range(1, count + 1)]


def follow(own: Own, job_ids: Sequence[str], fields: Sequence[str]) -> tuple[list[list[Any]], list[int]]:
    """The columns, and how many calls each exchange had."""
    steps, trips = job_records.columns(QueueKeys(own.wire.queue), job_ids, fields), []
    try:
        calls = next(steps)
        while True:
            trips.append(len(calls))
            calls = steps.send([own.send(call) for call in calls])
    except StopIteration as end:
        return end.value, trips


def test_fields_come_as_columns_and_what_is_not_there_is_nil(own: Own) -> None:
    ids = make(own, 3)
    own.wire.ask("DEL", own.wire.key("job:2"))
    own.wire.ask("HDEL", own.wire.key("job:3"), "name")
    with own.wire.unchanged():
        columns, trips = follow(own, ids, FIELDS)
    assert columns == [["1", None, "3"], ["n1", None, None], ["{}", None, "{}"]]
    assert trips == [1]
    assert follow(own, [], FIELDS) == ([[], [], []], [])


def test_many_jobs_are_read_in_several_calls_of_one_trip(own: Own) -> None:
    ids = make(own, 600)
    ((found,), trips) = follow(own, ids, ["id"])
    assert (found, trips) == (ids, [3])


def test_a_reply_ends_after_so_many_bytes_and_the_rest_is_read_by_the_next(own: Own) -> None:
    ids = make(own, 20, "x" * (1 << 20))
    (found, _, texts), trips = follow(own, ids, FIELDS)
    assert found == ids
    assert {len(text) for text in texts} == {1 << 20}
    assert trips == [1] * 5, "four jobs or more are beyond four megabytes"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ([100, 1, 2, "id", "1"], "takes 1 keys and 6 arguments, not 1 and 5"),
        (["much", 1, 1, "id", "1"], "'most_bytes' is not a whole number"),
        ([100, "", 1, "id", "1"], "'field_count' is not a whole number"),
        ([100, 1, -1, "id"], "'job_count' is not a whole number"),
    ],
)
def test_malformed_arguments_are_refused(own: Own, args: list[Word], why: str) -> None:
    own.refused("readJobs", [own.wire.key("stream")], args, why)


def test_no_field_is_refused_and_a_key_of_something_else(own: Own) -> None:
    own.refused("readJobs", [own.wire.key("stream")], [100, 0, 1, "1"], "no field is named")
    own.refused("readJobs", [own.wire.key("events")], [100, 1, 1, "id", "1"], "stream")
