"""Checks of each queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from orchestration_queue.client import Job, Queue
from orchestration_queue.doctor.finding import Finding, count, hint, problem
from orchestration_queue.doctor.survey import Sample, Survey, survey
from orchestration_queue.errors import StateError
from orchestration_queue.options import milliseconds
from orchestration_queue.protocol.call import Call, texts
from orchestration_queue.protocol.keys import GROUP, PERMANENT_KEYS, TAKER
from orchestration_queue.protocol.operations import (
    dead_letters,
    event_log,
    moves,
    queue_state,
    repairs,
    worker_registry,
)
from orchestration_queue.protocol.operations.event_log import gap_after, place
from orchestration_queue.protocol.operations.notifications import Notification, PendingNotifications, notify_all
from orchestration_queue.protocol.operations.repairs import StalledGroup
from orchestration_queue.protocol.operations.worker_registry import WorkerInfo
from orchestration_queue.protocol.operations.worker_signals import leave_signal_group
from orchestration_queue.server import Connection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import TERMINAL, JobState

__all__ = ["QUEUE_CHECKS", "InspectedQueue"]

_LATE = timedelta(minutes=1)
_LAST_RUNS = 3
_MANY_FINISHED = 100_000
_MANY_EVENTS = 10_000
_WAITS = (JobState.WAITING, JobState.DELAYED, JobState.PRIORITIZED)
_NOT_PUT_BACK = {
    "held": "may be held by a worker of another library; check again in a minute",
    "too_many": "may be in a list that is too long to search; check again when fewer jobs wait",
}


@dataclass(frozen=True, slots=True)
class InspectedQueue:
    """A queue under inspection."""

    queue: Queue
    connection: Connection
    workers: Sequence[WorkerInfo] = ()
    """Those that are registered."""
    has_dead_letters: bool = False
    """Whether other queues store their dead letters here, which wait for no worker."""
    sample: Sample | None = None
    """The jobs to inspect; None finds them."""

    @property
    def name(self) -> str:
        """Its name in findings."""
        return f"queue {self.queue.name}"

    def is_broadcast(self) -> bool:
        """Return whether subscriptions read its stream; each then has its own pending list."""
        described, _ = self.connection.follow(queue_state.groups(self.queue.keys))
        return any(group["name"] != GROUP for group in described)

    def survey(self) -> Survey:
        """Survey a bounded number of its jobs."""
        return self.connection.follow(survey(self.queue.keys, self.sample))


def workers(inspected: InspectedQueue) -> Iterator[Finding]:
    """Check that ready jobs have a worker, unless it is paused, or keeps dead letters or a broadcast's messages."""
    counts = inspected.queue.counts()
    if not counts.waiting or inspected.has_dead_letters or inspected.is_broadcast():
        return
    if inspected.queue.is_paused():
        yield hint(
            inspected.name,
            f"It is paused, and has {count(counts.waiting, 'ready job')}",
            "they do not start",
            f"oq queue resume {inspected.queue.name}, when they may run",
        )
    elif not inspected.workers:
        yield problem(
            inspected.name,
            f"It has {count(counts.waiting, 'ready job')}, and no worker serves it",
            "they do not start",
            f"oq worker module:tasks --queue {inspected.queue.name}",
        )
    elif (oldest := inspected.queue.oldest_ready()) and oldest.timestamp() * 1000 < _long_ago_ms():
        yield hint(
            inspected.name,
            f"A job has been ready since {oldest:%Y-%m-%d %H:%M:%S} UTC",
            "the workers do not keep up",
            "start more, or raise their concurrency",
        )


def isolation(inspected: InspectedQueue) -> Iterator[Finding]:
    """Check that workers for Dagster can fork steps instead of starting a Python for each."""
    for worker in inspected.workers:
        for location, decision in worker.isolation.items():
            if decision.startswith("spawn"):
                yield hint(
                    inspected.name,
                    f"Worker {worker.id} runs steps of code location {location} in new processes ({decision})",
                    "each takes seconds to start",
                    "create threads, connections and clients on first use, or in a resource",
                )


def consumers(inspected: InspectedQueue) -> Iterator[Finding]:
    """Check that every worker that holds jobs is alive; jobs of others wait until their lease ends."""
    keys = inspected.queue.keys
    described, _ = inspected.connection.follow(queue_state.groups(keys))
    if not any(group["name"] == GROUP for group in described):
        return
    holders = dict(_consumers(inspected))
    # Read again: some workers may have started since all were found.
    registered = inspected.connection.follow(worker_registry.workers(keys, list(holders)))
    alive = {TAKER, *(worker.id for worker in registered)}
    for name, pending in holders.items():
        if name in alive:
            continue
        if pending:
            yield problem(
                inspected.name,
                f"{name} holds {count(pending, 'job')}, and is not alive",
                "they are blocked until their lease ends and a worker autoclaims them",
                "start a worker if none is running; otherwise wait until the lease ends",
            )
        else:

            def fix(consumer: str = name) -> str:
                inspected.connection.execute(
                    Call("XGROUP", args=("DELCONSUMER", keys.stream, GROUP, consumer), near=keys.stream)
                )
                inspected.connection.pipeline([leave_signal_group(keys, consumer)])
                return f"removed consumer {consumer}"

            yield hint(
                inspected.name,
                f"{name} is not alive, but remains a consumer of the stream",
                "stale consumers accumulate as workers come and go",
                "remove it from the stream",
                fix,
            )


