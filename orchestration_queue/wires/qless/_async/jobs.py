"""The job methods of a client, from `put` to `complete`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestration_queue.errors import InvalidOptionError, ServerError, UsageError
from orchestration_queue.protocol.call import Word, text
from orchestration_queue.wires.qless._async.connection import AsyncQlessConnection
from orchestration_queue.wires.qless.commands import (
    Duration,
    check_count,
    check_job,
    check_message,
    check_number,
    command,
    duration_s,
    encode,
    job_words,
    new_jid,
    option_words,
    text_word,
    text_words,
    translate_error,
)
from orchestration_queue.wires.qless.records import QlessJob, decode_json, read_jobs, strings
from orchestration_queue.wires.qless.settling import QlessCompletion, completion_batches

__all__ = ["AsyncQlessJobs"]

# One command of 100 held a busy server for 46 ms when a million jobs were waiting.
_POPPED_AT_ONCE = 20


class AsyncQlessJobs(AsyncQlessConnection):
    """The job methods of a client."""

    async def put(
        self,
        queue: str,
        klass: str,
        data: Any = None,
        *,
        jid: str | None = None,
        delay: Duration = 0,
        priority: float | None = None,
        tags: Sequence[str] | None = None,
        retries: int | None = None,
        depends: Sequence[str] | None = None,
    ) -> str:
        """Add a job, or move an existing one, and return its id.

        Args:
            queue: Its queue.
            klass: What runs it.
            data: Anything that JSON can carry, except False.
            jid: Its id; default: a new one.
            delay: How long it waits: a duration, or seconds.
            priority: Higher values come first; None keeps the current one, initially 0.
            tags: Its tags; None keeps them.
            retries: How often it may be lost or retried; None keeps the current number, initially 5.
            depends: Ids of jobs it waits for; those that are complete or unknown count as done.
        """
        jid = new_jid() if jid is None else jid
        options = {"priority": priority, "tags": tags, "retries": retries, "depends": depends}
        words = job_words(self.worker, queue, jid, klass, encode({} if data is None else data), delay, **options)
        return text(await self.command("put", *words))

    async def requeue(self, job: QlessJob, queue: str, *, delay: Duration = 0) -> str:
        """Move a job unchanged to a queue; if it is running, its worker loses it.

        Raises:
            JobNotFoundError: It does not exist.
        """
        check_job(job)
        words = job_words(self.worker, queue, job.jid, job.klass, job.encoded, delay)
        return text(await self._about(job, "requeue", *words))

    async def get(self, jid: str) -> QlessJob | None:
        """Return a job; None if it does not exist."""
        reply = await self.command("get", text_word(jid, "jid"))
        return None if reply is None else QlessJob.read(decode_json(reply))

    async def get_many(self, jids: Sequence[str]) -> list[QlessJob]:
        """Return the jobs that exist."""
        if isinstance(jids, Sequence) and not jids:
            return []
        return read_jobs(await self.command("multiget", *text_words(jids, "jids")))

    async def pop(self, queue: str, count: int = 1) -> list[QlessJob]:
        """Take jobs to run. Complete, fail, retry or heartbeat each before its lock expires.

        One exchange, in commands of 20 jobs, so that the server serves others in between.

        Args:
            queue: The queue.
            count: At most this many.
        """
        name, most = text_word(queue, "queue"), check_count(count, "count")
        sizes = [min(_POPPED_AT_ONCE, most - first) for first in range(0, most, _POPPED_AT_ONCE)]
        calls = [command("pop", name, self.worker, size) for size in sizes]
        taken: list[QlessJob] = []
        for reply in await (await self._connection()).pipeline(calls):
            # Jobs that were taken are returned all the same: no other worker gets them until their locks expire.
            if isinstance(reply, ServerError):
                if not taken:
                    raise reply
                break
            taken += read_jobs(reply)
        return taken

    async def peek(self, queue: str, count: int = 1) -> list[QlessJob]:
        """Return the jobs that would be taken next."""
        return read_jobs(await self.command("peek", text_word(queue, "queue"), check_count(count, "count")))

    async def complete(
        self,
        job: QlessJob,
        data: Any = None,
        *,
        next_queue: str | None = None,
        delay: Duration = 0,
        depends: Sequence[str] = (),
    ) -> str:
        """Complete a job that this client took, and return its state.

        Args:
            job: The job.
            data: Its new data; None keeps them.
            next_queue: The queue that it moves to instead of being complete.
            delay: How long it waits there.
            depends: Ids of jobs that it waits for there.

        Raises:
            LeaseLostError: This worker no longer has the job.
        """
        words = self._completion(job, data, next_queue, delay, depends)
        return text(await self._about(job, "complete", *words))

    async def complete_many(self, jobs: Sequence[QlessJob]) -> list[str | Exception]:
        """Complete jobs in one exchange, in commands of 20. Return the state of each, or its error."""
        if not isinstance(jobs, list | tuple):
            raise UsageError(f"`jobs` must be a list of QlessJob, got {jobs!r}; pass those that `pop` returned.")
        batches = completion_batches([QlessCompletion(check_job(job).jid, job.queue, job.encoded) for job in jobs])
        calls = [batch.call(self.worker) for batch in batches]
        replies = await (await self._connection()).pipeline(calls) if calls else []
        outcomes: dict[int, str | Exception] = {}
        for batch, reply in zip(batches, replies, strict=True):
            outcomes |= batch.outcomes(reply)
        return [
            translate_error(outcome, job.jid, job.queue) if isinstance(outcome, ServerError) else outcome
            for job, (_, outcome) in zip(jobs, sorted(outcomes.items()), strict=True)
        ]

    def _completion(
        self, job: QlessJob, data: Any, next_queue: str | None, delay: Duration, depends: Sequence[str]
    ) -> list[Word]:
        check_job(job)
        words: list[Word] = [job.jid, self.worker, job.queue, job.encoded if data is None else encode(data)]
        if next_queue is not None:
            words += ["next", text_word(next_queue, "next_queue"), "delay", duration_s(delay, "delay")]
            words += option_words({"depends": depends})
        elif delay or depends:
            raise UsageError("`delay` and `depends` apply to the next queue; pass `next_queue`, too.")
        return words

    async def fail(self, job: QlessJob, group: str, message: str, data: Any = None) -> None:
        """Fail a job that this client took, for good.

        Args:
            job: The job.
            group: The kind of failure.
            message: What happened.
            data: Its new data; None keeps them.

        Raises:
            LeaseLostError: This worker no longer has the job.
        """
        check_job(job)
        more = () if data is None else (encode(data),)
        words = (job.jid, self.worker, text_word(group, "group"), check_message(message, "message"))
        await self._about(job, "fail", *words, *more)

    async def retry(
        self, job: QlessJob, *, delay: Duration = 0, group: str | None = None, message: str | None = None
    ) -> int:
        """Retry a job that this client took, and return how many retries it has left; -1 if it has failed.

        Args:
            job: The job.
            delay: How long it waits.
            group: The kind of failure, to be shown, with a message.
            message: What happened.

        Raises:
            LeaseLostError: This worker no longer has the job.
        """
        check_job(job)
        if (group is None) is not (message is None):
            raise UsageError("A failure needs both `group` and `message`; pass both or neither.")
        more = (
            () if group is None or message is None else (text_word(group, "group"), check_message(message, "message"))
        )
        words = (job.jid, job.queue, self.worker, duration_s(delay, "delay"), *more)
        return int(await self._about(job, "retry", *words))

    async def heartbeat(self, job: QlessJob, data: Any = None) -> int:
        """Renew the lease of a job that this client took, and return when it expires, in epoch seconds.

        Raises:
            LeaseLostError: This worker no longer has the job.
        """
        check_job(job)
        more = () if data is None else (encode(data),)
        return int(await self._about(job, "heartbeat", job.jid, self.worker, *more))

    async def timeout(self, *jids: str) -> None:
        """Take running jobs from their workers.

        Raises:
            ServerError: One of them is not running.
        """
        await self.command("timeout", *text_words(jids, "jids"))

    async def cancel(self, *jids: str) -> None:
        """Remove jobs, except complete ones.

        Raises:
            ServerError: Another job depends on one of them; none is removed.
        """
        await self.command("cancel", *text_words(jids, "jids"))

    async def depend(self, jid: str, *others: str) -> None:
        """Add dependencies to a job that already has some."""
        await self.command("depends", text_word(jid, "jid"), "on", *text_words(others, "others"))

    async def undepend(self, jid: str, *others: str) -> None:
        """Remove these dependencies of a job; without names, all."""
        await self.command(
            "depends", text_word(jid, "jid"), "off", *(text_words(others, "others") if others else ["all"])
        )

    async def set_priority(self, jid: str, priority: float) -> None:
        """Set a job's priority; a ready job goes to the front of its class."""
        await self._about(jid, "priority", text_word(jid, "jid"), check_number(priority, "priority"))

    async def log(self, jid: str, message: str, data: dict[str, Any] | None = None) -> None:
        """Add a message to a job's history."""
        if data is not None and not isinstance(data, dict):
            raise InvalidOptionError(f"`data` must be a dict, got {data!r}; history shows its items.")
        more = () if data is None else (encode(data),)
        await self._about(jid, "log", text_word(jid, "jid"), text_word(message, "message"), *more)

    async def tag(self, jid: str, *tags: str) -> list[str]:
        """Tag a job, and return all its tags."""
        words = ("add", text_word(jid, "jid"), *text_words(tags, "tags"))
        return strings(decode_json(await self._about(jid, "tag", *words)))

    async def untag(self, jid: str, *tags: str) -> list[str]:
        """Remove tags from a job, and return the remaining ones."""
        words = ("remove", text_word(jid, "jid"), *text_words(tags, "tags"))
        return strings(decode_json(await self._about(jid, "tag", *words)))

    async def track(self, jid: str) -> bool:
        """Publish a job's events; return whether that is new."""
        return bool(int(await self._about(jid, "track", "track", text_word(jid, "jid"))))

    async def untrack(self, jid: str) -> bool:
        """Stop publishing a job's events; return whether they were published."""
        return bool(int(await self._about(jid, "track", "untrack", text_word(jid, "jid"))))
