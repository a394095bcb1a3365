"""What each route refuses, with the status and the sentence that glide-mq's clients expect."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from orchestration_queue.http.app import API_ROUTES
from orchestration_queue.http.routes import PROXY_ROUTES

NO_JOB, NO_LETTER, NO_FLOW = "Job not found", "DLQ job not found", "Flow not found"
CRON = {"pattern": "* * * * *"}

REFUSED: list[tuple[str, str, Any, int, str]] = [
    ("POST", "/queues/q/jobs", None, 400, "Missing required field: name"),
    ("POST", "/queues/q/jobs", [], 400, "Missing required field: name"),
    ("POST", "/queues/q/jobs", {"name": 5}, 400, "Missing required field: name"),
    ("POST", "/queues/a%7Bb/jobs", {"name": "a"}, 400, "Queue name must not contain curly braces or colons"),
    ("POST", f"/queues/{'q' * 257}/jobs", {"name": "a"}, 400, "Queue name must be at most 256 characters"),
    *(
        ("POST", "/queues/q/jobs", {"name": "a", "opts": opts}, 400, text)
        for opts, text in (
            ("x", "opts.0 is not allowed"),
            ({"parent": 1}, "opts.parent is not allowed"),
            ({"waitTimeout": 5}, "opts.waitTimeout is not allowed"),
            ({"__proto__": 1}, "opts.__proto__ is not allowed"),
            ({"jobId": ""}, "opts.jobId must be a non-empty string"),
            ({"jobId": None}, "opts.jobId must be a non-empty string"),
            ({"jobId": "a" * 257}, "jobId must be at most 256 characters"),
            ({"jobId": "a:b"}, "jobId must not contain control characters, curly braces, or colons"),
            ({"delay": -1}, "opts.delay must be a non-negative number"),
            ({"delay": True}, "opts.delay must be a non-negative number"),
            ({"priority": "1"}, "opts.priority must be a non-negative number"),
            ({"priority": 2049}, "opts.priority must not exceed 2048"),
            ({"timeout": 0}, "opts.timeout must be a positive number"),
            ({"cost": 0}, "opts.cost must be a positive number"),
            ({"attempts": None}, "opts.attempts must be a positive number"),
            ({"ttl": "x"}, "opts.ttl must be a positive number"),
            ({"lifo": 1}, "opts.lifo must be a boolean"),
            ({"lockDuration": "1"}, "opts.lockDuration must be a non-negative number"),
            ({"lockDuration": 5}, "opts: JobOptions.lease (given datetime.timedelta(microseconds=5000)): "
                                  "Input should be greater than or equal to 1 second."),
            ({"tags": "abc"}, "opts: `tags` must be a list of tags, got 'abc'; pass `tags=['tenant:acme']`."),
            ({"pools": {"a": 0}}, "opts: A job holds 1 to 1,000 slots of pool 'a', got 0; pass `pools={'a': 1}`."),
            ({"share": "a:b"}, "opts: Share 'a:b' contains ':'; pass a word such as 'tenant-a'."),
            ({"share": "a", "lifo": True}, "opts: JobOptions: a share determines the order of its jobs, so lifo and "
                                           "ordering.key can't apply; drop them or the share."),
            ({"headers": {"a": 1}}, "opts: JobOptions.headers.a (given 1): Input should be a valid string."),
            ({"fallbacks": [{}]}, "opts: Fallback needs `model`, which is missing; pass `model=...`."),
            ({"ordering": {"key": "k" * 257}}, "Ordering key exceeds maximum length (257 > 256)."),
            (
                {"ordering": {"key": "k", "tokenBucket": {"capacity": 0, "refillRate": 1}}},
                "tokenBucket.capacity must be a positive finite number",
            ),
            (
                {"cost": 9, "ordering": {"key": "k", "tokenBucket": {"capacity": 2, "refillRate": 1}}},
                "Job cost exceeds token bucket capacity",
            ),
        )
    ),
    ("POST", "/queues/q/jobs", {"name": "a", "opts": {"ordering": {"key": "__"}}}, 500, "Internal server error"),
    ("POST", "/queues/q/jobs", {"name": "a", "opts": {"deduplication": {"ttl": 5}}}, 500, "Internal server error"),
    ("POST", "/queues/q/jobs/bulk", None, 400, "Missing required field: jobs (array)"),
    ("POST", "/queues/q/jobs/bulk", {"jobs": [{}] * 1001}, 400, "Too many jobs (max 1000)"),
    (
        "POST", "/queues/q/jobs/bulk", {"jobs": [{"name": "a", "opts": {"parent": 1}}]}, 400,
        "jobs[0]: opts.parent is not allowed",
    ),
    ("POST", "/queues/q/jobs/wait", {}, 400, "Missing required field: name"),
    (
        "POST", "/queues/q/jobs/wait", {"name": "a", "opts": {"waitTimeout": 0}}, 400,
        "opts.waitTimeout must be a positive number",
    ),
    ("GET", "/queues/q/jobs", None, 400, "Missing required query param: state"),
    (
        "GET", "/queues/q/jobs?state=x", None, 400,
        "state must be one of: waiting, active, delayed, completed, failed",
    ),
    ("GET", "/queues/q/jobs?state=failed&start=", None, 400, "start must be an integer"),
    ("GET", "/queues/q/jobs?state=failed&start=-1", None, 400, "start must be >= 0"),
    ("GET", "/queues/q/jobs?state=failed&end=-2", None, 400, "end must be >= 0"),
    ("GET", "/queues/q/jobs?state=failed&end=99999999999999999999", None, 400, "end must be a safe integer"),
    ("GET", "/queues/q/jobs?state=failed&excludeData=yes", None, 400, "excludeData must be true or false"),
    ("GET", "/queues/q/jobs/nope", None, 404, NO_JOB),
    ("GET", "/queues/q/dlq?start=x", None, 400, "start must be an integer"),
    ("POST", "/queues/q/dlq/replay-all", {"count": 0}, 400, "count must be >= 1"),
    ("POST", "/queues/q/dlq/replay-all", {"count": 1e21}, 400, "count must be an integer"),
    ("GET", "/queues/q/dlq/1", None, 404, NO_LETTER),
    ("POST", "/queues/q/dlq/1/replay", None, 404, NO_LETTER),
    ("DELETE", "/queues/q/dlq/1", None, 404, NO_LETTER),
    ("POST", "/queues/q/jobs/1/priority", {}, 400, "Missing required field: priority (non-negative number)"),
    ("POST", "/queues/q/jobs/1/priority", {"priority": 1}, 404, NO_JOB),
    ("POST", "/queues/q/jobs/1/delay", {"delay": -1}, 400, "Missing required field: delay (non-negative number)"),
    ("POST", "/queues/q/jobs/1/delay", {"delay": 1}, 404, NO_JOB),
    ("POST", "/queues/q/jobs/1/promote", None, 404, NO_JOB),
    ("GET", "/queues/q/jobs/1/events", None, 404, NO_JOB),
    ("GET", "/queues/q/jobs/1/suspend", None, 404, "Job is not suspended"),
    ("POST", "/queues/q/jobs/1/signal", {}, 400, "Missing required field: name (string)"),
    ("POST", "/queues/q/jobs/1/revoke", None, 404, NO_JOB),
    ("GET", "/queues/q/metrics", None, 400, "Missing required query param: type"),
    ("GET", "/queues/q/metrics?type=x", None, 400, "type must be one of: completed, failed"),
    (
        "GET", "/queues/q/metrics?type=failed&start=2&end=1", None, 400,
        "end must be >= start when both are non-negative",
    ),
    ("GET", "/queues/q/suspended?end=x", None, 400, "end must be an integer"),
    ("POST", "/queues/q/drain?delayed=maybe", None, 400, "delayed must be true or false"),
    ("POST", "/queues/q/retry", {"count": -1}, 400, "count must be >= 0"),
    ("DELETE", "/queues/q/clean", None, 400, "Missing required query param: state"),
    ("DELETE", "/queues/q/clean?state=failed", None, 400, "Missing required query param: age"),
    ("DELETE", "/queues/q/clean?state=failed&age=0&limit=0", None, 400, "limit must be >= 1"),
    ("GET", "/queues/q/schedulers/x", None, 404, "Scheduler not found"),
    ("DELETE", "/queues/q/schedulers/x", None, 404, "Scheduler not found"),
    ("PUT", "/queues/q/schedulers/x", {}, 400, "Missing required field: schedule"),
    *(
        ("PUT", "/queues/q/schedulers/x", {"schedule": schedule}, status, text)
        for schedule, status, text in (
            ({"every": 0}, 400, "every must be a positive safe integer"),
            ({"repeatAfterComplete": 1.5}, 400, "repeatAfterComplete must be a positive safe integer"),
            ({}, 500, "Internal server error"),
            ({"every": 1, **CRON}, 500, "Internal server error"),
            ({"every": 1000, "endDate": 1000}, 500, "Internal server error"),
            ({"pattern": 5}, 500, "Internal server error"),
            ({"pattern": "* *"}, 400, "Invalid cron pattern: expected 5 fields, got 2"),
            ({"pattern": "61 * * * *"}, 400, "Cron value out of bounds: 61"),
            ({"pattern": "5-99 * * * *"}, 400, "Cron range out of bounds: 5-99"),
            ({"pattern": "*/0 * * * *"}, 400, "Invalid cron step: 0"),
            ({"pattern": "x * * * *"}, 400, "Invalid cron token: x"),
            ({**CRON, "tz": "Mars/Base"}, 400, "Invalid timezone: Mars/Base"),
            ({**CRON, "tz": "localtime"}, 400, "Invalid timezone: localtime"),
            ({**CRON, "startDate": "2026-01-01"}, 400, "startDate must be a valid Date or timestamp"),
            ({**CRON, "startDate": 2e12, "endDate": 1e12}, 400, "startDate must be less than or equal to endDate"),
            ({**CRON, "limit": 0}, 400, "limit must be a positive integer"),
        )
    ),
    ("GET", "/queues/q/flows/1/usage", None, 404, NO_JOB),
    ("GET", "/queues/q/flows/1/budget", None, 404, "Flow budget not found"),
    ("PUT", "/queues/q/rate-limit", {"max": 0}, 400, "Body must include positive numeric fields: max, duration"),
    ("POST", "/flows", {}, 400, "Body must include exactly one of: flow, dag"),
    ("POST", "/flows", {"dag": {"nodes": []}, "budget": {}}, 400, "budget is currently supported only for tree flows"),
    (
        "POST", "/flows", {"flow": {"name": "a", "queueName": "x:y", "data": 1}}, 400,
        "Queue name must not contain curly braces or colons",
    ),
    (
        "POST", "/flows", {"flow": {"name": "a", "queueName": "q"}}, 400,
        'The "string" argument must be of type string. Received undefined',
    ),
    ("POST", "/flows", {"flow": {"queueName": "q", "data": 1}}, 500, "Internal server error"),
    *(
        ("POST", "/flows", {"dag": {"nodes": nodes}}, 500, "Internal server error")
        for nodes in (
            5,
            [{"name": "a", "queueName": "q", "data": 1, "deps": ["b"]}],
            [{"name": "a", "queueName": "q", "data": 1, "deps": ["a"]}],
            [{"name": "a", "queueName": "q", "data": 1}, {"name": "a", "queueName": "q", "data": 1}],
        )
    ),
    ("GET", "/flows/1", None, 404, NO_FLOW),
    ("GET", "/flows/1/tree", None, 404, NO_FLOW),
    ("DELETE", "/flows/1", None, 404, NO_FLOW),
    (
        "GET", "/usage/summary?window=1&windowMs=2", None, 400,
        "window and windowMs must match when both are provided",
    ),
    ("GET", "/usage/summary?window=0", None, 400, "window must be >= 1"),
    ("GET", "/usage/summary?start=5&end=1", None, 400, "startTime must be less than or equal to endTime"),
    ("GET", "/usage/summary?queues=a:b", None, 400, "Queue name must not contain curly braces or colons"),
    ("POST", "/broadcast/q", {"data": 1}, 400, "Missing required field: subject"),
    ("POST", "/broadcast/q", {"subject": "a", "opts": {"x": 1}}, 400, "opts.x is not allowed"),
    ("GET", "/broadcast/q/events", None, 400, "Missing required query param: subscription"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "status", "text"), REFUSED)
async def test_refusals(api: httpx.AsyncClient, method: str, path: str, body: Any, status: int, text: str) -> None:
    response = await api.request(method, path, **({} if body is None else {"json": body}))
    assert (response.status_code, response.json()) == (status, {"error": text})


async def test_a_bad_pattern_hurts_only_its_client(api: httpx.AsyncClient) -> None:
    response = await api.get("/broadcast/q/events?subscription=s&subjects=a.%3E.b")
    assert response.status_code == 400


@pytest.mark.parametrize(
    ("content", "headers", "status", "text"),
    [
        (b'"text"', {}, 400, "Bad request"),
        (b"null", {}, 400, "Bad request"),
        (b"[1", {}, 400, "Bad request"),
        (b'{"name":NaN}', {}, 400, "Bad request"),
        (b"[" * 100_000, {}, 400, "Bad request"),
        (b'{"name":"a"}', {"content-type": "application/json; charset=koi8-r"}, 415, "Bad request"),
        (b'{"name":"a"}', {"content-encoding": "zstd"}, 415, "Bad request"),
        (b" " * 1_048_577, {}, 413, "Payload too large"),
        (b'{"name":"a","data":"\\ud800"}', {}, 400, "Bad request"),
    ],
)
async def test_bad_bodies(
    api: httpx.AsyncClient, content: bytes, headers: dict[str, str], status: int, text: str
) -> None:
    given = {"content-type": "application/json"} | headers
    response = await api.post("/queues/q/jobs", content=content, headers=given)
    assert (response.status_code, response.json()) == (status, {"error": text})


def test_every_route_is_there_once() -> None:
    assert len({(route.method, route.path) for route in PROXY_ROUTES}) == len(PROXY_ROUTES) == 45


async def test_the_document_describes_every_route(api: httpx.AsyncClient) -> None:
    served = (await api.get("/openapi.json")).json()
    assert served["openapi"] == "3.1.0"
    described = {(method.upper(), path) for path, methods in served["paths"].items() for method in methods}
    assert described == {(route.method, re.sub(r":(\w+)", r"{\1}", route.path)) for route in API_ROUTES}
    assert all(operation["summary"] for methods in served["paths"].values() for operation in methods.values())
    names = [operation["operationId"] for methods in served["paths"].values() for operation in methods.values()]
    assert len(set(names)) == len(names)
