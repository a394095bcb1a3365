"""What a worker says to the server: take jobs, start them, keep them, settle them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from orchestration_queue.errors import ServerError
from orchestration_queue.options import Retention
from orchestration_queue.protocol.call import Call, Operation, Reply, integer, text, texts
from orchestration_queue.protocol.codec import dump_json
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.record import JobRecord, pairs

__all__ = [
    "KEEP",
    "Completion",
    "Delivery",
    "Failure",
    "Lease",
    "QueueSettings",
    "Refusal",
    "Settlement",
    "activate",
    "bare_record",
    "create_group",
    "discard",
    "free_places",
    "give_back",
    "hand_back",
    "heal_list_active",
    "leave_group",
    "log_line",
    "next_due",
    "pop_lists",
    "promote",
    "promote_rate_limited",
    "read_group",
    "read_pending",
    "reclaim",
    "register",
    "renew",
    "report_progress",
    "reserve",
    "settings",
    "settle",
    "sweep_suspended",
    "unregister",
    "upstream_members",
    "upstream_result",
]

KEEP = Retention()
"""Keep finished jobs for ever: what the wire does unless told otherwise."""

_EVENTS_LENGTH = 1000


@dataclass(frozen=True, slots=True)
class Delivery:
    """A job handed to this worker that has not started: its entry in the stream, or '' when a list gave it."""

    job_id: str
    entry_id: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """A started job in this worker's hands."""

    record: JobRecord
    entry_id: str
    taken_ms: int

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.record.id


class Refusal(StrEnum):
    """Why a delivered job does not start. The values are the wire's."""

    GONE = ""
    REVOKED = "REVOKED"
    EXPIRED = "EXPIRED"
    GROUP_ORDERED = "GROUP_ORDERED"
    GROUP_FULL = "GROUP_FULL"
    GROUP_TOKEN_LIMITED = "GROUP_TOKEN_LIMITED"  # noqa: S105  a state, not a secret
    GROUP_RATE_LIMITED = "GROUP_RATE_LIMITED"
    TOO_EXPENSIVE = "ERR:COST_EXCEEDS_CAPACITY"


@dataclass(frozen=True, slots=True)
class Completion:
    """A job that is done, and what it returned, encoded."""

    lease: Lease
    result: str
    retention: Retention = KEEP


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that failed. It is retried while fewer than ``max_attempts`` have failed."""

    lease: Lease
    reason: str
    max_attempts: int = 0
    backoff_ms: int = 0
    retention: Retention = KEEP


Settlement = Completion | Failure


def create_group(keys: QueueKeys) -> Call:
    """Make the workers' group; the server says BUSYGROUP when it is there already."""
    return Call("XGROUP", args=("CREATE", keys.stream, GROUP, "0", "MKSTREAM"))


def leave_group(keys: QueueKeys, consumer: str) -> tuple[Call, Call]:
    """Look whether the consumer holds anything, and (only then sensible) remove it."""
    return (
        Call("XPENDING", (keys.stream,), (GROUP, "-", "+", 1, consumer)),
        Call("XGROUP", args=("DELCONSUMER", keys.stream, GROUP, consumer)),
    )


def register(keys: QueueKeys, consumer: str, description: dict[str, object], ttl_ms: int) -> Call:
    """Tell the queue that this worker is alive, for the next ``ttl_ms``."""
    return Call("SET", (keys.worker(consumer),), (dump_json(description), "PX", ttl_ms))


def unregister(keys: QueueKeys, consumer: str) -> Call:
    """Tell the queue that this worker has left."""
    return Call("DEL", (keys.worker(consumer),))


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What a queue asks of all its workers."""

    paused: bool = False
    global_concurrency: int = 0
    """Most jobs at a time over all workers; 0 sets no bound."""


def settings(keys: QueueKeys) -> Operation[QueueSettings]:
    """Read what the queue asks of its workers."""

    def read(reply: Reply) -> QueueSettings:
        paused, concurrency = reply
        return QueueSettings(paused == b"1", int(concurrency or 0))

    return Operation(Call("HMGET", (keys.meta,), ("paused", "globalConcurrency")), read)


def pop_lists(keys: QueueKeys, count: int) -> Operation[list[str]]:
    """Take ready jobs from the priority list, else from the LIFO list. :func:`reserve` must follow."""
    call = glidemq.pop_lists(priority_key=keys.priority, lifo_key=keys.lifo, count=count)
    return Operation(call, texts)


def reserve(keys: QueueKeys, count: int) -> Call:
    """Count jobs popped from a list as in a worker's hands."""
    return Call("INCRBY", (keys.list_active,), (count,))


def give_back(keys: QueueKeys) -> Call:
    """Undo :func:`reserve` for one job that did not start."""
    return Call("DECRBY", (keys.list_active,), (1,))