def _consumers(inspected: InspectedQueue) -> Iterable[tuple[str, int]]:
    stream = inspected.queue.keys.stream
    for facts in inspected.connection.execute(Call("XINFO", args=("CONSUMERS", stream, GROUP), near=stream)):
        described = dict(zip(facts[::2], facts[1::2], strict=True))
        yield described[b"name"].decode(), int(described[b"pending"])


def jobs(inspected: InspectedQueue) -> Iterator[Finding]:
    """Check that jobs are in the list of their state, parents wait for unfinished jobs, and ordering groups move on."""
    seen = inspected.survey()
    part = "" if seen.is_whole else f" among {seen.jobs:,} inspected jobs"
    if seen.nowhere is None:
        yield hint(
            inspected.name,
            "Its lists are too long to check that every job is in one",
            "reading them would load the server",
            "check again when fewer jobs wait",
        )
    for job_id in seen.nowhere or ():
        waits = seen.states[job_id] in _WAITS and not inspected.is_broadcast()
        yield problem(
            inspected.name,
            f"Job {job_id} has state {seen.states[job_id]}, but is in no list{part}",
            "no worker can find it",
            "make it due at once"
            if waits
            else f"oq job show {inspected.queue.name} {job_id}, then add it again and remove this one",
            partial(_put_back, inspected, job_id) if waits else None,
        )
    for job_id, notifications in seen.waiting_in_vain.items():
        yield problem(
            inspected.name,
            f"Job {job_id} waits for others, all of which have ended{part}",
            "its notification was lost, by a worker of another library or one that died",
            "notify it; in flows of this library a worker does so within seconds",
            partial(_notify, inspected, job_id, notifications),
        )
    for group in seen.stalled_groups:
        yield problem(
            inspected.name,
            f"The parked jobs of the ordering group {group.name!r} ({group.parked:,}) wait for {_name_wait(group)}",
            "none of them can run",
            "release the next one",
            partial(_repair_group, inspected, group),
        )


def _name_wait(group: StalledGroup) -> str:
    if group.seen_active:
        return f"{count(group.seen_active, 'active job')} that no longer exist"
    return (
        f"the job with number {group.seen_turn}, which no longer exists" if group.turn != group.seen_turn else "no job"
    )


def _put_back(inspected: InspectedQueue, job_id: str) -> str:
    word = inspected.connection.run(repairs.put_back(inspected.queue.keys, job_id, now_ms()))
    if why := _NOT_PUT_BACK.get(word):
        raise StateError(f"Job {job_id} was not put back: it {why}.")
    return f"job {job_id} is due now" if word == repairs.PUT_BACK else f"job {job_id} has moved on by itself"


def _notify(inspected: InspectedQueue, job_id: str, notifications: tuple[Notification, ...]) -> str:
    inspected.connection.follow(notify_all([(inspected.queue.keys, PendingNotifications(notifications))], now_ms()))
    job = inspected.queue.get(job_id)
    return f"notified job {job_id}, which is {job.read_state() if job else 'removed'}"


def _repair_group(inspected: InspectedQueue, group: StalledGroup) -> str:
    ready = inspected.connection.run(repairs.repair_group(inspected.queue.keys, group, now_ms()))
    return "it has moved on by itself" if ready < 0 else f"ready now: {count(ready, 'job')}"


def letters(inspected: InspectedQueue) -> Iterator[Finding]:
    """Check that dead letters reach their queue, also across cluster nodes and after an outage."""
    if unsent := inspected.connection.run(dead_letters.overdue(inspected.queue.keys, _long_ago_ms())):
        yield problem(
            inspected.name,
            f"{count(len(unsent), 'dead letter')} could not be added to their queue",
            "readers of that queue miss failed jobs",
            "repair that queue or its server; the workers' log shows the error",
            partial(_post, inspected, unsent),
        )


def _long_ago_ms() -> int:
    return now_ms() - milliseconds(_LATE)


def _post(inspected: InspectedQueue, unsent: list[bytes]) -> str:
    if refusals := inspected.connection.follow(dead_letters.post(inspected.queue.keys, unsent, now_ms())):
        to, why = next(iter(refusals.items()))
        raise StateError(f"Queue {to} did not take all of them ({why}); repair it and try again.")
    return f"added {count(len(unsent), 'dead letter')}"


