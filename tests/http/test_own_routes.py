"""Our own routes below ``/v1``: what each answers, and refusals as problem+json in the package's sentences."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import redis

from orchestration_queue import (
    AsyncActiveJob,
    AsyncFlowProducer,
    AsyncQueue,
    Cron,
    Dag,
    JobTemplate,
    Node,
    RepeatAfterComplete,
    UnrecoverableError,
)
from orchestration_queue.http import create_app
from orchestration_queue.http.access import Access, Token
from tests.http.conftest import called
from tests.waiting import wait_until
from tests.workers import working


@pytest.fixture
async def queue(server_url: str, raw: redis.Redis, queue_name: str) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


async def read(api: httpx.AsyncClient, path: str, **query: Any) -> Any:
    response = await api.get(path, params=query)
    assert response.status_code == 200, response.text
    return response.json()


def refusal(response: httpx.Response, status: int) -> str:
    """The sentence of a refusal."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status
    detail: str = body["detail"]
    assert detail.endswith((".", "`")), detail
    return detail


async def fail(job: AsyncActiveJob) -> None:
    await job.log("about to fail")
    raise UnrecoverableError(f"no {job.name}")


async def failed(queue: AsyncQueue, url: str, *names: str) -> None:
    """Let jobs of these names fail for good."""
    for name in names:
        await queue.add(name, {"user": 7})
    async with working(queue, fail, url, dead_letter_queue=f"{queue.name}-dead"):
        async with asyncio.timeout(60):
            while len(await queue.dead_letters.list()) < len(names):  # noqa: ASYNC110  the server has no event of it
                await asyncio.sleep(0.02)


async def test_jobs_are_found_by_name_state_and_data(api: httpx.AsyncClient, queue: AsyncQueue) -> None:
    path = f"/v1/queues/{queue.name}/search"
    await queue.add("a", {"user": 7}, {"job_id": "first"})
    await queue.add("a", {"user": 8}, {"delay": 9999})
    assert [job["id"] for job in (await read(api, path, data='{"user": 7}'))["jobs"]] == ["first"]
    (late,) = (await read(api, path, name="a", state="delayed"))["jobs"]
    assert (late["queue"], late["data"], late["result"]) == (queue.name, {"user": 8}, None)
    assert "state" in refusal(await api.get(path, params={"state": "asleep"}), 400)
    assert "'x'" in refusal(await api.get(path, params={"limit": "x"}), 400)
    assert "JSON object" in refusal(await api.get(path, params={"data": "[1]"}), 400)


async def test_failures_are_grouped_and_dead_letters_replayed_or_dropped(
    api: httpx.AsyncClient, queue: AsyncQueue, server_url: str
) -> None:
    await failed(queue, server_url, "a", "b", "a")
    found = await read(api, f"/v1/queues/{queue.name}/failures")
    (group,) = found["failures"]
    assert (group["kind"], group["count"]) == ("orchestration_queue.errors.UnrecoverableError", 3)
    assert group["reason"].startswith("no ")
    of_kind = await read(api, f"/v1/queues/{queue.name}/search", kind=group["kind"], state="failed")
    assert len(of_kind["jobs"]) == 3
    retry = f"/v1/queues/{queue.name}/failures/retry"
    assert (await api.post(retry, json={"kind": "other"})).json() == {"retried": 0}
    assert "kind" in refusal(await api.post(retry, json={"kind": 5}), 400)
    assert "limit" in refusal(await api.post(retry, json={"limit": "x"}), 400)
    path = f"/v1/queues/{queue.name}/dead-letters"
    letters = (await read(api, path))["dead_letters"]
    assert sorted(letter["name"] for letter in letters) == ["a", "a", "b"]
    shown = await read(api, f"{path}/{letters[0]['id']}")
    assert "UnrecoverableError" in shown["traceback"]
    assert shown["failed_reason"] == f"no {shown['name']}"
    again = await api.post(f"{path}/{letters[0]['id']}/replay")
    assert (again.status_code, again.json()["job"]["name"]) == (201, shown["name"])
    refusal(await api.post(f"{path}/{letters[0]['id']}/replay"), 404)
    assert (await api.delete(f"{path}/{letters[1]['id']}")).json() == {"dropped": 1}
    refusal(await api.delete(f"{path}/{letters[1]['id']}"), 404)
    assert "limit" in refusal(await api.post(f"{path}/replay", json={"limit": "all"}), 400)
    assert "unknown" in refusal(await api.post(f"{path}/replay", json={"count": 1}), 400)
    assert (await api.post(f"{path}/replay", json={"limit": 1})).json() == {"replayed": 1}
    assert (await api.delete(path)).json() == {"dropped": 0}
    assert (await api.post(retry, json={"kind": group["kind"], "limit": 1})).json() == {"retried": 1}


