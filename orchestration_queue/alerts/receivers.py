"""Receivers of alerts, as the environment of the process that sends them defines them. Their URLs are secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from orchestration_queue.errors import UsageError
from orchestration_queue.options.alert import check_receiver

__all__ = ["KEY", "RECEIVER", "Receiver", "read_receivers"]

RECEIVER = "OQ_ALERT_RECEIVER_"
"""Begins the variable of a receiver's URL: ``OQ_ALERT_RECEIVER_OPS`` is that of ``ops``."""
KEY = "OQ_ALERT_KEY_"
"""Begins the variable of the key with which messages to a webhook are signed."""
_KINDS = {
    "http": "webhook", "https": "webhook",
    "slack+http": "slack", "slack+https": "slack",
    "pagerduty+http": "pagerduty", "pagerduty+https": "pagerduty",
    "smtp": "email", "smtps": "email",
}  # fmt: skip
_SHAPES = {
    "webhook": "https://hooks.example.com/alerts",
    "slack": "slack+https://hooks.slack.com/services/...",
    "pagerduty": "pagerduty+https://ROUTING_KEY@events.pagerduty.com/v2/enqueue",
    "email": "smtps://user:password@mail.example.com?from=oq@example.com&to=ops@example.com",
}
_ADDRESS = re.compile(r"[^\s@<>,;\"]+@[^\s@<>,;\"]+")
_SHORTEST_KEY = 16


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver of alerts.

    Attributes:
        name: Its name in rules.
        kind: ``webhook``, ``slack``, ``pagerduty`` or ``email``.
        url: Where messages are sent, without the kind and the credentials.
        key: What a webhook's messages are signed with; PagerDuty's routing key. Empty without one.
        user: The user at the mail server; empty without one.
        password: That user's password.
        sender: The address that mail comes from.
        to: The addresses that mail goes to.
    """

    name: str
    kind: str
    url: str = field(repr=False)
    key: str = field(default="", repr=False)
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    sender: str = ""
    to: tuple[str, ...] = ()


def read_receivers(environment: Mapping[str, str]) -> dict[str, Receiver]:
    """Return the receivers that an environment defines, by name.

    Raises:
        UsageError: A variable is invalid. The error names it without its value.
    """
    found = {}
    for variable, value in sorted(environment.items()):
        if variable.startswith(RECEIVER):
            suffix = variable.removeprefix(RECEIVER)
            name = check_receiver(suffix.lower().replace("_", "-"))
            found[name] = _read(name, variable, value.strip(), environment.get(KEY + suffix, ""))
    for variable in environment:
        if variable.startswith(KEY) and RECEIVER + variable.removeprefix(KEY) not in environment:
            raise UsageError(f"{variable} belongs to no receiver; set {RECEIVER}{variable.removeprefix(KEY)} too.")
    return found


def _read(name: str, variable: str, value: str, key: str) -> Receiver:
    try:
        parts = urlsplit(value)
        kind, host, port = _KINDS.get(parts.scheme, ""), parts.hostname, parts.port
    except ValueError:
        kind, host, port = "", None, None
    if not kind or not host or not value.isprintable() or " " in value or not value.isascii():
        raise UsageError(f"{variable} must be a URL like {_SHAPES['webhook']} or {_SHAPES['email']}.")
    if key and (kind != "webhook" or len(key) < _SHORTEST_KEY):
        raise UsageError(
            f"{KEY}{variable.removeprefix(RECEIVER)} must have {_SHORTEST_KEY} characters or more, and "
            "its receiver must be a webhook."
        )
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if kind == "email":
        return _read_email(name, variable, value, user, password)
    scheme = parts.scheme.rpartition("+")[2]
    url = parts._replace(scheme=scheme, netloc=_address(host, port), fragment="").geturl()
    if kind == "pagerduty":
        if not user or password:
            raise UsageError(f"{variable} must be a URL like {_SHAPES[kind]}.")
        return Receiver(name, kind, url, user)
    if user or password:
        raise UsageError(f"{variable} must not contain a user or a password, which a {kind} has no use for.")
    return Receiver(name, kind, url, key)


def _read_email(name: str, variable: str, value: str, user: str, password: str) -> Receiver:
    parts = urlsplit(value)
    given = parse_qs(parts.query)
    sender, to = given.pop("from", []), [each.strip() for text in given.pop("to", []) for each in text.split(",")]
    is_sound = len(sender) == 1 and to and all(_ADDRESS.fullmatch(each) for each in (*sender, *to))
    if given or not is_sound or parts.path not in ("", "/") or bool(user) is not bool(password):
        raise UsageError(f"{variable} must be a URL like {_SHAPES['email']}, with addresses separated by commas.")
    address = _address(parts.hostname or "", parts.port or (465 if parts.scheme == "smtps" else 587))
    return Receiver(name, "email", f"{parts.scheme}://{address}", "", user, password, sender[0], tuple(to))


def _address(host: str, port: int | None) -> str:
    literal = f"[{host}]" if ":" in host else host
    return literal if port is None else f"{literal}:{port}"
