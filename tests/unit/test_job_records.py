"""What follows from a job's record: its times, history and kind of failure, and whether a worker can run it."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration_queue.errors import InvalidOptionError, PayloadError, UsageError
from orchestration_queue.flows.mapping import ElementMap
from orchestration_queue.options import JobOptions, Ordering
from orchestration_queue.protocol.history import HistoryEntry, HistoryEvent, read_history
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_output, membership, queue_state
from orchestration_queue.protocol.operations.membership import Member, Message
from orchestration_queue.protocol.operations.partitions import cut_entries
from orchestration_queue.protocol.record import JobRecord, entry_job_id


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
    operation = membership.last_sign(member, Message("7", "1-0", "orders.new", ""))
    lease, last_sign_ms = operation.read([b"active", b"1700000000000", None]) or pytest.fail("the record was there")
    assert lease.record.fields == {"state": "active", "lastActive": "1700000000000"}
    assert (lease.entry_id, last_sign_ms) == ("1-0", 1_700_000_000_000)
    assert operation.read([None, None, None]) is None


@pytest.mark.parametrize("wrong", ["", 5, None])
def test_a_chunk_without_a_type_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="Chunk type"):
        job_output.chunk(wrong)
    assert job_output.chunk("token", "") == {"type": "token", "content": ""}


@pytest.mark.parametrize("fields", [{}, None, "x", [("a", 1)], {"a": True}, {"a": None}, {"a": [1]}])
def test_an_entry_of_a_jobs_stream_is_text_and_numbers(fields: Any) -> None:
    keys = QueueKeys("q")
    assert job_output.append(keys, "7", {"a": "x", "b": 1, "c": 0.5}).call.args == ("*", "a", "x", "b", "1", "c", "0.5")
    with pytest.raises(UsageError):
        job_output.append(keys, "7", fields)


def test_an_entry_of_a_jobs_stream_has_up_to_a_mebibyte() -> None:
    keys, most = QueueKeys("q"), 1024 * 1024
    job_output.append(keys, "7", {"a": "x" * (most - 1)})
    with pytest.raises(PayloadError, match="exceeds maximum size"):
        job_output.append(keys, "7", {"a": "x" * most})


@pytest.mark.parametrize("count", [0, -1, True, 1.5, "5"])
def test_a_positive_number_of_entries_is_read(count: Any) -> None:
    keys = QueueKeys("q")
    assert job_output.read(keys, "7", "0", 1).call.args == ("(0", "+", "COUNT", 1)
    with pytest.raises(UsageError, match="`count` must be"):
        job_output.read(keys, "7", "0", count)


def test_a_jobs_entries_and_its_queues_events_are_told_apart() -> None:
    keys = QueueKeys("q")
    following = job_output.follow(keys, "7", "0", "0", 100)
    entries = [keys.stream_of("7").encode(), [[b"5-1", [b"type", b"token"]]]]
    events = [keys.events.encode(), [[b"6-1", [b"event", b"completed", b"jobId", b"7"]]]]
    ((entry,), (event,)) = following.read([entries, events])
    assert (entry.type, event.type) == ("token", "completed")
    assert following.read([events])[0] == []
    assert following.read(None) == ([], [])


def test_a_map_limits_its_elements_in_one_way() -> None:
    ordered = JobOptions(ordering=Ordering(key="k"))
    assert ElementMap(over="files", task="load", max_concurrency=2).max_concurrency == 2
    assert ElementMap(over="files", task="load", options=ordered).options == ordered
    with pytest.raises(InvalidOptionError, match="one group"):
        ElementMap(over="files", task="load", options=ordered, max_concurrency=2)


@pytest.mark.parametrize("stored", ["", "x", "5", "null", "{}", "[1]", "[{}]", '[{"event":"odd"}]', '[{"event":[]}]'])
def test_what_is_no_history_has_no_entries(stored: str) -> None:
    assert read_history(stored) == ()


@pytest.mark.parametrize("ended", ['"soon"', "1e300", "[]", "null"])
def test_an_odd_time_is_none(ended: str) -> None:
    (entry,) = read_history(f'[{{"event":"failed","ended":{ended},"attempt":"x","logs":5}}]')
    assert (entry.ended_at, entry.attempt, entry.logs) == (None, None, ())


def test_an_entry_is_typed() -> None:
    (entry,) = read_history('[{"event":"failed","ended":1500,"attempt":2,"worker":"w","logs":["a"]}]')
    assert entry.event is HistoryEvent.FAILED
    assert entry.ended_at == datetime.fromtimestamp(1.5, UTC)
    assert (entry.attempt, entry.worker, entry.logs, entry.reason) == (2, "w", ("a",), "")


NUMBERS = st.one_of(st.integers(-5, 10**17).map(str), st.sampled_from(["", "inf", "zz", "²", "٣", "1.5", "9" * 14]))
TEXTS = st.one_of(st.sampled_from(["", "task", "größe", "\udcff"]), st.text(max_size=5))
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("attemptsMade", "timestamp", "finishedOn", "priority", "orderingSeq"), NUMBERS),
        **dict.fromkeys(("name", "groupKey", "parentIds"), TEXTS),
    },
)


@given(FIELDS)
def test_a_quick_look_passes_nothing_that_a_thorough_one_refuses(fields: dict[str, str]) -> None:
    record = JobRecord("1", fields)
    assert record.problem == record._damage()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, None),
        ({"name": "größe", "attemptsMade": "3", "opts": '{"attempts":3}'}, None),
        ({"attemptsMade": "inf"}, "'attemptsMade' must be a whole number"),
        ({"timestamp": "9" * 15}, "'timestamp' is not a time"),
        ({"name": "\udcff"}, "'name' must be text"),
        ({"opts": "[1]"}, "'opts' must be a JSON object"),
        ({"opts": "[1]", "attemptsMade": "inf"}, "'attemptsMade' must be a whole number"),
    ],
)
def test_the_first_damaged_field_of_a_record_is_named(fields: dict[str, str], problem: str | None) -> None:
    found = JobRecord("1", fields).problem
    assert found is None if problem is None else problem in str(found)


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (HistoryEntry(HistoryEvent.RETRIED, None), "- retried"),
        (HistoryEntry(HistoryEvent.FAILED, None, 2, worker="w", host="h"), "- attempt 2 failed on w (h)"),
        (HistoryEntry(HistoryEvent.FAILED, None, kind="error", error="KeyError", reason="x"), "- failed: [KeyError] x"),
        (HistoryEntry(HistoryEvent.FAILED, None, kind="error", reason="x"), "- failed: [error] x"),
        (HistoryEntry(HistoryEvent.FAILED, None, kind="timeout", error="E", reason="x"), "- failed: [timeout] x"),
    ],
)
def test_an_entry_of_a_history_is_one_line(entry: HistoryEntry, line: str) -> None:
    assert entry.lines() == [line]


def test_log_lines_and_the_traceback_follow_the_line_of_an_entry() -> None:
    at = datetime(2030, 1, 31, 12, tzinfo=UTC)
    entry = HistoryEntry(HistoryEvent.FAILED, at, traceback="a\nb", logs=("said",))
    assert entry.lines()[0] == f"{at.astimezone():%Y-%m-%d %H:%M:%S %Z} failed"
    assert entry.lines()[1:] == ["  log: said", "  a", "  b"]
    assert entry.lines(has_traceback=False)[1:] == ["  log: said"]


def test_an_entry_names_its_job_wherever_the_field_is() -> None:
    assert entry_job_id([b"jobId", b"7", b"name", b"\xff"]) == "7"
    assert entry_job_id([b"name", b"resize", b"jobId", b"caf\xc3\xa9"]) == "café"
    assert [entry_job_id(fields) for fields in (None, [], [b"name", b"resize"])] == ["", "", ""]


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, None),
        ({"failedReason": "broken"}, "error"),
        ({"failedReason": "revoked"}, "cancelled"),
        ({"failedReason": "revoked", "failureKind": "ValueError"}, "ValueError"),
        ({"failedReason": "broken", "failureKind": "timeout"}, "timeout"),
        # Noted with the last attempt, and before one that another client's worker did.
        ({"failedReason": "b", "failureKind": "ValueError", "failureAttempt": "2", "attemptsMade": "2"}, "ValueError"),
        ({"failedReason": "b", "failureKind": "ValueError", "failureAttempt": "2", "attemptsMade": "3"}, "error"),
        # The server writes these itself, with no attempt.
        ({"failedReason": "b", "failureKind": "stalled", "failureAttempt": "2", "attemptsMade": "3"}, "stalled"),
        ({"failureAttempt": "2", "attemptsMade": "3"}, None),
    ],
)
def test_a_kind_is_that_of_the_last_attempt(fields: dict[str, str], kind: str | None) -> None:
    assert JobRecord("1", fields).failure_kind == kind


def test_a_traceback_is_that_of_the_last_attempt() -> None:
    fields = {"traceback": "there", "failureAttempt": "2", "attemptsMade": "2"}
    assert JobRecord("1", fields).traceback == "there"
    assert JobRecord("1", {**fields, "attemptsMade": "3"}).traceback is None
    assert JobRecord("1", {}).traceback is None


def test_results_and_progress_are_read_and_absent_before() -> None:
    assert JobRecord("1", {}).result is None
    assert JobRecord("1", {"returnvalue": "[1]"}).result == [1]
    assert JobRecord("1", {}).progress is None
    assert JobRecord("1", {"progress": "50"}).progress == 50
    assert JobRecord("1", {"progress": "half {"}).progress == "half {"
