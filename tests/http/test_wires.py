"""ChasquiMQ's and qless's queues over HTTP and in the console: what each has, and the acts on it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import redis

from orchestration_queue.errors import UsageError
from orchestration_queue.http import create_app
from orchestration_queue.http.access import Access, Token
from orchestration_queue.wires.chasquimq import AsyncChasquiQueue
from orchestration_queue.wires.chasquimq.envelope import Envelope, pack_envelope
from orchestration_queue.wires.chasquimq.packing import pack
from orchestration_queue.wires.qless import AsyncQlessClient
from tests.http.conftest import called
from tests.http.test_console import page, submit
from tests.http.test_own_routes import noted, read, refusal

NAME = "<img src=x>'\"&/{{7*7}}"
PART = quote(NAME, safe="")
CHASQUI, QLESS = f"/v1/chasquimq/{PART}", f"/v1/qless/{PART}"


@pytest.fixture
def raw(server_url: str) -> Iterator[redis.Redis]:
    """A plain client of an empty server, whose keys are those of other wires."""
    client = redis.Redis(unix_socket_path=server_url.removeprefix("unix://"), decode_responses=True, protocol=2)
    client.flushall()
    yield client
    client.flushall()
    client.close()


@pytest.fixture
async def others(server_url: str, raw: redis.Redis) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(server_url, console=True, queues=[], wires={"chasquimq": [NAME], "qless": [NAME]})
    async with called(app) as client:
        yield client


@pytest.fixture
async def chasqui(server_url: str, raw: redis.Redis) -> AsyncIterator[AsyncChasquiQueue]:
    async with AsyncChasquiQueue(NAME, url=server_url) as queue:
        yield queue


@pytest.fixture
async def qless(server_url: str, raw: redis.Redis) -> AsyncIterator[AsyncQlessClient]:
    async with AsyncQlessClient(url=server_url) as client:
        yield client


def bury(queue: AsyncChasquiQueue, raw: redis.Redis, *names: str) -> None:
    """Write dead letters as a worker does."""
    for name in names:
        envelope = pack_envelope(Envelope(f"id-{name}", pack({"a": float("nan")}), 1, 0, None))
        raw.xadd(queue.keys.dead_letters, {"d": envelope, "n": name, "reason": "unrecoverable", "detail": NAME})


async def act(api: httpx.AsyncClient, path: str, **body: Any) -> Any:
    response = await api.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_chasquimq_queue_is_read(others: httpx.AsyncClient, chasqui: AsyncChasquiQueue) -> None:
    await chasqui.add("a", {"bytes": b"\xff", "nan": float("nan"), 5: [1]})
    await chasqui.add("later", None, delay=9999)
    await chasqui.put_schedule("tick", every=60, key="k")
    counts = {"ready": 1, "running": 0, "delayed": 1, "dead_letters": 0, "schedules": 1, "is_paused": False}
    assert await read(others, CHASQUI) == {"name": NAME} | counts
    assert await read(others, "/v1/chasquimq") == {"queues": [{"name": NAME} | counts]}
    found = await read(others, f"{CHASQUI}/jobs")
    (job,), (later,) = found["jobs"], found["delayed"]
    assert (job["name"], job["data"]["nan"], job["data"]["5"], job["attempt"]) == ("a", "nan", [1], 0)
    assert (later["name"], "due_at" in later) == ("later", True)
    (schedule,) = (await read(others, f"{CHASQUI}/schedules"))["schedules"]
    assert (schedule["key"], schedule["name"], schedule["fired"]) == ("k", "tick", 0)
    assert "limit" in refusal(await others.get(f"{CHASQUI}/jobs?limit=x"), 400)
    assert "after" in refusal(await others.get(f"{CHASQUI}/dead-letters?after=x"), 400)


async def test_dead_letters_of_chasquimq_run_again_or_are_dropped(
    others: httpx.AsyncClient, chasqui: AsyncChasquiQueue, raw: redis.Redis
) -> None:
    bury(chasqui, raw, "a", "b", "c")
    letters = (await read(others, f"{CHASQUI}/dead-letters", limit=2))["dead_letters"]
    assert [(each["name"], each["job_id"], each["detail"]) for each in letters] == [
        ("a", "id-a", NAME),
        ("b", "id-b", NAME),
    ]
    (last,) = (await read(others, f"{CHASQUI}/dead-letters", after=letters[1]["id"]))["dead_letters"]
    for wrong, words in (
        ({"ids": "x"}, "ids"),
        ({"ids": ["x"]}, "ids"),
        ({"limit": -1}, "limit"),
        ({"reason": 5}, "reason"),
        ({"all": True}, "all"),
    ):
        assert words in refusal(await others.post(f"{CHASQUI}/dead-letters/replay", json=wrong), 400)
    assert await act(others, f"{CHASQUI}/dead-letters/replay", ids=[last["id"]]) == {"replayed": 1}
    assert [job.name for job in await chasqui.list_jobs()] == ["c"]
    assert await act(others, f"{CHASQUI}/dead-letters/replay", limit=1) == {"replayed": 1}
    assert (await others.delete(f"{CHASQUI}/dead-letters")).json() == {"dropped": 1}
    replay = "POST /v1/chasquimq/:name/dead-letters/replay"
    assert noted(raw)[:2] == [(replay, last["id"]), (replay, "")]
    bury(chasqui, raw, "d", "e", "f")
    path = f"/chasquimq/{PART}"
    text = await page(others, path)
    assert (text.count('value="replay"'), "<img" in text) == (3, False)
    (first, *_) = await chasqui.dead_letters()
    done = await submit(others, path, "replay", id=first.id)
    assert done.headers["location"] == f"/ui{path}?done=replay-1"
    assert "Drop all dead letters: 2 dead letters of" in (await submit(others, f"{path}/drop", "purge")).text
    assert (await chasqui.counts()).dead_letters == 2
    await submit(others, f"{path}/drop", "purge", confirmed="yes")
    assert (await chasqui.counts()).dead_letters == 0
    bury(chasqui, raw, "g")
    assert (await submit(others, path, "replay-all")).headers["location"].endswith("replay-all-1")
    assert (await submit(others, path, "purge")).status_code == 400
    assert (await submit(others, f"{path}/drop", "pause")).status_code == 400


async def test_a_qless_queue_is_read(others: httpx.AsyncClient, qless: AsyncQlessClient) -> None:
    await qless.put(NAME, "Ready", {"a": 1}, jid="ready")
    await qless.put(NAME, "Later", delay=9999, jid="later")
    await qless.track("later")
    await qless.put(NAME, "Bad", jid="bad", priority=9)
    (taken,) = await qless.pop(NAME)
    await qless.fail(taken, "oops", "why")
    counted = await read(others, QLESS)
    assert (counted["name"], counted["waiting"], counted["scheduled"]) == (NAME, 1, 1)
    server = await read(others, "/v1/qless")
    assert (server["queues"], server["failures"]) == ([counted], {"oops": 1})
    assert [job["jid"] for job in server["tracked"]] == ["later"]
    assert [worker["name"] for worker in server["workers"]] == [qless.worker]
    (ready,) = (await read(others, f"{QLESS}/jobs"))["jobs"]
    assert (ready["jid"], ready["klass"], ready["data"]) == ("ready", "Ready", {"a": 1})
    (later,) = (await read(others, f"{QLESS}/jobs", state="scheduled"))["jobs"]
    assert (later["jid"], later["is_tracked"]) == ("later", True)
    assert "waiting" in refusal(await others.get(f"{QLESS}/jobs?state=complete"), 400)
    assert "Later" in await page(others, f"/qless/{PART}?state=scheduled")
    shown = await page(others, "/qless")
    assert ("oops" in shown, "later" in shown, "<img" in shown) == (True, True, False)


async def test_queues_of_other_wires_are_paused_and_resumed(
    others: httpx.AsyncClient, chasqui: AsyncChasquiQueue, qless: AsyncQlessClient
) -> None:
    async def are_paused() -> tuple[bool, bool]:
        return (await chasqui.counts()).is_paused, (await qless.counts(NAME)).paused

    for path in (CHASQUI, QLESS):
        assert await act(others, f"{path}/pause") == {"is_paused": True}
    assert await are_paused() == (True, True)
    for path in (CHASQUI, QLESS):
        assert await act(others, f"{path}/resume") == {"is_paused": False}
    assert await are_paused() == (False, False)
    for word, expected in (("pause", True), ("resume", False)):
        for wire in ("chasquimq", "qless"):
            assert (await submit(others, f"/{wire}/{PART}", word)).status_code == 303
        assert await are_paused() == (expected, expected)
    for wire in ("chasquimq", "qless"):
        assert (await submit(others, f"/{wire}/{PART}", "explode")).status_code == 400


async def test_only_named_queues_are_served(others: httpx.AsyncClient, server_url: str) -> None:
    for wire in ("chasquimq", "qless"):
        for path in ("", "/jobs"):
            assert "not served" in refusal(await others.get(f"/v1/{wire}/other{path}"), 404)
        assert "not served" in refusal(await others.post(f"/v1/{wire}/other/pause"), 404)
        assert (await others.get(f"/ui/{wire}/other")).status_code == 404
        assert (await submit(others, f"/{wire}/other", "pause")).status_code == 404
    assert re.search(r'href="/ui/qless"[^>]*aria-current', await page(others, f"/qless/{PART}"))
    async with called(create_app(server_url, console=True)) as without:
        assert not re.search(r"/ui/(qless|chasquimq)", await page(without, ""))
        assert await read(without, "/v1/chasquimq") == {"queues": []}
        assert (await read(without, "/v1/qless"))["queues"] == []
    for names in ("emails", [""], [5]):
        for wire in ("chasquimq", "qless"):
            with pytest.raises(UsageError, match=f"Queues of {wire} must be a list of names"):
                create_app(server_url, wires={wire: names})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="There is no wire 'celery'; use one of chasquimq, qless"):
        create_app(server_url, wires={"celery": ["emails"]})


async def test_a_token_for_some_queues_does_not_open_others(server_url: str, raw: redis.Redis) -> None:
    access = Access([Token.of("me", "me", ["act"], ["mine"]), Token.of("all", "all", ["read"])])
    app = create_app(server_url, access=access, wires={"chasquimq": ["mine", "theirs"], "qless": ["mine", "theirs"]})
    async with called(app) as client:
        for wire in ("chasquimq", "qless"):
            for token, path, expected in (
                ("me", "/mine", 200),
                ("me", "/theirs", 403),
                ("me", "", 403),
                ("all", "", 200),
                ("all", "/theirs", 200),
            ):
                found = await client.get(f"/v1/{wire}{path}", headers={"authorization": f"Bearer {token}"})
                assert found.status_code == expected, (wire, token, path)
