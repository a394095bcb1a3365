"""Alerts: one process at a time evaluates rules, and sends messages to webhooks, e-mail, Slack and PagerDuty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestration_queue._lazy import lazy_names

if TYPE_CHECKING:
    from orchestration_queue.alerts.evaluator import AlertEvaluator
    from orchestration_queue.alerts.receivers import Receiver, read_receivers
    from orchestration_queue.alerts.webhook import verify

__all__ = ["AlertEvaluator", "Receiver", "read_receivers", "verify"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AlertEvaluator": "alerts.evaluator",
        "Receiver": "alerts.receivers",
        "read_receivers": "alerts.receivers",
        "verify": "alerts.webhook",
    },
)