def free_places(keys: QueueKeys) -> Operation[int]:
    """How many more jobs the queue's global concurrency lets start; -1 when it sets no bound."""
    call = glidemq.check_concurrency(
        meta_key=keys.meta, stream_key=keys.stream, list_active_key=keys.list_active, group=GROUP
    )
    return Operation(call, integer)


def read_group(keys: QueueKeys, consumer: str, count: int, block_ms: int | None = None) -> Operation[list[Delivery]]:
    """Take up to ``count`` ready jobs of the stream, waiting up to ``block_ms`` for the first (None: not at all)."""
    blocking = () if block_ms is None else ("BLOCK", block_ms)
    call = Call("XREADGROUP", args=("GROUP", GROUP, consumer, "COUNT", count, *blocking, "STREAMS", keys.stream, ">"))
    return Operation(call, _read_deliveries)


def _read_deliveries(reply: Reply) -> list[Delivery]:
    entries = reply[0][1] if reply else ()
    # A deleted entry is still pending, without fields.
    return [Delivery(pairs(fields or ()).get("jobId", ""), text(entry_id)) for entry_id, fields in entries]


def read_pending(keys: QueueKeys, consumer: str, count: int = 1000) -> Operation[list[Delivery]]:
    """The stream's jobs that were handed to this consumer and are neither settled nor taken away."""
    call = Call("XREADGROUP", args=("GROUP", GROUP, consumer, "COUNT", count, "STREAMS", keys.stream, "0"))
    return Operation(call, _read_deliveries)


def bare_record(delivery: Delivery) -> JobRecord:
    """The record of a job of which nothing but its id is known."""
    return JobRecord(delivery.job_id, {})


def activate(keys: QueueKeys, delivery: Delivery, now_ms: int) -> Operation[Lease | Refusal]:
    """Start a delivered job, or learn why it does not start."""

    def read(reply: Reply) -> Lease | Refusal:
        if isinstance(reply, list):
            return Lease(JobRecord(delivery.job_id, pairs(reply)), delivery.entry_id, now_ms)
        try:
            return Refusal(text(reply))
        except ValueError:
            raise ServerError(
                f"The server answered {reply!r} when job {delivery.job_id!r} was to start, which protocol 93 does not "
                "know; check the server's function library with `oq library status`."
            ) from None

    call = glidemq.move_to_active(
        job_key=keys.job(delivery.job_id),
        stream_key=keys.stream,
        now_ms=now_ms,
        entry_id=delivery.entry_id,
        group=GROUP,
        job_id=delivery.job_id,
    )
    return Operation(call, read)


def discard(keys: QueueKeys, entry_id: str) -> tuple[Call, Call]:
    """Drop a stream entry whose job is gone, without leaving a trace of the job."""
    return (
        Call("XACK", (keys.stream,), (GROUP, entry_id)),
        Call("XDEL", (keys.stream,), (entry_id,)),
    )


def hand_back(keys: QueueKeys, delivery: Delivery) -> Call:
    """Return a delivered job to the end of the queue, unstarted."""
    return glidemq.defer_active(
        stream_key=keys.stream,
        job_key=keys.job(delivery.job_id),
        list_active_key=keys.list_active,
        job_id=delivery.job_id,
        entry_id=delivery.entry_id,
        group=GROUP,
    )


def settle(keys: QueueKeys, settlement: Settlement, now_ms: int) -> Operation[bool]:
    """Tell the outcome of a started job; the reply says whether it is the job's last (a retry follows otherwise)."""
    if isinstance(settlement, Failure):
        return Operation(_fail(keys, settlement, now_ms), lambda reply: text(reply) == "failed")
    return Operation(_complete(keys, settlement, now_ms), lambda _reply: True)


def _fail(keys: QueueKeys, settlement: Failure, now_ms: int) -> Call:
    lease = settlement.lease
    mode, count, age_s = settlement.retention.wire_arguments
    return glidemq.fail(
        stream_key=keys.stream,
        failed_key=keys.failed,
        scheduled_key=keys.scheduled,
        events_key=keys.events,
        job_key=keys.job(lease.job_id),
        metrics_key=keys.metrics_failed,
        job_id=lease.job_id,
        entry_id=lease.entry_id,
        failed_reason=settlement.reason,
        now_ms=now_ms,
        max_attempts=settlement.max_attempts,
        backoff_ms=settlement.backoff_ms,
        group=GROUP,
        remove_mode=mode,
        remove_count=count,
        remove_age_s=age_s,
    )


