"""Checks of operators' arguments, which may be templates that only a run resolves."""

from __future__ import annotations

from typing import Any

from airflow.sdk.definitions.xcom_arg import XComArg

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.protocol.keys import QueueKeys

__all__ = ["check_flag", "check_queue", "check_text", "is_open"]


def is_open(value: object) -> bool:
    """Whether an argument is known only in a run: a template, the output of another task, or a value with one in it."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, dict):
        return any(map(is_open, value.values()))
    if isinstance(value, list | tuple):
        return any(map(is_open, value))
    return isinstance(value, XComArg)


def check_queue(name: Any) -> str:
    """Return a queue's name.

    Raises:
        InvalidNameError: No queue can have it.
    """
    if not is_open(name):
        QueueKeys(name)
    return name  # type: ignore[no-any-return]  # text in a run


def check_text(value: Any, what: str) -> str:
    """Return a text that is not empty.

    Raises:
        InvalidOptionError: It is something else.
    """
    if not is_open(value) and (not isinstance(value, str) or not value):
        raise InvalidOptionError(f"`{what}` must be text that is not empty, got {value!r}; pass `{what}='...'`.")
    return value  # type: ignore[no-any-return]  # text in a run


def check_flag(value: Any, what: str) -> bool:
    """Return True or False.

    Raises:
        InvalidOptionError: It is something else.
    """
    if not isinstance(value, bool):
        raise InvalidOptionError(f"`{what}` must be True or False, got {value!r}.")
    return value
