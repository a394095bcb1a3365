"""The OpenAPI document, generated from the table of routes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from orchestration_queue.http.job_options import OPTIONS
from orchestration_queue.http.job_schema import job_schema
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.options import AlertKind
from orchestration_queue.wires import WIRES

__all__ = ["OWN_BODIES", "OWN_QUERIES", "PROBLEM", "WORDS_OR_ALL", "body", "openapi", "or_null"]

_Q = "/v1/queues/:name"
_OWN_PAGE = ("limit", "offset")


def or_null(kind: str, **more: Any) -> dict[str, Any]:
    """Return the schema of a value that may be null."""
    return {"type": [kind, "null"], **more}


_EDIT: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "pattern": or_null("string"),
        "every": or_null("number", description="seconds"),
        "repeat_after_complete": or_null("number", description="seconds"),
        "tz": or_null("string"),
        "day_or": or_null("boolean"),
        "start": or_null("string", format="date-time"),
        "end": or_null("string", format="date-time"),
        "limit": or_null("integer"),
        "jitter": or_null("number", description="seconds"),
        "missed": {"enum": ["skip", "fire_once", "fire_all", None]},
        "missed_max": or_null("integer"),
        "overlap": {"enum": ["allow", "skip", "queue_one", "replace", None]},
    },
}

_SECONDS: dict[str, Any] = {"type": "number", "minimum": 0, "description": "seconds"}
_IDS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
WORDS_OR_ALL: dict[str, Any] = {"type": ["array", "null"], "items": {"type": "string"}, "description": "null for all"}


def body(*required: str, **members: Any) -> dict[str, Any]:
    """Return the schema of a body with these members."""
    found: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": members}
    return found | ({"required": list(required)} if required else {})


def _of_taken(**members: Any) -> dict[str, Any]:
    return body("token", token={"type": "string"}, **members)


_CRITERIA: dict[str, Any] = {
    "name": or_null("string"),
    "state": or_null("string"),
    "data": or_null("object"),
    "kind": or_null("string"),
    "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
}
_SOUGHT = body(**_CRITERIA)
_DESTINATION: dict[str, Any] = {"to": {"type": "string"}, "delay": or_null("number", minimum=0, description="seconds")}

OWN_BODIES: dict[str, dict[str, Any]] = {
    f"POST {_Q}/failures/retry": {
        "type": "object",
        "properties": {"kind": {"type": "string", "minLength": 1}, "limit": {"type": "integer", "minimum": 0}},
    },
    f"POST {_Q}/dead-letters/replay": {"type": "object", "properties": {"limit": {"type": "integer", "minimum": 0}}},
    f"POST {_Q}/flows/:id/cancel": {"type": "object", "properties": {"reason": {"type": "string", "minLength": 1}}},
    f"PATCH {_Q}/schedulers/:id": _EDIT,
    f"POST {_Q}/schedulers/:id/preview": _EDIT,
    f"PATCH {_Q}/settings": body(
        attempts=or_null("integer"),
        backoff=or_null("object"),
        timeout=or_null("number", description="seconds"),
        remove_on_complete=or_null("object"),
        remove_on_fail=or_null("object"),
        lease=or_null("number", description="seconds"),
        dead_letter_queue=or_null("string"),
        concurrency=or_null("integer"),
        rate_limit=or_null("object"),
    ),
    f"POST {_Q}/search/remove": _SOUGHT,
    f"POST {_Q}/search/move": body("to", **_DESTINATION, **_CRITERIA),
    f"POST {_Q}/search/:verb": _SOUGHT,
    f"POST {_Q}/jobs/:id/move": body("to", **_DESTINATION),
    f"POST {_Q}/tags/:tag/move": body("to", **_DESTINATION),
    f"PUT {_Q}/shares/:share": body("weight", weight={"type": "integer", "minimum": 1, "maximum": 1000}),
    "PUT /v1/pools/:pool": body("slots", slots={"type": "integer", "minimum": 0, "maximum": 1000}),
    "PUT /v1/alerts/:rule": body(
        "kind",
        "to",
        kind={"enum": [str(kind) for kind in AlertKind]},
        to={"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 10},
        queue={"type": "string"},
        threshold=or_null("number", minimum=0),
        window=or_null("number", description="seconds"),
        minimum=or_null("integer", minimum=1),
        pending=_SECONDS,
        note={"type": "string", "maxLength": 500},
    ),
    "POST /v1/alerts/:rule/silence": body("seconds", seconds=_SECONDS),
    "POST /v1/doctor/fix": body("where", "what", where={"type": "string"}, what={"type": "string"}),
    f"POST {_Q}/jobs/:id/tags": body(add=_IDS, remove=_IDS),
    f"POST {_Q}/workers/stop": body(workers=WORDS_OR_ALL, timeout=_SECONDS),
    f"POST {_Q}/workers/:verb": body(workers=WORDS_OR_ALL, timeout=_SECONDS, concurrency={"type": "integer"}),
    f"POST {_Q}/take": body(count={"type": "integer"}, lease=_SECONDS, wait=_SECONDS),
    f"POST {_Q}/taken/:id/complete": _of_taken(result={}),
    f"POST {_Q}/taken/:id/fail": _of_taken(
        reason={"type": "string"}, kind={"type": "string"}, retry={"type": "boolean"}
    ),
    f"POST {_Q}/taken/:id/retry": _of_taken(delay=_SECONDS, reason={"type": "string"}),
    f"POST {_Q}/taken/:id/release": _of_taken(delay=_SECONDS),
    f"POST {_Q}/taken/:id/heartbeat": _of_taken(lease=_SECONDS),
}

OWN_QUERIES: dict[str, tuple[str, ...]] = {
    f"GET {_Q}/search": ("name", "state", "data", "kind", "since", "until", "limit"),
    f"GET {_Q}/dead-letters": _OWN_PAGE,
    f"GET {_Q}/statistics": ("day", "days"),
    f"GET {_Q}/tags": _OWN_PAGE,
    f"GET {_Q}/tags/:tag/jobs": _OWN_PAGE,
    f"GET {_Q}/flows": ("state", *_OWN_PAGE),
    f"GET {_Q}/runs": ("flow", "scheduler", "dagster_job", "limit"),
    "GET /v1/alert-events": ("rule", "limit"),
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


_TEXT, _NUMBER, _OBJECT = {"type": "string"}, {"type": "number"}, {"type": "object"}
_AWAITED_OPTIONS = {"type": "object", "additionalProperties": False, "properties": OPTIONS}
_OPTIONS = _AWAITED_OPTIONS | {"properties": {key: schema for key, schema in OPTIONS.items() if key != "waitTimeout"}}
_JOB: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string", "minLength": 1}, "data": {}, "opts": _OPTIONS},
}
_BODIES: dict[str, dict[str, Any]] = OWN_BODIES | {
    "POST /queues/:name/jobs": _JOB,
    "POST /queues/:name/jobs/wait": _JOB | {"properties": _JOB["properties"] | {"opts": _AWAITED_OPTIONS}},
    "POST /queues/:name/jobs/bulk": {
        "type": "object",
        "required": ["jobs"],
        "properties": {"jobs": {"type": "array", "maxItems": 1000, "items": _JOB}},
    },
    "POST /queues/:name/jobs/:id/priority": {
        "type": "object",
        "required": ["priority"],
        "properties": {"priority": _NUMBER},
    },
    "POST /queues/:name/jobs/:id/delay": {"type": "object", "required": ["delay"], "properties": {"delay": _NUMBER}},
    "POST /queues/:name/jobs/:id/signal": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": _TEXT, "data": {}},
    },
    "POST /queues/:name/dlq/replay-all": {"type": "object", "properties": {"count": _NUMBER}},
    "POST /queues/:name/retry": {"type": "object", "properties": {"count": _NUMBER}},
    "PUT /queues/:name/rate-limit": {
        "type": "object",
        "required": ["max", "duration"],
        "properties": {"max": _NUMBER, "duration": _NUMBER},
    },
    "PUT /queues/:name/schedulers/:id": {
        "type": "object",
        "required": ["schedule"],
        "properties": {"schedule": _OBJECT, "template": _OBJECT},
    },
    "POST /flows": {"type": "object", "properties": {"flow": _OBJECT, "dag": _OBJECT, "budget": _OBJECT}},
    "POST /broadcast/:name": {
        "type": "object",
        "required": ["subject"],
        "properties": {"subject": _TEXT, "data": {}, "opts": _OPTIONS},
    },
}
_PAGE = ("start", "end")
_QUERIES: dict[str, tuple[str, ...]] = OWN_QUERIES | {
    "GET /queues/:name/jobs": ("state!", *_PAGE, "excludeData"),
    "GET /queues/:name/dlq": _PAGE,
    "GET /queues/:name/metrics": ("type!", *_PAGE),
    "GET /queues/:name/suspended": (*_PAGE, "excludeData"),
    "POST /queues/:name/drain": ("delayed",),
    "POST /queues/:name/retry": ("count",),
    "POST /queues/:name/dlq/replay-all": ("count",),
    "DELETE /queues/:name/clean": ("state!", "age!", "limit"),
    "GET /usage/summary": ("queues", *_PAGE, "windowMs", "window"),
    "GET /queues/:name/events": ("lastId",),
    "GET /queues/:name/jobs/:id/events": ("lastId",),
    "GET /queues/:name/jobs/:id/stream": ("lastId",),
    "GET /broadcast/:name/events": ("subscription!", "subjects"),
}
"""Query parameters by route; those with an exclamation mark are required."""
_REF: dict[str, Any] = {"$ref": "#/components/schemas/Job"}
_SOME: dict[str, Any] = {"type": "object", "properties": {"jobs": {"type": "array", "items": _REF}}}
_ANSWERS: dict[str, dict[str, Any]] = {
    f"GET {_Q}/jobs/:id": _REF,
    f"POST {_Q}/jobs/:id/move": _REF,
    f"GET {_Q}/search": _SOME,
    f"GET {_Q}/tags/:tag/jobs": _SOME,
}
"""Answers that have jobs, by route."""
_ERROR = {
    "description": "Refused; `error` says why.",
    "content": {
        "application/json": {
            "schema": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
        }
    },
}


def openapi(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the document, OpenAPI 3.1."""
    of_wires = [wire.load("http") for wire in WIRES]
    bodies, queries = dict(_BODIES), dict(_QUERIES)
    for wire in of_wires:
        bodies |= wire.BODIES
        queries |= wire.QUERIES
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path, name = re.sub(r":(\w+)", r"{\1}", route.path), f"{route.method} {route.path}"
        operation = _operation(route, queries.get(name, ()), bodies.get(name))
        paths.setdefault(path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "orchestration_queue over HTTP",
            "version": "1",
            "description": "The routes of glide-mq's HTTP proxy 0.15.4, and below /v1 those of this package.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Job": job_schema()},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, queries: Sequence[str], body: dict[str, Any] | None) -> dict[str, Any]:
    summary = (route.handler.__doc__ or "").strip().split("\n")[0]
    is_stream = route.path.endswith(("/events", "/stream"))
    kind = "text/event-stream" if is_stream else "application/json"
    refused = PROBLEM if route.is_own else _ERROR
    wire = f"{route.path.split('/')[2]}_" if route.is_of_wire else ""
    answer = _TEXT if is_stream else _ANSWERS.get(f"{route.method} {route.path}", _OBJECT)
    operation: dict[str, Any] = {
        "operationId": f"v1_{wire}{route.handler.__name__.lstrip('_')}" if route.is_own else route.handler.__name__,
        "summary": summary,
        "parameters": [
            *(
                {"name": each, "in": "path", "required": True, "schema": _TEXT}
                for each in re.findall(r":(\w+)", route.path)
            ),
            *(
                {"name": each.rstrip("!"), "in": "query", "required": each.endswith("!"), "schema": _TEXT}
                for each in queries
            ),
        ],
        "responses": {
            "2XX": {"description": summary, "content": {kind: {"schema": answer}}},
            "4XX": refused,
            "5XX": refused,
        },
        "security": [] if route.scope is Scope.OPEN else [{"bearer": [str(route.scope)]}],
    }
    if body:
        is_optional = not body.get("required")
        content = {"application/json": {"schema": body}}
        operation["requestBody"] = {"required": not is_optional, "content": content}
    return operation
