"""Alerts as values: rules and what they do, what is above a threshold, messages, and events of the history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from orchestration_queue.options.alert import AlertRule
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import when

__all__ = [
    "Alert",
    "AlertEvaluation",
    "AlertEvent",
    "AlertState",
    "Breach",
    "DueMessage",
    "Evaluator",
    "Silence",
    "StoredAlerts",
    "UnsentMessage",
    "compose",
    "deliveries_of",
]


@dataclass(frozen=True, slots=True)
class Breach:
    """Something that is above a rule's threshold, or was until recently.

    Attributes:
        subject: The queue, with the schedule or flow; or the server.
        value: The measured value, in the unit of the rule's kind.
        text: A sentence for people.
        since_ms: Since when, epoch ms.
        is_firing: Whether it has been there for the rule's `pending` time.
        below_ms: Since when it is no longer above the threshold, epoch ms; 0 while it is.
    """

    subject: str
    value: float
    text: str
    since_ms: int = 0
    is_firing: bool = False
    below_ms: int = 0

    @property
    def since(self) -> datetime | None:
        """Since when, as far as it was noticed."""
        return when(self.since_ms)

    @property
    def below_since(self) -> datetime | None:
        """Since when it is no longer above the threshold, as far as it was noticed; None while it is."""
        return when(self.below_ms) if self.below_ms else None


@dataclass(frozen=True, slots=True)
class AlertState:
    """What a rule does that is pending or firing.

    Attributes:
        state: ``pending`` or ``firing``.
        incident: The id of this time: that of all its messages.
        since_ms: When it began, epoch ms.
        breaches: What is above the threshold, or was until recently, at most 500.
        told: The subjects that messages named.
        to: The receivers of these messages.
        messages: How many messages there were.
    """

    state: str
    incident: str
    since_ms: int
    breaches: tuple[Breach, ...] = ()
    told: tuple[str, ...] = ()
    to: tuple[str, ...] = ()
    messages: int = 0


@dataclass(frozen=True, slots=True)
class Silence:
    """A rule that sends no messages for a time.

    Attributes:
        until_ms: Until when, epoch ms.
        by: Who silenced it; empty if unknown.
    """

    until_ms: int
    by: str = ""


@dataclass(frozen=True, slots=True)
class UnsentMessage:
    """A message for one receiver that was not sent yet.

    Attributes:
        id: Its id, the same at each attempt.
        to: The receiver.
        message: What to send.
        created_ms: When it was written, epoch ms.
        attempts: How many attempts failed.
        next_ms: When to try next, epoch ms.
        error: Why the last attempt failed.
    """

    id: str
    to: str
    message: Mapping[str, Any] = field(hash=False)
    created_ms: int = 0
    attempts: int = 0
    next_ms: int = 0
    error: str = ""

    @property
    def member(self) -> str:
        """What stands for it among those that are due: members sort by time."""
        return f"{self.created_ms:013}:{self.id}"


@dataclass(frozen=True, slots=True)
class DueMessage:
    """When a message is due, without its text.

    Attributes:
        member: What stands for it among those that are due.
        id: The message's id: the incident, a number, and the receiver.
        next_ms: When to try next, epoch ms.
    """

    member: str
    id: str
    next_ms: int = 0

    @classmethod
    def of(cls, member: str, next_ms: int = 0) -> Self:
        """Return the message that a member stands for."""
        return cls(member, member.partition(":")[2], next_ms)

    @property
    def to(self) -> str:
        """The receiver."""
        return self.id.rpartition(".")[2]

    @property
    def incident(self) -> str:
        """The id of the incident."""
        return self.id.rpartition(".")[0].rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class AlertEvent:
    """Something that happened to a rule.

    Attributes:
        rule: The rule.
        event: ``pending``, ``firing``, ``resolved``; ``sent`` or ``unsent`` for a message to one receiver.
        incident: The id of the incident.
        text: A sentence about it.
        receiver: Who received the message, or did not.
        delivery: The message's id for that receiver.
        at: When, by the server's clock.
    """

    rule: str
    event: str
    incident: str = ""
    text: str = ""
    receiver: str = ""
    delivery: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Evaluator:
    """The process that evaluates the rules at present.

    Attributes:
        host: Its machine.
        pid: Its process there.
        receivers: Names of the receivers that it knows.
        evaluated_ms: When it evaluated the rules last, epoch ms; 0 if it did not yet.
        error: Why the last evaluation failed; empty if it didn't.
    """

    host: str
    pid: int
    receivers: tuple[str, ...] = ()
    evaluated_ms: int = 0
    error: str = ""

    @property
    def evaluated_at(self) -> datetime | None:
        """When it evaluated the rules last; None if it did not yet."""
        return when(self.evaluated_ms)


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule and what it does.

    Attributes:
        name: The rule's name.
        rule: The rule.
        state: ``ok``, ``pending`` or ``firing``.
        incident: The id of the incident; empty if it is ok.
        since: When the incident began.
        breaches: What is above the threshold, or was until recently, at most 500.
        silenced_until: Until when no messages are sent; None if it is not silenced.
        silenced_by: Who silenced it.
        unsent: Messages that wait to be sent, of the 500 of all rules that are due first.
    """

    name: str
    rule: AlertRule
    state: str = "ok"
    incident: str = ""
    since: datetime | None = None
    breaches: tuple[Breach, ...] = ()
    silenced_until: datetime | None = None
    silenced_by: str = ""
    unsent: tuple[UnsentMessage, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredAlerts:
    """All that is stored about alerts.

    Attributes:
        rules: The rules by name, without unreadable ones.
        silences: Silences by rule, also those that are over.
        states: The state of each rule that is pending or firing.
        outbox: Messages that were not sent yet: those that are due first, oldest first.
        evaluator: The process that evaluates them; None without one.
        unreadable: Names of rules that are damaged, or of a later version.
    """

    rules: Mapping[str, AlertRule]
    silences: Mapping[str, Silence]
    states: Mapping[str, AlertState]
    outbox: Sequence[UnsentMessage]
    evaluator: Evaluator | None
    unreadable: frozenset[str] = frozenset()

    def is_silenced(self, name: str, now_ms: int) -> bool:
        """Return whether a rule sends no messages now."""
        silenced = self.silences.get(name)
        return silenced is not None and silenced.until_ms > now_ms

    def alert(self, name: str, now_ms: int) -> Alert:
        """Return a rule and what it does."""
        state, silenced = self.states.get(name), self.silences.get(name)
        is_silenced = self.is_silenced(name, now_ms)
        return Alert(
            name,
            self.rules[name],
            state.state if state else "ok",
            state.incident if state else "",
            when(state.since_ms) if state else None,
            state.breaches if state else (),
            when(silenced.until_ms) if silenced and is_silenced else None,
            silenced.by if silenced and is_silenced else "",
            tuple(each for each in self.outbox if each.message.get("rule") == name),
        )


@dataclass(frozen=True, slots=True)
class AlertEvaluation:
    """What an evaluation changes, to be written at once.

    Attributes:
        states: The new state by rule; None for a rule that is ok.
        deliveries: Messages to send.
        events: What happened.
    """

    states: Mapping[str, AlertState | None]
    deliveries: Sequence[UnsentMessage] = ()
    events: Sequence[AlertEvent] = ()


_MOST_NAMED = 20
"""Breaches that a message names."""


def compose(
    keys: QueueKeys, name: str, rule: AlertRule | None, state: AlertState, event: str, now_ms: int
) -> dict[str, Any]:
    """Return a message.

    Args:
        keys: Any keys of the prefix.
        name: The rule's name.
        rule: The rule; None if it was removed.
        state: What it does; for ``resolved``, what it did.
        event: ``firing``, ``resolved`` or ``test``.
        now_ms: Epoch ms.
    """
    named = state.breaches[:_MOST_NAMED]
    return {
        "id": f"{state.incident}.{state.messages}",
        "state": event,
        "rule": name,
        "kind": "" if rule is None else str(rule.kind),
        "incident": state.incident,
        "since_ms": state.since_ms,
        "at_ms": now_ms,
        "breaches": [{"subject": each.subject, "value": each.value, "text": each.text} for each in named],
        "more": len(state.breaches) - len(named),
        "note": "" if rule is None else rule.note,
        "prefix": keys.prefix,
    }


def deliveries_of(message: Mapping[str, Any], to: Iterable[str], now_ms: int) -> list[UnsentMessage]:
    """Return a message for each of its receivers; its ids are the same if two leaders write it."""
    return [UnsentMessage(f"{message['id']}.{name}", name, message, now_ms, next_ms=now_ms) for name in to]
