"""Own routes that control: workers, settings, tags, statistics, and jobs that are taken over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import redis

from orchestration_queue import AsyncActiveJob, AsyncQueue, JobOptions, NewJob
from orchestration_queue.http import create_app
from tests.http.conftest import called, served
from tests.http.test_own_routes import noted, read, refusal
from tests.workers import working


@pytest.fixture
async def queue(server_url: str, raw: redis.Redis, queue_name: str) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


async def send(api: httpx.AsyncClient, path: str, **body: Any) -> Any:
    response = await api.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def until(api: httpx.AsyncClient, path: str, is_there: Callable[[Any], object], **query: Any) -> Any:
    """What a path returns as soon as something is there."""
    async with asyncio.timeout(60):
        while not is_there(found := await read(api, path, **query)):  # noqa: ASYNC110  the server has no event of it
            await asyncio.sleep(0.05)
    return found


async def do(job: AsyncActiveJob) -> str:
    await asyncio.sleep(0.02)
    return job.name


async def test_workers_are_listed_and_told(api: httpx.AsyncClient, queue: AsyncQueue, server_url: str) -> None:
    path = f"/v1/queues/{queue.name}/workers"
    assert (await send(api, f"{path}/ping"))["replies"] == []
    async with working(queue, do, server_url, concurrency=3) as worker:
        (shown,) = (await until(api, path, lambda found: found["workers"]))["workers"]
        assert (shown["id"], shown["concurrency"], shown["is_paused"]) == (worker.id, 3, False)
        assert {"memory_bytes", "version", "tasks", "jobs", "started_at"} < shown.keys()
        (reply,) = (await send(api, f"{path}/pause", timeout=20))["replies"]
        assert (reply["worker"], reply["has_obeyed"], reply["is_paused"]) == (worker.id, True, True)
        (reply,) = (await send(api, f"{path}/resume", workers=[worker.id], timeout=20))["replies"]
        assert reply["is_paused"] is False
        (reply,) = (await send(api, f"{path}/concurrency", concurrency=5, timeout=20))["replies"]
        assert reply["concurrency"] == 5
        assert "unknown" in refusal(await api.post(f"{path}/ping", json={"workers": ["unknown"]}), 404)
        for verb, body, words in (
            ("dance", {}, "ping"),
            ("concurrency", {}, "concurrency"),
            ("ping", {"concurrency": 2}, "concurrency"),
            ("ping", {"timeout": 60}, "timeout"),
            ("ping", {"timeout": "soon"}, "timeout"),
            ("ping", {"workers": "all"}, "workers"),
            ("stop", {"concurrency": 1}, "concurrency"),
        ):
            assert words in refusal(await api.post(f"{path}/{verb}", json=body), 400)
        (reply,) = (await send(api, f"{path}/stop", timeout=20))["replies"]
        assert reply["has_obeyed"] is True


async def test_settings_are_changed_all_or_none(api: httpx.AsyncClient, queue: AsyncQueue) -> None:
    path = f"/v1/queues/{queue.name}/settings"
    empty = await read(api, path)
    assert {name for name, value in empty.items() if value is not None} == {"is_paused"}
    changes = {
        "attempts": 3,
        "backoff": {"type": "fixed", "delay": 1.5},
        "timeout": 60,
        "remove_on_complete": {"count": 5},
        "lease": 90,
        "dead_letter_queue": "letters",
        "concurrency": 4,
        "rate_limit": {"max": 10, "duration": 1},
    }
    changed = (await api.patch(path, json=changes)).json()
    assert (changed["backoff"]["delay"], changed["rate_limit"]) == (1.5, {"max": 10, "duration": 1.0})
    assert await read(api, path) == changed
    for wrong, words in (
        ({"attempts": 0}, "attempts"),
        ({"backoff": {"type": "fixd"}}, "fixed"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": "x", "attempts": 9}, "concurrency"),
        ({"rate_limit": {"max": 0, "duration": 1}, "attempts": 9}, "max"),
        ({"rate_limit": 5, "concurrency": 9}, "rate_limit"),
        ({"dead_letter_queue": queue.name, "attempts": 9}, "dead letters"),
        ({"flavor": "red"}, "flavor"),
    ):
        assert words in refusal(await api.patch(path, json=wrong), 400)
    assert await read(api, path) == changed
    assert (await api.patch(path, json=dict.fromkeys(changes))).json() == empty


async def test_jobs_are_tagged_and_acted_on_by_tag(api: httpx.AsyncClient, queue: AsyncQueue, raw: redis.Redis) -> None:
    path = f"/v1/queues/{queue.name}"
    options = JobOptions(tags=("tenant:a/b",), delay=9999)
    job, other = [added for added in await queue.add_bulk([NewJob("n", options=options) for _ in range(2)]) if added]
    assert (await send(api, f"{path}/jobs/{job.id}/tags", add=["vip"], remove=["tenant:a/b"]))["tags"] == ["vip"]
    counted = {each["tag"]: each["jobs"] for each in (await read(api, f"{path}/tags"))["tags"]}
    assert counted == {"vip": 1, "tenant:a/b": 1}
    found = (await read(api, f"{path}/tags/tenant%3Aa%2Fb/jobs"))["jobs"]
    assert [each["id"] for each in found] == [other.id]
    assert found[0]["tags"] == ["tenant:a/b"]
    assert await send(api, f"{path}/tags/vip/cancel") == {"cancelled": 1}
    assert await send(api, f"{path}/tags/vip/retry") == {"retried": 1}
    assert await send(api, f"{path}/tags/vip/remove") == {"removed": 1}
    assert await queue.find(job.id) is None
    assert "tag" in refusal(await api.post(f"{path}/jobs/{other.id}/tags", json={"add": "vip"}), 400)
    assert "tag" in refusal(await api.post(f"{path}/jobs/{other.id}/tags", json={"add": [""]}), 400)
    refusal(await api.post(f"{path}/jobs/nope/tags", json={"add": ["a"]}), 404)
    assert "printable" in refusal(await api.get(f"{path}/tags/%00/jobs"), 400)
    assert "offset" in refusal(await api.get(f"{path}/tags", params={"offset": "-1"}), 400)


async def test_statistics_by_day_and_task(api: httpx.AsyncClient, queue: AsyncQueue, server_url: str) -> None:
    path = f"/v1/queues/{queue.name}/statistics"
    async with working(queue, do, server_url):
        for job in [await queue.add(name) for name in ("a", "b", "b")]:
            await job.wait(60)
    counted = await until(api, path, lambda found: found["days"][0]["all"]["completed"], days=2)
    today, before = counted["days"]
    assert {name: task["completed"] for name, task in today["tasks"].items()} == {"a": 1, "b": 2}
    assert today["all"]["run"]["p95"] >= today["all"]["run"]["p50"] >= 0.018
    assert today["all"]["kinds"] == {}
    assert sum(bucket["count"] for bucket in today["all"]["run"]["histogram"]) == 3
    assert (before["all"]["completed"], before["day"] < today["day"]) == (0, True)
    assert "2026-01-31" in refusal(await api.get(path, params={"day": "soon"}), 400)
    assert "days" in refusal(await api.get(path, params={"days": 31}), 400)
    assert "calendar" in refusal(await api.get(path, params={"days": 5, "day": "0001-01-02"}), 400)


async def test_jobs_are_taken_and_finished_in_any_language(
    api: httpx.AsyncClient, queue: AsyncQueue, raw: redis.Redis
) -> None:
    path = f"/v1/queues/{queue.name}"
    options = JobOptions(attempts=2, backoff={"type": "fixed", "delay": 0})
    jobs = [await queue.add("n", {"number": number}, options) for number in range(4)]
    taken = (await send(api, f"{path}/take", count=10, lease=60))["jobs"]
    assert [(each["id"], each["attempt"], each["data"]) for each in taken] == [
        (job.id, 1, {"number": number}) for number, job in enumerate(jobs)
    ]
    done, bad, last, back = ({"id": each["id"], "token": each["token"]} for each in taken)

    async def tell(which: dict[str, str], verb: str, **body: Any) -> Any:
        return await send(api, f"{path}/taken/{which['id']}/{verb}", token=which["token"], **body)

    assert (await tell(done, "heartbeat", lease=120))["is_cancelled"] is False
    await tell(done, "complete", result={"sum": 5})
    assert await jobs[0].wait(60) == {"sum": 5}
    assert (await tell(bad, "fail", reason="no disk", kind="disk"))["will_retry"] is True
    assert (await tell(last, "fail", reason="no use", kind="disk", retry=False))["will_retry"] is False
    assert (await queue.get(last["id"])).record.failure_kind == "disk"
    await tell(back, "release")
    again = (await send(api, f"{path}/take", count=2, wait=60))["jobs"]
    while len(again) < 2:
        again += (await send(api, f"{path}/take", count=2, wait=60))["jobs"]
    assert {each["id"]: each["attempt"] for each in again} == {bad["id"]: 2, back["id"]: 1}
    which = next(each for each in again if each["id"] == bad["id"])
    assert (await tell(which, "retry", delay=0, reason="later"))["will_retry"] is True
    late = await api.post(f"{path}/taken/{done['id']}/complete", json={"token": done["token"]})
    assert "no longer ours" in refusal(late, 409)
    for verb, body, words in (
        ("complete", {}, "token"),
        ("fail", {"token": which["token"], "reason": ""}, "lease"),
        ("complete", {"token": "x"}, "token"),
    ):
        refused = await api.post(f"{path}/taken/{which['id']}/{verb}", json=body)
        assert words in refused.json()["detail"], refused.text
    held = next(each for each in again if each["id"] == back["id"])
    for verb, body, words in (
        ("fail", {}, "reason"),
        ("fail", {"reason": "a", "retry": "no"}, "retry"),
        ("fail", {"reason": "a", "kind": 5}, "kind"),
        ("heartbeat", {"lease": 0}, "lease"),
        ("release", {"delay": -1}, "delay"),
        ("release", {"why": 1}, "why"),
    ):
        refused = await api.post(f"{path}/taken/{held['id']}/{verb}", json={"token": held["token"], **body})
        assert words in refusal(refused, 400)
    for body, words in (({"count": 0}, "count"), ({"lease": 0}, "lease"), ({"wait": 61}, "wait")):
        assert words in refusal(await api.post(f"{path}/take", json=body), 400)
    assert noted(raw) == [], "what takers do is no act on the queue"


async def test_a_client_that_leaves_keeps_no_job(server_url: str, raw: redis.Redis, queue: AsyncQueue) -> None:
    async with served(create_app(server_url)) as live:
        with pytest.raises(httpx.ReadTimeout):
            await live.post(f"/v1/queues/{queue.name}/take", json={"wait": 60}, timeout=0.3)
        job = await queue.add("n")
        async with called(create_app(server_url)) as api:
            (taken,) = (await send(api, f"/v1/queues/{queue.name}/take", wait=60))["jobs"]
            assert (taken["id"], taken["attempt"]) == (job.id, 1)


async def test_pools_are_set_shown_and_removed(api: httpx.AsyncClient, queue: AsyncQueue, raw: redis.Redis) -> None:
    path = "/v1/pools/ware%20house"
    empty = {"name": "ware house", "slots": 2, "used": 0, "waiting": 0, "holders": []}
    assert await read(api, "/v1/pools") == {"pools": []}
    assert (await api.put(path, json={"slots": 2})).json() == await read(api, path) == empty
    assert await read(api, "/v1/pools") == {"pools": [empty]}
    assert "not defined" in refusal(await api.get("/v1/pools/other"), 404)
    for wrong, words in (
        ({}, "slots"),
        ({"slots": -1}, "0 to 1,000"),
        ({"slots": 1001}, "0 to 1,000"),
        ({"slots": "2"}, "0 to 1,000"),
        ({"slots": True}, "0 to 1,000"),
        ({"slots": 2, "size": 1}, "size"),
    ):
        assert words in refusal(await api.put(path, json=wrong), 400)
    assert "Pool" in refusal(await api.put("/v1/pools/a:b", json={"slots": 1}), 400)
    assert await queue.pools.list() != []
    assert (await api.delete(path)).json() == {"removed": True}
    assert (await api.delete(path)).json() == {"removed": False}
    assert noted(raw) == [
        ("PUT /v1/pools/:pool", "ware house"),
        ("DELETE /v1/pools/:pool", "ware house"),
        ("DELETE /v1/pools/:pool", "ware house"),
    ]


async def test_jobs_are_moved_one_by_one_by_search_and_by_tag(
    api: httpx.AsyncClient, queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    base, to = f"/v1/queues/{queue.name}", f"{queue.name}-slow"
    for number, name in enumerate("aab"):
        await queue.add(name, None, JobOptions(job_id=f"j{number}", tags=("red",), delay=9999))
    moved = await send(api, f"{base}/jobs/j0/move", to=to, delay=0)
    assert (moved["queue"], moved["id"], moved["state"]) == (to, "j0", "waiting")
    assert await send(api, f"{base}/search/move", name="a", to=to) == {"found": 1, "moved": 1, "left": {}}
    async with AsyncQueue(to, url=server_url) as other:
        await other.add("other", None, JobOptions(job_id="j2"))
        left = await send(api, f"{base}/tags/red/move", to=to)
        assert (left["moved"], list(left["left"])) == (0, ["j2"])
        assert "another job with this id" in left["left"]["j2"]
        assert ((await other.counts()).waiting, (await other.counts()).delayed) == (2, 1)
        await other.obliterate(force=True)
    for path, body, words in (
        ("jobs/j2", {}, "`to`"),
        ("jobs/j2", {"to": 5}, "`to`"),
        ("jobs/j2", {"to": "a:b"}, "a:b"),
        ("jobs/j2", {"to": queue.name}, "another queue"),
        ("jobs/j2", {"to": to, "delay": -1}, "delay"),
        ("jobs/j2", {"to": to, "name": "b"}, "name"),
        ("search", {"to": to}, "No jobs are selected"),
        ("search", {"name": "b"}, "`to`"),
        ("search", {"name": "b", "to": to, "delay": "soon"}, "delay"),
        ("search", {"name": "b", "to": to, "limit": 0}, "limit"),
        ("tags/red", {"to": [to]}, "`to`"),
    ):
        assert words in refusal(await api.post(f"{base}/{path}/move", json=body), 400), (path, body)
    assert "has no job" in refusal(await api.post(f"{base}/jobs/nix/move", json={"to": to}), 404)
    assert (await queue.get("j2")).state == "delayed"
    assert [act for act, _ in noted(raw)] == [
        "POST /v1/queues/:name/jobs/:id/move",
        "POST /v1/queues/:name/search/move",
        "POST /v1/queues/:name/tags/:tag/move",
    ]


async def test_a_job_is_moved_only_to_a_queue_that_the_caller_may_use(
    server_url: str, raw: redis.Redis, queue: AsyncQueue
) -> None:
    job = await queue.add("a", None, JobOptions(tags=("red",)))
    async with called(create_app(server_url, queues=[queue.name])) as api:
        for path in (f"jobs/{job.id}", "search", "tags/red"):
            body = {"to": f"{queue.name}-slow"} | ({"name": "a"} if path == "search" else {})
            assert (await api.post(f"/v1/queues/{queue.name}/{path}/move", json=body)).status_code in (403, 404)
    assert await job.read_state() == "waiting"


async def test_shares_are_weighted_and_listed(api: httpx.AsyncClient, queue: AsyncQueue, raw: redis.Redis) -> None:
    base = f"/v1/queues/{queue.name}/shares"
    path = f"{base}/tenant%20a"
    assert await read(api, base) == {"shares": []}
    await queue.add_bulk([NewJob("n", None, JobOptions(share="b")) for _ in range(9)])
    assert (await api.put(path, json={"weight": 3})).json() == {"name": "tenant a", "weight": 3}
    listed = [{"name": "b", "weight": 1, "waiting": 1}, {"name": "tenant a", "weight": 3, "waiting": 0}]
    assert await read(api, base) == {"shares": listed}
    for wrong, words in (
        ({}, "`weight`"),
        ({"weight": 0}, "1 to 1,000"),
        ({"weight": 1001}, "1 to 1,000"),
        ({"weight": "3"}, "1 to 1,000"),
        ({"weight": True}, "1 to 1,000"),
        ({"weight": 2, "size": 1}, "size"),
    ):
        assert words in refusal(await api.put(path, json=wrong), 400)
    assert "Share" in refusal(await api.put(f"{base}/a:b", json={"weight": 1}), 400)
    assert "Share" in refusal(await api.delete(f"{base}/a:b"), 400)
    assert await read(api, base) == {"shares": listed}
    assert (await api.delete(path)).json() == {"removed": True}
    assert (await api.delete(path)).json() == {"removed": False}
    assert await read(api, base) == {"shares": listed[:1]}
    subjects = [subject for act, subject in noted(raw) if act.startswith(("PUT", "DELETE"))]
    assert subjects == ["tenant a"] * 3


async def test_what_a_search_finds_is_changed(api: httpx.AsyncClient, queue: AsyncQueue, raw: redis.Redis) -> None:
    path = f"/v1/queues/{queue.name}/search"
    late = JobOptions(delay=9999)
    await queue.add_bulk([NewJob(name, {"user": n}, late) for n, name in enumerate("aaab")])
    assert await send(api, f"{path}/promote", name="a", data={"user": 2}) == {"found": 1, "changed": 1}
    assert await send(api, f"{path}/promote", name="a") == {"found": 3, "changed": 2}
    assert await send(api, f"{path}/cancel", name="a", limit=2) == {"found": 2, "changed": 2}
    assert await send(api, f"{path}/cancel", name="a") == {"found": 3, "changed": 1}
    assert await send(api, f"{path}/retry", state="failed") == {"found": 3, "changed": 3}
    assert (await queue.counts()).delayed + (await queue.counts()).waiting == 4
    assert await send(api, f"{path}/remove", name="a") == {"found": 3, "changed": 3}
    assert [job.name for job in await queue.search()] == ["b"]
    for verb, body, words in (
        ("explode", {"name": "b"}, "promote"),
        ("remove", {}, "No jobs are selected"),
        ("remove", {"name": None}, "No jobs are selected"),
        ("remove", {"name": 5}, "name"),
        ("remove", {"state": "asleep"}, "state"),
        ("remove", {"data": [1]}, "data"),
        ("remove", {"name": "b", "limit": 0}, "limit"),
        ("remove", {"name": "b", "limit": True}, "limit"),
        ("remove", {"names": "b"}, "names"),
    ):
        assert words in refusal(await api.post(f"{path}/{verb}", json=body), 400), (verb, body)
    assert (await queue.counts()).delayed == 1
    acts = noted(raw)
    assert len(acts) == 6
    assert acts[-1] == ("POST /v1/queues/:name/search/remove", '{"name": "a"}')
