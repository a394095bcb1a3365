"""Checks of each queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from orchestration_queue.client import Queue
from orchestration_queue.doctor.finding import Finding, count, hint, problem
from orchestration_queue.doctor.survey import Survey, survey
from orchestration_queue.errors import StateError
from orchestration_queue.options import milliseconds
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.keys import GROUP
from orchestration_queue.protocol.operations import mending, outbox, reading
from orchestration_queue.protocol.operations.graphs import News, Untold, tell_all
from orchestration_queue.protocol.operations.mending import StalledGroup
from orchestration_queue.server import Connection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import JobState

__all__ = ["QUEUE_CHECKS", "InspectedQueue"]

_LATE = timedelta(minutes=1)
_MANY_FINISHED = 100_000
_MANY_EVENTS = 10_000
_WAITS = (JobState.WAITING, JobState.DELAYED, JobState.PRIORITIZED)
_NOT_PUT_BACK = {
    "held": "may be with a worker of another kind; look again in a minute",
    "too_many": "may be in a list that is too long to look through; look again when fewer jobs wait",
}


@dataclass(frozen=True, slots=True)
class InspectedQueue:
    """A queue that is looked at."""

    queue: Queue
    connection: Connection

    @property
    def name(self) -> str:
        """How findings call it."""
        return f"queue {self.queue.name}"

    def is_broadcast(self) -> bool:
        """Whether others than the workers of one queue read its stream: then each of them has a list of its own."""
        described, _ = self.connection.follow(reading.groups(self.queue.keys))
        return any(group["name"] != GROUP for group in described)

    def survey(self) -> Survey:
        """Some of its jobs, and where they are."""
        return self.connection.follow(survey(self.queue.keys))


def workers(inspected: InspectedQueue) -> Iterator[Finding]:
    """Jobs that are ready have a worker, unless the queue is paused."""
    counts = inspected.queue.counts()
    if not counts.waiting:
        return
    if inspected.queue.is_paused():
        yield hint(
            inspected.name,
            f"It is paused, and has {count(counts.waiting, 'ready job')}",
            "nobody takes them",
            f"oq queue resume {inspected.queue.name}, when they may run",
        )
    elif not inspected.queue.workers():
        yield problem(
            inspected.name,
            f"It has {count(counts.waiting, 'ready job')}, and no worker serves it",
            "nobody takes them",
            f"oq worker module:tasks --queue {inspected.queue.name}",
        )
    elif (oldest := inspected.queue.oldest_ready()) and oldest.timestamp() * 1000 < _long_ago_ms():
        yield hint(
            inspected.name,
            f"A job has been ready since {oldest:%Y-%m-%d %H:%M:%S} UTC",
            "the workers do not keep up",
            "start more, or raise their concurrency",
        )


def consumers(inspected: InspectedQueue) -> Iterator[Finding]:
    """Whoever holds jobs is alive: others' jobs wait until their leases have passed and a worker takes them over."""
    keys = inspected.queue.keys
    described, _ = inspected.connection.follow(reading.groups(keys))
    if not any(group["name"] == GROUP for group in described):
        return
    alive = {worker.id for worker in inspected.queue.workers()}
    for name, pending in _consumers(inspected):
        if name in alive:
            continue
        if pending:
            yield problem(
                inspected.name,
                f"{name} holds {count(pending, 'job')}, and is not alive",
                "they stand still until a worker takes them over, once their leases have passed",
                "start a worker, if there is none; otherwise wait for a lease's length",
            )
        else:

            def fix(consumer: str = name) -> str:
                inspected.connection.execute(
                    Call("XGROUP", args=("DELCONSUMER", keys.stream, GROUP, consumer), near=keys.stream)
                )
                return f"forgot {consumer}"

            yield hint(
                inspected.name,
                f"{name} is not alive, and still among the stream's consumers",
                "they add up where workers come and go",
                "forget it",
                fix,
            )


def _consumers(inspected: InspectedQueue) -> Iterable[tuple[str, int]]:
    stream = inspected.queue.keys.stream
    for facts in inspected.connection.execute(Call("XINFO", args=("CONSUMERS", stream, GROUP), near=stream)):
        told = dict(zip(facts[::2], facts[1::2], strict=True))
        yield told[b"name"].decode(), int(told[b"pending"])


