"""Any request at all: every route of the OpenAPI document with odd parameters and bodies. None fails in the server.

Routes of glide-mq's proxy answer a few mistakes of the caller with 500, as the original does; these are raised on
purpose and logged nowhere. What was not foreseen is logged, and so is what the queue's server refused.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestration_queue import AsyncFlowProducer, AsyncQueue, Dag, Every, Node
from orchestration_queue.http import HttpApp, create_app
from orchestration_queue.http.app import API_ROUTES
from orchestration_queue.http.job_options import OPTIONS
from orchestration_queue.http.openapi import openapi

DOCUMENT = openapi(API_ROUTES)
OPERATIONS = [
    (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]
GONE_S = 0.3
"""When the client goes: streams and waits end then."""
FORESEEN = (503, 504, 499)

numbers = st.one_of(
    st.integers(), st.floats(), st.sampled_from([0, 1, -1, 2**53, 2**63, 10**400, -0.0, 1e308, float("nan")])
)
odd_text = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["", "\x00", "\ud800", "a:b", "{x}", "..", "/", "%", "\u202e", "💥", "é" * 300, "true", "1e999", "-1"]
    ),
)
plain_values = st.one_of(st.none(), st.booleans(), numbers, odd_text)
values = st.recursive(
    plain_values, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd_text, inner, max_size=3), max_leaves=6
)
known = st.sampled_from(["1", "2", "3", "s", "f1", "f1.a", "q"])
SCHEDULE = ("pattern", "every", "repeatAfterComplete", "tz", "startDate", "endDate", "limit")
BUDGET = ("maxTotalTokens", "maxTokens", "tokenWeights", "maxTotalCost", "maxCosts", "costUnit", "onExceeded")
likely: dict[str, Any] = {
    "name": odd_text | known,
    "opts": st.dictionaries(st.sampled_from([*OPTIONS, "parent"]), values, max_size=3),
    "subject": st.sampled_from(["a.b", "a..b", "*", "é"]) | odd_text,
    "schedule": st.dictionaries(st.sampled_from(SCHEDULE), values | st.just("* * * * *"), max_size=3),
    "template": st.fixed_dictionaries({}, optional={"name": odd_text, "data": values, "opts": values}),
    "budget": st.dictionaries(st.sampled_from(BUDGET), values, max_size=3),
    "pattern": st.sampled_from(["* * * * *", "@daily", "61 * * * *", "* * * * * *", "0 0 30 2 *"]) | values,
    "tz": st.sampled_from(["Europe/Berlin", "Mars", "../../etc/passwd"]) | values,
}
node: st.SearchStrategy[Any] = st.deferred(
    lambda: st.fixed_dictionaries(
        {"name": odd_text | known, "queueName": known | odd_text, "data": values},
        optional={"opts": likely["opts"], "children": st.lists(node, max_size=2), "deps": st.lists(known, max_size=2)},
    )
)
likely |= {"flow": node, "dag": st.fixed_dictionaries({"nodes": st.lists(node, max_size=3)})}


def member(name: str, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Mostly what the document asks for, and sometimes anything."""
    kinds: Any = schema.get("type")
    if name == "jobs":
        return st.lists(body_of(schema["items"]), max_size=3) | values
    if name in likely:
        return st.one_of(likely[name], likely[name], likely[name], values)
    if "enum" in schema:
        return st.sampled_from(schema["enum"]) | values
    kinds = kinds if isinstance(kinds, list) else [kinds]
    fitting = numbers if {"number", "integer"} & set(kinds) else odd_text | known if "string" in kinds else values
    return st.one_of(fitting, fitting, values)


def body_of(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    members = {name: member(name, each) for name, each in schema.get("properties", {}).items()}
    required = {name: members[name] for name in schema.get("required", ())}
    optional = {name: each for name, each in members.items() if name not in required}
    return st.fixed_dictionaries(required, optional=optional)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, bytes, bytes, bytes, str]:
    """Method, path, query, body and its type."""
    method, path, operation = draw(st.sampled_from(OPERATIONS))
    query = []
    for each in operation["parameters"]:
        given = draw(st.one_of(known, known, known, odd_text))
        text = quote(given.encode("utf-8", "surrogatepass"), safe="")
        if each["in"] == "path":
            is_queue = each["name"] == "name" and draw(st.integers(0, 9)) > 1
            path = path.replace(f"{{{each['name']}}}", "q" if is_queue else text)
        elif each["required"] or draw(st.booleans()):
            fitting = st.sampled_from(["waiting", "failed", "0", "5", "-1", '{"a":1}', "q"])
            query.append(f"{each['name']}={draw(fitting | st.just(text))}")
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if schema is None or draw(st.integers(0, 9)) == 0:
        content = draw(st.just(b"") | st.binary(max_size=8) | values.map(lambda value: json.dumps(value).encode()))
    else:
        # JSON has no infinity, and numbers that become one when they are read.
        content = json.dumps(draw(body_of(schema))).replace("Infinity", "1e999").encode()
    kind = draw(st.sampled_from(["application/json"] * 8 + ["text/plain", "application/json; charset=utf-16"]))
    return method, path.encode(), "&".join(query).encode(), content, kind


async def ask(app: HttpApp, method: str, path: bytes, query: bytes, content: bytes, kind: str) -> tuple[int, bytes]:
    """Send a request as a server would; the client goes when it was answered, or after a while."""
    headers = [(b"host", b"test"), (b"content-type", kind.encode()), (b"content-length", b"%d" % len(content))]
    scope = {
        "type": "http", "method": method, "raw_path": path, "path": path.decode(), "query_string": query,
        "headers": headers, "root_path": "",
    }  # fmt: skip
    parts = iter([{"type": "http.request", "body": content}] if content else [])
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        if (part := next(parts, None)) is None:
            await asyncio.sleep(GONE_S)
            return {"type": "http.disconnect"}
        return part

    async def send(message: Any) -> None:
        sent.append(message)

    async with asyncio.timeout(120):
        await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


class Complaints(logging.Handler):
    """What the app has logged as a failure of its own."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(logging.Formatter().format(record))


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    handler = Complaints()
    logger = logging.getLogger("orchestration_queue.http")
    logger.addHandler(handler)
    yield handler.found
    logger.removeHandler(handler)


async def fill(url: str) -> None:
    """Something of everything, so that known ids meet something."""
    async with AsyncQueue("q", url=url) as queue, AsyncFlowProducer(url=url) as flows:
        for number in range(3):
            await queue.add("a", {"n": number}, {"delay": 9999 * number})
        await queue.schedulers.upsert("s", Every(60))
        await flows.submit(Dag("d", [Node("a"), Node("b", deps=["a"])], queue="q"), flow_id="f1")


def test_no_request_fails_in_the_server(server_url: str, raw: redis.Redis, complaints: list[str]) -> None:
    with asyncio.Runner() as runner:
        app = create_app(server_url)
        runner.run(fill(server_url))

        @settings(max_examples=300, suppress_health_check=list(HealthCheck))
        @given(requests())
        def check(request: tuple[str, bytes, bytes, bytes, str]) -> None:
            status, body = runner.run(ask(app, *request))
            assert complaints == [], complaints.pop()
            if request[1].startswith(b"/v1/") and status >= 400:
                assert json.loads(body)["status"] == status
                assert status < 500 or status in FORESEEN

        try:
            check()
        finally:
            runner.run(app.aclose())
            raw.flushall()