async def test_a_job_is_explained_and_has_a_history(api: httpx.AsyncClient, queue: AsyncQueue, server_url: str) -> None:
    job = await queue.add("later", None, {"delay": 9999})
    path = f"/v1/queues/{queue.name}/jobs"
    found = await read(api, f"{path}/{job.id}/explanation")
    assert (found["job_id"], found["state"]) == (job.id, "delayed")
    assert found["sentence"].endswith(".")
    refusal(await api.get(f"{path}/nope/explanation"), 404)
    await failed(queue, server_url, "a")
    (letter,) = await queue.dead_letters.list()
    (entry,) = (await read(api, f"{path}/{letter.original_job_id}/history"))["history"]
    assert (entry["event"], entry["reason"], entry["attempt"]) == ("failed", "no a", 1)
    assert entry["logs"] == ["about to fail"]


async def test_the_durable_steps_of_a_job_are_listed(
    api: httpx.AsyncClient, queue: AsyncQueue, server_url: str
) -> None:
    job = await queue.add("work")
    path = f"/v1/queues/{queue.name}/jobs"
    assert await read(api, f"{path}/{job.id}/steps") == {"id": job.id, "steps": []}
    async with working(queue, lambda job: job.step("charge", lambda: "paid"), server_url):
        await job.wait(60)
    (step,) = (await read(api, f"{path}/{job.id}/steps"))["steps"]
    assert (step["name"], step["kind"], step["attempt"], step["size"]) == ("charge", "returned", 1, len('"paid"'))
    refusal(await api.get(f"{path}/nope/steps"), 404)


