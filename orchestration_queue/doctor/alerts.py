"""Checks of the alert rules: that they are evaluated, and that their messages arrive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestration_queue.client import Alerts
from orchestration_queue.doctor.finding import Finding, count, problem

__all__ = ["ALERT_CHECKS", "InspectedAlerts"]

_WHERE = "alert rules"


@dataclass(frozen=True, slots=True)
class InspectedAlerts:
    """The alert rules of all queues.

    Attributes:
        client: Reads them.
        name: Their name in findings.
    """

    client: Alerts
    name: str = _WHERE


def evaluation(alerts: InspectedAlerts) -> Iterator[Finding]:
    """Check that a process evaluates the rules, without errors, and knows their receivers."""
    rules = alerts.client.list()
    if not rules:
        return
    evaluator = alerts.client.evaluator()
    if evaluator is None:
        waiting = f"{count(len(rules), 'rule')} {'waits' if len(rules) == 1 else 'wait'}"
        yield problem(
            _WHERE,
            f"No process evaluates rules, and {waiting} for one",
            "nothing fires, and no message is sent",
            "start oq alert run",
        )
        return
    if evaluator.error:
        yield problem(
            _WHERE,
            f"The last evaluation on {evaluator.host} failed: {evaluator.error.rstrip('.')}",
            "rules may not fire",
            "repair what the log of oq alert run names",
        )
    for alert in rules:
        if unknown := [name for name in alert.rule.to if name not in evaluator.receivers]:
            yield problem(
                _WHERE,
                f"Rule {alert.name} names {', '.join(unknown)}, which {evaluator.host} does not know",
                "they get no messages",
                "define them in the environment of oq alert run, or correct the rule",
            )


def delivery(alerts: InspectedAlerts) -> Iterator[Finding]:
    """Check that messages can be sent."""
    failed = {unsent.to: unsent.error for alert in alerts.client.list() for unsent in alert.unsent if unsent.error}
    for receiver, error in failed.items():
        yield problem(
            _WHERE,
            f"Messages to {receiver} cannot be sent: {error}",
            "they are repeated for a day, and then given up",
            "repair the receiver, then oq alert test a rule that names it",
        )


ALERT_CHECKS = (evaluation, delivery)
