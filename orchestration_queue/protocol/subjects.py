"""Subjects of a broadcast, and the patterns by which subscriptions choose among them. Pure.

A subject is words between dots: ``orders.created.eu``. In a pattern ``*`` stands for exactly one word, and ``>``, in
the last place, for one or more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from orchestration_queue.errors import InvalidNameError

__all__ = ["SubjectFilter", "check_subject"]

_ONE, _REST = "*", ">"


def check_subject(subject: str) -> str:
    """Return the subject of a message to publish, as given.

    Raises:
        InvalidNameError: It is no text, has an empty word, or a wildcard, which only patterns may have.
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
    """Which messages a subscription wants: those whose subject any of the patterns matches; all, without patterns.

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
        """Whether the subscription wants messages of this subject. One without a subject suits no pattern."""
        if not self.patterns:
            return True
        words = subject.split(".")
        return bool(subject) and any(_suits(pattern, words) for pattern in self._split)


def _suits(pattern: list[str], words: list[str]) -> bool:
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
                f"Pattern {pattern!r} has '>' before its end, and '>' stands for all the words that are left; "
                "put '*' for a single word, or end the pattern there."
            )
        if word not in (_ONE, _REST) and (_ONE in word or _REST in word):
            raise InvalidNameError(
                f"Pattern {pattern!r} has a wildcard inside {word!r}, and wildcards stand for whole words; "
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