def moving(inspected: InspectedQueue) -> Iterator[Finding]:
    """Check that jobs on the move between queues arrive."""
    if overdue := _overdue_moves(inspected):
        yield problem(
            inspected.name,
            f"{count(len(overdue), 'job')} on the move between queues did not arrive, such as {overdue[0]}",
            "a job on the move runs in neither queue",
            f"start a worker of queue {inspected.queue.name}, which finishes moves; its log shows errors",
            partial(_finish_moves, inspected),
        )


def _overdue_moves(inspected: InspectedQueue) -> list[str]:
    call = Call("ZRANGEBYSCORE", (inspected.queue.keys.moving,), ("-inf", _long_ago_ms()))
    return texts(inspected.connection.execute(call, repeatable=True))


def _finish_moves(inspected: InspectedQueue) -> str:
    before = len(_overdue_moves(inspected))
    if number := inspected.connection.follow(moves.finish_moves(inspected.queue.keys, now_ms())):
        raise StateError(f"{count(number, 'job')} did not arrive; repair the queues that they go to and try again.")
    return f"moved {count(before, 'job')}"


def damaged(inspected: InspectedQueue) -> Iterator[Finding]:
    """Check that no key was set aside because another client gave it another type."""
    keys = [inspected.queue.keys.named(f"damaged:{name}") for name in PERMANENT_KEYS if "*" not in name]
    replies = inspected.connection.pipeline([Call("EXISTS", (key,)) for key in keys], repeatable=True)
    if found := [key for key, reply in zip(keys, replies, strict=True) if reply == 1]:
        yield hint(
            inspected.name,
            f"{count(len(found), 'key')} of another type than expected was set aside: {', '.join(found)}",
            "its content is not used, and is removed after a week",
            "find the client that wrote it; copy what you need, then remove it",
        )


def schedules(inspected: InspectedQueue) -> Iterator[Finding]:
    """Check that schedules run in time, and that the job of each one's last run has not failed."""
    for name, entry in inspected.queue.schedulers.list().items():
        if not entry.is_paused and 0 < entry.next_run < _long_ago_ms():
            yield problem(
                inspected.name,
                f"Schedule {name!r} is overdue since {_at(entry.next_run)}",
                "its jobs are not added",
                f"start a worker of queue {inspected.queue.name}, which also runs its schedules",
            )
        job = _last_finished(inspected, name)
        if job and job.state == JobState.FAILED:
            yield problem(
                inspected.name,
                f"The last job of schedule {name!r}, {job.id}, failed: {job.failed_reason}",
                "what it maintains grows stale until a run succeeds",
                f"oq job show {inspected.queue.name} {job.id}; repair it, then oq job retry or oq scheduler run",
            )


def _last_finished(inspected: InspectedQueue, schedule: str) -> Job | None:
    """Return the newest finished job of a schedule's last runs; None when they are unknown or still running."""
    runs = [run for run in inspected.queue.schedulers.history(schedule) if run.job_id][:_LAST_RUNS]
    jobs = (inspected.queue.find(run.job_id) for run in runs)
    return next((job for job in jobs if job and job.state in TERMINAL), None)


def _at(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def growth(inspected: InspectedQueue) -> Iterator[Finding]:
    """Check that the history of finished jobs is bounded, as it takes the server's memory."""
    counts = inspected.queue.counts()
    kept = (("completed", counts.completed, "remove_on_complete"), ("failed", counts.failed, "remove_on_fail"))
    for state, number, option in kept:
        if number > _MANY_FINISHED:
            yield hint(
                inspected.name,
                f"It keeps {number:,} {state} jobs",
                "each takes about a kilobyte of the server's memory, or more",
                f"JobOptions({option}=...), or oq queue clean {inspected.queue.name} --state {state}",
            )


def events(inspected: InspectedQueue) -> Iterator[Finding]:
    """Check that events reach their registered readers, and that no other ones are kept."""
    keys, connection = inspected.queue.keys, inspected.connection
    length = int(connection.execute(Call("XLEN", (keys.events,)), repeatable=True))
    positions = connection.run(event_log.readers(keys), repeatable=True)
    oldest = connection.follow(event_log.oldest_event(keys))
    late = [name for name, at in positions.items() if place(at) > (0, 0) and gap_after(at, oldest)]
    if late:
        names = ", ".join(sorted(late)[:_LAST_RUNS])
        yield problem(
            inspected.name,
            f"Events were dropped before {count(len(late), 'reader')} read them: {names}",
            "a reader fell a million events or 256 MiB behind, or glide-mq's own library trims to about 1,000 events",
            "read faster; read the queue itself for what is missing",
        )
    elif length > _MANY_EVENTS:
        behind = min(positions, key=lambda name: place(positions[name]), default="")
        yield hint(
            inspected.name,
            f"Its events stream has {length:,} entries",
            f"reader {behind!r} is behind" if behind else "another client adds to it without trimming",
            "start the reader again, or let its lease end" if behind else f"XTRIM {keys.events} MAXLEN ~ 1000",
        )


QUEUE_CHECKS = (workers, isolation, consumers, jobs, letters, moving, damaged, schedules, growth, events)
