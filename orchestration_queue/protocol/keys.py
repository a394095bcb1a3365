"""Names of all keys of a queue. They share one hash tag, so a queue is in one cluster slot."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from orchestration_queue.errors import InvalidNameError
from orchestration_queue.options import name_problem

__all__ = ["DEFAULT_PREFIX", "GROUP", "HOLD", "PERMANENT_KEYS", "SHARED_KEYS", "TAKER", "QueueKeys", "known_keys"]

DEFAULT_PREFIX = "glide"
GROUP = "workers"
"""The consumer group of all workers of a queue."""
HOLD = "__hold__"
"""The id among a job's dependencies that represents its flow while the flow is held."""
TAKER = "taker"
"""The consumer's name of all clients that take jobs without being workers."""


@dataclass(frozen=True)
class QueueKeys:
    """The keys of one queue. Each is built once, when first used.

    Raises:
        InvalidNameError: The queue's name is empty, too long, or contains a character that the wire uses itself.
    """

    queue: str
    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        for what, name in (("Queue name", self.queue), ("Key prefix", self.prefix)):
            if problem := name_problem(name):
                raise InvalidNameError(
                    f"{what} {name!r} {problem}, which the wire cannot carry; use letters, digits, '.', '-' and '_'."
                )

    @cached_property
    def base(self) -> str:
        """The text every key of the queue starts with."""
        return f"{self.prefix}:{{{self.queue}}}"

    def named(self, name: str) -> str:
        """Return a queue-level key such as ``stream``, ``scheduled`` or ``events``."""
        return f"{self.base}:{name}"

    @cached_property
    def id(self) -> str:
        """Counter of automatic job ids."""
        return self.named("id")

    @cached_property
    def wake(self) -> str:
        """Signals to the queue's workers, kept for a minute."""
        return self.named("wake")

    @cached_property
    def wake_one(self) -> str:
        """Signals to one idle worker each, which the workers' group reads with the stream; permanent, mostly empty."""
        return self.named("wake:one")

    @cached_property
    def watch(self) -> str:
        """Workers that watch for the next due job, by when they look, kept for a minute after that."""
        return self.named("watch")

    @cached_property
    def watch_schedulers(self) -> str:
        """Workers that watch for the next repeatable job, likewise."""
        return self.named("watch:schedulers")

    @cached_property
    def stream(self) -> str:
        """Ready jobs, and the consumer groups that read them."""
        return self.named("stream")

    @cached_property
    def scheduled(self) -> str:
        """Delayed, prioritized and retrying jobs by due time."""
        return self.named("scheduled")

    @cached_property
    def completed(self) -> str:
        """Finished jobs by time."""
        return self.named("completed")

    @cached_property
    def failed(self) -> str:
        """Failed jobs by time."""
        return self.named("failed")

    @cached_property
    def events(self) -> str:
        """What happened, as a stream."""
        return self.named("events")

    @cached_property
    def events_readers(self) -> str:
        """Readers of the events and their positions; expires with the last reader's lease."""
        return self.named("events:readers")

    @cached_property
    def meta(self) -> str:
        """Settings of the queue."""
        return self.named("meta")

    @cached_property
    def dedup(self) -> str:
        """Deduplication ids and the job each stands for."""
        return self.named("dedup")

    @cached_property
    def rate(self) -> str:
        """Window of the queue's rate limit."""
        return self.named("rate")

    @cached_property
    def schedulers(self) -> str:
        """Repeatable jobs, an entry each."""
        return self.named("schedulers")

    @cached_property
    def schedulers_lock(self) -> str:
        """Held by the worker or client that evaluates or edits the repeatable jobs."""
        return self.named("schedulers:lock:__tick__")

    @cached_property
    def schedulers_due(self) -> str:
        """When each repeatable job must be checked."""
        return self.named("schedulers:due")

    @cached_property
    def schedulers_looked(self) -> str:
        """Exists while the index of the repeatable jobs needs no comparison with their entries."""
        return self.named("schedulers:looked")

    def schedulers_history(self, name: str) -> str:
        """Return the key of the outcomes of a repeatable job's last runs."""
        return self.named(f"schedulers:history:{name}")

    @cached_property
    def ratelimited(self) -> str:
        """Groups that wait for their rate limit."""
        return self.named("ratelimited")

    @cached_property
    def lifo(self) -> str:
        """Ready jobs that run newest first."""
        return self.named("lifo")

    @cached_property
    def priority(self) -> str:
        """Ready jobs that run before all others."""
        return self.named("priority")

    @cached_property
    def list_active(self) -> str:
        """How many jobs that came from a list are active."""
        return self.named("list-active")

    @cached_property
    def suspended(self) -> str:
        """Suspended jobs by deadline."""
        return self.named("suspended")

    @cached_property
    def outbox(self) -> str:
        """Dead letters that still must be added to their queue, possibly on another server, by time."""
        return self.named("outbox")

    @cached_property
    def tags(self) -> str:
        """How many jobs each tag has."""
        return self.named("tags")

    @cached_property
    def tracked(self) -> str:
        """Tracked jobs by when that began."""
        return self.named("tracked")

    @cached_property
    def moving(self) -> str:
        """Jobs on the move to another queue by when that began."""
        return self.named("moving")

    @cached_property
    def metrics_completed(self) -> str:
        """Completions per minute."""
        return self.named("metrics:completed")

    @cached_property
    def metrics_failed(self) -> str:
        """Failures per minute."""
        return self.named("metrics:failed")

    def statistics(self, day: str) -> str:
        """How long jobs waited and ran on one day, and how many failed; kept for 30 days."""
        return self.named(f"statistics:{day}")

    def job(self, job_id: str) -> str:
        """Return the key of the job's record."""
        return f"{self.base}:job:{job_id}"

    def log(self, job_id: str) -> str:
        """Return the key of the job's log lines."""
        return f"{self.base}:log:{job_id}"

    def deps(self, job_id: str) -> str:
        """Members of the jobs that must finish before this one."""
        return f"{self.base}:deps:{job_id}"

    def parents(self, job_id: str) -> str:
        """Members of the further jobs that wait for this one."""
        return f"{self.base}:parents:{job_id}"

    def group(self, name: str) -> str:
        """Return the key of an ordering group's state: its limits, and whose turn it is."""
        return f"{self.base}:group:{name}"

    def signals(self, job_id: str) -> str:
        """Signals the job received."""
        return f"{self.base}:signals:{job_id}"

    def steps(self, job_id: str) -> str:
        """How the job's durable steps ended, and their results."""
        return f"{self.base}:steps:{job_id}"

    def usage(self, minute_ms: int) -> str:
        """Return the key of the usage that jobs reported in the minute that began then."""
        return f"{self.base}:usage:{minute_ms}"

    @cached_property
    def shares(self) -> str:
        """Weights of the queue's shares, those that were set."""
        return self.named("shares")

    @cached_property
    def shares_waiting(self) -> str:
        """Shares that have waiting jobs, by virtual time: the lowest is served next."""
        return self.named("shares:waiting")

    def share(self, name: str) -> str:
        """Return the key of the jobs that wait in a share, in the order in which they start."""
        return f"{self.base}:share:{name}"

    @cached_property
    def usage_queues(self) -> str:
        """Names of all queues whose jobs ever reported usage. Of no queue, so in a cluster it may be elsewhere."""
        return f"{self.prefix}:usage:queues"

    @cached_property
    def pool_slots(self) -> str:
        """How many slots each pool has. All keys of pools are on one server: a job takes slots of several at once."""
        return f"{self.prefix}:{{:pools}}:slots"

    def pool_holders(self, pool: str) -> str:
        """Jobs that hold slots of a pool: the end of each one's lease, its slots, and when it started."""
        return f"{self.prefix}:{{:pools}}:holders:{pool}"

    def pool_waiters(self, pool: str) -> str:
        """Jobs that wait for slots of a pool, by arrival."""
        return f"{self.prefix}:{{:pools}}:waiters:{pool}"

    @cached_property
    def pool_waiting(self) -> str:
        """The slots that each waiting job waits for."""
        return f"{self.prefix}:{{:pools}}:waiting"

    def alerts(self, name: str) -> str:
        """Return a key of the alert rules of all queues: they are on one server, to be written together."""
        return f"{self.prefix}:{{:alerts}}:{name}"

    def tokens(self, window: int) -> str:
        """Tokens spent in one window of the token limit, counted from the epoch."""
        return f"{self.base}:tpm:{window}"

    def budget(self, flow_id: str) -> str:
        """Return the key of the budget and the usage of the flow with this root job."""
        return f"{self.base}:budget:{flow_id}"

    @cached_property
    def flows(self) -> str:
        """Ids of the flows whose record is here, by time of creation."""
        return self.named("flows")

    @cached_property
    def flows_due(self) -> str:
        """Ids of the flows to reconcile, by when each must be checked."""
        return self.named("flows:due")

    @cached_property
    def flows_ended(self) -> str:
        """Ids of the flows that have ended, by time of their end."""
        return self.named("flows:ended")

    @cached_property
    def flows_lock(self) -> str:
        """Held by the worker that reconciles flows."""
        return self.named("flows:lock:__keep__")

    def flow(self, flow_id: str) -> str:
        """Return the key of a flow's record: its plan, its state, its times."""
        return f"{self.base}:flow:{flow_id}"

    def flow_ends(self, flow_id: str) -> str:
        """Return the key of how nodes of a flow ended whose records were removed since, by job id; kept for 30 days."""
        return f"{self.base}:flow-ends:{flow_id}"

    def stream_of(self, job_id: str) -> str:
        """Return the key of the job's output stream."""
        return f"{self.base}:jstream:{job_id}"

    def worker(self, consumer: str) -> str:
        """Return the key of a worker's registration, which expires with it."""
        return f"{self.base}:w:{consumer}"

    def replies(self, command_id: str) -> str:
        """Return the key of the workers' replies to a command, kept for a minute."""
        return f"{self.base}:replies:{command_id}"

    def member(self, job_id: str) -> str:
        """Return the job's name in another job's ``deps``, which contains queue and id."""
        return f"{self.base}:{job_id}"


