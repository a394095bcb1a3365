"""Jobs as HTTP clients write them: the allowed options, and their conversion to the wire."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from orchestration_queue.errors import PayloadError
from orchestration_queue.http.messages import HttpError, is_number
from orchestration_queue.options import (
    MAX_DURATION,
    MAX_NAME_LENGTH,
    MAX_PRIORITY,
    Deduplication,
    milliseconds,
    placement_from_wire,
    wire_number,
)
from orchestration_queue.protocol.codec import MAX_PAYLOAD_BYTES, dump_json, encode, find_codec
from orchestration_queue.protocol.operations.additions import EncodedData, NewJob

__all__ = ["addition", "check_options", "encode_data"]

_CHECKED = ("jobId", "delay", "priority", "timeout", "cost", "attempts", "ttl", "lifo")
_UNCHECKED = ("backoff", "removeOnComplete", "removeOnFail", "deduplication", "ordering")
_ALLOWED = frozenset((*_CHECKED, *_UNCHECKED))
_INTERNAL = HttpError(500, "Internal server error")
"""glide-mq hides some mistakes of the caller; its clients expect that status."""


def check_options(given: object, *, where: str = "", more: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Check a job's ``opts`` and return them as an object.

    Args:
        given: What the client sent.
        where: Prefix for each error, which names one job of many.
        more: Further keys to allow.

    Raises:
        HttpError: A key is not allowed, or a value is out of its limits.
    """
    if not given:
        return {}
    if isinstance(given, str | list):
        raise HttpError(400, f"{where}opts.0 is not allowed")
    if not isinstance(given, dict):
        return {}
    for key in given:
        if key not in _ALLOWED and key not in more:
            raise HttpError(400, f"{where}opts.{key} is not allowed")
    if problem := _problem(given):
        raise HttpError(400, where + problem)
    return given


def _problem(options: Mapping[str, Any]) -> str | None:
    if "jobId" in options and (problem := _id_problem(options["jobId"])):
        return problem
    for key, is_positive in (("delay", False), ("priority", False)):
        if key in options and not _is_amount(options[key], is_positive=is_positive):
            return f"opts.{key} must be a non-negative number"
    if options.get("priority", 0) > MAX_PRIORITY:
        return f"opts.priority must not exceed {MAX_PRIORITY}"
    for key in ("timeout", "cost", "attempts", "ttl"):
        if key in options and not _is_amount(options[key], is_positive=True):
            return f"opts.{key} must be a positive number"
    if not isinstance(options.get("lifo", False), bool):
        return "opts.lifo must be a boolean"
    if "waitTimeout" in options and not _is_amount(options["waitTimeout"], is_positive=True):
        return "opts.waitTimeout must be a positive number"
    return None


def _is_amount(value: Any, *, is_positive: bool) -> bool:
    return is_number(value) and (value > 0 if is_positive else value >= 0)


def _id_problem(job_id: object) -> str | None:
    if not isinstance(job_id, str) or not job_id:
        return "opts.jobId must be a non-empty string"
    if len(job_id) > MAX_NAME_LENGTH:
        return f"jobId must be at most {MAX_NAME_LENGTH} characters"
    if any(ord(letter) < 32 or letter in "\x7f{}:" for letter in job_id):
        return "jobId must not contain control characters, curly braces, or colons"
    return None


def encode_data(data: object, codec: str) -> str:
    """Return a job's payload as it is stored.

    Raises:
        HttpError: It is too large, or not valid Unicode.
    """
    try:
        return encode(data, codec=find_codec(codec))
    except PayloadError:
        size = len(dump_json(data).encode("utf-8", "replace"))
        if size > MAX_PAYLOAD_BYTES:
            text = f"Job data exceeds maximum size ({size} bytes > {MAX_PAYLOAD_BYTES} bytes)."
            raise HttpError(400, f"{text} Use smaller payloads or store large data externally.") from None
        raise HttpError(400, "Bad request") from None


def addition(name: str, data_text: str, options: Mapping[str, Any]) -> NewJob:
    """Return the job to add; its options are stored as the client wrote them.

    Raises:
        HttpError: The options contradict each other.
    """
    options_text = dump_json(options) if options else ""
    if not _is_unicode(name + options_text):
        raise HttpError(400, "Bad request")  # now, so that it does not fail other requests of the same exchange
    if not options:
        return NewJob(name, EncodedData(data_text))
    _check_ordering(options)
    placed = placement_from_wire(options)
    more = {
        "job_id": options.get("jobId"),
        "delay": timedelta(milliseconds=int(wire_number(options.get("delay"), milliseconds(MAX_DURATION)))),
        "deduplication": _deduplication(options.get("deduplication")),
    }
    return NewJob(name, EncodedData(data_text), placed.model_copy(update=more), options_text=options_text)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _deduplication(given: object) -> Deduplication | None:
    if not given:
        return None
    stored = given if isinstance(given, dict) else {}
    if not isinstance(dedup_id := stored.get("id"), str) or not dedup_id:
        raise _INTERNAL
    ttl = timedelta(milliseconds=int(wire_number(stored.get("ttl"), milliseconds(MAX_DURATION))))
    # The server handles unknown modes, as with glide-mq's own clients.
    mode: Any = str(stored.get("mode") or "simple")
    return Deduplication.model_construct(id=dedup_id, mode=mode, ttl=ttl)


def _check_ordering(options: Mapping[str, Any]) -> None:
    ordering = options.get("ordering")
    key = ordering.get("key") if isinstance(ordering, dict) else None
    if not isinstance(ordering, dict) or not isinstance(key, str) or not key:
        return
    if len(key) > MAX_NAME_LENGTH:
        raise HttpError(400, f"Ordering key exceeds maximum length ({len(key)} > {MAX_NAME_LENGTH}).")
    if key == "__" or options.get("lifo"):
        raise _INTERNAL
    if isinstance(bucket := ordering.get("tokenBucket"), dict):
        for name in ("capacity", "refillRate"):
            if not is_number(bucket.get(name)) or bucket[name] <= 0:
                raise HttpError(400, f"tokenBucket.{name} must be a positive finite number")
        if options.get("cost", 1) > bucket["capacity"]:
            raise HttpError(400, "Job cost exceeds token bucket capacity")
