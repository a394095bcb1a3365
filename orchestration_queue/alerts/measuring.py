"""What rules watch, read from the server: for each kind of rule the queues that are above its threshold."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import TypeAlias

from orchestration_queue.options import AlertKind, AlertRule, seconds
from orchestration_queue.protocol.alerts import Breach
from orchestration_queue.protocol.call import Call, Conversation, all_good, text, texts, together
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.operations import (
    pools,
    queue_settings,
    queue_state,
    schedule_entries,
    worker_registry,
)
from orchestration_queue.schedules import SchedulerEntry
from orchestration_queue.states import JobState

__all__ = ["measure", "measure_memory", "measure_pools", "span"]

_MOST_FLOWS = 1000
"""Unfinished flows of a queue that are read, those first that must be checked first."""

Measure: TypeAlias = Callable[[QueueKeys, AlertRule, int], Conversation[list[Breach]]]


def measure(keys: QueueKeys, rule: AlertRule, now_ms: int) -> Conversation[list[Breach]]:
    """Return what is above a rule's threshold in one queue. At most five exchanges, most have one or two."""
    return _MEASURES[rule.kind](keys, rule, now_ms)


def _threshold(rule: AlertRule) -> float:
    return rule.threshold or 0.0


def _failure_rate(keys: QueueKeys, rule: AlertRule, now_ms: int) -> Conversation[list[Breach]]:
    window = rule.window or timedelta(minutes=5)
    minute = now_ms // queue_state.MINUTE_MS
    first = minute - max(1, round(seconds(window) / 60)) + 1
    kinds = (JobState.COMPLETED, JobState.FAILED)
    ended = yield from together([queue_state.ended_by_minute(keys, kind, first, minute) for kind in kinds])
    completed, failed = (sum(minutes.values()) for minutes in ended)
    total = completed + failed
    if total < (rule.minimum or 1) or failed <= _threshold(rule) * total:
        return []
    rate = failed / total
    return [Breach(keys.queue, rate, f"{rate:.0%} of {_count(total, 'job')} failed within {span(seconds(window))}")]


def _oldest_waiting(keys: QueueKeys, rule: AlertRule, now_ms: int) -> Conversation[list[Breach]]:
    since_ms = yield from queue_state.oldest_ready_ms(keys)
    age_s = (now_ms - since_ms) / 1000 if since_ms else 0.0
    if age_s <= _threshold(rule) or (yield from _is_broadcast(keys)):
        return []
    return [Breach(keys.queue, age_s, f"The oldest waiting job has been ready for {span(age_s)}")]


def _is_broadcast(keys: QueueKeys) -> Conversation[bool]:
    """Return whether subscriptions read the stream, whose messages wait for no worker."""
    described, _ = yield from queue_state.groups(keys)
    return any(group["name"] != GROUP for group in described)


def _no_worker(keys: QueueKeys, rule: AlertRule, _: int) -> Conversation[list[Breach]]:
    if (yield from worker_registry.count_workers(keys)):
        return []
    paused = worker_registry.is_paused(keys)
    (reply,) = all_good((yield [paused.call]))
    waiting = (yield from queue_state.counts(keys)).waiting
    if paused.read(reply) or (rule.is_pattern and not waiting) or (yield from _is_broadcast(keys)):
        return []
    jobs = f", and {_waiting(waiting)}" if waiting else ""
    return [Breach(keys.queue, waiting, f"No worker serves the queue{jobs}")]


def _dead_letters(keys: QueueKeys, rule: AlertRule, _: int) -> Conversation[list[Breach]]:
    name = yield from queue_settings.dead_letter_queue(keys)
    if not name:
        return []
    # Named by the dead-letter queue: those of several queues are counted once.
    number = yield from queue_state.count(QueueKeys(name, keys.prefix))
    if number <= _threshold(rule):
        return []
    return [Breach(name, number, f"{_count(number, 'dead letter')} {'is' if number == 1 else 'are'} stored there")]


