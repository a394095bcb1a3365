"""Following a job's stream until the job has finished."""

from __future__ import annotations

from collections.abc import AsyncIterator

from orchestration_queue.client.values import ENDINGS, LOOK_AGAIN_S, Deadline
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import event_log, job_output, job_records
from orchestration_queue.protocol.operations.job_output import StreamEntry
from orchestration_queue.server import AsyncConnection

__all__ = ["follow_stream"]


async def follow_stream(
    connection: AsyncConnection, keys: QueueKeys, job_id: str, place: str
) -> AsyncIterator[StreamEntry]:
    """The entries after a place, as they come, until the job has finished and all have been read."""
    seen = await connection.look(event_log.last_event_id(keys))
    async with await connection.duplicate() as reader:
        while True:
            # The job before its entries: those of a job that has finished are all that will ever be.
            is_over = await _is_over(reader, keys, job_id)
            page = job_output.read(keys, job_id, place)
            while entries := await reader.run(page, repeatable=True):
                for entry in entries:
                    yield entry
                place = entries[-1].id
                page = job_output.read(keys, job_id, place)
            if is_over:
                return
            seen = await _await_news(reader, keys, job_id, place, seen)


async def _is_over(connection: AsyncConnection, keys: QueueKeys, job_id: str) -> bool:
    record = await connection.run(job_records.job(keys, job_id, ("state",)), repeatable=True)
    return record is None or record.is_finished


async def _await_news(connection: AsyncConnection, keys: QueueKeys, job_id: str, place: str, seen: str) -> str:
    """Wait until there is another entry, or the job may have finished; returns the last event that was seen."""
    wait = Deadline(LOOK_AGAIN_S)
    while not wait.has_passed:
        news = job_output.follow(keys, job_id, place, seen, max(1, round(wait.left * 1000)))
        entries, events = await connection.run(news, repeatable=True)
        seen = events[-1].id if events else seen
        if entries or any(event.job_id == job_id and event.type in ENDINGS for event in events):
            break
    return seen
