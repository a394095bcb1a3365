"""Every route of glide-mq's proxy, over a real server and a real worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import redis

from orchestration_queue import AsyncActiveJob, UnrecoverableError, Usage, Worker
from orchestration_queue.http import create_app
from tests.http.conftest import called
from tests.waiting import wait_until


@asynccontextmanager
async def working(url: str, queue: str, **options: Any) -> AsyncIterator[Worker]:
    worker = Worker(queue, handle, url=url, options=options)
    task = asyncio.create_task(worker.run())
    try:
        await wait_until(lambda: worker.is_ready, "the worker to be ready")
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(task, 30)


async def handle(job: AsyncActiveJob) -> Any:
    match job.name:
        case "fail":
            raise UnrecoverableError("budget exceeded")
        case "suspend":
            if not job.signals:
                job.suspend(reason="needs approval")
            return job.signals[0].data
        case "usage":
            await job.report_usage(Usage(model="m", tokens={"input": 3, "output": 4}, costs={"total": 0.5}))
    return {"did": job.name, "data": job.data}


async def until(api: httpx.AsyncClient, path: str, good: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(30):
        while True:
            if good(found := (await api.get(path)).json()):
                return found
            await asyncio.sleep(0.02)


async def added(api: httpx.AsyncClient, queue: str, name: str = "send", **body: Any) -> str:
    response = await api.post(f"/queues/{queue}/jobs", json={"name": name, **body})
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


async def test_adds_a_job_that_every_client_of_the_wire_can_read(
    api: httpx.AsyncClient, raw: redis.Redis, queue_name: str
) -> None:
    response = await api.post(
        f"/queues/{queue_name}/jobs",
        json={
            "name": "send",
            "data": {"to": "a"},
            "opts": {"jobId": "one", "priority": 3, "delay": 5, "backoff": {"type": "fixed", "delay": 9}},
        },
    )
    assert response.status_code == 201
    assert response.json().keys() == {"id", "name", "timestamp"}
    stored = raw.hgetall(f"glide:{{{queue_name}}}:job:one")
    assert stored["priority"] == "3"
    assert json.loads(stored["opts"]) == {
        "jobId": "one",
        "priority": 3,
        "delay": 5,
        "backoff": {"type": "fixed", "delay": 9},
    }
    again = await api.post(f"/queues/{queue_name}/jobs", json={"name": "send", "opts": {"jobId": "one"}})
    assert (again.status_code, again.json()) == (200, {"skipped": True})
    read = (await api.get(f"/queues/{queue_name}/jobs/one")).json()
    assert read["data"] == {"to": "a"}
    assert read["attemptsMade"] == 0
    assert "returnvalue" not in read


async def test_jobs_added_at_once_share_exchanges_and_get_their_own_ids(
    api: httpx.AsyncClient, raw: redis.Redis, queue_name: str
) -> None:
    await added(api, queue_name)
    before = raw.info("commandstats").get("cmdstat_fcall", {}).get("calls", 0)
    responses = await asyncio.gather(
        *(api.post(f"/queues/{queue_name}/jobs", json={"name": f"n{n}"}) for n in range(100))
    )
    calls = raw.info("commandstats")["cmdstat_fcall"]["calls"] - before
    names = {response.json()["id"]: response.json()["name"] for response in responses}
    assert len(names) == 100
    assert calls < 50
    for job_id, name in list(names.items())[:5]:
        assert raw.hget(f"glide:{{{queue_name}}}:job:{job_id}", "name") == name


async def test_an_idempotency_key_adds_once(api: httpx.AsyncClient, queue_name: str) -> None:
    key = {"idempotency-key": "order-7"}
    first = await api.post(f"/queues/{queue_name}/jobs", json={"name": "a"}, headers=key)
    again = await api.post(f"/queues/{queue_name}/jobs", json={"name": "a"}, headers=key)
    assert (first.status_code, again.json()) == (201, {"skipped": True})


async def test_an_idempotency_key_adds_each_job_of_a_bulk_once(api: httpx.AsyncClient, queue_name: str) -> None:
    key, path = {"idempotency-key": "order-8"}, f"/queues/{queue_name}/jobs"
    jobs = [{"name": "a"}, {"name": "b", "opts": {"jobId": "mine"}}, {"name": "c"}]
    first = await api.post(f"{path}/bulk", json={"jobs": jobs}, headers=key)
    ids = [job["id"] for job in first.json()["jobs"]]
    assert ids[1] == "mine"
    assert len(set(ids)) == 3
    again = await api.post(f"{path}/bulk", json={"jobs": jobs}, headers=key)
    assert (again.status_code, again.json()) == (200, {"jobs": [{"skipped": True}] * 3})
    assert (await api.post(path, json={"name": "a"}, headers=key)).status_code == 201  # it is another request


async def test_an_idempotency_key_waits_for_the_job_of_the_first_request(
    api: httpx.AsyncClient, server_url: str, queue_name: str
) -> None:
    path, key = f"/queues/{queue_name}/jobs/wait", {"idempotency-key": "order-9"}
    async with working(server_url, queue_name):
        first = await api.post(path, json={"name": "a", "data": {"n": 1}}, headers=key)
        again = await api.post(path, json={"name": "a", "data": {"n": 2}}, headers=key)
        other = await api.post(path, json={"name": "a", "data": {"n": 2}})
    assert first.json() == again.json() != other.json()
    assert (first.status_code, again.status_code, other.status_code) == (200, 200, 200)


async def test_deduplicated_adds_are_skipped(api: httpx.AsyncClient, queue_name: str) -> None:
    body = {"name": "a", "opts": {"deduplication": {"id": "d", "mode": "simple"}}}
    assert (await api.post(f"/queues/{queue_name}/jobs", json=body)).status_code == 201
    again = await api.post(f"/queues/{queue_name}/jobs", json=body)
    assert (again.status_code, again.json()) == (200, {"skipped": True})


async def test_bulk_adds_in_order_or_not_at_all(api: httpx.AsyncClient, raw: redis.Redis, queue_name: str) -> None:
    path = f"/queues/{queue_name}/jobs/bulk"
    good = await api.post(path, json={"jobs": [{"name": "a"}, {"name": "b", "opts": {"jobId": "x"}}, {"name": "c"}]})
    assert good.status_code == 201
    assert [job["name"] for job in good.json()["jobs"]] == ["a", "b", "c"]
    assert (await api.post(path, json={"jobs": []})).json() == {"jobs": []}
    again = await api.post(path, json={"jobs": [{"name": "b", "opts": {"jobId": "x"}}]})
    assert (again.status_code, again.json()) == (200, {"jobs": [{"skipped": True}]})
    bad = await api.post(path, json={"jobs": [{"name": "fine"}, {"name": ""}]})
    assert (bad.status_code, bad.json()) == (400, {"error": "jobs[1]: missing required field: name"})
    assert raw.xlen(f"glide:{{{queue_name}}}:stream") == 3


async def test_a_full_server_refuses_the_rest_of_a_bulk(
    api: httpx.AsyncClient, raw: redis.Redis, queue_name: str
) -> None:
    jobs = [{"name": "a", "data": "x" * 100} for _ in range(450)]
    assert (await api.post(f"/queues/{queue_name}/jobs/bulk", json={"jobs": jobs})).status_code == 201
    raw.config_set("maxmemory", 1)
    try:
        refused = await api.post(f"/queues/{queue_name}/jobs/bulk", json={"jobs": jobs})
    finally:
        raw.config_set("maxmemory", 0)
    assert (refused.status_code, refused.json()) == (500, {"error": "Internal server error"})
    assert (await api.get(f"/queues/{queue_name}/counts")).json()["waiting"] == 450
    again = (await api.post(f"/queues/{queue_name}/jobs/bulk", json={"jobs": jobs})).json()["jobs"]
    assert [job["id"] for job in again] == [str(number) for number in range(451, 901)]


async def test_add_and_wait_returns_the_result_or_says_why_not(
    api: httpx.AsyncClient, server_url: str, queue_name: str
) -> None:
    path = f"/queues/{queue_name}/jobs/wait"
    late = await api.post(path, json={"name": "a", "opts": {"waitTimeout": 20}})
    assert late.status_code == 504
    assert late.json()["error"].endswith("did not finish within 20ms")
    async with working(server_url, queue_name):
        done = await api.post(path, json={"name": "ok", "data": [1], "opts": {"waitTimeout": 20000}})
        assert (done.status_code, done.json()) == (200, {"result": {"did": "ok", "data": [1]}})
        failed = await api.post(path, json={"name": "fail"})
        assert (failed.status_code, failed.json()) == (500, {"error": "budget exceeded"})
    kept = await api.post(path, json={"name": "a", "opts": {"removeOnComplete": True}})
    assert kept.status_code == 400


async def test_lists_counts_and_changes_jobs(api: httpx.AsyncClient, raw: redis.Redis, queue_name: str) -> None:
    queue = f"/queues/{queue_name}"
    first, second = await added(api, queue_name, data=1), await added(api, queue_name, data=2)
    listed = (await api.get(f"{queue}/jobs?state=waiting&excludeData=true")).json()["jobs"]
    assert [job["id"] for job in listed] == [first, second]
    assert "data" not in listed[0]
    assert len((await api.get(f"{queue}/jobs?state=waiting&start=1&end=1")).json()["jobs"]) == 1
    assert (await api.get(f"{queue}/counts")).json() == dict.fromkeys(
        ("active", "delayed", "completed", "failed"), 0
    ) | {"waiting": 2}
    changed = await api.post(f"{queue}/jobs/{first}/priority", json={"priority": 7})
    assert changed.json() == {"priority": 7, "updated": True}
    assert raw.hget(f"glide:{{{queue_name}}}:job:{first}", "priority") == "7"
    assert (await api.post(f"{queue}/jobs/{first}/delay", json={"delay": 60000})).json() == {
        "delay": 60000,
        "updated": True,
    }
    assert (await api.get(f"{queue}/jobs/{first}")).json()["state"] == "delayed"
    assert (await api.post(f"{queue}/jobs/{first}/promote")).json() == {"promoted": True}
    assert (await api.post(f"{queue}/jobs/{second}/promote")).json() == {"error": "Cannot promote: not_delayed"}
    assert (await api.post(f"{queue}/jobs/{second}/revoke")).json() == {"status": "revoked"}
    revoked = (await api.get(f"{queue}/jobs/{second}")).json()
    assert (revoked["state"], revoked["failedReason"]) == ("failed", "revoked")
    assert (await api.post(f"{queue}/retry", json={"count": 1})).json() == {"retried": 1}
    assert (await api.post(f"{queue}/drain?delayed=true")).json() == {"delayed": True, "drained": True}
    assert sum((await api.get(f"{queue}/counts")).json().values()) == 0


async def test_pauses_and_limits(api: httpx.AsyncClient, raw: redis.Redis, queue_name: str) -> None:
    queue = f"/queues/{queue_name}"
    assert (await api.post(f"{queue}/pause")).json() == {"paused": True}
    assert raw.hget(f"glide:{{{queue_name}}}:meta", "paused") == "1"
    assert (await api.post(f"{queue}/resume")).json() == {"paused": False}
    assert raw.hget(f"glide:{{{queue_name}}}:meta", "paused") == "0"
    limit = {"max": 5, "duration": 1000}
    assert (await api.get(f"{queue}/rate-limit")).json() == {"rateLimit": None}
    assert (await api.put(f"{queue}/rate-limit", json=limit)).json() == {"rateLimit": limit}
    assert (await api.get(f"{queue}/rate-limit")).json() == {"rateLimit": limit}
    assert (await api.delete(f"{queue}/rate-limit")).json() == {"removed": True, "rateLimit": None}


async def test_what_workers_leave_behind(api: httpx.AsyncClient, server_url: str, queue_name: str) -> None:
    queue = f"/queues/{queue_name}"
    async with working(server_url, queue_name, dead_letter_queue=f"{queue_name}-dead"):
        (worker,) = (await api.get(f"{queue}/workers")).json()["workers"]
        assert worker.keys() == {"id", "addr", "pid", "startedAt", "age", "activeJobs"}
        suspended = await added(api, queue_name, "suspend")
        used = await added(api, queue_name, "usage")
        dead = [await added(api, queue_name, "fail", data={"n": n}) for n in range(3)]
        await until(api, f"{queue}/counts", lambda counts: counts["failed"] == 3 and counts["completed"] == 1)
        letters = await until(api, f"{queue}/dlq", lambda found: found["count"] == 3)
        assert [letter["originalJobId"] for letter in letters["jobs"]] == dead
        assert letters["jobs"][0]["failedReason"] == "budget exceeded"
        point = await until(api, f"{queue}/metrics?type=completed", lambda found: found["data"])
        assert (point["count"], point["meta"]) == (1, {"resolution": "minute"})
        (held,) = (await until(api, f"{queue}/suspended", lambda found: found["jobs"]))["jobs"]
        assert held["suspend"]["reason"] == "needs approval"
        assert (await api.get(f"{queue}/jobs/{suspended}/suspend")).json()["reason"] == "needs approval"
        signalled = await api.post(f"{queue}/jobs/{suspended}/signal", json={"name": "approve", "data": 7})
        assert signalled.json() == {"resumed": True}
        resumed = await until(api, f"{queue}/jobs/{suspended}", lambda job: job["state"] == "completed")
        assert resumed["returnvalue"] == 7
    usage = (await api.get(f"{queue}/jobs/{used}")).json()["usage"]
    assert usage == {
        "model": "m",
        "tokens": {"input": 3, "output": 4},
        "totalTokens": 7,
        "costs": {"total": 0.5},
        "totalCost": 0.5,
    }
    summary = (await api.get(f"/usage/summary?queues={queue_name}")).json()
    assert (summary["queues"], summary["totalTokens"], summary["models"]) == ([queue_name], 7, {"m": 1})
    assert (await api.get(f"{queue}/flows/{used}/usage")).json()["totalTokens"] == 7
    ids = [letter["id"] for letter in letters["jobs"]]
    assert (await api.get(f"{queue}/dlq/{ids[0]}")).json()["data"] == {"n": 0}
    replayed = (await api.post(f"{queue}/dlq/{ids[0]}/replay")).json()
    assert (await api.get(f"{queue}/jobs/{replayed['newJobId']}")).json()["data"] == {"n": 0}
    assert (await api.delete(f"{queue}/dlq/{ids[1]}")).json() == {"removed": True}
    rest = (await api.post(f"{queue}/dlq/replay-all?count=1")).json()
    assert (rest["replayed"], rest["jobs"][0]["sourceId"]) == (1, ids[2])
    assert (await api.get(f"{queue}/dlq")).json() == {"count": 0, "jobs": []}
    cleaned = (await api.delete(f"{queue}/clean?state=completed&age=0")).json()["removed"]
    assert set(cleaned) == {suspended, used}


async def test_schedulers_are_stored_as_sent(api: httpx.AsyncClient, queue_name: str) -> None:
    path = f"/queues/{queue_name}/schedulers"
    body = {"schedule": {"every": 60000}, "template": {"name": "tick", "data": {"a": 1}, "opts": {"attempts": 2}}}
    assert (await api.put(f"{path}/nightly", json=body)).json() == {"upserted": True}
    (found,) = (await api.get(path)).json()["schedulers"]
    assert (found["name"], found["entry"]["every"], found["entry"]["template"]) == ("nightly", 60000, body["template"])
    assert (await api.get(f"{path}/nightly")).json() == {"entry": found["entry"], "name": "nightly"}
    cron = {"schedule": {"pattern": "0 9 1 * 1", "tz": "Europe/Berlin", "limit": 3}}
    assert (await api.put(f"{path}/cron", json=cron)).status_code == 200
    assert (await api.delete(f"{path}/nightly")).json() == {"removed": True}
    assert (await api.get(f"{path}/nightly")).status_code == 404


TREE = {
    "name": "book", "data": {}, "children": [
        {"name": "hotel", "data": 1, "children": [{"name": "room", "data": None}]}, {"name": "hotel", "data": 2}
    ],
}  # fmt: skip


def in_queue(node: Any, queue: str) -> Any:
    return node | {"queueName": queue, "children": [in_queue(child, queue) for child in node.get("children", ())]}


async def test_tree_flows(api: httpx.AsyncClient, server_url: str, queue_name: str) -> None:
    body = {"flow": in_queue(TREE, queue_name), "budget": {"maxTotalTokens": 100, "onExceeded": "pause"}}
    made = await api.post("/flows", json=body)
    assert made.status_code == 201, made.text
    flow = made.json()
    assert (flow["kind"], flow["nodeCount"], flow["roots"]) == ("tree", 4, [flow["root"]])
    assert flow["flowId"] == flow["root"]["jobId"]
    budget = (await api.get(f"/queues/{queue_name}/flows/{flow['flowId']}/budget")).json()
    assert (budget["maxTotalTokens"], budget["usedTokens"], budget["onExceeded"]) == (100, 0, "pause")
    shown = (await api.get(f"/flows/{flow['flowId']}")).json()
    assert sorted(node["name"] for node in shown["nodes"]) == ["book", "hotel", "hotel", "room"]
    assert shown["counts"] == {"waiting": 2, "waiting-children": 2}
    (root,) = (await api.get(f"/flows/{flow['flowId']}/tree")).json()["tree"]
    assert root["name"] == "book"
    assert sorted(len(child["children"]) for child in root["children"]) == [0, 1]
    async with working(server_url, queue_name):
        await until(api, f"/queues/{queue_name}/jobs/{flow['flowId']}", lambda job: job["state"] == "completed")
    gone = (await api.delete(f"/flows/{flow['flowId']}")).json()
    assert (gone["skipped"], len(gone["jobs"])) == (4, 4)
    assert (await api.get(f"/flows/{flow['flowId']}")).status_code == 404
    assert (await api.delete(f"/flows/{flow['flowId']}")).status_code == 404


async def test_graph_flows(api: httpx.AsyncClient, queue_name: str) -> None:
    nodes = [
        {"name": name, "queueName": queue_name, "data": {}, "deps": deps}
        for name, deps in (("A", []), ("B", ["A"]), ("C", ["A"]), ("D", ["B", "C"]))
    ]
    flow = (await api.post("/flows", json={"dag": {"nodes": nodes}})).json()
    assert len(flow["flowId"]) == 24
    assert [job["name"] for job in flow["jobs"]] == ["A", "B", "C", "D"]
    assert flow["roots"] == [{"jobId": flow["jobs"][0]["id"], "queueName": queue_name}]
    shown = (await api.get(f"/flows/{flow['flowId']}")).json()
    assert shown["budget"] is None
    assert len(next(node for node in shown["nodes"] if node["name"] == "A")["parentIds"]) == 2
    (root,) = (await api.get(f"/flows/{flow['flowId']}/tree")).json()["tree"]
    assert {child["name"]: [below["name"] for below in child["children"]] for child in root["children"]} == {
        "B": ["D"], "C": ["D"]
    }  # fmt: skip
    ended = (await api.delete(f"/flows/{flow['flowId']}")).json()
    assert ended["revoked"] + ended["flagged"] + ended["skipped"] == 4
    assert (await api.post("/flows", json={"dag": {"nodes": []}})).json()["nodeCount"] == 0


async def test_a_job_that_cannot_be_carried_hurts_only_its_own_request(api: httpx.AsyncClient, queue_name: str) -> None:
    async def add(name: str) -> int:
        content = json.dumps({"name": name})  # a lone surrogate is JSON, and no Unicode
        headers = {"content-type": "application/json"}
        return (await api.post(f"/queues/{queue_name}/jobs", content=content, headers=headers)).status_code

    statuses = await asyncio.gather(*(add("\ud800" if number % 5 == 2 else "a") for number in range(20)))
    assert statuses == [400 if number % 5 == 2 else 201 for number in range(20)]
    assert (await api.get(f"/queues/{queue_name}/counts")).json()["waiting"] == 16


async def test_publishes(api: httpx.AsyncClient, raw: redis.Redis, queue_name: str) -> None:
    sent = await api.post(f"/broadcast/{queue_name}", json={"subject": "orders.new", "data": {"a": 1}})
    assert (sent.status_code, sent.json()["subject"]) == (201, "orders.new")
    assert raw.xlen(f"glide:{{{queue_name}}}:stream") == 1


async def test_the_allow_list_comes_first(server_url: str, raw: redis.Redis, queue_name: str) -> None:
    async with called(create_app(server_url, queues=[queue_name])) as api:
        for response in (
            await api.post("/queues/other/jobs", json={}),
            await api.get("/queues/other/jobs/1"),
            await api.get("/queues/a%7Bb/counts"),
            await api.get("/usage/summary?queues=other"),
            await api.post("/flows", json={"flow": {"name": "a", "queueName": "other", "data": 1}}),
        ):
            assert (response.status_code, response.json()) == (403, {"error": "Queue is not in the allowlist"})
        refused = await api.post(f"/queues/{queue_name}/jobs", json={"name": "a", "opts": {"parent": {}}})
        assert refused.json() == {"error": "opts.parent is not allowed"}
        assert (await api.get("/usage/summary")).status_code == 200
        assert (await api.get("/health")).status_code == 200


async def test_nothing_works_after_shutdown_began(server_url: str, raw: redis.Redis, queue_name: str) -> None:
    app = create_app(server_url)
    async with called(app) as api:
        await added(api, queue_name)
        await app.aclose()
        for path in (f"/queues/{queue_name}/counts", "/flows/1", f"/queues/{queue_name}/events", "/usage/summary"):
            response = await api.get(path)
            assert (response.status_code, response.json()) == (503, {"error": "Proxy is shutting down"}), path
        assert (await api.post(f"/queues/{queue_name}/jobs", json={})).status_code == 400
        assert (await api.get("/health")).json()["queues"] == 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PATCH", "/health", 404),
        ("GET", "/nowhere", 404),
        ("DELETE", "/queues/a/jobs", 404),
        ("GET", "/queues//counts", 404),
    ],
)
async def test_unknown_paths_get_a_page(api: httpx.AsyncClient, method: str, path: str, status: int) -> None:
    response = await api.request(method, path)
    assert response.status_code == status
    assert f"Cannot {method} {path}" in response.text
    assert response.headers["content-security-policy"] == "default-src 'none'"


async def test_http_itself(api: httpx.AsyncClient, queue_name: str) -> None:
    job_id = await added(api, queue_name)
    path = f"/Queues/{queue_name}/JOBS/{job_id}/"
    response = await api.get(path)
    assert response.status_code == 200
    tag = response.headers["etag"]
    assert (await api.get(path, headers={"if-none-match": tag})).status_code == 304
    head = await api.head(path)
    assert (head.status_code, head.content) == (200, b"")
    options = await api.options(f"/queues/{queue_name}/jobs")
    assert (options.status_code, options.text) == (200, "GET, HEAD, POST")
    assert (await api.get("/queues/a%2Fb/counts")).status_code == 200
    assert (await api.get("/queues/%zz/counts")).json() == {"error": "Bad request"}
    assert (await api.post("/nowhere", content=b"{", headers={"content-type": "application/json"})).status_code == 400
    text = await api.post(f"/queues/{queue_name}/jobs", content=b'{"name":"a"}', headers={"content-type": "text/plain"})
    assert text.json() == {"error": "Missing required field: name"}
