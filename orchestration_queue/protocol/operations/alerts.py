"""Alert rules on the server: how they are stored, what they do at present, what must be sent, and what happened."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from orchestration_queue.errors import UsageError
from orchestration_queue.options.alert import AlertRule
from orchestration_queue.protocol.alerts import (
    AlertEvaluation,
    AlertEvent,
    AlertState,
    Breach,
    DueMessage,
    Evaluator,
    Silence,
    StoredAlerts,
    UnsentMessage,
)
from orchestration_queue.protocol.call import Call, Conversation, Operation, Reply, all_good, integer, text
from orchestration_queue.protocol.codec import dump_json
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import pairs, when, whole_number

__all__ = [
    "announce",
    "drop_due",
    "drop_rule",
    "history",
    "put_deliveries",
    "put_rule",
    "read_all",
    "read_due",
    "read_unsent",
    "renew_lock",
    "settle_delivery",
    "silence",
    "try_lock",
    "unlock",
    "write",
]

_MOST_EVENTS = 10_000
_MOST_UNSENT = 500
_LOCK = "lock"


def put_rule(keys: QueueKeys, name: str, rule: AlertRule) -> Operation[bool]:
    """Store a rule; read whether it is new."""
    call = Call("HSET", (keys.alerts("rules"),), (name, dump_json(rule.describe())))
    return Operation(call, lambda reply: integer(reply) == 1)


def drop_rule(keys: QueueKeys, name: str) -> Conversation[bool]:
    """Remove a rule and its silence; return False if it did not exist. The leader ends its incident."""
    calls = [Call("HDEL", (keys.alerts(part),), (name,)) for part in ("rules", "silences")]
    return integer(all_good((yield calls))[0]) == 1


def silence(keys: QueueKeys, name: str, silenced: Silence | None) -> Call:
    """Silence a rule, or end its silence."""
    key = (keys.alerts("silences"),)
    return Call("HDEL", key, (name,)) if silenced is None else Call("HSET", key, (name, dump_json(asdict(silenced))))


def read_all(keys: QueueKeys) -> Conversation[StoredAlerts]:
    """Read what is stored about alerts, with at most 500 unsent messages. One exchange, two if there are such."""
    hashes = [Call("HGETALL", (keys.alerts(part),)) for part in ("rules", "silences", "states")]
    first = Call("ZRANGE", (keys.alerts("due"),), (0, _MOST_UNSENT - 1))
    rules, silences, states, leader, due = all_good((yield [*hashes, Call("GET", (keys.alerts("leader"),)), first]))
    unsent = yield from read_unsent(keys, [DueMessage.of(text(member)) for member in due or ()])
    readable = _read_each(rules, _rule)
    return StoredAlerts(
        dict(sorted(readable.items())),
        _read_each(silences, lambda stored: Silence(int(stored["until_ms"]), str(stored["by"]))),
        _read_each(states, _state),
        sorted(unsent.values(), key=lambda each: (each.created_ms, each.id)),
        None if leader is None else _read_each([b"leader", leader], _evaluator).get("leader"),
        frozenset(pairs(rules)) - readable.keys(),
    )


def read_due(keys: QueueKeys, now_ms: int, longest_ms: int) -> Conversation[list[DueMessage]]:
    """Read which messages were not sent yet, oldest first, without their text; none unless one of them is due.

    Args:
        keys: Any keys of the prefix.
        now_ms: Epoch ms.
        longest_ms: A message that is due later than this from now is due now: an earlier leader's clock was ahead.
    """
    key = (keys.alerts("due"),)
    ranges = [("-inf", str(now_ms)), (f"({now_ms + longest_ms}", "+inf")]
    found = all_good((yield [Call("ZRANGEBYSCORE", key, (low, high, "LIMIT", 0, 1)) for low, high in ranges]))
    if not found[0] and not found[1]:
        return []
    # In one piece: what is sent meanwhile moves others from one page to another, and messages keep their order.
    (reply,) = all_good((yield [Call("ZRANGE", key, (0, -1, "WITHSCORES"))]))
    return [DueMessage.of(member, int(float(score))) for member, score in sorted(pairs(reply).items())]


def read_unsent(keys: QueueKeys, due: Sequence[DueMessage]) -> Conversation[dict[str, UnsentMessage]]:
    """Read messages by their ids, without those that are sent or damaged. One exchange."""
    if not due:
        return {}
    (bodies,) = all_good((yield [Call("HMGET", (keys.alerts("outbox"),), tuple(each.id for each in due))]))
    stored = [
        word
        for each, body in zip(due, bodies, strict=True)
        if body is not None
        for word in (each.id.encode("utf-8", "surrogateescape"), body)
    ]
    return _read_each(stored, _delivery)


def _read_each(reply: Reply, read: Any) -> dict[str, Any]:
    """Read the values of a hash, which are JSON objects, without those that another client damaged."""
    found = {}
    for name, stored in pairs(reply).items():
        try:
            found[name] = read(json.loads(stored))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue
    return found


def _rule(stored: dict[str, Any]) -> AlertRule:
    # Fields of later versions are unknown here.
    return AlertRule(**{name: stored[name] for name in AlertRule.model_fields if name in stored})


def _state(stored: dict[str, Any]) -> AlertState:
    breaches = tuple(
        Breach(
            str(each["subject"]),
            float(each["value"]),
            str(each["text"]),
            int(each["since_ms"]),
            bool(each["is_firing"]),
            int(each["below_ms"]),
        )
        for each in stored["breaches"]
    )
    told, to = tuple(map(str, stored["told"])), tuple(map(str, stored["to"]))
    since_ms, messages = int(stored["since_ms"]), int(stored["messages"])
    return AlertState(str(stored["state"]), str(stored["incident"]), since_ms, breaches, told, to, messages)


def _delivery(stored: dict[str, Any]) -> UnsentMessage:
    if not isinstance(stored["message"], dict):
        raise UsageError("A message must be an object.")
    created_ms, attempts, next_ms = (int(stored[name]) for name in ("created_ms", "attempts", "next_ms"))
    to, message = str(stored["to"]), stored["message"]
    return UnsentMessage(str(stored["id"]), to, message, created_ms, attempts, next_ms, str(stored["error"]))


def _evaluator(stored: dict[str, Any]) -> Evaluator:
    receivers = tuple(map(str, stored["receivers"]))
    return Evaluator(
        str(stored["host"]), int(stored["pid"]), receivers, int(stored["evaluated_ms"]), str(stored["error"])
    )


def write(keys: QueueKeys, evaluation: AlertEvaluation) -> list[Call]:
    """Write an evaluation. Send the calls in one transaction: what fires must be sent, even if the leader dies now."""
    kept = {name: dump_json(asdict(state)) for name, state in evaluation.states.items() if state is not None}
    gone = [name for name, state in evaluation.states.items() if state is None]
    states = keys.alerts("states")
    return [
        *([Call("HSET", (states,), tuple(word for pair in kept.items() for word in pair))] if kept else []),
        *([Call("HDEL", (states,), tuple(gone))] if gone else []),
        *put_deliveries(keys, evaluation.deliveries),
        *(_note(keys, event) for event in evaluation.events),
    ]


def put_deliveries(keys: QueueKeys, deliveries: Sequence[UnsentMessage]) -> list[Call]:
    """Add messages that must be sent, or replace them; for one transaction."""
    if not deliveries:
        return []
    bodies = tuple(word for each in deliveries for word in (each.id, dump_json(asdict(each))))
    scores = tuple(word for each in deliveries for word in (each.next_ms, each.member))
    return [Call("HSET", (keys.alerts("outbox"),), bodies), Call("ZADD", (keys.alerts("due"),), scores)]


def drop_due(keys: QueueKeys, gone: Sequence[DueMessage]) -> Call:
    """Forget when messages are due that are no longer stored."""
    return Call("ZREM", (keys.alerts("due"),), tuple(each.member for each in gone))


def settle_delivery(keys: QueueKeys, delivery: UnsentMessage, error: str) -> list[Call]:
    """Record that a message was sent, or with an error that it is given up; for one transaction."""
    about = {name: str(delivery.message.get(name, "")) for name in ("rule", "incident", "state")}
    word = f"{about['state']}: {error}" if error else about["state"]
    event = "unsent" if error else "sent"
    noted = AlertEvent(about["rule"], event, about["incident"], word, delivery.to, delivery.id)
    return [
        Call("HDEL", (keys.alerts("outbox"),), (delivery.id,)),
        Call("ZREM", (keys.alerts("due"),), (delivery.member,)),
        _note(keys, noted),
    ]


_EVENT_FIELDS = ("rule", "event", "incident", "text", "receiver", "delivery")


def _note(keys: QueueKeys, event: AlertEvent) -> Call:
    fields = tuple(word for name in _EVENT_FIELDS for word in (name, getattr(event, name)))
    return Call("XADD", (keys.alerts("history"),), ("MAXLEN", "~", _MOST_EVENTS, "*", *fields))


def history(keys: QueueKeys, count: int) -> Operation[list[AlertEvent]]:
    """Read the last events, newest first."""

    def read(reply: Reply) -> list[AlertEvent]:
        events = []
        for entry_id, flat in reply or ():
            fields = pairs(flat or ())
            at = when(whole_number(text(entry_id).partition("-")[0]))
            events.append(AlertEvent(**{name: fields.get(name, "") for name in _EVENT_FIELDS}, at=at))
        return events

    return Operation(Call("XREVRANGE", (keys.alerts("history"),), ("+", "-", "COUNT", count)), read)


def try_lock(keys: QueueKeys, token: str, ttl_ms: int) -> Operation[bool]:
    """Take the lock of the process that evaluates; read False if another holds it."""
    return Operation(glidemq.try_lock(lock_key=keys.alerts(_LOCK), token=token, ttl_ms=ttl_ms), _is_one)


def renew_lock(keys: QueueKeys, token: str, ttl_ms: int) -> Operation[bool]:
    """Renew the lock; read False if it is no longer ours."""
    return Operation(glidemq.renew_lock(lock_key=keys.alerts(_LOCK), token=token, ttl_ms=ttl_ms), _is_one)


def unlock(keys: QueueKeys, token: str) -> list[Call]:
    """Release the lock, and no longer say that this process evaluates."""
    return [Call("DEL", (keys.alerts("leader"),)), glidemq.unlock(lock_key=keys.alerts(_LOCK), token=token)]


def announce(keys: QueueKeys, evaluator: Evaluator, ttl_ms: int) -> Call:
    """Say for a time that this process evaluates the rules."""
    return Call("SET", (keys.alerts("leader"),), (dump_json(asdict(evaluator)), "PX", ttl_ms))


def _is_one(reply: Reply) -> bool:
    return integer(reply) == 1
