"""Pages of a queue's jobs are cut from one order, wherever the jobs lie: lists, shares, stream, sorted sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.operations import job_records, partitions
from orchestration_queue.protocol.placement import ParentRef
from orchestration_queue.states import JobState
from tests.conversations import hold, talk

KEYS = QueueKeys("q")
SIZES = st.integers(0, 7)
BATCH = 3


class Lists:
    """The lists of a queue, as a server holds them, and the order in which workers take their jobs."""

    def __init__(self, priority: int, lifo: int, shares: list[int], handed_out: int, ready: int) -> None:
        self.priority = [f"p{n}" for n in range(priority)]
        self.lifo = [f"l{n}" for n in range(lifo)]
        self.shares = {f"s{n}": [f"s{n}.{place}" for place in range(size)] for n, size in enumerate(shares)}
        self.entries = [(n + 1, f"e{n}") for n in range(handed_out + ready)]
        self.handed_out = handed_out
        shared = [job_id for jobs in self.shares.values() for job_id in jobs]
        self.order = [*self.priority, *self.lifo, *shared, *[job_id for _, job_id in self.entries[handed_out:]]]

    def answer(self, call: Call) -> Reply:
        """Answer as Valkey does."""
        lists = {KEYS.priority: self.priority[::-1], KEYS.lifo: self.lifo[::-1]}
        sets = {KEYS.share(name): jobs for name, jobs in self.shares.items()} | {KEYS.shares_waiting: [*self.shares]}
        match call.name:
            case "XINFO":
                return [[b"name", GROUP.encode(), b"last-delivered-id", f"{self.handed_out}-0".encode()]]
            case "LLEN":
                return len(lists[call.keys[0]])
            case "LRANGE":
                return list(cut(lists[call.keys[0]], *map(int, call.args)))
            case "ZCARD":
                return len(sets[call.keys[0]])
            case "ZRANGE":
                return list(cut(sets[call.keys[0]], *map(int, call.args)))
            case "XRANGE":
                after, size = int(str(call.args[0])[1:].partition("-")[0]), int(call.args[3])
                found = [(number, job_id) for number, job_id in self.entries if number > after][:size]
                return [[f"{number}-0".encode(), [b"jobId", job_id.encode()]] for number, job_id in found]
        raise AssertionError(call)


def cut(items: list[str], first: int, last: int) -> Iterator[bytes]:
    """Yield a range of items as Valkey counts it: both ends included, negative ones from the end."""
    first, last = (max(0, at + len(items)) if at < 0 else at for at in (first, last))
    return (item.encode() for item in items[first : last + 1])


@given(SIZES, SIZES, st.lists(st.integers(1, 7), max_size=3), SIZES, SIZES, st.integers(0, 12), st.integers(-1, 25))
def test_a_page_of_waiting_jobs_is_a_slice_of_their_order(
    priority: int, lifo: int, shares: list[int], handed_out: int, ready: int, start: int, end: int
) -> None:
    lists = Lists(priority, lifo, shares, handed_out, ready)
    calls: list[Call] = []
    with mock.patch.object(job_records, "BATCH_SIZE", BATCH):
        ids, _ = hold(job_records.job_ids(KEYS, JobState.WAITING, start, end), {}, lists.answer, calls)
    assert ids == lists.order[start:] if end < 0 else ids == lists.order[start : end + 1]
    # Nothing is read in vain: no empty range, and no list that lies behind the page.
    read = [call for call in calls if call.name == "LRANGE"]
    assert all(int(call.args[0]) <= int(call.args[1]) for call in read)
    if 0 <= end < priority:
        assert {call.keys[0] for call in read} <= {KEYS.priority}
        assert not [call for call in calls if call.name in ("ZRANGE", "XRANGE") and call.keys[0] != KEYS.shares_waiting]


@given(st.integers(0, 10), st.integers(0, 12), st.integers(-1, 12))
def test_a_page_of_finished_jobs_is_a_slice_of_theirs(size: int, start: int, end: int) -> None:
    jobs, calls = [f"j{n}" for n in range(size)], []

    def answer(call: Call) -> Reply:
        calls.append(call)
        return list(cut(jobs, *map(int, call.args)))

    with mock.patch.object(job_records, "BATCH_SIZE", BATCH):
        ids, _ = hold(job_records.job_ids(KEYS, JobState.COMPLETED, start, end), {}, answer)
    wanted = jobs[start:] if end < 0 else jobs[start : end + 1]
    assert ids == (wanted if end < 0 or end >= start else [])
    assert {call.keys for call in calls} == {(KEYS.completed,)}
    assert len(calls) <= 1 + len(wanted) // BATCH


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (0, -2)])
def test_a_range_that_counts_from_the_end_is_refused(start: int, end: int) -> None:
    with pytest.raises(UsageError, match=f"{start} to {end}"):
        job_records.job_ids(KEYS, JobState.FAILED, start, end)


def test_a_state_without_a_list_is_refused() -> None:
    with pytest.raises(UsageError, match="waiting-children"):
        job_records.job_ids(KEYS, JobState.WAITING_CHILDREN)


def test_columns_go_on_where_a_reply_ended() -> None:
    asked: list[Any] = []

    def answer(call: Call) -> Reply:
        ids = [word for word in call.args if word in ("a", "b", "c")]
        asked.append(ids)
        return [part for job_id in ids[:2] for part in (str(job_id).encode(), None)]

    with mock.patch.object(job_records, "_JOBS_PER_CALL", 3):
        found, _ = hold(job_records.columns(KEYS, ["a", "b", "c"], ["id", "name"]), {}, answer)
    assert found == [[b"a", b"b", b"c"], [None, None, None]]
    assert len(asked) == 2


def test_due_times_are_without_the_priority_that_is_stored_with_them() -> None:
    scores = [b"1700000000000", None, str(5 * job_records.PRIORITY_SHIFT + 7).encode()]
    found, calls = hold(job_records.due_times_ms(KEYS, ["a", "b", "c"]), {}, lambda _: scores)
    assert found == [1_700_000_000_000, None, 7]
    assert [call.args for call in calls] == [("a", "b", "c")]


@pytest.mark.parametrize(("start", "end"), [(0, -1), (0, 0), (0, 2), (1, 3), (2, 2), (4, 5), (6, 6), (9, -1)])
@pytest.mark.parametrize("streamed", [0, BATCH, BATCH + 1, 2 * BATCH])
def test_a_page_of_active_jobs_is_a_slice_of_theirs(streamed: int, start: int, end: int) -> None:
    entries = [f"{number}-0" for number in range(1, streamed + 1)]

    def answer(call: Call) -> Reply:
        if call.name == "XPENDING":
            after = str(call.args[1]).removeprefix("(")
            left = entries if after == "-" else entries[entries.index(after) + 1 :]
            return [[entry.encode(), b"w", 1, 1] for entry in left[: int(call.args[3])]]
        if call.name == "XRANGE":
            return [[str(call.args[0]).encode(), [b"jobId", f"j{call.args[0]!s}".encode()]]]
        return [b"listed"]

    with mock.patch.object(job_records, "BATCH_SIZE", BATCH):
        ids, _ = hold(job_records.job_ids(KEYS, JobState.ACTIVE, start, end), {}, answer)
    every = [*[f"j{entry}" for entry in entries], "listed"]
    assert ids == (every[start:] if end < 0 else every[start : end + 1])


@pytest.mark.parametrize(
    ("fields", "parent"),
    [
        ([None, None], []),
        ([b"7", None], [ParentRef(KEYS, "7")]),
        ([b"7", b"other"], [ParentRef(QueueKeys("other"), "7")]),
    ],
)
def test_a_single_parent_is_named_in_the_record(fields: Reply, parent: list[ParentRef]) -> None:
    found = talk(job_records.parents(KEYS, "1"), lambda call: [] if call.name == "SMEMBERS" else fields)
    assert found == parent
    members = [KEYS.member("b").encode(), KEYS.member("a").encode(), b"odd"]
    found = talk(job_records.parents(KEYS, "1"), lambda call: members if call.name == "SMEMBERS" else fields)
    assert found == [ParentRef(KEYS, "a"), ParentRef(KEYS, "b")]


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 4))
def test_pages_of_a_range_of_scores_have_each_job_once_in_order(scores: list[int], until: int) -> None:
    jobs = [(score, f"j{place:02}") for place, score in enumerate(sorted(scores))]
    extent = partitions.Partition("scores", JobState.FAILED, "0", str(until))

    def answer(call: Call) -> Reply:
        low, _, _, _, start, size = call.args
        is_open, least = str(low).startswith("("), int(str(low).removeprefix("("))
        found = [each for each in jobs if (each[0] > least if is_open else each[0] >= least) and each[0] <= until]
        return [word for score, job_id in found[int(start) : int(size)] for word in (job_id.encode(), b"%d" % score)]

    ids: list[str] = []
    cursor: partitions.Cursor | None = None
    with mock.patch.object(partitions, "BATCH_SIZE", BATCH):
        for _ in range(len(jobs) + 1):
            page, cursor = talk(partitions.page(KEYS, extent, cursor), answer)
            ids += page
            if cursor is None:
                break
    assert cursor is None
    assert ids == [job_id for score, job_id in jobs if 0 < score <= until]