def _complete(keys: QueueKeys, settlement: Completion, now_ms: int) -> Call:
    lease = settlement.lease
    mode, count, age_s = settlement.retention.wire_arguments
    parent_id, parent_queue = lease.record.parent_id, lease.record.parent_queue
    parent = QueueKeys(parent_queue, keys.prefix) if parent_id and parent_queue else None
    return glidemq.complete(
        stream_key=keys.stream,
        completed_key=keys.completed,
        events_key=keys.events,
        job_key=keys.job(lease.job_id),
        metrics_key=keys.metrics_completed,
        parent_deps_key=parent.deps(parent_id) if parent and parent_id else None,
        parent_job_key=parent.job(parent_id) if parent and parent_id else None,
        parent_stream_key=parent.stream if parent else None,
        parent_events_key=parent.events if parent else None,
        job_id=lease.job_id,
        entry_id=lease.entry_id,
        returnvalue=settlement.result,
        now_ms=now_ms,
        group=GROUP,
        remove_mode=mode,
        remove_count=count,
        remove_age_s=age_s,
        deps_member=keys.member(lease.job_id) if parent else "",
        parent_id=parent_id if parent and parent_id else "",
    )


def renew(keys: QueueKeys, job_id: str, now_ms: int) -> Call:
    """Say that a started job is still being worked on."""
    return Call("HSET", (keys.job(job_id),), ("lastActive", now_ms))


def promote(keys: QueueKeys, now_ms: int) -> Operation[int]:
    """Make due and prioritized jobs ready; returns how many (at most 1,000 a call)."""
    call = glidemq.promote(scheduled_key=keys.scheduled, stream_key=keys.stream, events_key=keys.events, now_ms=now_ms)
    return Operation(call, integer)


def promote_rate_limited(keys: QueueKeys, now_ms: int) -> Operation[int]:
    """Make jobs ready whose group's limit has passed; returns how many."""
    call = glidemq.promote_rate_limited(ratelimited_key=keys.ratelimited, stream_key=keys.stream, now_ms=now_ms)
    return Operation(call, integer)


def next_due(keys: QueueKeys) -> Operation[int]:
    """When the next delayed job or limited group is due, in epoch ms; -1 when nothing is."""
    return Operation(glidemq.next_due(scheduled_key=keys.scheduled, ratelimited_key=keys.ratelimited), integer)


def heal_list_active(keys: QueueKeys) -> Operation[int]:
    """Correct the count of list jobs in workers' hands; returns by how much it was too high."""
    return Operation(glidemq.heal_list_active(id_key=keys.id), integer)


def reclaim(keys: QueueKeys, consumer: str, idle_ms: int, max_stalled: int, lock_ms: int, now_ms: int) -> list[Call]:
    """Take jobs away from workers that stopped renewing them. Each reply says how many were looked at."""
    return [
        glidemq.reclaim_stalled(
            stream_key=keys.stream,
            events_key=keys.events,
            group=GROUP,
            consumer=consumer,
            min_idle_ms=idle_ms,
            max_stalled_count=max_stalled,
            now_ms=now_ms,
            failed_key=keys.failed,
            lock_duration_ms=lock_ms,
        ),
        glidemq.reclaim_stalled_list_jobs(
            stream_key=keys.stream,
            events_key=keys.events,
            min_idle_ms=idle_ms,
            max_stalled_count=max_stalled,
            now_ms=now_ms,
            failed_key=keys.failed,
            lock_duration_ms=lock_ms,
        ),
    ]


def sweep_suspended(keys: QueueKeys, now_ms: int) -> Call:
    """Fail suspended jobs whose time is up."""
    return glidemq.sweep_suspended(
        suspended_key=keys.suspended,
        events_key=keys.events,
        failed_key=keys.failed,
        metrics_key=keys.metrics_failed,
        now_ms=now_ms,
        key_prefix=keys.base + ":",
    )


def log_line(keys: QueueKeys, job_id: str, line: str) -> Call:
    """Append a line to the job's log."""
    return Call("RPUSH", (keys.log(job_id),), (line,))


def report_progress(keys: QueueKeys, job_id: str, progress: str) -> list[Call]:
    """Store the job's progress and tell those who listen."""
    return [
        Call("HSET", (keys.job(job_id),), ("progress", progress)),
        Call(
            "XADD",
            (keys.events,),
            ("MAXLEN", "~", _EVENTS_LENGTH, "*", "event", "progress", "jobId", job_id, "data", progress),
        ),
    ]


def upstream_members(keys: QueueKeys, job_id: str) -> Operation[list[str]]:
    """Members of the jobs that had to finish before this one."""
    return Operation(Call("SMEMBERS", (keys.deps(job_id),)), lambda reply: sorted(texts(reply)))


def upstream_result(member: str) -> Call:
    """The stored result of one of them."""
    base, _, job_id = member.rpartition(":")
    return Call("HGET", (f"{base}:job:{job_id}",), ("returnvalue",))
