"""Broadcasts for publishers: what a message may be, its subject, and who is subscribed.

A message is a job that stays on the stream, where each subscription (a consumer group) reads it for itself. A subject
is words between dots: ``orders.created.eu``. In a pattern, ``*`` stands for exactly one word, and ``>``, in the last
place, for one or more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from orchestration_queue.errors import InvalidNameError, InvalidOptionError, ServerError
from orchestration_queue.options import JobOptions, name_problem
from orchestration_queue.protocol.call import Call, Operation, Reply, text, texts
from orchestration_queue.protocol.keys import QueueKeys

__all__ = [
    "NEW_ONLY",
    "SubjectFilter",
    "Subscription",
    "check_length",
    "check_options",
    "check_start",
    "check_subject",
    "check_subscription",
    "is_unused",
    "subscriptions",
    "trim",
    "unsubscribe",
]

NEW_ONLY = "$"
"""The start of a subscription that receives only messages published after it."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The current state of one subscription of a broadcast.

    Attributes:
        name: Its name.
        lag: Messages not delivered to it yet; None if the server can't count them.
        pending: Messages delivered to its workers and not settled yet.
        workers: Its workers, including those that left with unsettled messages.
        last_delivered: Its position in the stream.
    """

    name: str
    lag: int | None
    pending: int
    workers: int
    last_delivered: str


def check_subscription(name: str) -> str:
    """Return the name of a subscription.

    Raises:
        InvalidNameError: The wire cannot carry it.
    """
    problem = name_problem(name) if isinstance(name, str) else "is not text"
    if problem:
        raise InvalidNameError(
            f"Subscription {name!r} {problem}, which the wire cannot carry; use letters, digits, '.', '-' and '_'."
        )
    return name


def check_start(start_from: str) -> str:
    """Return where a subscription starts.

    Raises:
        InvalidOptionError: It is neither ``$`` nor an entry's id.
    """
    if start_from == NEW_ONLY or (isinstance(start_from, str) and re.fullmatch(r"\d+(-\d+)?", start_from, re.ASCII)):
        return start_from
    raise InvalidOptionError(
        "`start_from` must be '$' for new messages, '0-0' for all that are kept, or a stream entry's id to "
        f"start after it; got {start_from!r}."
    )


def unsubscribe(keys: QueueKeys, name: str) -> Call:
    """Remove a subscription with its unsettled messages; the reply is how many subscriptions were removed."""
    return Call("XGROUP", args=("DESTROY", keys.stream, name), near=keys.stream)


def is_unused(error: ServerError) -> bool:
    """Whether a refusal means that the broadcast has neither messages nor subscriptions yet."""
    return any(sign in str(error) for sign in ("no such key", "requires the key to exist"))


def subscriptions(keys: QueueKeys) -> Operation[list[Subscription]]:
    """Read all subscriptions. The server refuses while a broadcast :func:`is_unused`."""
    return Operation(
        Call("XINFO", args=("GROUPS", keys.stream), near=keys.stream),
        lambda reply: [_subscription(dict(zip(texts(group[::2]), group[1::2], strict=True))) for group in reply],
    )


def _subscription(group: dict[str, Reply]) -> Subscription:
    lag = group.get("lag")
    return Subscription(
        name=text(group["name"]),
        lag=None if lag is None else int(lag),
        pending=int(group["pending"]),
        workers=int(group["consumers"]),
        last_delivered=text(group["last-delivered-id"]),
    )


def check_options(options: JobOptions) -> JobOptions:
    """Return the options of a message.

    Raises:
        InvalidOptionError: They contain an option that the wire applies to jobs of a queue, but not to messages.
    """
    asked = {
        "priority": options.priority,
        "lifo": options.lifo,
        "ordering": options.ordering,
        "cost": options.cost,
        "pools": options.pools,
        "share": options.share,
        "remove_on_complete": options.remove_on_complete,
        "remove_on_fail": options.remove_on_fail,
    }
    if given := [name for name, value in asked.items() if value]:
        raise InvalidOptionError(
            f"A message can't have the option {given[0]!r}: all subscriptions read the same stream in order, and "
            "none may remove messages that others have not read; leave it out."
        )
    if options.job_id is not None and "||" in options.job_id:
        raise InvalidOptionError(
            f"Message id {options.job_id!r} contains '||', by which the wire marks retries; use another id."
        )
    return options


def trim(keys: QueueKeys, length: int) -> Call:
    """Keep exactly the newest ``length`` entries of the stream."""
    return Call("XTRIM", (keys.stream,), ("MAXLEN", "=", length))


def check_length(max_messages: int | None) -> int | None:
    """Return how many messages to keep.

    Raises:
        InvalidOptionError: It is neither None nor a positive integer.
    """
    is_count = isinstance(max_messages, int) and not isinstance(max_messages, bool) and max_messages > 0
    if max_messages is None or is_count:
        return max_messages
    raise InvalidOptionError(f"`max_messages` must be 1 or more, or None for all; got {max_messages!r}.")


_ONE, _REST = "*", ">"


def check_subject(subject: str) -> str:
    """Return the subject of a message to publish.

    Raises:
        InvalidNameError: It is not text, has an empty word, or has a wildcard, which only patterns may have.
    """
    for word in _words("Subject", subject):
        if _ONE in word or _REST in word:
            raise InvalidNameError(
                f"Subject {subject!r} has the wildcard {word!r}, which only the patterns of a subscription may have; "
                "publish each message under one full subject."
            )
    return subject


@dataclass(frozen=True)
class SubjectFilter:
    """Selects messages whose subject matches any of the patterns; without patterns, all messages.

    Raises:
        InvalidNameError: A pattern has an empty word, a wildcard inside a word, or ``>`` before its end.
    """

    patterns: tuple[str, ...] = ()

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        if isinstance(patterns, str):
            raise InvalidNameError(f"{patterns!r} is one pattern, not several; pass a list of patterns.")
        object.__setattr__(self, "patterns", tuple(_check_pattern(pattern) for pattern in patterns))

    @cached_property
    def _split(self) -> list[list[str]]:
        return [pattern.split(".") for pattern in self.patterns]

    def matches(self, subject: str) -> bool:
        """Whether messages with this subject are selected. An empty subject matches no pattern."""
        if not self.patterns:
            return True
        words = subject.split(".")
        return bool(subject) and any(_matches(pattern, words) for pattern in self._split)


def _matches(pattern: list[str], words: list[str]) -> bool:
    if pattern[-1] == _REST:
        pattern = pattern[:-1]
        if len(words) <= len(pattern):
            return False
        words = words[: len(pattern)]
    return len(pattern) == len(words) and all(
        wanted in (_ONE, word) for wanted, word in zip(pattern, words, strict=True)
    )


def _check_pattern(pattern: str) -> str:
    words = _words("Pattern", pattern)
    for place, word in enumerate(words, 1):
        if word == _REST and place < len(words):
            raise InvalidNameError(
                f"Pattern {pattern!r} has '>' before its end, but '>' matches all remaining words; "
                "use '*' for a single word, or end the pattern there."
            )
        if word not in (_ONE, _REST) and (_ONE in word or _REST in word):
            raise InvalidNameError(
                f"Pattern {pattern!r} has a wildcard inside {word!r}, but wildcards match whole words; "
                "write '*' or '>' alone between dots."
            )
    return pattern


def _words(what: str, text: str) -> list[str]:
    if not isinstance(text, str) or not text:
        raise InvalidNameError(
            f"{what} {text!r} must consist of words separated by dots; pass one like 'orders.created'."
        )
    words = text.split(".")
    if "" in words:
        raise InvalidNameError(f"{what} {text!r} has an empty word; put exactly one dot between two words.")
    return words
