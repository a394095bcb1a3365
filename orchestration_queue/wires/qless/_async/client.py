"""Queues, workers, failures, recurring jobs, options and statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal, get_args

from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.protocol.call import Call, Word, text, texts
from orchestration_queue.server.clock import now_ms
from orchestration_queue.wires.qless._async.jobs import AsyncQlessJobs
from orchestration_queue.wires.qless.commands import (
    Duration,
    check_count,
    check_number,
    duration_s,
    encode,
    new_jid,
    option_words,
    text_word,
    text_words,
)
from orchestration_queue.wires.qless.records import (
    QlessCounts,
    QlessJob,
    QlessRecurringJob,
    QlessStats,
    QlessWorkerCounts,
    decode_json,
    strings,
)

__all__ = ["AsyncQlessClient", "QlessState"]

QlessState = Literal["running", "stalled", "scheduled", "depends", "recurring"]
_STATES = get_args(QlessState)
# qless's own default.
_PAGE = 25


class AsyncQlessClient(AsyncQlessJobs):
    """A client of queues shared with qless's Ruby, Python and Go processes. It connects when first used.

    Args:
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        worker: The name under which jobs are taken; default: the host's name and the process id.

    Raises:
        UsageError: The URL is invalid, or the name is empty.

    Attributes:
        worker: The name under which jobs are taken.
    """

    async def queues(self) -> list[QlessCounts]:
        """Count the jobs of all queues, in the order in which they were first used."""
        return [QlessCounts.read(fields) for fields in decode_json(await self.command("queues")) or ()]

    async def counts(self, queue: str) -> QlessCounts:
        """Count the jobs of a queue."""
        return QlessCounts.read(decode_json(await self.command("queues", text_word(queue, "queue"))))

    async def length(self, queue: str) -> int:
        """Return how many jobs of a queue are running, ready or scheduled."""
        return int(await self.command("length", text_word(queue, "queue")))

    async def pause(self, *queues: str) -> None:
        """Pause queues: they deliver no jobs."""
        await self.command("pause", *text_words(queues, "queues"))

    async def unpause(self, *queues: str) -> None:
        """Resume paused queues."""
        await self.command("unpause", *text_words(queues, "queues"))

    async def forget_queue(self, *queues: str) -> None:
        """Remove queues from the list. Their jobs stay, and the next job lists them again."""
        await self.command("queue.forget", *text_words(queues, "queues"))

    async def jobs(self, queue: str, state: QlessState, offset: int = 0, count: int = _PAGE) -> list[str]:
        """Return the ids of a queue's jobs in a state."""
        if state not in _STATES:
            raise InvalidOptionError(
                f"`state` must be one of {', '.join(_STATES)}, got {state!r}; pass `state='running'`."
            )
        words = (state, text_word(queue, "queue"), *_page(offset, count))
        return texts(await self.command("jobs", *words))

    async def completed(self, offset: int = 0, count: int = _PAGE) -> list[str]:
        """Return the ids of completed jobs, the newest first."""
        return texts(await self.command("jobs", "complete", *_page(offset, count)))

    async def failures(self) -> dict[str, int]:
        """Count the failed jobs by group."""
        return {group: int(count) for group, count in (decode_json(await self.command("failed")) or {}).items()}

    async def failed(self, group: str, offset: int = 0, count: int = _PAGE) -> list[str]:
        """Return the ids of a group's failed jobs, the newest first."""
        words = (text_word(group, "group"), *_page(offset, count))
        return strings(decode_json(await self.command("failed", *words))["jobs"])

    async def unfail(self, queue: str, group: str, count: int = _PAGE) -> int:
        """Make failed jobs ready, those that failed first first, and return how many."""
        words = (text_word(queue, "queue"), text_word(group, "group"), check_count(count, "count"))
        return int(await self.command("unfail", *words))

    async def tagged(self, tag: str, offset: int = 0, count: int = _PAGE) -> list[str]:
        """Return the ids of jobs with a tag, in the order in which they were tagged."""
        words = ("get", text_word(tag, "tag"), *_page(offset, count))
        return strings(decode_json(await self.command("tag", *words))["jobs"])

    async def top_tags(self, offset: int = 0, count: int = _PAGE) -> list[str]:
        """Return tags that are used more than once, the most frequent first."""
        return strings(decode_json(await self.command("tag", "top", *_page(offset, count))))

    async def tracked(self) -> list[QlessJob]:
        """Return the tracked jobs that exist."""
        return [QlessJob.read(fields) for fields in decode_json(await self.command("track"))["jobs"] or ()]

    async def stats(self, queue: str, day: datetime | None = None) -> QlessStats:
        """Return a queue's statistics of a day, in UTC; default: today."""
        seconds = now_ms() / 1000 if day is None else _epoch_s(day)
        return QlessStats.read(await self.command("stats", text_word(queue, "queue"), seconds))

    async def workers(self) -> list[QlessWorkerCounts]:
        """Return the workers of the last day, the most recently seen first."""
        return [QlessWorkerCounts(**fields) for fields in decode_json(await self.command("workers")) or ()]

    async def jobs_of_worker(self, worker: str) -> tuple[list[str], list[str]]:
        """Return the ids of a worker's jobs, and of those whose lock expired."""
        found = decode_json(await self.command("workers", text_word(worker, "worker")))
        return strings(found["jobs"]), strings(found["stalled"])

    async def deregister(self, *workers: str) -> None:
        """Remove workers from the list."""
        await self.command("worker.deregister", *text_words(workers, "workers"))

    async def config(self) -> dict[str, Any]:
        """Return all options; those that were set are text."""
        return dict(decode_json(await self.command("config.get")))

    async def get_config(self, option: str) -> str | None:
        """Return an option as text; None if it is unknown."""
        reply = await self.command("config.get", text_word(option, "option"))
        return None if reply is None else text(reply)

    async def set_config(self, option: str, value: str | float) -> None:
        """Set an option, such as ``heartbeat`` or ``<queue>-max-concurrency``."""
        if not isinstance(value, str):
            check_number(value, "value")
        await self.command("config.set", text_word(option, "option"), value)

    async def unset_config(self, option: str) -> None:
        """Reset an option to its default."""
        await self.command("config.unset", text_word(option, "option"))

    async def check(
        self, *, repair: bool = False, on_progress: Callable[[int], object] | None = None
    ) -> dict[str, int]:
        """Count inconsistent records: jobs in no queue, locks without jobs and so on.

        Keys and their entries are read in pages, so that the server serves others in between.

        Args:
            repair: Repair them, too.
            on_progress: Called after each page with the number of keys and entries checked so far.

        Raises:
            InvalidOptionError: An argument is invalid.
        """
        if not isinstance(repair, bool):
            raise InvalidOptionError(f"`repair` must be True or False, got {repair!r}; pass `repair=True`.")
        if on_progress is not None and not callable(on_progress):
            raise InvalidOptionError(
                f"`on_progress` must be callable, got {on_progress!r}; pass a function of a number."
            )
        found: dict[str, int] = {}
        pages: list[tuple[str, ...]] = [("0",)]
        checked = 0
        while pages:
            _, *key = where = pages.pop()
            args = ("resolve" if repair else "", *where)
            page = decode_json(await self._execute(Call("qless_consistencyCheck", args=args, is_function=True)))
            if (cursor := page.pop("cursor")) != "0":
                pages.append((str(cursor), *key))
            pages += [("0", large) for large in page.pop("large", ())]
            checked += page.pop("checked")
            for kind, count in page.items():
                found[kind] = found.get(kind, 0) + count
            if on_progress is not None:
                on_progress(checked)
        return found

    async def recur(
        self,
        queue: str,
        klass: str,
        data: Any = None,
        *,
        interval: Duration,
        offset: Duration = 0,
        jid: str | None = None,
        priority: float | None = None,
        tags: Sequence[str] | None = None,
        retries: int | None = None,
        backlog: int | None = None,
    ) -> str:
        """Add or replace a recurring job, which adds a new job at each interval, and return its id.

        Args:
            queue: Where the new jobs go.
            klass: What runs them.
            data: Their data.
            interval: Time between two jobs.
            offset: Time before the first.
            jid: Its id; default: a new one.
            priority: The priority of the new jobs.
            tags: The tags of the new jobs.
            retries: The retries of the new jobs, by default 0.
            backlog: How many late jobs are made up for, in addition to the newest; 0 for all.
        """
        jid = new_jid() if jid is None else text_word(jid, "jid")
        options = {"priority": priority, "tags": tags, "retries": retries, "backlog": backlog}
        words: list[Word] = [text_word(queue, "queue"), jid, text_word(klass, "klass")]
        words += [encode({} if data is None else data), "interval"]
        words += [duration_s(interval, "interval", positive=True), duration_s(offset, "offset"), *option_words(options)]
        return text(await self.command("recur", *words))

    async def recurring(self, jid: str) -> QlessRecurringJob | None:
        """Return a recurring job; None if it does not exist."""
        reply = await self.command("recur.get", text_word(jid, "jid"))
        return None if reply is None else QlessRecurringJob.read(reply)

    async def update_recurring(self, jid: str, **changes: Any) -> None:
        """Change a recurring job.

        Args:
            jid: Its id.
            changes: Any of `priority`, `interval`, `retries`, `data`, `klass`, `queue` and `backlog`.
        """
        words: list[Word] = []
        if not changes:
            raise UsageError("Nothing would be changed; pass what to change, such as `priority=1`.")
        for name, value in changes.items():
            if name == "data":
                words += [name, encode(value)]
            elif name == "interval":
                words += [name, duration_s(value, name, positive=True)]
            elif name in ("klass", "queue"):
                words += [name, text_word(value, name)]
            elif name == "priority":
                words += [name, check_number(value, name)]
            elif name in ("retries", "backlog"):
                words += [name, check_count(value, name, 0)]
            else:
                raise InvalidOptionError(
                    f"A recurring job has no option {name!r} to change; pass one of its documented options."
                )
        await self.command("recur.update", text_word(jid, "jid"), *words)

    async def tag_recurring(self, jid: str, *tags: str) -> list[str]:
        """Tag the jobs that a recurring job adds from now on, and return all its tags."""
        return strings(decode_json(await self.command("recur.tag", text_word(jid, "jid"), *text_words(tags, "tags"))))

    async def untag_recurring(self, jid: str, *tags: str) -> list[str]:
        """Remove tags from a recurring job, and return the remaining ones."""
        return strings(decode_json(await self.command("recur.untag", text_word(jid, "jid"), *text_words(tags, "tags"))))

    async def unrecur(self, jid: str) -> None:
        """Remove a recurring job. The jobs that it added stay."""
        await self.command("unrecur", text_word(jid, "jid"))


def _page(offset: int, count: int) -> tuple[int, int]:
    return check_count(offset, "offset", 0), check_count(count, "count")


def _epoch_s(day: object) -> float:
    if not isinstance(day, datetime) or day.utcoffset() is None:
        raise InvalidOptionError(f"`day` must be a datetime with a time zone, got {day!r}; pass `datetime.now(UTC)`.")
    return day.timestamp()
