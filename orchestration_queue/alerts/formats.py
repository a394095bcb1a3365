"""How a message is written for each kind of receiver."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from typing import Any

from orchestration_queue._text import clean
from orchestration_queue.alerts.receivers import Receiver
from orchestration_queue.protocol.record import when

__all__ = ["email", "pagerduty", "slack", "title", "webhook"]

_LONGEST_TITLE = 200
_LONGEST_SUMMARY = 1000
_COLORS = {"firing": "#c62828", "resolved": "#2e7d32"}
_WORDS = {"firing": "Firing", "resolved": "Resolved", "test": "Test"}


def title(message: Mapping[str, Any]) -> str:
    """Return a message in one line of at most 200 characters."""
    lines = _lines(message)
    first = f": {lines[0]}" if lines else ""
    more = len(lines) - 1 + int(message.get("more", 0))
    rest = f", and {more:,} more" if more > 0 else ""
    word = _WORDS.get(str(message["state"]), str(message["state"]))
    return clean(f"{word}: {message['rule']}{first}")[: _LONGEST_TITLE - len(rest)] + rest


def _lines(message: Mapping[str, Any]) -> list[str]:
    return [clean(f"{each['subject']}: {each['text']}") for each in message.get("breaches", ())]


def _body(message: Mapping[str, Any]) -> str:
    """Return a message as lines of plain text."""
    is_test = message["state"] == "test"
    lines = ["This is a test: nothing is wrong."] if is_test else _lines(message)
    if more := int(message.get("more", 0)):
        lines.append(f"and {more:,} more")
    note = str(message.get("note", ""))
    facts = [f"Since {_moment(message['since_ms'])}", f"Rule {message['rule']} ({message['kind'] or 'removed'})"]
    return "\n".join([*lines, *([note] if note else []), *([] if is_test else facts[:1]), facts[1]])


def _moment(at_ms: int) -> str:
    at = when(at_ms)
    return "an unknown time" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _instant(at_ms: int) -> str | None:
    at: datetime | None = when(at_ms)
    return None if at is None else at.isoformat()


def webhook(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON object that a webhook receives."""
    plain = {name: message[name] for name in ("id", "state", "rule", "kind", "incident", "breaches", "more", "note")}
    times = {"since": _instant(message["since_ms"]), "at": _instant(message["at_ms"])}
    return {**plain, **times, "prefix": message["prefix"], "text": title(message)}


def slack(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON object of Slack's incoming webhooks."""
    text = f"*{_escape(title(message))}*\n{_escape(_body(message))}"
    color = _COLORS.get(str(message["state"]), "#757575")
    return {"text": _escape(title(message)), "attachments": [{"color": color, "text": text, "mrkdwn_in": ["text"]}]}


def _escape(text: str) -> str:
    """Return text that Slack takes for no mention, link or entity, nor for a format."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\u200b{letter}" if letter in "*_~`" else letter for letter in escaped)


def pagerduty(message: Mapping[str, Any], receiver: Receiver) -> dict[str, Any]:
    """Return the JSON object of PagerDuty's Events API, version 2. One incident there is one of ours."""
    event = {
        "routing_key": receiver.key,
        "event_action": "resolve" if message["state"] == "resolved" else "trigger",
        "dedup_key": message["incident"],
    }
    severity = "info" if message["state"] == "test" else "error"
    subjects = [each["subject"] for each in message["breaches"]]
    payload = {
        "summary": title(message)[:_LONGEST_SUMMARY],
        "source": subjects[0] if subjects else message["prefix"],
        "severity": severity,
        "timestamp": _instant(message["at_ms"]),
        "component": message["rule"],
        "class": message["kind"],
        "custom_details": {"breaches": _lines(message), "more": message["more"], "note": message["note"]},
    }
    return {**event, "payload": payload}


def email(message: Mapping[str, Any], receiver: Receiver) -> EmailMessage:
    """Return an e-mail. Those of one incident are one conversation."""
    mail = EmailMessage()
    mail["Subject"] = title(message)
    mail["From"], mail["To"] = receiver.sender, ", ".join(receiver.to)
    if (at := when(message["at_ms"])) is not None:
        mail["Date"] = format_datetime(at)
    domain = receiver.sender.rpartition("@")[2]
    mail["Message-ID"] = make_msgid(domain=domain)
    mail["References"] = f"<{message['incident']}@{domain}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(_body(message))
    return mail
