"""The OpenAPI document of the routes, made of their table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.http.v1.described import OWN_BODIES, OWN_QUERIES, PROBLEM

__all__ = ["openapi"]

_TEXT, _NUMBER, _OBJECT = {"type": "string"}, {"type": "number"}, {"type": "object"}
_JOB = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string", "minLength": 1}, "data": {}, "opts": _OBJECT},
}
_BODIES: dict[str, dict[str, Any]] = OWN_BODIES | {
    "POST /queues/:name/jobs": _JOB,
    "POST /queues/:name/jobs/wait": _JOB,
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
        "properties": {"subject": _TEXT, "data": {}, "opts": _OBJECT},
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
"""Parameters of the query; those with an exclamation mark are required."""
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
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = re.sub(r":(\w+)", r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "orchestration_queue over HTTP",
            "version": "1",
            "description": "The routes of glide-mq's HTTP proxy 0.15.4, and below /v1 those of this package.",
        },
        "paths": paths,
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(route: Route) -> dict[str, Any]:
    name = f"{route.method} {route.path}"
    summary = (route.handler.__doc__ or "").strip().split("\n")[0]
    is_stream = route.path.endswith(("/events", "/stream"))
    kind = "text/event-stream" if is_stream else "application/json"
    refused = PROBLEM if route.is_own else _ERROR
    operation: dict[str, Any] = {
        "operationId": f"v1_{route.handler.__name__}" if route.is_own else route.handler.__name__,
        "summary": summary,
        "parameters": [
            *(
                {"name": each, "in": "path", "required": True, "schema": _TEXT}
                for each in re.findall(r":(\w+)", route.path)
            ),
            *(
                {"name": each.rstrip("!"), "in": "query", "required": each.endswith("!"), "schema": _TEXT}
                for each in _QUERIES.get(name, ())
            ),
        ],
        "responses": {
            "2XX": {"description": summary, "content": {kind: {"schema": _TEXT if is_stream else _OBJECT}}},
            "4XX": refused,
            "5XX": refused,
        },
        "security": [] if route.scope is Scope.OPEN else [{"bearer": [str(route.scope)]}],
    }
    if body := _BODIES.get(name):
        is_optional = not body.get("required")
        content = {"application/json": {"schema": body}}
        operation["requestBody"] = {"required": not is_optional, "content": content}
    return operation
