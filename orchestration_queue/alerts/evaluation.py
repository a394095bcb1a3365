"""What a measurement means for a rule: which state follows, what is sent to whom, and what is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestration_queue.options import AlertRule, milliseconds
from orchestration_queue.protocol.alerts import (
    AlertEvaluation,
    AlertEvent,
    AlertState,
    Breach,
    StoredAlerts,
    UnsentMessage,
    compose,
    deliveries_of,
)
from orchestration_queue.protocol.keys import QueueKeys

__all__ = ["MOST_BREACHES", "evaluate", "summary"]

MOST_BREACHES = 500
"""Subjects of a rule that are stored: the first by name."""
_NAMED = 3


def evaluate(
    keys: QueueKeys, stored: StoredAlerts, measured: Mapping[str, Sequence[Breach]], now_ms: int
) -> AlertEvaluation:
    """Return what changes.

    Args:
        keys: Any keys of the prefix.
        stored: Rules, silences and states.
        measured: What is above the threshold of each rule. A rule that could not be measured is missing, and stays as
            it is.
        now_ms: Epoch ms.
    """
    changes = _Changes(keys, now_ms)
    for name, rule in stored.rules.items():
        if name in measured:
            before = stored.states.get(name)
            is_silenced = stored.is_silenced(name, now_ms)
            changes.follow(name, rule, before, measured[name], is_silenced=is_silenced)
    for name in stored.states.keys() - stored.rules.keys() - stored.unreadable:
        changes.resolve(name, None, stored.states[name])
        changes.states[name] = None
    return AlertEvaluation(changes.states, changes.deliveries, changes.events)


@dataclass
class _Changes:
    """The changes of one evaluation."""

    keys: QueueKeys
    now_ms: int
    states: dict[str, AlertState | None] = field(default_factory=dict)
    deliveries: list[UnsentMessage] = field(default_factory=list)
    events: list[AlertEvent] = field(default_factory=list)

    def follow(
        self,
        name: str,
        rule: AlertRule,
        before: AlertState | None,
        measured: Sequence[Breach],
        *,
        is_silenced: bool,
    ) -> None:
        """Move a rule to the state that its measurement asks for."""
        breaches = self._since(rule, before, measured)
        firing = tuple(each for each in breaches if each.is_firing)
        current, after = before, None
        if before is not None and not firing:
            self.resolve(name, rule, before)
            current = before if before.state == "pending" else None
        if breaches:
            after = self._enter(name, current, "firing" if firing else "pending", breaches)
        if after is not None and firing:
            after = self._tell(name, rule, after, firing, is_silenced=is_silenced)
        if after != before:
            self.states[name] = after

    def _since(self, rule: AlertRule, before: AlertState | None, measured: Sequence[Breach]) -> tuple[Breach, ...]:
        """Return the breaches with the times since when they are there, in order, at most 500."""
        known = {each.subject: each for each in before.breaches} if before else {}
        pending_ms, keep_ms = milliseconds(rule.pending), milliseconds(rule.keep_firing)
        found = {}
        for each in known.values():
            # The clock of an earlier leader may be ahead of ours, here and below.
            below_ms = min(each.below_ms or self.now_ms, self.now_ms)
            if each.is_firing and self.now_ms - below_ms < keep_ms:
                found[each.subject] = replace(each, below_ms=below_ms)
        for each in measured:
            earlier = known.get(each.subject)
            since_ms = min(earlier.since_ms if earlier else self.now_ms, self.now_ms)
            is_firing = (earlier is not None and earlier.is_firing) or self.now_ms - since_ms >= pending_ms
            found[each.subject] = replace(each, since_ms=since_ms, is_firing=is_firing, below_ms=0)
        return tuple(found[subject] for subject in sorted(found)[:MOST_BREACHES])

    def _enter(self, name: str, before: AlertState | None, state: str, breaches: tuple[Breach, ...]) -> AlertState:
        """Return the state of a rule with these breaches, and record that it has entered it."""
        began = before or AlertState("", f"{name}.{self.now_ms}", self.now_ms)
        subjects = {each.subject for each in breaches}
        told = tuple(each for each in began.told if each in subjects)
        if began.state != state:
            self.events.append(AlertEvent(name, state, began.incident, summary(breaches)))
        return replace(began, state=state, breaches=breaches, told=told)

    def _tell(
        self, name: str, rule: AlertRule, state: AlertState, firing: tuple[Breach, ...], *, is_silenced: bool
    ) -> AlertState:
        """Send a message if something is above the threshold that none has named; return the state after it."""
        subjects = tuple(each.subject for each in firing)
        if is_silenced or set(subjects) <= set(state.told):
            return state
        to = tuple(dict.fromkeys((*state.to, *rule.to)))
        told = replace(state, messages=state.messages + 1, told=subjects, to=to)
        message = compose(self.keys, name, rule, replace(told, breaches=firing), "firing", self.now_ms)
        self._send(message, rule.to)
        return told

    def resolve(self, name: str, rule: AlertRule | None, before: AlertState) -> None:
        """End an incident; send a message to those who received one about it, also while the rule is silenced."""
        if before.state != "firing":
            return
        reason = "The rule was removed" if rule is None else summary(before.breaches)
        self.events.append(AlertEvent(name, "resolved", before.incident, reason))
        if before.to:
            named = tuple(each for each in before.breaches if each.subject in before.told)
            last = replace(before, messages=before.messages + 1, breaches=named)
            self._send(compose(self.keys, name, rule, last, "resolved", self.now_ms), before.to)

    def _send(self, message: Mapping[str, object], to: Iterable[str]) -> None:
        self.deliveries += deliveries_of(message, to, self.now_ms)


def summary(breaches: Sequence[Breach]) -> str:
    """Return what is above a threshold in one line."""
    named = "; ".join(f"{each.subject}: {each.text}" for each in breaches[:_NAMED])
    more = len(breaches) - _NAMED
    return f"{named}; and {more:,} more" if more > 0 else named
