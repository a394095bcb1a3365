"""Assertions on a queue's content hold when they should, and else say what is there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest.mock import ANY

import pytest

from orchestration_queue import AsyncQueue, JobOptions, Queue, Tasks
from orchestration_queue.errors import Failed, UsageError
from orchestration_queue.testing import assert_enqueued, assert_failed, assert_not_enqueued, drain, enqueued
from tests.testing.conftest import Workshop


def failure(queue: Queue | AsyncQueue, *args: Any, **criteria: Any) -> list[str]:
    """The lines of what ``assert_enqueued`` says."""
    with pytest.raises(AssertionError) as caught:
        assert_enqueued(queue, *args, **criteria)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    "criteria",
    [
        {},
        {"name": "send"},
        {"data": {"to": "ann", "at": 5}},
        {"data": {"to": "ann", "at": ANY}},
        {"name": "send", "data": {"to": "ann", "at": 5}, "count": 1},
        {"job_id": "mine"},
        {"priority": 3},
        {"delay": timedelta(minutes=5)},
        {"where": lambda job: job.data["at"] > 4},
        {"tags": ("red",)},
        {"tags": ["blue", "red"], "share": "acme", "pools": {"gpu": 2}, "tracked": True},
    ],
)
def test_what_matches_is_returned(oq_queue: Queue, criteria: dict[str, Any]) -> None:
    options = JobOptions(
        job_id="mine", priority=3, delay=timedelta(minutes=5), tags=("red", "blue"), share="acme", pools={"gpu": 2}
    )
    oq_queue.add("send", {"to": "ann", "at": 5}, options).track()
    (job,) = assert_enqueued(oq_queue, **criteria)
    assert job.id == "mine"


@pytest.mark.parametrize(
    ("criteria", "difference"),
    [
        ({"data": {"to": "bob", "at": 5}}, "data['to']: 'ann' instead of 'bob'"),
        ({"data": {"at": 5}}, "data['to']: 'ann', should not be there"),
        ({"data": {"to": "ann", "at": 5, "by": "me"}}, "data['by']: missing, should be 'me'"),
        ({"data": [1]}, "data: {'at': 5, 'to': 'ann'} instead of [1]"),
        ({"job_id": "yours"}, "id: '1' instead of 'yours'"),
        ({"priority": 3}, "priority: 0 instead of 3"),
        ({"delay": timedelta(minutes=5)}, "delay: 0 s instead of 300 s"),
        ({"where": lambda job: False}, "<lambda> does not hold"),
        ({"tags": ("red",)}, "tags: () instead of ('red',)"),
        ({"share": "acme"}, "share: None instead of 'acme'"),
        ({"pools": {"gpu": 1}}, "pools: {} instead of {'gpu': 1}"),
        ({"tracked": True}, "tracked: False instead of True"),
        ({"kind": "upload error"}, "kind: None instead of 'upload error'"),
        ({"count": 2}, "matches"),
    ],
)
def test_a_difference_is_named(oq_queue: Queue, criteria: dict[str, Any], difference: str) -> None:
    oq_queue.add("send", {"to": "ann", "at": 5})
    lines = failure(oq_queue, "send", **criteria)
    assert lines[1:] == [
        "It holds 1 unfinished:",
        "  1: 'send', waiting, data {'at': 5, 'to': 'ann'}",
        f"      {difference}",
    ]


def test_the_message_lists_what_is_there_the_nearest_first(oq_queue: Queue) -> None:
    oq_queue.add("resize", {"width": 100})
    oq_queue.add("send", {"to": "ann"}, JobOptions(delay=60))
    assert failure(oq_queue, "send", data={"to": "bob"}, count=2) == [
        f"Queue '{oq_queue.name}' should hold 2 jobs named 'send' with data {{'to': 'bob'}}, and holds 0.",
        "It holds 2 unfinished:",
        "  2: 'send', delayed, data {'to': 'ann'}",
        "      data['to']: 'ann' instead of 'bob'",
        "  1: 'resize', waiting, data {'width': 100}",
    ]


def test_an_empty_queue_is_said_to_be_empty(oq_queue: Queue) -> None:
    first, second = failure(oq_queue)
    assert first == f"Queue '{oq_queue.name}' should hold at least one job of any name, and holds 0."
    assert second == "Nothing unfinished is there."


def test_a_job_that_has_finished_already_is_pointed_out(oq_queue: Queue, workshop: Workshop) -> None:
    oq_queue.add("double", {"n": 1})
    drain(oq_queue, workshop.tasks)
    assert failure(oq_queue, "double")[1:] == [
        "Nothing unfinished is there.",
        "These match, but have finished already:",
        "  1: 'double', completed, data {'n': 1}",
    ]


def test_a_long_list_is_cut(oq_queue: Queue) -> None:
    for n in range(30):
        oq_queue.add("send", "x" * 1000 if n == 0 else n)
    lines = failure(oq_queue, "resize")
    assert lines[-1] == "  ... and 10 more"
    assert max(map(len, lines)) < 200


def test_a_task_stands_for_its_name(oq_queue: Queue, workshop: Workshop) -> None:
    oq_queue.add("double", {"n": 1})
    assert_enqueued(oq_queue, workshop.tasks["double"], count=1)
    assert_not_enqueued(oq_queue, workshop.tasks["note"])


def test_none_asked_for_means_none(oq_queue: Queue) -> None:
    oq_queue.add("send")
    assert_enqueued(oq_queue, "resize", count=0)
    assert failure(oq_queue, "send", count=0)[0].endswith("should hold 0 jobs named 'send', and holds 1.")


def test_not_enqueued_names_what_is_there_against_it(oq_queue: Queue) -> None:
    assert_not_enqueued(oq_queue)
    oq_queue.add("send", {"to": "ann"})
    assert_not_enqueued(oq_queue, "resize")
    assert_not_enqueued(oq_queue, "send", data={"to": "bob"})
    assert_not_enqueued(oq_queue, job_id="7")
    with pytest.raises(AssertionError) as caught:
        assert_not_enqueued(oq_queue, "send", where=lambda job: job.data["to"] == "ann")
    assert str(caught.value).splitlines() == [
        f"Queue '{oq_queue.name}' should hold no job named 'send' for which `where` holds, and holds 1:",
        "  1: 'send', waiting, data {'to': 'ann'}",
    ]


def test_jobs_come_in_the_order_in_which_they_were_added(oq_queue: Queue) -> None:
    for n in range(12):
        oq_queue.add("send", n, JobOptions(priority=12 - n))
    assert [job.data for job in enqueued(oq_queue)] == list(range(12))


def test_packed_data_are_read(oq_queue: Queue, oq_server: str) -> None:
    with Queue(oq_queue.name, url=oq_server, codec="gzip") as packing:
        packing.add("send", {"to": "ann"})
    assert_enqueued(oq_queue, data={"to": "ann"})


async def test_the_async_face_needs_no_await_that_could_be_forgotten(oq_async_queue: AsyncQueue) -> None:
    await oq_async_queue.add("send", {"to": "ann"})
    assert_enqueued(oq_async_queue, "send", data={"to": "ann"})
    assert [job.name for job in enqueued(oq_async_queue)] == ["send"]
    with pytest.raises(AssertionError):
        assert_not_enqueued(oq_async_queue, "send")


def test_failed_jobs_are_found_by_kind(oq_queue: Queue) -> None:
    tasks = Tasks()

    @tasks.task
    def upload(to: str) -> None:
        raise Failed(f"no room at {to}", kind="upload error")

    oq_queue.add("upload", {"to": "s3"}, JobOptions(attempts=1, tags=("red",)))
    with pytest.raises(AssertionError, match="None failed"):
        assert_failed(oq_queue, "upload")
    drain(oq_queue, tasks, raise_failures=False)
    (job,) = assert_failed(oq_queue, upload, kind="upload error", tags=["red"], count=1)
    assert job.failed_reason == "no room at s3"
    assert_failed(oq_queue, "send", count=0)
    with pytest.raises(AssertionError) as caught:
        assert_failed(oq_queue, kind="timeout", where=lambda job: True)
    assert str(caught.value).splitlines() == [
        f"Queue '{oq_queue.name}' should have at least one job with kind 'timeout' for which `where` holds that "
        "failed, and has 0.",
        "It has 1 that failed:",
        "  1: 'upload', failed, data {'to': 's3'}, upload error: no room at s3",
    ]


@pytest.mark.parametrize("criteria", [{"tags": "red"}, {"color": "red"}])
def test_criteria_that_cannot_be_meant_are_refused(oq_queue: Queue, criteria: dict[str, Any]) -> None:
    for ask in (assert_enqueued, assert_failed, assert_not_enqueued):
        with pytest.raises(UsageError, match=r"tags"):
            ask(oq_queue, **criteria)
