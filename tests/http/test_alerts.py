"""Alert rules over HTTP and in the console: set, read, silenced, tested, refused; nothing of them is markup."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import redis

from orchestration_queue import AsyncQueue
from orchestration_queue.alerts import AlertEvaluator, evaluator, read_receivers
from orchestration_queue.client import AsyncAlerts
from orchestration_queue.http import create_app
from orchestration_queue.http.access import Access, Token
from tests.alerts.receivers import Hook, hook
from tests.http.conftest import called
from tests.http.test_console import page, submit
from tests.http.test_own_routes import noted
from tests.waiting import wait_until

HOSTILE = "<img src=x onerror=alert(1)>"
RULE = {"kind": "backlog", "queue": "q", "threshold": 2, "to": ["ops"], "note": HOSTILE}


@pytest.fixture
async def alerts(server_url: str, raw: redis.Redis) -> AsyncIterator[AsyncAlerts]:
    async with AsyncAlerts(url=server_url) as alerts:
        yield alerts


@pytest.fixture
async def ui(server_url: str, raw: redis.Redis) -> AsyncIterator[httpx.AsyncClient]:
    async with called(create_app(server_url, console=True)) as client:
        yield client


@asynccontextmanager
async def evaluating(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hook]:
    """Evaluate rules until the block ends, with one receiver."""
    monkeypatch.setattr(evaluator, "_TURN_S", 0.02)
    async with hook() as ops, AsyncAlerts(url=url) as alerts:
        found = AlertEvaluator(read_receivers({"OQ_ALERT_RECEIVER_OPS": ops.url}), url=url, interval=1)
        running = asyncio.ensure_future(found.run())
        async with asyncio.timeout(60):
            while True:
                leader = await alerts.evaluator()
                if leader is not None and leader.evaluated_ms:
                    break
                await asyncio.sleep(0.01)
        yield ops
        found.stop()
        await asyncio.wait_for(running, 60)


async def test_rules_over_http(
    api: httpx.AsyncClient, alerts: AsyncAlerts, raw: redis.Redis, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await api.get("/v1/alerts")).json() == {"evaluator": None, "alerts": []}
    made = await api.put("/v1/alerts/mail", json=RULE)
    assert made.status_code == 200
    assert made.json() == (await api.get("/v1/alerts/mail")).json()
    assert {name: made.json()[name] for name in RULE} == RULE
    assert made.json()["state"] == "ok"
    assert (await api.post("/v1/alerts/mail/test")).status_code == 409
    silenced = (await api.post("/v1/alerts/mail/silence", json={"seconds": 60})).json()
    assert silenced["silenced_until"] == (await api.get("/v1/alerts/mail")).json()["silenced_until"]
    assert (await api.post("/v1/alerts/mail/silence", json={"seconds": 0})).json() == {"silenced_until": None}
    async with AsyncQueue("q", url=server_url) as queue, evaluating(server_url, monkeypatch) as ops:
        for _ in range(3):
            await queue.add("work")
        await wait_until(lambda: ops.states == ["firing mail"], "the rule to fire")
        (shown,) = (await api.get("/v1/alerts")).json()["alerts"]
        assert shown["state"] == "firing"
        assert [each["text"] for each in shown["breaches"]] == ["3 jobs wait for a worker"]
        (outcome,) = (await api.post("/v1/alerts/mail/test")).json()["outcomes"]
        assert (outcome["receiver"], outcome["event"]) == ("ops", "sent")
        assert (await api.get("/v1/alerts")).json()["evaluator"]["receivers"] == ["ops"]
        assert "token=" not in (await api.get("/v1/alerts")).text
        events = (await api.get("/v1/alert-events?rule=mail&limit=10")).json()["events"]
        assert [event["event"] for event in events] == ["sent", "sent", "firing"]
        assert (await api.delete("/v1/alerts/mail")).json() == {"removed": True}
        await wait_until(lambda: ops.states[-1] == "resolved mail", "the end to be told")
    assert (await api.delete("/v1/alerts/mail")).json() == {"removed": False}
    assert [act for act, subject in noted(raw) if subject == "mail"] == [
        "PUT /v1/alerts/:rule",
        *["POST /v1/alerts/:rule/silence"] * 2,
        "POST /v1/alerts/:rule/test",
        *["DELETE /v1/alerts/:rule"] * 2,
    ]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("PUT", "/v1/alerts/mail", {}, 400, "needs `kind`"),
        ("PUT", "/v1/alerts/mail", [], 400, "JSON object"),
        ("PUT", "/v1/alerts/mail", RULE | {"to": ["https://evil.example.com"]}, 400, "small letters"),
        ("PUT", "/v1/alerts/mail", RULE | {"url": "https://evil.example.com"}, 400, "unknown member 'url'"),
        ("PUT", "/v1/alerts/mail", RULE | {"threshold": "2"}, 400, "threshold"),
        ("PUT", "/v1/alerts/mail", RULE | {"pending": "5m"}, 400, "pending"),
        ("PUT", "/v1/alerts/mail", RULE | {"queue": "a:b"}, 400, "contains ':'"),
        ("PUT", "/v1/alerts/a%2Fb", RULE, 400, "letters, digits"),
        ("GET", "/v1/alerts/nix", None, 404, "There is no alert rule 'nix'"),
        ("POST", "/v1/alerts/nix/silence", {"seconds": 5}, 404, "There is no alert rule 'nix'"),
        ("POST", "/v1/alerts/nix/silence", {}, 400, "must have `seconds`"),
        ("POST", "/v1/alerts/nix/silence", {"seconds": -1}, 400, "seconds"),
        ("POST", "/v1/alerts/nix/silence", {"seconds": 1e9}, 400, "at most"),
        ("POST", "/v1/alerts/nix/silence", {"seconds": "soon"}, 400, "seconds"),
        ("POST", "/v1/alerts/nix/test", None, 404, "There is no alert rule 'nix'"),
        ("GET", "/v1/alert-events?limit=0", None, 400, "limit"),
        ("GET", "/v1/alert-events?rule=a%2Fb", None, 400, "letters, digits"),
    ],
)
async def test_what_is_wrong_is_refused(
    api: httpx.AsyncClient, raw: redis.Redis, method: str, path: str, body: Any, status: int, says: str
) -> None:
    refused = await api.request(method, path, json=body)
    assert (refused.status_code, says in refused.json()["detail"]) == (status, True), refused.text
    assert raw.keys("*:alerts*") == []


async def test_rules_need_a_token_for_all_queues_and_their_scope(server_url: str, raw: redis.Redis) -> None:
    tokens = [Token.of("some", "some", ["admin"], ["q"]), Token.of("reader", "reader", ["read"], ["*"])]
    async with called(create_app(server_url, access=Access(tokens))) as api:
        for token, method, status in (("some", "PUT", 403), ("some", "GET", 403), ("reader", "PUT", 403)):
            headers = {"authorization": f"Bearer {token}"}
            answer = await api.request(method, "/v1/alerts/mail", json=RULE, headers=headers)
            assert answer.status_code == status, (token, method)
    async with called(create_app(server_url, queues=["q"], console=True)) as api:
        assert (await api.get("/v1/alerts")).status_code == 403
        assert (await api.put("/v1/alerts/mail", json=RULE)).status_code == 403
        assert (await api.get("/ui/alerts")).status_code == 403
    assert raw.keys("*:alerts*") == []


async def test_the_page_shows_sets_silences_tests_and_removes(
    ui: httpx.AsyncClient, alerts: AsyncAlerts, raw: redis.Redis, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "There is no rule" in await page(ui, "/alerts")
    form = {"name": "mail", "kind": "backlog", "queue": "q", "threshold": "2", "to": "ops, ops", "note": HOSTILE}
    saved = await submit(ui, "/alerts", "save-rule", **form)
    assert saved.headers["location"] == "/ui/alerts?done=save-rule-1"
    shown = await page(ui, "/alerts?done=save-rule-1")
    assert "No process evaluates rules" in shown
    assert "Done: save rule" in shown
    assert "resolved after 5 min without" in shown
    assert (await submit(ui, "/alerts", "save-rule", **form, keep_firing="0")).status_code == 303
    assert "resolved at once" in await page(ui, "/alerts")
    assert (await submit(ui, "/alerts/mail", "test")).status_code == 409
    async with AsyncQueue("q", url=server_url) as queue, evaluating(server_url, monkeypatch) as ops:
        assert "Nothing fires." in await page(ui, "/alerts")
        for _ in range(3):
            await queue.add("work")
        await wait_until(lambda: ops.states == ["firing mail"], "the rule to fire")
        shown = await page(ui, "/alerts")
        assert "3 jobs wait for a worker" in shown
        assert "&lt;img" in shown
        assert "<img" not in shown
        assert "token=" not in shown
        tested = await submit(ui, "/alerts/mail", "test")
        assert "Test of mail: ops got the message." in await page(ui, tested.headers["location"].removeprefix("/ui"))
        assert "Test of" not in await page(ui, "/alerts?tested=other")
        await submit(ui, "/alerts/mail", "silence", seconds="3600")
        assert "End silence" in await page(ui, "/alerts")
        await submit(ui, "/alerts/mail", "silence", seconds="0")
        assert (await alerts.get("mail")).silenced_until is None
        asked = await submit(ui, "/alerts/mail", "remove")
        assert "<h1>Remove rule mail?</h1>" in asked.text
        await submit(ui, "/alerts/mail", "remove", confirmed="yes")
        assert await alerts.list() == []
        await wait_until(lambda: ops.states[-1] == "resolved mail", "the end to be told")
    acts = ["save-rule", "save-rule", "test", "silence", "silence", "remove"]
    assert noted(raw) == [(act, "mail") for act in acts]


async def test_wrong_forms_change_nothing(ui: httpx.AsyncClient, alerts: AsyncAlerts, raw: redis.Redis) -> None:
    form = {"name": "mail", "kind": "backlog", "to": "ops"}
    for wrong in (
        {"name": HOSTILE},
        {"name": ""},
        {"kind": HOSTILE},
        {"to": ""},
        {"to": "https://evil.example.com"},
        {"threshold": HOSTILE},
        {"threshold": "nan"},
        {"threshold": "inf"},
        {"pending": "-1"},
        {"minimum": "5"},
        {"queue": "a:b"},
        {"note": "x" * 501},
    ):
        refused = await submit(ui, "/alerts", "save-rule", **form | wrong)
        assert refused.status_code == 400, wrong
        assert 'role="alert"' in refused.text
        assert "<img" not in refused.text
    assert (await submit(ui, "/alerts/nix", "silence", seconds="60")).status_code == 404
    assert (await submit(ui, "/alerts/nix", "silence", seconds="soon")).status_code == 400
    assert (await submit(ui, "/alerts/nix", "test")).status_code == 404
    assert (await submit(ui, "/alerts/nix", "explode")).status_code == 400
    assert (await submit(ui, "/alerts/a%2Fb", "remove", confirmed="yes")).status_code == 400
    forged = await ui.post("/ui/alerts", data=form | {"csrf": "forged"})
    assert forged.status_code == 403
    assert raw.keys("*:alerts*") == []
    assert noted(raw) == []


async def test_what_was_stored_by_others_is_no_markup(
    ui: httpx.AsyncClient, alerts: AsyncAlerts, raw: redis.Redis
) -> None:
    await alerts.set("mail", {"kind": "backlog", "to": ["ops"]})
    await alerts.silence("mail", 60, by=HOSTILE)
    raw.xadd("glide:{:alerts}:history", {"rule": HOSTILE, "event": HOSTILE, "receiver": HOSTILE, "text": HOSTILE})
    shown = await page(ui, "/alerts")
    assert "<img" not in shown
    assert shown.count("&lt;img") == 5
