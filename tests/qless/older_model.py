"""What qless's documentation says of the older form, as plain Python: jobs, their order, and what is counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

__all__ = ["DAY", "HEARTBEAT_S", "Model", "ModelJob", "Rank"]

DAY, HEARTBEAT_S = 86_400, 60
Rank = tuple[int, float, float, str]
"""Expired or ready, by what it is ordered, and the id: equals are in no order that the document states."""


@dataclass
class ModelJob:
    """A job as `Get` shows it, and when it was put where it is."""

    jid: str
    queue: str
    data: Any
    priority: float = 0
    tags: list[str] = field(default_factory=list)
    retries: int = 5
    remaining: int = 5
    state: str = "waiting"
    worker: str = ""
    since: float = 0
    """Since when it waits among its equals; of a dependent one, since when it depends."""
    due: float = 0
    """When it may start: a scheduled job, or a dependent one that was put with a delay."""
    expires: float = 0
    needs: set[str] = field(default_factory=set)
    failure: tuple[str, str, float] | None = None
    """The type, the message, and when."""
    is_listed: bool = False
    """Whether its worker is known to have it."""


class Model:
    """The queues as the documentation describes them. Each method is a call, and returns what the call replies."""

    def __init__(self) -> None:
        self.jobs: dict[str, ModelJob] = {}
        self.failed: dict[str, list[str]] = {}
        """The jobs of each type of failure, the newest first."""
        self.stats: Counter[tuple[float, str, str]] = Counter()
        """By day, queue, and name."""
        self.seen: dict[str, float] = {}
        """When each worker was last active."""

    # -- where jobs are ----------------------------------------------------------------------------------------

    def of(self, queue: str, state: str) -> list[ModelJob]:
        """Return a queue's jobs in a state."""
        return [job for job in self.jobs.values() if job.queue == queue and job.state == state]

    def dependents(self, jid: str) -> set[str]:
        return {job.jid for job in self.jobs.values() if jid in job.needs}

    def running(self, now: float, jid: str, worker: str) -> ModelJob | None:
        job = self.jobs.get(jid)
        if job is None or (job.state, job.worker) != ("running", worker):
            return None
        self.seen[worker] = now
        return job

    def held(self, now: float, worker: str) -> list[ModelJob]:
        """Return the jobs of a worker, which is forgotten after a day without activity."""
        jobs = [job for job in self.jobs.values() if (job.state, job.worker) == ("running", worker)]
        if now - self.seen.get(worker, now) >= DAY:
            for job in jobs:
                job.is_listed = False
        return [job for job in jobs if job.is_listed]

    def count(self, now: float, queue: str, name: str, by: int = 1) -> None:
        self.stats[now - now % DAY, queue, name] += by

    def place(self, job: ModelJob, now: float, delay: float) -> str:
        job.since, job.due = now, now + delay if delay > 0 else 0
        job.state = "depends" if job.needs else "scheduled" if delay > 0 else "waiting"
        return job.state

    def live(self, jids: list[str]) -> set[str]:
        return {jid for jid in jids if jid in self.jobs and self.jobs[jid].state != "complete"}

    # -- the life of a job -------------------------------------------------------------------------------------

    def put(self, now: float, queue: str, jid: str, data: Any, delay: float, options: dict[str, Any]) -> str:
        job = self.jobs.setdefault(jid, ModelJob(jid, queue, data))
        if job.state == "failed":
            self._leave_failed(job)
        job.data, job.worker, job.expires = data, "", 0
        job.priority = options.get("priority", job.priority)
        job.tags = options.get("tags", job.tags)
        job.retries = options.get("retries", job.retries)
        job.remaining, job.queue = job.retries, queue
        if options.get("depends"):
            job.needs = self.live(options["depends"])
        self.place(job, now, delay)
        return jid

    def expired(self, now: float, queue: str) -> list[Rank]:
        """Return whose lock expired, the oldest first."""
        return sorted((0, job.expires, 0.0, job.jid) for job in self.of(queue, "running") if job.expires <= now)

    def ready(self, now: float, queue: str) -> list[Rank]:
        """Return what is ready by priority and time, after having made ready what is due."""
        for job in self.of(queue, "scheduled"):
            if job.due <= now:
                job.state, job.since, job.due = "waiting", now, 0
        return sorted((1, job.priority, job.since, job.jid) for job in self.of(queue, "waiting"))

    def lose(self, now: float, job: ModelJob) -> bool:
        """Take a job from the worker that lost it. Return whether it may run again."""
        self.count(now, job.queue, "retries")
        job.remaining -= 1
        if job.remaining < 0:
            self.exhaust(now, job)
        return job.remaining >= 0

    def start(self, now: float, job: ModelJob, worker: str) -> None:
        job.state, job.worker, job.expires, job.is_listed = "running", worker, now + HEARTBEAT_S, True
        self.count(now, job.queue, "wait")

    def complete(self, now: float, jid: str, worker: str, data: Any, onward: dict[str, Any]) -> str | None:
        job = self.running(now, jid, worker)
        if job is None:
            return None
        self.count(now, job.queue, "run")
        job.data, job.worker, job.expires, job.failure, job.remaining = data, "", 0, None, job.retries
        if "next" in onward:
            job.queue, job.needs = onward["next"], self.live(onward.get("depends", [])) - {jid}
            return self.place(job, now, onward.get("delay", 0))
        job.state = "complete"
        for other in self.dependents(jid):
            waiting = self.jobs[other]
            waiting.needs.discard(jid)
            if waiting.state == "depends" and not waiting.needs:
                waiting.state, waiting.since = ("scheduled", waiting.since) if waiting.due else ("waiting", now)
        return job.state

    def fail(self, now: float, jid: str, worker: str, group: str, message: str, data: Any) -> str | None:
        job = self.jobs.get(jid)
        if job is None:
            return None
        self.running(now, jid, worker)
        if job.state == "failed":
            self._leave_failed(job)
        job.data = job.data if data is None else data
        self._enter_failed(now, job, group, message)
        return jid

    def retry(self, now: float, jid: str, queue: str, worker: str, delay: float) -> int | None:
        job = self.running(now, jid, worker)
        if job is None:
            return None
        job.remaining -= 1
        if job.remaining < 0:
            self.exhaust(now, job)
            return -1
        self.count(now, job.queue, "retries")
        job.queue, job.worker, job.expires = queue, "", 0
        self.place(job, now, delay)
        return job.remaining

    def heartbeat(self, now: float, jid: str, worker: str, data: Any) -> float | None:
        job = self.running(now, jid, worker)
        if job is None:
            return None
        job.expires, job.is_listed = now + HEARTBEAT_S, True
        job.data = job.data if data is None else data
        return job.expires

    def cancel(self, jids: list[str]) -> bool:
        """Return whether they were removed; not while another job depends on one of them."""
        if any(self.dependents(jid) - set(jids) for jid in jids):
            return False
        for jid in jids:
            job = self.jobs.get(jid)
            if job and job.state != "complete":
                if job.state == "failed":
                    self._leave_failed(job)
                del self.jobs[jid]
        return True

    def exhaust(self, now: float, job: ModelJob) -> None:
        self._enter_failed(now, job, f"failed-retries-{job.queue}", f'Job exhausted retries in queue "{job.queue}"')

    def _enter_failed(self, now: float, job: ModelJob, group: str, message: str) -> None:
        job.state, job.worker, job.expires, job.failure = "failed", "", 0, (group, message, now)
        self.failed.setdefault(group, []).insert(0, job.jid)
        self.count(now, job.queue, "failures")
        self.count(now, job.queue, "failed")

    def _leave_failed(self, job: ModelJob) -> None:
        assert job.failure
        group, _, when = job.failure
        self.failed[group].remove(job.jid)
        self.count(when // 1, job.queue, "failed", -1)

    # -- changes -----------------------------------------------------------------------------------------------

    def depends(self, jid: str, change: str, others: list[str]) -> int | None:
        job = self.jobs.get(jid)
        if job is None or job.state != "depends":
            return None
        if change == "on":
            job.needs |= self.live(others)
        else:
            job.needs -= job.needs if others == ["all"] else set(others)
            if not job.needs:
                job.state = "waiting"
        return 1

    def priority(self, jid: str, priority: float) -> float | None:
        job = self.jobs.get(jid)
        if job is None:
            return None
        job.priority = priority
        return priority

    def tag(self, verb: str, jid: str, tags: list[str]) -> list[str] | None:
        job = self.jobs.get(jid)
        if job is None:
            return None
        if verb == "add":
            job.tags = list(dict.fromkeys([*job.tags, *tags]))
        else:
            job.tags = [tag for tag in job.tags if tag not in tags]
        return job.tags
