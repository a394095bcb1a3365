"""One command for the library: its checked arguments, and the errors it returns."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from orchestration_queue.errors import (
    InvalidNameError,
    InvalidOptionError,
    JobNotFoundError,
    LeaseLostError,
    OrchestrationQueueError,
    PayloadError,
    ServerError,
    UsageError,
)
from orchestration_queue.options.checks import check_count
from orchestration_queue.protocol.call import Call, Word
from orchestration_queue.protocol.codec import plain, refuse_equal_keys
from orchestration_queue.protocol.functions import REVISIONS
from orchestration_queue.protocol.library import Library
from orchestration_queue.server.clock import now_ms
from orchestration_queue.wires.qless.records import QlessJob

__all__ = [
    "LIBRARY",
    "Duration",
    "check_count",
    "check_job",
    "check_message",
    "check_number",
    "command",
    "duration_s",
    "encode",
    "job_words",
    "new_jid",
    "option_words",
    "script_text",
    "text_word",
    "text_words",
    "translate_error",
]

LIBRARY = Library("qless", str(REVISIONS["qless"]), "qless_version")
"""Does what qless's script does."""
_FUNCTIONS = "-- Functions; as a script"

Duration = timedelta | float


def command(name: str, *words: Word) -> Call:
    """Return the call of a command at the present time."""
    return Call("qless", args=(name, f"{now_ms() / 1000:.3f}", *words), is_function=True)


def text_word(value: object, option: str) -> str:
    """Return a name or message.

    Raises:
        InvalidNameError: It is not text, or empty.
    """
    if not isinstance(value, str) or not value:
        raise InvalidNameError(f"`{option}` must be a non-empty string, got {value!r}; pass `{option}='a'`.")
    return value


def text_words(values: Iterable[object], option: str) -> list[str]:
    """Return several names.

    Raises:
        InvalidNameError: One is not text, or empty, or there are none.
    """
    if (
        isinstance(values, Iterable)
        and not isinstance(values, str | bytes)
        and (words := [text_word(value, option) for value in values])
    ):
        return words
    raise InvalidNameError(
        f"`{option}` must be a sequence of non-empty strings, got {values!r}; pass `{option}=['a']`."
    )


def check_number(number: object, option: str) -> float:
    """Return a number.

    Raises:
        InvalidOptionError: It is not a finite number.
    """
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise InvalidOptionError(f"`{option}` must be a number, got {number!r}; pass `{option}=1`.")
    return number


def duration_s(duration: object, option: str, *, positive: bool = False) -> float:
    """Return a duration in seconds.

    Raises:
        InvalidOptionError: It is neither a duration nor seconds, or too small.
    """
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if (
        isinstance(seconds, int | float)
        and not isinstance(seconds, bool)
        and math.isfinite(seconds)
        and (seconds > 0 or (seconds == 0 and not positive))
    ):
        return seconds
    least = "> 0" if positive else ">= 0"
    raise InvalidOptionError(f"`{option}` must be a timedelta or seconds {least}, got {duration!r}; pass `{option}=5`.")


def encode(data: object) -> str:
    """Return data as JSON.

    Raises:
        PayloadError: JSON cannot carry it, or it is False, which the wire refuses.
    """
    if data is False:
        raise PayloadError("A job's data must not be False alone, which qless refuses; pass {'value': False}.")
    try:
        text = json.dumps(data, allow_nan=False, default=plain)
        refuse_equal_keys(text)
    except (TypeError, ValueError) as error:
        raise PayloadError(
            f"A job's data can't be written as JSON ({error}), got {data!r}; pass values that pydantic can write."
        ) from error
    return text


def check_job(job: object) -> QlessJob:
    """Return a job.

    Raises:
        UsageError: It is something else.
    """
    if isinstance(job, QlessJob):
        return job
    raise UsageError(f"`job` must be a QlessJob, got {job!r}; pass one that `pop` or `get` returned.")


def check_message(message: object, option: str) -> str:
    """Return text that may be empty.

    Raises:
        InvalidOptionError: It is something else.
    """
    if isinstance(message, str):
        return message
    raise InvalidOptionError(f"`{option}` must be a string, got {message!r}; pass `{option}='...'`.")


def new_jid() -> str:
    """Return an id for a job, in the form that other clients use."""
    return secrets.token_hex(16)


def option_words(options: Mapping[str, Any]) -> list[Word]:
    """Return the given options as alternating names and values; lists as JSON."""
    words: list[Word] = []
    for name, value in options.items():
        if value is None:
            continue
        if name in ("tags", "depends"):
            value = json.dumps([text_word(item, name) for item in _items(value, name)])
        elif name == "priority":
            value = check_number(value, name)
        else:
            value = check_count(value, name, 0)
        words += [name, value]
    return words


def _items(values: object, name: str) -> Iterable[object]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidOptionError(f"`{name}` must be a sequence of strings, got {values!r}; pass `{name}=['a']`.")
    return values


def job_words(
    me: str, queue: object, jid: object, klass: object, data: str, delay: object, **options: Any
) -> list[Word]:
    """Return the arguments of `put` and `requeue`; `data` is JSON."""
    names = (text_word(queue, "queue"), text_word(jid, "jid"), text_word(klass, "klass"))
    return [me, *names, data, duration_s(delay, "delay"), *option_words(options)]


_LOST = ("not currently running", "another worker", "another queue")


def translate_error(error: ServerError, jid: str, queue: str = "*") -> OrchestrationQueueError:
    """Return the exception for a refusal."""
    if any(words in str(error) for words in _LOST):
        return LeaseLostError(queue, jid)
    return JobNotFoundError(queue, jid) if "does not exist" in str(error) else error


def script_text() -> str:
    """Return the library as a script for EVAL, for clients that load their own script."""
    _, _, text = LIBRARY.text.partition("\n")
    return text.partition(_FUNCTIONS)[0] + "return call(KEYS, ARGV)\n"
