"""Jobs are found wherever they lie, page by page, and no more of them than asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import pytest

from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.operations import job_records, job_search
from orchestration_queue.protocol.operations.job_search import JobQuery, failed_ids, failures, search_jobs, tagged_ids
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.states import JobState
from tests.conversations import talk

KEYS = QueueKeys("q")
PAGE = 3
MANY = 2 * PAGE + 1


@pytest.fixture(autouse=True)
def small_pages() -> Iterator[None]:
    with (
        mock.patch.multiple(job_search, BATCH_SIZE=PAGE, TAG_PAGE=PAGE),
        mock.patch.object(job_records, "BATCH_SIZE", PAGE),
    ):
        yield


def cut(items: Sequence[str], first: int, last: int) -> list[bytes]:
    """Return a range of items as Valkey counts it: both ends included, negative ones from the end."""
    first, last = (max(0, at + len(items)) if at < 0 else at for at in (first, last))
    return [item.encode() for item in items[first : last + 1]]


class Server:
    """The keys of a queue with some jobs in each list; job `x3` is the fourth of list `x`."""

    def __init__(self) -> None:
        self.records: dict[str, dict[str, str]] = {}
        self.stream = self.jobs("s", "waiting")
        self.lists = {KEYS.priority: self.jobs("p", "waiting"), KEYS.lifo: self.jobs("l", "waiting")}
        self.sets = {
            KEYS.shares_waiting: ["tenant"],
            KEYS.share("tenant"): self.jobs("t", "waiting"),
            KEYS.scheduled: [*self.jobs("d", "delayed"), *self.jobs("r", "prioritized")],
            KEYS.suspended: self.jobs("u", "suspended", 1),
            KEYS.flows_due: ["flow", *(f"call:{job_id}" for job_id in self.jobs("n", "waiting-children"))],
            KEYS.failed: self.jobs("f", "failed"),
            KEYS.completed: self.jobs("c", "completed", 1),
            KEYS.named("groupq:one"): self.jobs("g", "group-waiting"),
            KEYS.named("groupq:two"): self.jobs("h", "group-waiting", 1),
        }
        self.active = self.jobs("a", "active", 2)
        self.jobs("w", "waiting-children")
        for number, job_id in enumerate(self.sets[KEYS.failed]):
            self.records[job_id] |= {"failedReason": "no", "failureKind": "even" if number % 2 == 0 else "odd"}

    def jobs(self, letter: str, state: str, count: int = MANY) -> list[str]:
        ids = [f"{letter}{number}" for number in range(count)]
        for number, job_id in enumerate(ids):
            data = json.dumps({"number": number})
            self.records[job_id] = {"name": "even" if number % 2 == 0 else "odd", "state": state, "data": data}
        return ids

    def answer(self, call: Call) -> Reply:
        key, args = (call.keys or ("",))[0], call.args
        match call.name:
            case "XINFO":
                return [[b"name", GROUP.encode(), b"last-delivered-id", b"0-0"]]
            case "XRANGE":
                after, size = int(str(args[0])[1:].partition("-")[0]), int(args[3])
                behind = [(place, job_id) for place, job_id in enumerate(self.stream, 1) if place > after][:size]
                return [[f"{place}-0".encode(), [b"jobId", job_id.encode()]] for place, job_id in behind]
            case "XPENDING":
                return []
            case "glidemq_getActiveListJobIds":
                return [job_id.encode() for job_id in self.active]
            case "LRANGE":
                return cut(self.lists[key], int(args[0]), int(args[1]))
            case "ZRANGE":
                return cut(self.sets[key], int(args[0]), int(args[1]))
            case "ZREVRANGE":
                return cut(self.sets[key][::-1], int(args[0]), int(args[1]))
            case "ZCARD" | "ZCOUNT":
                return len(self.sets.get(key, ()))
            case "HSCAN":  # a page for each group, and one that is not in use
                page = {"0": ("1", b"one"), "1": ("2", b"idle"), "2": ("0", b"two")}[str(args[0])]
                return [page[0].encode(), [page[1], b"5"]]
            case "SCAN":
                every = [KEYS.job(job_id) for job_id in self.records] + [f"{KEYS.job('w0')}:lock"]
                half = len(every) // 2
                found, rest = (every[:half], b"9") if args[0] == "0" else (every[half:], b"0")
                return [rest, [key.encode() for key in found]]
            case "HGETALL":
                return [word.encode() for pair in self.record(key).items() for word in pair]
            case "HMGET":
                return [self.field(self.record(key), str(name)) for name in args]
            case "oq1_readJobs":
                names, ids = args[3 : 3 + int(args[1])], args[3 + int(args[1]) :]
                return [self.field(self.records.get(str(job_id), {}), str(name)) for job_id in ids for name in names]
            case "oq1_tagged":
                offset, limit = (int(word) for word in args[-2:])
                return [cut(self.stream, offset, offset + limit - 1), int(offset + limit < len(self.stream))]
        raise AssertionError(call)

    def record(self, key: str) -> dict[str, str]:
        return self.records.get(key.removeprefix(KEYS.job("")), {})

    @staticmethod
    def field(record: dict[str, str], name: str) -> bytes | None:
        return record[name].encode() if name in record else None


def ids_of(letters: str, counts: int = MANY, *, reverse: bool = False) -> list[str]:
    return [f"{letter}{at}" for letter in letters for at in (range(counts)[::-1] if reverse else range(counts))]


def find(query: JobQuery, state: JobState | None = None, limit: int = 1000) -> list[str]:
    return [record.id for record in talk(search_jobs(KEYS, query, state, limit), Server().answer)]


WAITING = [*ids_of("pl", reverse=True), *ids_of("ts")]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (JobState.WAITING, WAITING),
        (JobState.ACTIVE, ["a0", "a1"]),
        (JobState.DELAYED, ids_of("dr")),
        (JobState.PRIORITIZED, ids_of("r")),
        (JobState.GROUP_WAITING, [*ids_of("g"), "h0"]),
        (JobState.SUSPENDED, ["u0"]),
        (JobState.FAILED, ids_of("f")),
        (JobState.COMPLETED, ["c0"]),
        (JobState.WAITING_CHILDREN, ids_of("nw")),
        (None, ["a0", "a1", *WAITING, *ids_of("drg"), "h0", "u0", *ids_of("nf"), "c0"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("limit", [1, 2, PAGE, PAGE + 1, 1000])
def test_jobs_of_a_state_are_found_on_all_pages(state: JobState | None, expected: list[str], limit: int) -> None:
    assert find(JobQuery(), state, limit) == expected[:limit]
    evens = [job_id for job_id in expected if int(job_id[1:]) % 2 == 0]
    assert find(JobQuery(name="even"), state, limit) == evens[:limit]


def test_jobs_are_found_by_what_they_are() -> None:
    assert find(JobQuery(data={"number": 1}), JobState.DELAYED) == ["d1", "r1"]
    assert find(JobQuery(data={"number": 1, "more": 1}), JobState.DELAYED) == []
    assert find(JobQuery(name="odd", data={"number": 2}), JobState.DELAYED) == []
    assert find(JobQuery(kind="odd")) == ["f1", "f3", "f5"]
    assert find(JobQuery(kind="odd", name="even")) == []


@pytest.mark.parametrize(
    ("query", "matches"),
    [
        (JobQuery(), True),
        (JobQuery(name="load", state=JobState.FAILED), True),
        (JobQuery(name="other", state=JobState.FAILED), False),
        (JobQuery(name="load", state=JobState.ACTIVE), False),
        (JobQuery(name="other", state=JobState.ACTIVE), False),
    ],
)
def test_every_part_of_a_query_must_match(query: JobQuery, matches: bool) -> None:
    record = JobRecord("7", {"name": "load", "state": "failed", "data": "{damaged"})
    assert query.matches(record) is matches
    assert not JobQuery(data={}).matches(record), "data that cannot be read match nothing"


def test_no_more_pages_are_read_than_it_takes() -> None:
    calls: list[Call] = []

    def answer(call: Call) -> Reply:
        calls.append(call)
        return Server().answer(call)

    for limit in (2, PAGE, PAGE + 1):
        calls.clear()
        talk(search_jobs(KEYS, JobQuery(), JobState.FAILED, limit), answer)
        pages = [call.args for call in calls if call.name == "ZRANGE"]
        assert pages == [(0, limit - 1)] if limit <= PAGE else pages == [(0, PAGE - 1), (PAGE, 2 * PAGE - 1)]


@pytest.mark.parametrize("limit", [None, 0, 1, 2, PAGE, 1000])
def test_failed_jobs_of_a_kind_are_found_oldest_first(limit: int | None) -> None:
    expected = [f"f{number}" for number in range(0, MANY, 2)]
    assert talk(failed_ids(KEYS, "even", limit), Server().answer) == expected[:limit]


def test_failed_jobs_are_counted_by_kind() -> None:
    groups = talk(failures(KEYS), Server().answer)
    assert [(group.kind, group.count, group.job_id) for group in groups] == [("even", 4, "f6"), ("odd", 3, "f5")]


@pytest.mark.parametrize(("limit", "offset"), [(None, 0), (None, 2), (0, 0), (2, 0), (PAGE, 1), (PAGE + 1, 1), (99, 5)])
def test_jobs_of_a_tag_are_read_page_by_page(limit: int | None, offset: int) -> None:
    expected = ids_of("s")[offset:]
    assert talk(tagged_ids(KEYS, "blue", limit, offset), Server().answer) == expected[:limit]


@pytest.mark.parametrize(
    ("limit", "offset", "places"), [(None, 0, (0, -1)), (None, 5, (5, -1)), (3, 5, (5, 7)), (0, 5, (1, 0))]
)
def test_the_most_used_tags_are_counted(limit: int | None, offset: int, places: tuple[int, int]) -> None:
    operation = job_search.most_used_tags(KEYS, limit, offset)
    assert operation.call.args == (*places, "WITHSCORES")
    expected = [job_search.TagCount("a", 3), job_search.TagCount("b", 1)]
    replies: list[Any] = [[b"a", b"3", b"b", b"1"], [[b"a", 3.0], [b"b", 1.0]]]
    assert [operation.read(reply) for reply in replies] == [expected, expected]
    assert operation.read([]) == []
