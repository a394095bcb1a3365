"""What the OpenAPI document says of the own routes' queries and bodies."""

from __future__ import annotations

from typing import Any

__all__ = ["OWN_BODIES", "OWN_QUERIES", "PROBLEM"]

_Q = "/v1/queues/:name"
_PAGE = ("limit", "offset")


def _or_null(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": [kind, "null"], **more}


_EDIT: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "pattern": _or_null("string"),
        "every": _or_null("number", description="seconds"),
        "repeat_after_complete": _or_null("number", description="seconds"),
        "tz": _or_null("string"),
        "day_or": _or_null("boolean"),
        "start": _or_null("string", format="date-time"),
        "end": _or_null("string", format="date-time"),
        "limit": _or_null("integer"),
        "jitter": _or_null("number", description="seconds"),
        "missed": {"enum": ["skip", "fire_once", "fire_all", None]},
        "missed_max": _or_null("integer"),
        "overlap": {"enum": ["allow", "skip", "queue_one", "replace", None]},
    },
}

OWN_BODIES: dict[str, dict[str, Any]] = {
    f"POST {_Q}/failures/retry": {
        "type": "object",
        "properties": {"kind": {"type": "string", "minLength": 1}, "limit": {"type": "integer", "minimum": 0}},
    },
    f"POST {_Q}/dead-letters/replay": {"type": "object", "properties": {"limit": {"type": "integer", "minimum": 0}}},
    f"POST {_Q}/flows/:id/cancel": {"type": "object", "properties": {"reason": {"type": "string", "minLength": 1}}},
    f"PATCH {_Q}/schedulers/:id": _EDIT,
    f"POST {_Q}/schedulers/:id/preview": _EDIT,
}

OWN_QUERIES: dict[str, tuple[str, ...]] = {
    f"GET {_Q}/search": ("name", "state", "data", "kind", "limit"),
    f"GET {_Q}/dead-letters": _PAGE,
    f"GET {_Q}/flows": ("state", *_PAGE),
    f"GET {_Q}/schedulers": ("runs",),
    f"GET {_Q}/schedulers/:id": ("runs",),
}

PROBLEM: dict[str, Any] = {
    "description": "Refused; `detail` says why and what to do.",
    "content": {
        "application/problem+json": {
            "schema": {
                "type": "object",
                "required": ["title", "status", "detail"],
                "properties": {
                    "title": {"type": "string"},
                    "status": {"type": "integer"},
                    "detail": {"type": "string"},
                    "error": {"type": "string", "description": "The package's error class."},
                },
            }
        }
    },
}