def jobs(inspected: InspectedQueue) -> Iterator[Finding]:
    """Every job is where its state says, parents wait for jobs that have not ended, and ordered jobs have a turn."""
    seen = inspected.survey()
    part = "" if seen.is_whole else f" among {seen.jobs:,} jobs that were looked at"
    if seen.nowhere is None:
        yield hint(
            inspected.name,
            "Its lists are too long to see whether every job is in one",
            "reading them would take the server's time",
            "look again when fewer jobs wait",
        )
    for job_id in seen.nowhere or ():
        waits = seen.states[job_id] in _WAITS and not inspected.is_broadcast()
        yield problem(
            inspected.name,
            f"Job {job_id} says that it is {seen.states[job_id]}, and is in no list{part}",
            "no worker will ever find it",
            "make it due at once"
            if waits
            else f"oq job show {inspected.queue.name} {job_id}, then add it anew and remove this one",
            partial(_put_back, inspected, job_id) if waits else None,
        )
    for job_id, news in seen.waiting_in_vain.items():
        yield problem(
            inspected.name,
            f"Job {job_id} waits for others, all of which have ended{part}",
            "it was not told, by a worker of another kind or one that died",
            "tell it; of a flow of ours, a worker does so within seconds",
            partial(_tell, inspected, job_id, news),
        )
    for group in seen.stalled_groups:
        yield problem(
            inspected.name,
            f"The parked jobs of the ordering group {group.name!r} ({group.parked:,}) wait for {_whom(group)}",
            "none of them will ever run",
            "let the next of them go on",
            partial(_repair_group, inspected, group),
        )


def _whom(group: StalledGroup) -> str:
    if group.seen_active:
        return f"{count(group.seen_active, 'active job')}, gone by now"
    return f"the job with number {group.seen_turn}, which is gone" if group.turn != group.seen_turn else "nobody"


def _put_back(inspected: InspectedQueue, job_id: str) -> str:
    word = inspected.connection.run(mending.put_back(inspected.queue.keys, job_id, now_ms()))
    if why := _NOT_PUT_BACK.get(word):
        raise StateError(f"Job {job_id} was not put back: it {why}.")
    return f"job {job_id} is due now" if word == mending.PUT_BACK else f"job {job_id} has gone on by itself"


def _tell(inspected: InspectedQueue, job_id: str, news: tuple[News, ...]) -> str:
    inspected.connection.follow(tell_all([(inspected.queue.keys, Untold(news))], now_ms()))
    job = inspected.queue.get_job(job_id)
    return f"told job {job_id}, which is {job.state() if job else 'gone'}"


def _repair_group(inspected: InspectedQueue, group: StalledGroup) -> str:
    ready = inspected.connection.run(mending.mend_group(inspected.queue.keys, group, now_ms()))
    return "it has gone on by itself" if ready < 0 else f"ready now: {count(ready, 'job')}"


def letters(inspected: InspectedQueue) -> Iterator[Finding]:
    """Dead letters are in their queue soon, also when it is on another server of a cluster, or was away for a while."""
    if unsent := inspected.connection.run(outbox.overdue(inspected.queue.keys, _long_ago_ms())):
        yield problem(
            inspected.name,
            f"{count(len(unsent), 'dead letter')} could not be added to their queue",
            "who looks there misses jobs that have failed",
            "mend that queue, or its server; the workers' log says what it refuses",
            partial(_post, inspected, unsent),
        )


def _long_ago_ms() -> int:
    return now_ms() - milliseconds(_LATE)


def _post(inspected: InspectedQueue, unsent: list[bytes]) -> str:
    if refusals := inspected.connection.follow(outbox.post(inspected.queue.keys, unsent, now_ms())):
        to, why = next(iter(refusals.items()))
        raise StateError(f"Queue {to} did not take all of them ({why}); mend it, and try again.")
    return f"added {count(len(unsent), 'dead letter')}"


def growth(inspected: InspectedQueue) -> Iterator[Finding]:
    """What finished jobs leave behind is bounded: else the server's memory fills with history."""
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
    events = int(inspected.connection.execute(Call("XLEN", (inspected.queue.keys.events,)), repeatable=True))
    if events > _MANY_EVENTS:
        yield hint(
            inspected.name,
            f"Its events stream has {events:,} entries",
            "it should be about a thousand, so somebody adds to it without a bound",
            f"XTRIM {inspected.queue.keys.events} MAXLEN ~ 1000",
        )


QUEUE_CHECKS = (workers, consumers, jobs, letters, growth)
