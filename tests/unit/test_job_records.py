"""What follows from a job's record, and how a stream's ids are cut into partitions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.flows.mapping import ElementMap
from orchestration_queue.options import JobOptions, Ordering
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_output, maintenance, queue_state
from orchestration_queue.protocol.operations.membership import Member, Message
from orchestration_queue.protocol.operations.partitions import cut_entries
from orchestration_queue.protocol.record import JobRecord


def entry_number(entry_id: str) -> int:
    milliseconds, _, sequence = entry_id.partition("-")
    return (int(milliseconds) << 64) + int(sequence)


@given(st.integers(0, 10**13), st.integers(1, 10**6), st.integers(1, 20))
def test_partitions_join_without_a_gap_and_differ_by_little(start: int, length: int, parts: int) -> None:
    cuts = cut_entries(f"{start}-0", f"{start + length}-0", parts)
    assert len(cuts) == parts
    assert (cuts[0][0], cuts[-1][1]) == (f"{start}-0", f"{start + length}-0")
    assert all(left[1] == right[0] for left, right in pairwise(cuts))
    sizes = [entry_number(until) - entry_number(after) for after, until in cuts]
    assert min(sizes) > 0
    assert max(sizes) - min(sizes) <= 1


def test_an_empty_range_has_no_partition() -> None:
    assert cut_entries("5-0", "5-0", 3) == []
    assert cut_entries("5-0", "4-9", 3) == []


def test_the_duration_is_the_time_between_start_and_end() -> None:
    ended = JobRecord("1", {"processedOn": "1700000000000", "finishedOn": "1700000002500"})
    assert ended.seconds == 2.5


def test_the_count_of_a_queue_adds_the_stream_the_lists_and_the_active_list_jobs() -> None:
    for list_active, total in ((b"4", 64), (b"-2", 60), (None, 60)):
        steps = queue_state.count(QueueKeys("q"))
        next(steps)
        with pytest.raises(StopIteration) as end:
            steps.send([30, 20, 5, list_active, b"5"])
        assert end.value.value == total


def test_a_messages_last_sign_is_read_from_the_fields_that_are_there() -> None:
    member = Member(QueueKeys("q"), "mailer", "w-1")
    operation = maintenance.last_sign(member, Message("7", "1-0", "orders.new", ""))
    lease, last_sign_ms = operation.read([b"active", b"1700000000000", None]) or pytest.fail("the record was there")
    assert lease.record.fields == {"state": "active", "lastActive": "1700000000000"}
    assert (lease.entry_id, last_sign_ms) == ("1-0", 1_700_000_000_000)
    assert operation.read([None, None, None]) is None


@pytest.mark.parametrize("wrong", ["", 5, None])
def test_a_chunk_without_a_type_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="Chunk type"):
        job_output.chunk(wrong)
    assert job_output.chunk("token", "") == {"type": "token", "content": ""}


def test_a_map_limits_its_elements_in_one_way() -> None:
    ordered = JobOptions(ordering=Ordering(key="k"))
    assert ElementMap(over="files", task="load", max_concurrency=2).max_concurrency == 2
    assert ElementMap(over="files", task="load", options=ordered).options == ordered
    with pytest.raises(InvalidOptionError, match="one group"):
        ElementMap(over="files", task="load", options=ordered, max_concurrency=2)