def _schedule_overdue(keys: QueueKeys, rule: AlertRule, now_ms: int) -> Conversation[list[Breach]]:
    entries = schedule_entries.entries(keys)
    (reply,) = all_good((yield [entries.call]))
    found = []
    for name, stored in entries.read(reply).items():
        entry = SchedulerEntry.parse(stored)
        due_ms = 0 if entry is None or entry.is_paused else entry.run_at(name)
        late_s = (now_ms - due_ms) / 1000 if due_ms > 0 else 0.0
        if late_s > _threshold(rule):
            found.append(Breach(f"{keys.queue}/{name}", late_s, f"A run of the schedule is {span(late_s)} overdue"))
    return found


def _flow_late(keys: QueueKeys, rule: AlertRule, now_ms: int) -> Conversation[list[Breach]]:
    (reply,) = all_good((yield [Call("ZRANGE", (keys.flows_due,), (0, _MOST_FLOWS - 1))]))
    ids = texts(reply)
    if not ids:
        return []
    # Flows that have ended are checked again when their retention ends.
    created, ended = all_good((yield [Call("ZMSCORE", (key,), tuple(ids)) for key in (keys.flows, keys.flows_ended)]))
    times = [(flow, at) for flow, at, end in zip(ids, created, ended, strict=True) if at is not None and end is None]
    ages = {flow: (now_ms - float(at)) / 1000 for flow, at in times}
    return [
        Breach(f"{keys.queue}/{flow}", age_s, f"The flow has run for {span(age_s)}")
        for flow, age_s in ages.items()
        if age_s > _threshold(rule)
    ]


def _backlog(keys: QueueKeys, rule: AlertRule, _: int) -> Conversation[list[Breach]]:
    counts = yield from queue_state.counts(keys)
    if counts.waiting <= _threshold(rule) or (yield from _is_broadcast(keys)):
        return []
    return [Breach(keys.queue, counts.waiting, f"{_waiting(counts.waiting)} for a worker")]


_MEASURES: dict[AlertKind, Measure] = {
    AlertKind.FAILURE_RATE: _failure_rate,
    AlertKind.OLDEST_WAITING: _oldest_waiting,
    AlertKind.NO_WORKER: _no_worker,
    AlertKind.DEAD_LETTERS: _dead_letters,
    AlertKind.SCHEDULE_OVERDUE: _schedule_overdue,
    AlertKind.FLOW_LATE: _flow_late,
    AlertKind.BACKLOG: _backlog,
}
"""How each kind of rule that concerns queues is measured."""


def measure_pools(keys: QueueKeys, rule: AlertRule, now_ms: int) -> Conversation[list[Breach]]:
    """Return the pools for whose slots more jobs wait than a rule allows. Two exchanges."""
    found = yield from pools.states(keys, now_ms)
    return [
        Breach(
            pool.name,
            pool.waiting,
            f"{_waiting(pool.waiting)} for slots, of which {pool.used} of {pool.slots} are used",
        )
        for pool in found
        if fnmatchcase(pool.name, rule.queue) and pool.waiting > _threshold(rule)
    ]


def measure_memory(where: str, rule: AlertRule) -> Conversation[list[Breach]]:
    """Return whether a server's memory is above a rule's threshold. One exchange with that server."""
    (reply,) = all_good((yield [Call("INFO", args=("memory",))]))
    facts = dict(line.partition(":")[::2] for line in text(reply).splitlines())
    used, limit, whole = (_whole(facts, name) for name in ("used_memory", "maxmemory", "total_system_memory"))
    most = limit or whole
    if not most or used <= _threshold(rule) * most:
        return []
    of = "maxmemory" if limit else "its machine's memory"
    return [Breach(where, used / most, f"{used / most:.0%} of {of} is in use")]


def _whole(facts: dict[str, str], name: str) -> int:
    return int(facts.get(name, "0").strip() or 0)


def _waiting(number: int) -> str:
    return f"{_count(number, 'job')} {'waits' if number == 1 else 'wait'}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def span(length_s: float) -> str:
    """Format a duration of seconds for people: ``42 s``, ``5 min``, ``2 h 10 min``, ``3 d 4 h``."""
    if length_s < 60:
        return f"{length_s:.0f} s"
    minutes = int(length_s // 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
