"""What is read of workers' registrations, written in whatever language, and of signals to them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestration_queue.errors import ServerError
from orchestration_queue.protocol.call import Reply
from orchestration_queue.protocol.keys import TAKER, QueueKeys
from orchestration_queue.protocol.operations import worker_registry, worker_signals
from orchestration_queue.protocol.operations.worker_registry import WorkerInfo
from orchestration_queue.protocol.operations.worker_signals import Command, WorkerReply, WorkerSignal
from tests.conversations import talk

KEYS = QueueKeys("q")
NOW = 1_700_000_000_000
STARTED = datetime.fromtimestamp(NOW / 1000, UTC)


def told(**members: Any) -> bytes:
    return json.dumps({"addr": "host", "pid": 5, "startedAt": NOW, **members}).encode()


def read(*registrations: bytes | None) -> list[WorkerInfo]:
    conversation = worker_registry.workers(KEYS, [f"w{place}" for place in range(len(registrations))])
    next(conversation)
    with pytest.raises(StopIteration) as ended:
        conversation.send([list(registrations)])
    found: list[WorkerInfo] = ended.value.value
    return found


def test_a_registration_of_node_says_little() -> None:
    assert read(told(), None) == [WorkerInfo("w0", "host", 5, STARTED, 0)]


def test_a_registration_of_ours_says_more() -> None:
    jobs = [["1", "load", NOW]]
    (info,) = read(
        told(activeJobs=1, jobs=jobs, tasks=["load"], concurrency=4, paused=True, memory=9, version="1", lease=5000)
    )
    assert (info.active_jobs, info.concurrency, info.is_paused, info.memory_bytes) == (1, 4, True, 9)
    assert (info.version, info.code_version, info.lease) == ("1", None, timedelta(seconds=5))
    assert [(job.id, job.name, job.started_at) for job in info.jobs] == [("1", "load", STARTED)]


@pytest.mark.parametrize("odd", [True, "4", 4.5, None])
def test_numbers_and_texts_of_another_type_count_as_unsaid(odd: Any) -> None:
    (info,) = read(told(concurrency=odd, memory=odd, version=5, codeVersion="", paused=1))
    assert (info.concurrency, info.memory_bytes, info.version, info.code_version) == (None, None, None, None)
    assert info.is_paused is False


@pytest.mark.parametrize("registration", [b"{", b"[]", told(addr=5), told(startedAt=1e300), told(jobs=[1])])
def test_what_says_too_little_is_no_worker(registration: bytes) -> None:
    assert read(registration, told()) == [WorkerInfo("w1", "host", 5, STARTED, 0)]


def test_the_oldest_comes_first() -> None:
    assert [info.id for info in read(told(), told(startedAt=NOW - 1), told())] == ["w1", "w0", "w2"]


def job_of(record: dict[str, str] | None, **members: Any) -> worker_registry.WorkerJob:
    """Return the job of a worker, with a record of these fields, 10 s after the worker began with it."""
    conversation = worker_registry.workers_with_jobs(KEYS, ["w"])
    next(conversation)
    settings = conversation.send([[told(jobs=[["1", "load", NOW]], **members)]])
    assert settings[-1].name == "TIME"
    (asked,) = conversation.send([[None] * len(settings[0].args), [str(NOW // 1000 + 10).encode(), b"0"]])
    with pytest.raises(StopIteration) as ended:
        conversation.send([[None if record is None else _encoded(record.get(str(name))) for name in asked.args]])
    (info,) = ended.value.value
    (job,) = info.jobs
    assert isinstance(job, worker_registry.WorkerJob)
    return job


def _encoded(word: str | None) -> bytes | None:
    return None if word is None else word.encode()


RUNS = {"state": "active", "processedOn": str(NOW), "progress": "50"}


@pytest.mark.parametrize(
    ("fields", "members", "left_s"),
    [
        ({}, {}, 20),
        ({}, {"lease": 15_000}, 5),
        ({}, {"lease": 5_000}, 0),
        ({"opts": '{"lockDuration":40000}'}, {"lease": 15_000}, 30),
        ({"lastActive": str(NOW + 9_000)}, {"lease": 15_000}, 14),
    ],
)
def test_a_lease_ends_by_the_job_or_its_worker(fields: dict[str, str], members: dict[str, int], left_s: int) -> None:
    job = job_of(RUNS | fields, **members)
    assert (job.progress, job.lease_left) == (50, timedelta(seconds=left_s))


@pytest.mark.parametrize("record", [None, RUNS | {"state": "completed"}, RUNS | {"processedOn": str(NOW + 1)}])
def test_a_record_of_another_attempt_says_nothing_of_this_one(record: dict[str, str] | None) -> None:
    job = job_of(record)
    assert (job.progress, job.lease_left) == (None, None)


def test_signals_say_what_is_due_cancelled_commanded_or_released() -> None:
    entries: Reply = [
        [b"5-0", []],
        [b"6-1", [b"cancel", b"1"]],
        [b"7-0", [b"control", b"{}"]],
        [b"8-0", [b"released", b"2"]],
    ]
    operation = worker_signals.read_signals({"wake": "0"}, 1)
    signals = operation.read([[b"wake", entries]])["wake"]
    assert signals == [
        WorkerSignal("5-0"),
        WorkerSignal("6-1", cancelled="1"),
        WorkerSignal("7-0", command="{}"),
        WorkerSignal("8-0", released="2"),
    ]
    assert [signal.is_due for signal in signals] == [True, False, False, False]
    assert signals[1].at_ms == 6
    assert operation.read(None) == {}


@pytest.mark.parametrize(
    ("reply", "has_obeyed"),
    [
        (WorkerReply("w"), False),
        (WorkerReply("w", answered=True), True),
        (WorkerReply("w", answered=True, problem="busy"), False),
    ],
)
def test_a_worker_obeyed_if_it_answered_without_a_problem(reply: WorkerReply, has_obeyed: bool) -> None:
    assert reply.has_obeyed is has_obeyed


@pytest.mark.parametrize(
    ("stored", "command"),
    [
        ('["1","pause",["w"],null]', Command("1", "pause", ("w",))),
        ('["1","concurrency",["w"],4]', Command("1", "concurrency", ("w",), 4)),
        ('["1","concurrency",["w"],"x"]', None),
        ('["1","pause"]', None),
        ("{", None),
        ("5", None),
    ],
)
def test_a_command_is_read_as_it_was_signaled(stored: str, command: Command | None) -> None:
    assert worker_signals.read_command(stored) == command


def test_answers_to_a_command_are_read_as_far_as_they_say() -> None:
    reading = worker_signals.read_replies(KEYS, Command("1", "ping", ("a", "b", "c")), "0", 100)
    facts = [b'{"activeJobs":3,"paused":true,"concurrency":4}', b'{"problem":"busy"}', b"5"]
    entries = [[f"{n}-0".encode(), [b"worker", b"w", b"facts", each]] for n, each in enumerate(facts)]
    last, (told, busy, odd) = reading.read([[b"stream", entries]])
    assert last == "2-0"
    assert told == WorkerReply("w", answered=True, is_paused=True, concurrency=4, active_jobs=3)
    assert busy == WorkerReply("w", answered=True, problem="busy")
    assert (odd.answered, odd.problem) == (True, "its answer cannot be read")
    assert reading.read(None) == ("0", [])


@pytest.mark.parametrize(
    ("consumers", "registered", "expected"),
    [
        (ServerError("NOGROUP"), 0, False),
        ([], 0, False),
        ([TAKER], 1, False),
        (["w"], 0, False),
        ([TAKER, "w"], 1, True),
    ],
    ids=["no group", "no consumer", "a taker", "a lost worker", "a worker"],
)
def test_a_queue_has_a_worker_if_a_consumer_is_registered(consumers: Any, registered: int, expected: bool) -> None:
    described = consumers if isinstance(consumers, Exception) else [[b"name", name.encode()] for name in consumers]
    found = talk(worker_registry.has_worker(KEYS), lambda call: registered if call.name == "EXISTS" else described)
    assert found is expected
