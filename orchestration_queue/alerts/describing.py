"""Alerts as JSON has them, for the command line and HTTP alike."""

from __future__ import annotations

from typing import Any

from orchestration_queue.protocol.alerts import Alert, AlertEvent, Evaluator

__all__ = ["describe", "describe_evaluator", "describe_event"]


def describe(alert: Alert) -> dict[str, Any]:
    """Return a rule and what it does."""
    names = ("subject", "value", "text", "since", "is_firing", "below_since")
    breaches = [{name: getattr(each, name) for name in names} for each in alert.breaches]
    unsent = [{"to": each.to, "attempts": each.attempts, "error": each.error} for each in alert.unsent]
    return {
        "name": alert.name,
        **alert.rule.describe(),
        "state": alert.state,
        "incident": alert.incident or None,
        "since": alert.since,
        "breaches": breaches,
        "silenced_until": alert.silenced_until,
        "silenced_by": alert.silenced_by or None,
        "unsent": unsent,
    }


def describe_evaluator(evaluator: Evaluator | None) -> dict[str, Any] | None:
    """Return the process that evaluates the rules; None without one."""
    if evaluator is None:
        return None
    return {
        "host": evaluator.host,
        "pid": evaluator.pid,
        "receivers": list(evaluator.receivers),
        "evaluated_at": evaluator.evaluated_at,
        "error": evaluator.error or None,
    }


def describe_event(event: AlertEvent) -> dict[str, Any]:
    """Return an event of the history."""
    names = ("at", "rule", "event", "incident", "text", "receiver", "delivery")
    return {name: getattr(event, name) for name in names}