async def test_a_step_that_waits_gets_its_signal(
    api: httpx.AsyncClient, queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    path = f"/queues/{queue.name}/jobs"
    async with working(queue, lambda job: job.wait_for("approval"), server_url):
        job = await queue.add("work")
        await wait_until(lambda: raw.zcard(queue.keys.suspended), "the job to be suspended", 60)
        sent = await api.post(f"{path}/{job.id}/signal", json={"name": "approval", "data": 7})
        assert sent.json() == {"resumed": True}
        assert await job.wait(60) == 7
    (step,) = (await read(api, f"/v1{path}/{job.id}/steps"))["steps"]
    assert step["kind"] == "signaled"


async def test_flows_are_read_and_controlled(api: httpx.AsyncClient, queue: AsyncQueue, server_url: str) -> None:
    path = f"/v1/queues/{queue.name}/flows"
    async with AsyncFlowProducer(url=server_url) as producer:
        nodes = [Node("a"), Node("b", deps=["a"])]
        await producer.submit(Dag("sales", nodes, queue=queue.name), flow_id="f1")
    assert [flow["id"] for flow in (await read(api, path))["flows"]] == ["f1"]
    assert (await read(api, path, state="failed"))["flows"] == []
    assert "state" in refusal(await api.get(path, params={"state": "odd"}), 400)
    assert (await read(api, f"{path}/f1/explanation"))["nodes"]["a"]["sentence"] == "No worker serves the queue."
    shown = await read(api, f"{path}/f1")
    assert (shown["name"], shown["state"], shown["percent"], shown["critical_path"]) == ("sales", "running", 0, [])
    nodes_now = (await read(api, f"{path}/f1/tree"))["nodes"]
    assert [(node["name"], node["deps"]) for node in nodes_now] == [("a", []), ("b", ["a"])]
    assert (await api.post(f"{path}/f1/pause")).json() == {"flow": "f1", "is_paused": True}
    assert (await api.post(f"{path}/f1/resume")).json()["is_paused"] is False
    assert "reason" in refusal(await api.post(f"{path}/f1/cancel", json={"reason": 5}), 400)
    assert "a" in (await api.post(f"{path}/f1/cancel", json={"reason": "no more"})).json()["nodes"]
    assert (await read(api, f"{path}/f1"))["state"] == "cancelled"
    assert sorted((await api.post(f"{path}/f1/retry")).json()["nodes"]) == ["a", "b"]
    refusal(await api.get(f"{path}/f2/tree"), 404)


async def test_runs_are_laid_side_by_side(api: httpx.AsyncClient, queue: AsyncQueue, server_url: str) -> None:
    path = f"/v1/queues/{queue.name}/runs"
    async with AsyncFlowProducer(url=server_url) as producer:
        for flow_id in ("f1", "f2"):
            nodes = [Node("a"), Node("b", deps=["a"])]
            await producer.submit(Dag("sales", nodes, queue=queue.name), flow_id=flow_id)
    found = await read(api, path, flow="sales")
    assert [run["id"] for run in found["runs"]] == ["f2", "f1"]
    assert {name: found[name] for name in ("of", "name", "nodes", "has_more")} == {
        "of": "flow",
        "name": "sales",
        "nodes": ["a", "b"],
        "has_more": False,
    }
    assert found["runs"][0]["nodes"]["b"]["outcome"] == "waiting-children"
    assert [run["id"] for run in (await read(api, path, flow="sales", limit="1"))["runs"]] == ["f2"]
    assert (await read(api, path, scheduler="nightly"))["runs"] == []
    assert (await read(api, path, dagster_job="etl"))["runs"] == []
    bad: list[dict[str, str]] = [
        {},
        {"flow": "a", "scheduler": "b"},
        {"flow": "a", "limit": "51"},
        {"flow": "a", "limit": "0"},
    ]
    for params in bad:
        refusal(await api.get(path, params=params), 400)


async def test_flows_over_several_queues_need_all_of_them(server_url: str, raw: redis.Redis) -> None:
    async with AsyncFlowProducer(url=server_url) as producer:
        nodes = [Node("a"), Node("b", deps=["a"], queue="theirs")]
        await producer.submit(Dag("sales", nodes, queue="mine"), flow_id="f1")
    tokens = [Token.of("narrow", "narrow", ["act"], ["mine"]), Token.of("wide", "wide", ["act"], ["mine", "theirs"])]
    async with called(create_app(server_url, access=Access(tokens))) as api:
        for token, status in (("narrow", 403), ("wide", 200)):
            for method, path in (("GET", "/tree"), ("POST", "/pause")):
                headers = {"authorization": f"Bearer {token}"}
                response = await api.request(method, f"/v1/queues/mine/flows/f1{path}", headers=headers)
                assert response.status_code == status, response.text
            response = await api.get("/v1/queues/mine/runs", params={"flow": "sales"}, headers=headers)
            assert response.status_code == status, response.text
    async with called(create_app(server_url, queues=["mine"])) as api:
        assert "allow" in refusal(await api.post("/v1/queues/mine/flows/f1/cancel"), 403)
        assert "allow" in refusal(await api.get("/v1/queues/theirs/search"), 403)


async def test_schedulers_are_edited_with_a_preview(api: httpx.AsyncClient, queue: AsyncQueue) -> None:
    path = f"/v1/queues/{queue.name}/schedulers/nightly"
    template = JobTemplate(name="export", data={"a": 1})
    await queue.schedulers.upsert("nightly", Cron("30 2 * * *", tz="Europe/Berlin", limit=500), template)
    (listed,) = (await read(api, f"/v1/queues/{queue.name}/schedulers"))["schedulers"]
    assert len(listed["next_runs"]) == 10
    assert {run["at"][-6:] for run in listed["next_runs"]} <= {"+01:00", "+02:00"}
    assert all(run["utc"].endswith("+00:00") for run in listed["next_runs"])
    before = await read(api, path)
    seen = (await api.post(f"{path}/preview", json={"pattern": "15 6 * * *", "tz": "Asia/Tokyo"})).json()
    assert {run["at"][11:] for run in seen["next_runs"]} == {"06:15:00+09:00"}
    assert await read(api, path) == before
    for changes, words in (
        ({"pattern": "61 * * * *"}, "61"),
        ({"tz": "Mars/Base"}, "Mars/Base"),
        ({"tz": "localtime"}, "depends on the machine"),
        ({"pattern": None}, "pass one"),
        ({"every": 5, "repeat_after_complete": 5}, "pass one"),
        ({"start": "soon"}, "ISO 8601"),
        ({"end": "2001-01-01T00:00:00+00:00"}, "end"),
        ({"missed": "sometimes"}, "missed"),
        ({"missed": "fire_all"}, "missed_max"),
        ({"missed_max": 5}, "missed_max"),
        ({"overlap": "maybe"}, "overlap"),
        ({"flavor": "red"}, "flavor"),
    ):
        for response in (await api.post(f"{path}/preview", json=changes), await api.patch(path, json=changes)):
            assert words in refusal(response, 400)
    assert await read(api, path) == before
    await api.post(f"{path}/pause")
    changed = (await api.patch(path, json={"every": 60, "missed": "fire_all", "missed_max": 3})).json()
    assert (changed["is_paused"], changed["every"], changed["pattern"], changed["tz"]) == (True, 60, None, None)
    assert (changed["limit"], changed["template"]) == (500, {"name": "export", "data": {"a": 1}})
    assert len((await api.post(f"{path}/resume")).json()["next_runs"]) == 10
    refusal(await api.patch(f"{path}2", json={"every": 60}), 404)


async def test_schedulers_run_now(api: httpx.AsyncClient, queue: AsyncQueue) -> None:
    path = f"/v1/queues/{queue.name}/schedulers"
    await queue.schedulers.upsert("hourly", Cron("0 * * * *", overlap="skip"))
    made = await api.post(f"{path}/hourly/run")
    assert made.status_code == 201
    assert await queue.find(made.json()["job_id"]) is not None
    held = await api.post(f"{path}/hourly/run")
    assert (held.status_code, held.json()) == (200, {"job_id": None, "is_queued": False})
    await queue.schedulers.upsert("after", RepeatAfterComplete(5))
    assert len((await read(api, f"{path}/after"))["next_runs"]) == 1
    refusal(await api.post(f"{path}/nope/run"), 404)


async def test_doctor_finds_what_it_finds_at_the_command_line(api: httpx.AsyncClient, queue: AsyncQueue) -> None:
    await queue.add("a")
    await queue.pause()
    (finding,) = [
        each for each in (await read(api, f"/v1/queues/{queue.name}/doctor"))["findings"] if "paused" in each["what"]
    ]
    assert finding["where"] == f"queue {queue.name}"
    assert {"severity", "why", "action", "can_be_fixed"} < finding.keys()
    everything = (await read(api, "/v1/doctor"))["findings"]
    assert finding in everything


async def test_a_finding_is_fixed(api: httpx.AsyncClient, queue: AsyncQueue, raw: redis.Redis) -> None:
    job = await queue.add("a", None, {"delay": 9999})
    raw.zrem(queue.keys.scheduled, job.id)
    found = (await read(api, f"/v1/queues/{queue.name}/doctor"))["findings"]
    (finding,) = [each for each in found if "is in no list" in each["what"]]
    assert finding["can_be_fixed"] is True
    wanted = {"where": finding["where"], "what": finding["what"]}
    assert "due now" in (await api.post("/v1/doctor/fix", json=wanted)).json()["done"]
    assert (await queue.counts()).delayed == 1
    assert "check again" in refusal(await api.post("/v1/doctor/fix", json=wanted), 409)
    assert "where" in refusal(await api.post("/v1/doctor/fix", json={"where": 5}), 400)
    assert noted(raw) == [("POST /v1/doctor/fix", f"{finding['where']}: {finding['what']}")]


def noted(raw: redis.Redis) -> list[tuple[str, str]]:
    """The audit log: what was done, and to what."""
    entries: Any = raw.xrange("glide:audit")
    return [(fields["act"], fields["subject"]) for _, fields in entries]


async def test_acts_are_noted_and_unknown_paths_refused(
    api: httpx.AsyncClient, queue: AsyncQueue, raw: redis.Redis
) -> None:
    await queue.schedulers.upsert("hourly", Cron("0 * * * *"))
    await api.post(f"/v1/queues/{queue.name}/schedulers/hourly/pause")
    assert noted(raw) == [("POST /v1/queues/:name/schedulers/:id/pause", "hourly")]
    assert "/v1/nothing" in refusal(await api.get("/v1/nothing"), 404)
    assert "Bad request" in refusal(
        await api.post("/v1/nothing", content=b"{", headers={"content-type": "application/json"}), 400
    )
    assert "colons" in refusal(await api.get("/v1/queues/a:b/search"), 400)


async def test_nothing_is_answered_after_shutdown_began(server_url: str, raw: redis.Redis) -> None:
    app = create_app(server_url)
    async with called(app) as api:
        await app.aclose()
        assert "shutting down" in refusal(await api.get("/v1/queues/q/search"), 503)
