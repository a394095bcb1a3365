"""Jobs as HTTP clients write them: the allowed options, and their conversion to the wire."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from orchestration_queue.errors import InvalidOptionError, PayloadError
from orchestration_queue.http.messages import HttpError, is_number
from orchestration_queue.options import (
    DECLARED,
    MAX_DURATION,
    MAX_HEADER_LENGTH,
    MAX_NAME_LENGTH,
    MAX_PRIORITY,
    Deduplication,
    JobOptions,
    milliseconds,
    placement_from_wire,
    wire_number,
)
from orchestration_queue.options.checks import is_utf8
from orchestration_queue.protocol.codec import MAX_PAYLOAD_BYTES, dump_json, encode, find_codec
from orchestration_queue.protocol.operations.additions import EncodedData, NewJob

__all__ = ["OPTIONS", "addition", "check_options", "check_own_options", "encode_data"]

_POSITIVE: Final = {"type": "number", "exclusiveMinimum": 0}
_KEPT: Final = {
    "type": ["boolean", "integer", "object"],
    "description": "true keeps none, a number that many, or `{age: seconds, count}`",
}
OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "jobId": {"type": "string", "minLength": 1, "maxLength": MAX_NAME_LENGTH, "pattern": r"^[^\x00-\x1f\x7f{}:]*$"},
    "delay": {"type": "number", "minimum": 0, "description": "ms"},
    "priority": {"type": "number", "minimum": 0, "maximum": MAX_PRIORITY},
    "timeout": _POSITIVE | {"description": "ms"},
    "cost": _POSITIVE,
    "attempts": _POSITIVE,
    "ttl": _POSITIVE | {"description": "ms"},
    "lifo": {"type": "boolean"},
    "waitTimeout": _POSITIVE | {"description": "ms; only of a job to wait for"},
    # The original stores these as they are.
    "backoff": {"type": ["object", "number"], "description": "`{type, delay: ms, jitter}`"},
    "removeOnComplete": _KEPT,
    "removeOnFail": _KEPT,
    "deduplication": {"type": "object", "description": "`{id, mode, ttl: ms}`"},
    "ordering": {"type": "object", "description": "`{key, concurrency, rateLimit, tokenBucket}`"},
    # The original refuses these.
    "lockDuration": {"type": "number", "minimum": 1_000, "maximum": 86_400_000, "description": "ms"},
    "headers": {"type": "object", "additionalProperties": {"type": "string", "maxLength": MAX_HEADER_LENGTH}},
    **{on_wire.name: dict(on_wire.schema) for on_wire in DECLARED.values()},
    "fallbacks": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["model"],
            "properties": {"model": {"type": "string"}, "provider": {"type": "string"}, "metadata": {"type": "object"}},
        },
    },
}
"""JSON schemas of a job's options by name, in the order in which the original checks them."""
_OWN: Final = {"lockDuration": "lease", "headers": "headers", "fallbacks": "fallbacks"} | {
    on_wire.name: name for name, on_wire in DECLARED.items()
}
"""Fields of :class:`~orchestration_queue.options.JobOptions` by the name of an option that the original refuses."""
_INTERNAL = HttpError(500, "Internal server error")
"""glide-mq hides some mistakes of the caller; its clients expect that status."""


def check_options(given: object, *, where: str = "", is_awaited: bool = False) -> dict[str, Any]:
    """Check a job's ``opts`` and return them as an object.

    Args:
        given: What the client sent.
        where: Prefix for each error, which names one job of many.
        is_awaited: Whether ``waitTimeout`` is allowed.

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
        if key not in OPTIONS or (key == "waitTimeout" and not is_awaited):
            raise HttpError(400, f"{where}opts.{key} is not allowed")
    problems = (_problem(key, schema, given[key]) for key, schema in OPTIONS.items() if key in given)
    if problem := next(filter(None, problems), None):
        raise HttpError(400, where + problem)
    check_own_options(given, where=where)
    return given


def _problem(key: str, schema: Mapping[str, Any], value: object) -> str | None:
    if key == "jobId":
        return _id_problem(value)
    if schema["type"] == "boolean" and not isinstance(value, bool):
        return f"opts.{key} must be a boolean"
    if schema["type"] == "number":
        is_positive = "exclusiveMinimum" in schema
        if not is_number(value) or not (value > 0 if is_positive else value >= 0):
            return f"opts.{key} must be a {'positive' if is_positive else 'non-negative'} number"
        if key == "priority" and value > MAX_PRIORITY:
            return f"opts.priority must not exceed {MAX_PRIORITY}"
    return None


def check_own_options(given: Mapping[str, Any], *, where: str = "") -> None:
    """Check those of a job's options that glide-mq's proxy doesn't know.

    Raises:
        HttpError: One is out of its limits, or they contradict others.
    """
    own = {field: given[key] for key, field in _OWN.items() if key in given}
    if not own:
        return
    problem = _problem("lockDuration", OPTIONS["lockDuration"], given.get("lockDuration", 0))
    if problem:
        raise HttpError(400, where + problem)
    if "lease" in own:
        own["lease"] = timedelta(milliseconds=own["lease"])
    placed = placement_from_wire(given)
    try:
        JobOptions(lifo=placed.lifo, ordering=placed.ordering, **own)
    except InvalidOptionError as error:
        raise HttpError(400, f"{where}opts: {error}") from None


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
    if not is_utf8(name + options_text):
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
