"""What the public wire document shows is what our client reads, and what our client writes is the same."""

from __future__ import annotations

import json
import time
from typing import Any

from orchestration_queue.states import JobState
from tests.by_hand import HandWorker
from tests.faces import Face


def add_by_the_document(raw: Any, queue_name: str, data: str, timestamp: str) -> str:
    """The call of the document's Python example, with its 17 arguments."""
    p = f"glide:{{{queue_name}}}"
    reply: str = raw.fcall(
        "glidemq_addJob",
        4,
        f"{p}:id",
        f"{p}:stream",
        f"{p}:scheduled",
        f"{p}:events",
        "send-email",  # job name
        data,
        json.dumps({}),  # options
        timestamp,
        "0",  # delay
        "0",  # priority
        "",  # parent id
        "0",  # most attempts
        "",  # ordering key
        "0",  # group concurrency
        "0",  # group rate: most
        "0",  # group rate: duration
        "0",  # bucket capacity
        "0",  # bucket refill rate
        "0",  # cost
        "0",  # ttl
        "",  # custom id
    )
    return reply


async def test_a_job_added_by_raw_fcall_is_read_by_our_client_and_equal_to_one_of_ours(
    face: Face, queue_name: str, raw: Any
) -> None:
    payload = {"to": "user@example.com", "subject": "Hello"}
    async with face.queue(queue_name) as queue:
        assert (await queue.counts()).waiting == 0  # connecting loads the library
        job_id = add_by_the_document(raw, queue_name, json.dumps(payload, separators=(",", ":")), "1709750400000")
        theirs = await queue.get(job_id)
        ours = await queue.add("send-email", payload)
        counts = await queue.counts()
        waiting = await queue.jobs("waiting")

        stored = [raw.hgetall(queue.keys.job(job.id)) for job in (theirs, ours)]
        entries = [fields for _, fields in raw.xrange(queue.keys.stream)]
        events = [fields for _, fields in raw.xrange(queue.keys.events)]
    assert (theirs.id, ours.id) == ("1", "2")
    assert (theirs.record.name, theirs.record.data, theirs.record.state) == ("send-email", payload, JobState.WAITING)
    assert theirs.record.added_at is not None
    assert theirs.record.added_at.timestamp() == 1709750400
    assert counts.waiting == 2
    assert [job.id for job in waiting] == ["1", "2"]

    def without(fields: dict[str, str], *names: str) -> dict[str, str]:
        return {name: value for name, value in fields.items() if name not in names}

    assert without(stored[0], "id", "timestamp", "entry") == without(stored[1], "id", "timestamp", "entry")
    assert abs(int(stored[1]["timestamp"]) - time.time() * 1000) < 60_000
    assert without(entries[0], "jobId") == without(entries[1], "jobId")
    assert without(events[0], "jobId") == without(events[1], "jobId")


async def test_our_counts_are_those_of_the_documents_commands(
    face: Face, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    async with face.queue(queue_name) as queue:
        for _ in range(4):
            add_by_the_document(raw, queue_name, "{}", "1709750400000")
        hand.complete(hand.take())
        hand.fail(hand.take(), "no")
        hand.take()
        counts = await queue.counts()
    p = f"glide:{{{queue_name}}}"
    active = raw.xpending(f"{p}:stream", "workers")["pending"]
    assert counts.active == active == 1
    assert counts.waiting == raw.xlen(f"{p}:stream") - active == 1
    assert (counts.completed, counts.failed, counts.delayed) == (
        raw.zcard(f"{p}:completed"),
        raw.zcard(f"{p}:failed"),
        raw.zcard(f"{p}:scheduled"),
    )
    assert (counts.completed, counts.failed, counts.delayed) == (1, 1, 0)