@lru_cache(maxsize=64)
def known_keys(queue: str, prefix: str) -> QueueKeys:
    """Return a queue's keys, built once for a process that submits many flows to it."""
    return QueueKeys(queue, prefix)


PERMANENT_KEYS = {
    "id": "counter of automatic job ids",
    "stream": "ready jobs",
    "wake:one": "signals to one idle worker each, mostly empty",
    "events": "the last events, about 1,000, and those that a registered reader has not read",
    "scheduled": "jobs due later",
    "completed": "finished jobs by time, until retention or `clean` removes them",
    "failed": "failed jobs by time, likewise",
    "meta": "settings",
    "dedup": "deduplication ids",
    "rate": "window of the rate limit",
    "schedulers": "repeatable jobs",
    "ordering": "sequence numbers by ordering key",
    "schedulers:due": "when each repeatable job must be checked",
    "ratelimited": "groups that wait for their limit",
    "metrics:*": "a day of counters per minute",
    "lifo": "ready jobs, newest first",
    "priority": "ready jobs with a priority",
    "list-active": "how many active jobs came from a list",
    "list-active:jobs": "which these are",
    "suspended": "suspended jobs by deadline",
    "outbox": "dead letters that are still to be added to their queue, by time",
    "job:*": "a job, until it is removed",
    "log:*": "its log, likewise",
    "deps:*": "what it waits for, likewise",
    "parents:*": "what waits for it, likewise",
    "jstream:*": "its output, likewise",
    "signals:*": "its signals, likewise",
    "steps:*": "its durable steps, likewise",
    "budget:*": "a flow's budget",
    "tags": "how many jobs each tag has",
    "tag:*": "ids of the jobs of a tag by time, until they are removed and that is noticed",
    "tracked": "ids of tracked jobs, at most 1,000, by when that began",
    "moving": "ids of jobs on the move to another queue, by when that began",
    "flows": "ids of flows by time of creation",
    "flows:due": "when each unfinished flow, and each job that called others, must be checked",
    "flows:ended": "ids of finished flows by time of their end",
    "flow:*": "a flow's plan and state, until it is removed",
    "shares": "weights of shares",
    "shares:waiting": "shares that have waiting jobs, by virtual time",
    "shares:served": "shares that have none and were ahead of the others when they had, until these catch up",
    "share:*": "jobs that wait in a share, in the order in which they start",
    "group:*": "state of an ordering group",
    "groupq:*": "parked jobs of an ordering group",
    "jobs": "with `flow:ID` for the queue: jobs of a flow submitted over HTTP, until it is removed over HTTP",
    "roots": "likewise its roots",
}
"""Keys that stay until they are removed, after the queue's own part, with ``*`` for ids; and what they hold."""

SHARED_KEYS = {
    "audit": "who did what over HTTP, about the last 10,000 acts",
    "usage:queues": "names of the queues whose jobs reported usage",
    "{:pools}:slots": "how many slots each pool has",
    "{:pools}:holders:*": "jobs that hold slots of a pool, and until when",
    "{:pools}:waiters:*": "jobs that wait for slots of a pool, by arrival",
    "{:pools}:waiting": "what each of them waits for",
    "{:pools}:arrivals": "how many ever waited",
    "{:alerts}:rules": "alert rules by name",
    "{:alerts}:silences": "until when rules are silenced, and by whom",
    "{:alerts}:states": "rules that are pending or firing, and what for",
    "{:alerts}:outbox": "messages of alerts that were not sent yet",
    "{:alerts}:due": "when each of these messages is due",
    "{:alerts}:history": "what rules did and what was sent, about the last 10,000 events",
}
"""Likewise the keys that all queues of one prefix share, after that prefix."""
