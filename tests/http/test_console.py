"""The console without a browser: every page, every act, hostile text, sessions and forged forms."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import redis

from orchestration_queue import (
    AsyncActiveJob,
    AsyncFlowProducer,
    AsyncQueue,
    Backoff,
    Cron,
    Dag,
    Every,
    JobOptions,
    JobTemplate,
    NewJob,
    Node,
    UnrecoverableError,
)
from orchestration_queue.doctor import Finding
from orchestration_queue.errors import UsageError
from orchestration_queue.http import HttpApp, create_app
from orchestration_queue.http.access import Access, Token
from orchestration_queue.http.console import cache, calendar
from orchestration_queue.http.routes import Scope
from tests.http.conftest import called
from tests.http.test_own_routes import noted
from tests.waiting import wait_until
from tests.workers import working

HOSTILE = "<img src=x onerror=alert(1)>'\"&{{7*7}}"
HOSTILE_POOL = "<img src=x onerror=alert(1)>"


@pytest.fixture
async def ui(server_url: str, raw: redis.Redis) -> AsyncIterator[httpx.AsyncClient]:
    async with called(create_app(server_url, console=True)) as client:
        yield client


@pytest.fixture
async def queue(server_url: str, queue_name: str) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


async def page(ui: httpx.AsyncClient, path: str) -> str:
    response = await ui.get(f"/ui{path}")
    assert response.status_code == 200, response.text
    assert "default-src 'none'" in response.headers["content-security-policy"]
    return response.text


async def submit(ui: httpx.AsyncClient, path: str, act: str, **fields: object) -> httpx.Response:
    """Send a form as the browser would: with the token of a page."""
    form = re.search(r'name="csrf" value="([0-9a-f]+)"', (await ui.get("/ui/login")).text)
    assert form
    return await ui.post(f"/ui{path}", data={"csrf": form[1], "act": act, **fields})


async def fail(job: AsyncActiveJob) -> None:
    await job.log(HOSTILE)
    raise UnrecoverableError(HOSTILE)


async def test_an_empty_server_has_pages(ui: httpx.AsyncClient) -> None:
    for path in (
        "",
        "/flows",
        "/schedules",
        "/schedules/calendar",
        "/dead",
        "/broadcasts",
        "/workers",
        "/pools",
        "/doctor",
        "/server",
    ):
        assert "</html>" in await page(ui, path), path


async def test_nothing_of_a_job_is_markup(ui: httpx.AsyncClient, queue: AsyncQueue, server_url: str) -> None:
    job = await queue.add(HOSTILE, {HOSTILE: [HOSTILE]}, {"job_id": "</pre><b>x", "headers": {"a": HOSTILE}})
    async with working(queue, fail, server_url, dead_letter_queue=f"{queue.name}-dead"):
        with pytest.raises(Exception, match="onerror"):
            await job.wait(30)
        base = f"/queues/{queue.name}"
        paths = (
            "",
            base,
            f"{base}?state=failed&q={HOSTILE}",
            f"{base}/jobs/%3C%2Fpre%3E%3Cb%3Ex",
            f"{base}/tail",
            "/dead",
        )
        for path in (*paths, "/workers"):
            text = await page(ui, path)
            assert "<img" not in text
            assert "<b>x" not in text
            assert "49" not in re.findall(r"\{\{.*?\}\}|7\*7|&amp;49", text)
    assert "&lt;img src=x" in await page(ui, paths[3])


async def test_jobs_of_a_dagster_run_link_to_it(server_url: str, raw: redis.Redis, queue: AsyncQueue) -> None:
    job = await queue.add("step", options={"headers": {"dagster.run_id": "ab/<c>"}})
    pages = {}
    for dagster in ("https://dagster.example.com/", None):
        async with called(create_app(server_url, console=True, dagster=dagster)) as ui:
            pages[dagster] = await page(ui, f"/queues/{queue.name}/jobs/{job.id}")
    assert (
        '<a href="https://dagster.example.com/runs/ab%2F%3Cc%3E">ab/&lt;c&gt;</a>'
        in pages["https://dagster.example.com/"]
    )
    assert "dagster.example.com" not in pages[None]
    assert "ab/&lt;c&gt;" in pages[None]
    with pytest.raises(UsageError, match="must begin with http:// or https://, got 'javascript:alert"):
        create_app(server_url, console=True, dagster="javascript:alert(1)")


async def test_jobs_link_to_their_trace_and_spark_application(
    server_url: str, raw: redis.Redis, queue: AsyncQueue
) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    job, odd = [await queue.add("a", None, {"headers": each}) for each in (headers, {"traceparent": '00-"><b>-x-01'})]
    async with called(create_app(server_url, console=True, traces="https://traces.example/{trace_id}?x")) as ui:
        path = f"/queues/{queue.name}/jobs/{job.id}"
        assert f'<a href="https://traces.example/{trace}?x">' in await page(ui, path)
        assert "traces.example" not in await page(ui, f"/queues/{queue.name}/jobs/{odd.id}")
        for progress, shown in (
            (
                {"application": "app-<1>", "ui": "https://spark/?x=<"},
                '<a href="https://spark/?x=&lt;" rel="noreferrer">app-&lt;1&gt;</a>',
            ),
            ({"application": "app-2", "ui": "javascript:alert(1)"}, '<dd class="mono">app-2</dd>'),
        ):
            raw.hset(queue.keys.job(job.id), "progress", json.dumps(progress))
            assert shown in await page(ui, path)
        raw.hset(queue.keys.job(job.id), "progress", "50")
        assert "Spark application" not in await page(ui, path)
    for wrong in ("javascript:{trace_id}", "https://traces.example/"):
        with pytest.raises(UsageError, match="The URL of traces must"):
            create_app(server_url, console=True, traces=wrong)


async def test_acts_on_jobs(ui: httpx.AsyncClient, queue: AsyncQueue, raw: redis.Redis) -> None:
    base = f"/queues/{queue.name}"
    jobs = [await queue.add("a", n, {"delay": 9999}) for n in range(4)]
    promoted = await submit(ui, f"{base}/jobs", "promote", id=[jobs[0].id, jobs[1].id])
    assert (promoted.status_code, promoted.headers["location"]) == (303, f"/ui{base}?done=promote-2")
    assert (await queue.counts()).waiting == 2
    asked = await submit(ui, f"{base}/jobs", "cancel", id=[jobs[2].id, jobs[3].id])
    assert "Cancel 2 jobs of" in asked.text
    assert (await queue.counts()).delayed == 2
    await submit(ui, f"{base}/jobs", "cancel", id=[jobs[2].id, jobs[3].id], confirmed="yes")
    assert (await queue.counts()).failed == 2
    await submit(ui, f"{base}/jobs", "retry", id=jobs[2].id)
    assert (await queue.counts()).failed == 1
    await submit(ui, f"{base}/jobs", "remove", id=jobs[3].id, confirmed="yes")
    assert await queue.find(jobs[3].id) is None
    assert (await submit(ui, f"{base}/jobs", "explode", id=jobs[0].id)).status_code == 400
    assert (await submit(ui, f"{base}/jobs", "retry", id="nope")).status_code == 404


async def test_everything_that_a_search_finds_is_changed_after_a_question(
    ui: httpx.AsyncClient, queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    base, path = f"/queues/{queue.name}", f"/queues/{queue.name}/jobs"
    late = JobOptions(delay=9999)
    await queue.add_bulk([NewJob("a", {"user": n % 2}, late) for n in range(210)])
    await queue.add("b", {"user": 1}, JobOptions(delay=9999, tags=["month"]))
    assert "211 delayed jobs" in await page(ui, f"{base}?state=delayed")
    listed = await page(ui, f"{base}?state=delayed&q=a&data=%7B%22user%22:1%7D")
    assert "105 found" in listed
    assert "200 or more found" in await page(ui, f"{base}?state=delayed&q=a")
    assert ">b<" in await page(ui, f"{base}?state=delayed&q=month")
    assert "No delayed jobs whose id, name or tag is &#39;&lt;c&#39;." in await page(ui, f"{base}?state=delayed&q=%3Cc")

    async def ask(act: str, **search: str) -> dict[str, Any]:
        """The form of the question, which names the jobs that the search found."""
        asked = (await submit(ui, path, act, found="yes", back=f"/ui{base}?state=delayed", **search)).text
        fields = re.findall(r'type="hidden" name="(back|id)" value="([^"]*)"', asked)
        ids = [value for name, value in fields if name == "id"]
        return {"asked": asked, "id": ids, "back": f"/ui{base}?state=delayed"}

    question = await ask("promote", state="delayed", q="a", data='{"user": 1}')
    assert f"Promote 105 jobs of {queue.name}?" in question["asked"]
    assert "with {&#34;user&#34;: 1} in their data" in question["asked"]
    assert (await queue.counts()).delayed == 211
    await queue.add("a", {"user": 1}, late)  # it was not named, so it stays
    done = await submit(ui, path, "promote", id=question["id"], back=question["back"], confirmed="yes")
    assert done.headers["location"] == f"/ui{base}?state=delayed&done=promote-105"
    assert (await queue.counts()).delayed == 107
    question = await ask("cancel", state="delayed", q="a")
    assert f"Cancel 106 jobs of {queue.name}?" in question["asked"]
    await submit(ui, path, "cancel", id=question["id"], confirmed="yes")
    assert (await queue.counts()).failed == 106
    question = await ask("retry", state="failed", kind="cancelled")
    assert "Retry 106 jobs" in question["asked"]
    await submit(ui, path, "retry", id=question["id"], confirmed="yes")
    assert (await queue.counts()).failed == 0
    again = await submit(ui, path, "retry", id=question["id"], confirmed="yes")
    assert again.headers["location"].endswith("done=retry-0")
    assert "no job was left to retry" in await page(ui, f"{base}?done=retry-0")
    question = await ask("move", state="delayed", q="month")
    assert "To queue" in question["asked"]
    assert (await submit(ui, path, "move", id=question["id"], to="a:b", confirmed="yes")).status_code == 400
    assert (await submit(ui, path, "move", id=question["id"], to="", confirmed="yes")).status_code == 400
    await submit(ui, path, "move", id=question["id"], to=f"{queue.name}-late", confirmed="yes")
    async with AsyncQueue(f"{queue.name}-late", url=server_url) as late_queue:
        assert [job.name for job in await late_queue.jobs("delayed")] == ["b"]
    for state, count in (("waiting", 105), ("delayed", 106)):
        question = await ask("remove", state=state)
        assert f"Remove {count} jobs" in question["asked"]
        await submit(ui, path, "remove", id=question["id"], confirmed="yes")
    assert await queue.search() == []
    assert "No jobs match" in (await ask("remove", state="waiting", q="a"))["asked"]
    for search in ({"data": "[1]"}, {"state": "completed", "kind": "x"}):
        refused = await submit(ui, path, "remove", found="yes", **{"state": "waiting", **search})
        assert refused.status_code == 400, search
    assert (await submit(ui, path, "explode", found="yes", state="waiting")).status_code == 400
    acts = [what for what, _ in noted(raw)]
    assert acts == [
        "promote",
        "cancel",
        "retry",
        "retry",
        "move",
        "remove",
        "remove",
    ]  # questions and refusals are no acts


async def test_delayed_jobs_say_when_they_are_due(ui: httpx.AsyncClient, queue: AsyncQueue) -> None:
    base = f"/queues/{queue.name}"
    job = await queue.add("a", None, {"delay": 7300, "priority": 3})
    added = job.record.added_at
    assert added is not None
    due = added + timedelta(seconds=7300)
    shown = f'<time datetime="{due.isoformat()}" title="{due:%Y-%m-%d %H:%M:%S} UTC">in 2 h'
    for path in (f"{base}?state=delayed", f"{base}?state=delayed&q=a", f"{base}/jobs/{job.id}"):
        assert shown in await page(ui, path), path
    await job.change_delay(100_000)
    assert "in 1 d 3 h<" in await page(ui, f"{base}?state=delayed&q={job.id}")
    await job.promote()
    assert "<th>Due</th>" not in await page(ui, f"{base}?state=waiting")
    assert "<b>due</b>" not in await page(ui, f"{base}/jobs/{job.id}")


async def test_jobs_are_moved_only_to_queues_that_the_token_names(
    server_url: str, raw: redis.Redis, queue: AsyncQueue
) -> None:
    job = await queue.add("a", None, JobOptions(delay=9999))
    some = Access([Token.of("some", "some", ["act"], [queue.name, "late-*"])])
    async with called(create_app(server_url, console=True, access=some)) as ui:
        await submit(ui, "/login", "", token="some")
        for to, status in (("elsewhere", 403), ("late-1", 303)):
            moved = await submit(ui, f"/queues/{queue.name}/jobs", "move", id=job.id, to=to, confirmed="yes")
            assert moved.status_code == status, to
            assert (await queue.counts()).delayed == (status == 403)


async def test_acts_on_a_queue(ui: httpx.AsyncClient, queue: AsyncQueue) -> None:
    base = f"/queues/{queue.name}"
    await queue.add("a")
    await submit(ui, f"{base}/control", "pause")
    assert await queue.is_paused()
    assert "paused" in await page(ui, "")
    await submit(ui, f"{base}/control", "resume")
    assert not await queue.is_paused()
    assert "Remove all waiting jobs: 1 job of" in (await submit(ui, f"{base}/remove", "drain")).text
    await submit(ui, f"{base}/remove", "drain", confirmed="yes")
    assert (await queue.counts()).waiting == 0
    acts = await page(ui, "/server")
    assert re.search(r"<td>drain</td><td>" + queue.name, acts)


async def test_flows_are_drawn_and_controlled(ui: httpx.AsyncClient, queue: AsyncQueue, server_url: str) -> None:
    nodes = [Node("a"), Node("b", deps=["a"]), Node("c", deps=["a", "b"])]
    async with AsyncFlowProducer(url=server_url) as producer:
        flow = await producer.submit(Dag("sales", nodes, queue=queue.name), flow_id="f1")
        path = f"/queues/{queue.name}/flows/f1"
        text = await page(ui, path)
        assert text.count("<path d=") == 3
        assert "sales" in await page(ui, "/flows")
        await submit(ui, path, "pause")
        assert (await flow.status()).is_paused
        await submit(ui, path, "resume")
        await submit(ui, path, "cancel", confirmed="yes")
        assert (await flow.status()).state == "cancelled"


@pytest.mark.parametrize(
    ("path", "label"),
    [("", "Overview"), ("/flows", "Flows"), ("/queues/{q}", "Overview"), ("/queues/{q}/flows/f1", "Flows"),
     ("/queues/{q}/runs?flow=sales", "Flows"),
     ("/schedules/calendar", "Schedules"),
     ("/queues/{q}/jobs/f1.a", "Overview"), ("/queues/{q}/schedulers/nightly", "Schedules")],
)  # fmt: skip
async def test_the_navigation_marks_the_section_of_a_page(
    ui: httpx.AsyncClient, queue: AsyncQueue, server_url: str, path: str, label: str
) -> None:
    await queue.schedulers.upsert("nightly", Every(3600))
    async with AsyncFlowProducer(url=server_url) as producer:
        await producer.submit(Dag("sales", [Node("a")], queue=queue.name), flow_id="f1")
    marked = re.findall(r'data-key="." aria-current="page">([^<]+)<', await page(ui, path.format(q=queue.name)))
    assert marked == [label]


async def test_schedules_run_pause_and_go(ui: httpx.AsyncClient, queue: AsyncQueue) -> None:
    await queue.schedulers.upsert("nightly", Every(3600))
    path = f"/queues/{queue.name}/schedulers/nightly"
    assert "every 1 h" in await page(ui, "/schedules")
    await submit(ui, path, "pause", back="/ui/schedules")
    assert (await queue.schedulers.get("nightly")).is_paused
    await submit(ui, path, "run")
    assert (await queue.counts()).waiting == 1
    assert "0, the last" in await page(ui, "/schedules")
    await submit(ui, path, "remove", confirmed="yes")
    assert await queue.schedulers.find("nightly") is None


async def test_the_calendar_shows_runs_clock_changes_and_what_was_late(
    ui: httpx.AsyncClient, queue: AsyncQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.schedulers.upsert(HOSTILE, Cron("30 2 * * *", tz="Europe/Berlin"))
    await queue.schedulers.upsert("beat", Every(1))
    await queue.schedulers.upsert("resting", Every(60))
    await queue.schedulers.pause("resting")
    last = datetime(datetime.now(UTC).year + 1, 3, 31, 12, tzinfo=UTC)
    change = last - timedelta(days=last.isoweekday() % 7)
    monkeypatch.setattr(calendar, "now_ms", lambda: int((change - timedelta(days=1)).timestamp() * 1000))
    text = await page(ui, f"/schedules/calendar?queue={queue.name}&days=1&zone=Europe/Berlin")
    assert "<img" not in text
    assert "clocks in Europe/Berlin go forward by 1 h to 03:00" in text
    assert "Without a run at a time that is skipped" in text
    assert text.count("3.6k") >= 30
    assert re.search(r"resting</a></td>.*?<td>paused</td>", text)
    assert "No worker has added its job yet." in text
    for query, problem in (("zone=Mars/Base", "no zone of that name"), ("days=32", "whole number from 1 to 31")):
        refused = await ui.get(f"/ui/schedules/calendar?{query}")
        assert (refused.status_code, problem in refused.text) == (400, True), query
    assert "has no schedule" in await page(ui, "/schedules/calendar?queue=nix")
    monkeypatch.setattr(calendar, "_MOST_QUEUES", 0)
    assert "Without the schedules of 1 more queue;" in await page(ui, f"/schedules/calendar?queue={queue.name}")


async def test_a_schedule_is_edited_after_a_preview(ui: httpx.AsyncClient, queue: AsyncQueue) -> None:
    await queue.schedulers.upsert("nightly", Cron("30 12 * * *", tz="Europe/Berlin"), JobTemplate(name="export"))
    path = f"/queues/{queue.name}/schedulers/nightly"
    shown = await page(ui, path)
    assert f'href="/ui{path}"' in await page(ui, "/schedules")
    assert len(re.findall(r"\d 12:30:00 \+0[12]00", shown)) == 10
    assert len(re.findall(r"\d 1[01]:30:00<", shown)) == 10
    form = {"pattern": "15 6 * * MON", "tz": "Asia/Tokyo", "limit": "", "jitter": "0", "missed": "skip", "days": ""}
    seen = await submit(ui, f"{path}/preview", "", **form)
    assert len(re.findall(r"Mon \d{4}-\d\d-\d\d 06:15:00 \+0900", seen.text)) == 10
    assert (await queue.schedulers.get("nightly")).timing.pattern == "30 12 * * *"
    spring = form | {"pattern": "30 2 * * *", "tz": "Europe/Berlin", "start": "2030-03-29T00:00:00+01:00"}
    seen = await submit(ui, f"{path}/preview", "", **spring)
    row = r">\w{3} 2030-(\d\d-\d\d \d\d:\d\d):00 (\+\d{4})</td><td[^>]*>2030-\d\d-\d\d (\d\d:\d\d)"
    times = re.findall(row, seen.text)
    assert len(times) == 10
    assert times[:3] == [
        ("03-29 02:30", "+0100", "01:30"),
        ("03-30 02:30", "+0100", "01:30"),
        ("04-01 02:30", "+0200", "00:30"),  # on March 31, this time does not exist
    ]
    for change, words in (
        ({"pattern": "61 * * * *"}, "61"),
        ({"tz": "Mars"}, "Mars"),
        ({"limit": "x"}, "limit must be"),
    ):
        for act in ("preview", "edit"):
            refused = await submit(ui, f"{path}/{act}", "", **form | change)
            assert refused.status_code == 400
            assert re.search(f'role="alert">[^<]*{words}', refused.text)
    saved = await submit(ui, f"{path}/edit", "", **form)
    assert saved.headers["location"] == f"/ui{path}?done=edit-1"
    entry = await queue.schedulers.get("nightly")
    assert (entry.timing.pattern, entry.timing.tz, entry.missed) == ("15 6 * * 1", "Asia/Tokyo", "skip")
    assert entry.template == {"name": "export"}
    await queue.schedulers.upsert("often", Every(90))
    await submit(ui, f"/queues/{queue.name}/schedulers/often/edit", "", every="2.5", overlap="skip")
    assert "every 2.5 s" in await page(ui, f"/queues/{queue.name}/schedulers/often")
    assert (await ui.get(f"/ui/queues/{queue.name}/schedulers/nope")).status_code == 404


async def test_a_job_s_page_tells_its_attempts_and_why_it_waits(
    ui: httpx.AsyncClient, queue: AsyncQueue, server_url: str
) -> None:
    options = {"attempts": 2, "backoff": {"type": "fixed", "delay": 0.01}}
    job = await queue.add("a", None, options)
    waiting = await page(ui, f"/queues/{queue.name}/jobs/{job.id}")
    assert "Why it is here" in waiting
    assert "What to do" in waiting

    async def stumble(job: AsyncActiveJob) -> None:
        await job.log(f"at step {job.record.attempts_made + 1}")
        await asyncio.sleep(0.02)
        raise ValueError(f"wall {job.record.attempts_made + 1}")

    async with working(queue, stumble, server_url):
        with pytest.raises(Exception, match="wall 2"):
            await job.wait(60)
    text = await page(ui, f"/queues/{queue.name}/jobs/{job.id}")
    assert "after 0 ms" not in text
    assert ">0 ms<" not in await page(ui, f"/queues/{queue.name}?state=failed")
    told = [text.index(f"Attempt {number} failed") for number in (2, 1)]
    assert told == sorted(told)
    assert text.count("ValueError: wall 1") >= 2  # what was raised, and the end of its traceback
    assert "at step 1" in text[told[1] :]


async def test_a_job_s_page_lists_its_durable_steps(
    ui: httpx.AsyncClient, queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    async def work(job: AsyncActiveJob) -> None:
        await job.step("charge <b>", lambda: "paid")
        await job.wait_for("approval")

    job = await queue.add("work")
    assert "<h2>Steps" not in await page(ui, f"/queues/{queue.name}/jobs/{job.id}")
    async with working(queue, work, server_url):
        await wait_until(lambda: raw.hget(queue.keys.job(job.id), "state") == "suspended", "the wait")
    text = await page(ui, f"/queues/{queue.name}/jobs/{job.id}")
    assert "<h2>Steps · 2</h2>" in text
    assert "charge &lt;b&gt;" in text
    assert "waits for its signal" in text
    assert 'name="signal" value="approval"' in text


async def test_dead_letters_are_grouped(ui: httpx.AsyncClient, queue: AsyncQueue, server_url: str) -> None:
    async def fail_by_name(job: AsyncActiveJob) -> None:
        raise UnrecoverableError(f"no {job.name}")

    for name in ("a", "b", "a"):
        await queue.add(name)
    async with working(queue, fail_by_name, server_url, dead_letter_queue=f"{queue.name}-dead"):
        async with asyncio.timeout(60):
            while len(letters := await queue.dead_letters.list()) < 3:  # noqa: ASYNC110  the server has no event of it
                await asyncio.sleep(0.02)
    text = await page(ui, "/dead")
    assert text.index("<b>a</b><span>2</span>") < text.index("<b>b</b><span>1</span>")
    assert text.count('class="badge">') == 2
    alike = [letter.id for letter in letters if letter.name == "a"]
    asked = await submit(ui, f"/queues/{queue.name}/dead", "drop", id=alike)
    assert "Drop 2 dead letters" in asked.text
    done = await submit(ui, f"/queues/{queue.name}/dead", "replay", id=[*alike, "gone"], back="/ui/dead")
    assert done.headers["location"] == "/ui/dead?done=replay-2"
    assert [letter.name for letter in await queue.dead_letters.list()] == ["b"]


async def test_dead_letters_are_replayed(ui: httpx.AsyncClient, queue: AsyncQueue, server_url: str) -> None:
    await queue.add("a")
    async with working(queue, fail, server_url, dead_letter_queue=f"{queue.name}-dead"):
        while not (letters := await queue.dead_letters.list()):
            pass
    assert "Replay all" in await page(ui, "/dead")
    await submit(ui, f"/queues/{queue.name}/dead", "replay", id=letters[0].id)
    assert (await queue.dead_letters.list(), (await queue.counts()).waiting) == ([], 1)


async def test_workers_are_told(ui: httpx.AsyncClient, queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    async def idle(_: AsyncActiveJob) -> None:
        return

    async with working(queue, idle, server_url, concurrency=3) as worker:
        async with asyncio.timeout(60):
            while not await queue.workers():  # noqa: ASYNC110  the server has no event of it
                await asyncio.sleep(0.02)
        base, shown = f"/queues/{queue.name}/workers", await page(ui, "/workers")
        for words in ("0<span", " of 3<", " MiB", "Pause", "Set slots", "Stop"):
            assert words in shown
        paused = await submit(ui, base, "pause", id=worker.id, back="/ui/workers")
        assert paused.headers["location"] == "/ui/workers?done=pause-1"
        assert "Resume" in await page(ui, "/workers")
        await submit(ui, base, "resume", id=worker.id)
        await submit(ui, base, "concurrency", id=worker.id, slots="7")
        assert " of 7<" in await page(ui, "/workers")
        for act, slots, status in (
            ("stop", "", 400),
            ("dance", "", 400),
            ("concurrency", "x", 400),
            ("concurrency", "0", 400),
        ):
            assert (await submit(ui, base, act, id=worker.id, slots=slots, confirmed="y")).status_code == status
        assert (await submit(ui, base, "ping", id="unknown")).status_code == 404
        assert "Stop 1 worker of" in (await submit(ui, f"{base}/stop", "stop", id=worker.id)).text
        stopped = await submit(ui, f"{base}/stop", "stop", id=worker.id, confirmed="yes")
        assert "done=stop-1" in stopped.headers["location"]
    entries: Any = raw.xrange("glide:audit")
    assert ("pause", worker.id) in {(fields["act"], fields["subject"]) for _, fields in entries}


async def test_settings_are_saved_and_refused(ui: httpx.AsyncClient, queue: AsyncQueue) -> None:
    path = f"/queues/{queue.name}/settings"
    assert 'name="backoff.delay" value=""' in await page(ui, path)
    form = {
        "attempts": "3",
        "backoff.type": "fixed",
        "backoff.delay": "1.5",
        "concurrency": "4",
        "rate_limit.max": "10",
        "rate_limit.duration": "1",
        "remove_on_complete.count": "0",
        "dead_letter_queue": "letters",
    }
    saved = await submit(ui, path, "settings", **form)
    assert saved.headers["location"] == f"/ui{path}?done=save-1"
    found = await queue.settings()
    assert (found.attempts, found.concurrency, found.dead_letter_queue) == (3, 4, "letters")
    assert found.backoff == Backoff(type="fixed", delay=1.5)
    assert 'name="backoff.delay" value="1.5"' in await page(ui, path)
    for wrong, words in (
        ({"attempts": "many"}, "attempts"),
        ({"concurrency": "0"}, "concurrency"),
        ({"rate_limit.max": ""}, "max"),
        ({"backoff.delay": "nan"}, "delay"),
    ):
        refused = await submit(ui, path, "settings", **form | wrong)
        assert refused.status_code == 400
        assert re.search(f'role="alert">[^<]*{words}', refused.text)
    assert await queue.settings() == found
    await submit(ui, path, "settings", attempts="2")
    assert ((await queue.settings()).attempts, (await queue.settings()).rate_limit) == (2, None)


async def test_tags_are_set_and_acted_on(ui: httpx.AsyncClient, queue: AsyncQueue, raw: redis.Redis) -> None:
    job = await queue.add("a", None, {"delay": 9999, "tags": [HOSTILE]})
    other = await queue.add("b", None, {"delay": 9999})
    base, tagged = f"/queues/{queue.name}", f"/queues/{queue.name}/tags/{quote(HOSTILE, safe='')}"
    await submit(ui, f"{base}/jobs/{other.id}/tags", "tag", tag="a/b")
    assert "%2Fb" in await page(ui, f"{base}/tags")
    await submit(ui, f"{base}/jobs/{job.id}/tags", "tag", tag="a/b")
    shown = await page(ui, f"{base}/jobs/{job.id}")
    assert "<img" not in shown
    assert "a/b" in shown
    assert "<img" not in (text := await page(ui, tagged))
    assert "Cancel unfinished" in text
    await submit(ui, f"{base}/jobs/{job.id}/tags", "untag", tag="a/b")
    assert "1 job of" in (await submit(ui, tagged, "cancel-tagged")).text
    await submit(ui, tagged, "cancel-tagged", confirmed="yes")
    assert (await queue.counts()).failed == 1
    await submit(ui, tagged, "retry-tagged")
    assert (await queue.counts()).failed == 0
    assert (await submit(ui, tagged, "remove-tagged", confirmed="yes")).status_code == 400
    await submit(ui, f"{tagged}/remove", "remove-tagged", confirmed="yes")
    assert await queue.find(job.id) is None
    assert (await submit(ui, f"{base}/jobs/{other.id}/tags", "tag", tag="")).status_code == 400
    entries: Any = raw.xrange("glide:audit")
    assert (HOSTILE, "remove-tagged") in {(fields["subject"], fields["act"]) for _, fields in entries}


async def test_statistics_are_shown_by_task_and_day(ui: httpx.AsyncClient, queue: AsyncQueue, server_url: str) -> None:
    path = f"/queues/{queue.name}/statistics"
    assert "No job was counted on this day" in await page(ui, path)

    async def done(_: AsyncActiveJob) -> None:
        return

    async with working(queue, done, server_url):
        for job in [await queue.add(name) for name in ("a", HOSTILE, "a")]:
            await job.wait(60)
    async with asyncio.timeout(60):
        while not (found := await queue.statistics()).all.completed:  # noqa: ASYNC110  a worker writes it once a second
            await asyncio.sleep(0.05)
    text = await page(ui, path)
    assert re.search(r'<td class="name">a</td><td class="num"><span class="">2<', text)
    assert "Running time, jobs by duration: 3" in text
    assert "<img" not in text
    assert f"statistics?day={found.day}" in text
    assert "No job was counted on this day" in await page(ui, f"{path}?day=2001-01-01")
    assert (await ui.get(f"/ui{path}?day=soon")).status_code == 400


async def test_charts_show_failures_by_kind_and_the_last_hour(
    ui: httpx.AsyncClient, queue: AsyncQueue, server_url: str
) -> None:
    path = f"/queues/{queue.name}/statistics"
    assert "No job ended in the last hour." in await page(ui, path)
    job = await queue.add("a")
    async with working(queue, fail, server_url):
        with pytest.raises(Exception, match="onerror"):
            await job.wait(60)
    async with asyncio.timeout(60):
        while not (await queue.statistics()).all.kinds:  # noqa: ASYNC110  a worker writes it once a second
            await asyncio.sleep(0.05)
    text = await page(ui, path)
    assert text.count("<figure") == text.count("</figure>") == 6
    assert '<span class="key t-k0">UnrecoverableError</span>' in text
    assert re.search(r"<title>[0-9:]+: 0 completed, 1 failed</title>", text)
    assert re.search(r'Failures by kind, per day"><table>.*?UnrecoverableError</th>', text)
    assert "<img" not in text


async def test_runs_are_shown_side_by_side(ui: httpx.AsyncClient, queue: AsyncQueue, server_url: str) -> None:
    base = f"/queues/{queue.name}/runs"
    async with AsyncFlowProducer(url=server_url) as producer:
        for flow_id in ("f1", "f2"):
            await producer.submit(Dag(HOSTILE, [Node("a"), Node("b", deps=["a"])], queue=queue.name), flow_id=flow_id)
    text = await page(ui, f"{base}?flow={quote(HOSTILE)}")
    assert "<img" not in text
    assert "the last 2 runs side by side" in text
    assert re.findall(r'href="jobs/(f\d\.\w)" title="([^"]*)"', text) == [
        ("f2.a", "waiting"),
        ("f1.a", "waiting"),
        ("f2.b", "waiting children"),
        ("f1.b", "waiting children"),
    ]
    assert f"flow={quote(HOSTILE, safe='')}" in await page(ui, "/flows")
    assert "No run is recorded." in await page(ui, f"{base}?flow=other")
    for bad in ("", "?flow=a&scheduler=b", "?flow="):
        assert (await ui.get(f"/ui{base}{bad}")).status_code == 400
    assert "Two runs on one time axis" in await page(ui, f"{base}?flow={quote(HOSTILE)}&a=nope&b=f1")
    options = {"job_id": "dagster.r1.load.1", "headers": {"dagster.job_name": "etl"}}
    await queue.add("step", None, options)
    assert f"{base}?dagster_job=etl" in await page(ui, f"/queues/{queue.name}/jobs/dagster.r1.load.1")
    text = await page(ui, f"{base}?dagster_job=etl")
    assert "one run side by side" in text
    assert "jobs/dagster.r1.load.1" in text


async def test_flows_over_queues_that_a_token_lacks_are_refused(server_url: str, raw: redis.Redis) -> None:
    async with AsyncFlowProducer(url=server_url) as producer:
        nodes = [Node("a"), Node("b", deps=["a"], queue="theirs")]
        await producer.submit(Dag("sales", nodes, queue="mine"), flow_id="f1")
    tokens = [Token.of("narrow", "narrow", ["act"], ["mine"]), Token.of("wide", "wide", ["act"], ["mine", "theirs"])]
    async with called(create_app(server_url, console=True, access=Access(tokens))) as ui:
        for token, shown, acted in (("narrow", 403, 403), ("wide", 200, 303)):
            await submit(ui, "/login", "", token=token)
            assert (await ui.get("/ui/queues/mine/flows/f1")).status_code == shown
            assert (await ui.get("/ui/queues/mine/runs?flow=sales")).status_code == shown
            assert (await submit(ui, "/queues/mine/flows/f1", "pause")).status_code == acted
        await submit(ui, "/login", "", token="narrow")
        letters = {"dead_letter_queue": "theirs"}
        assert (await submit(ui, "/queues/mine/settings", "settings", **letters)).status_code == 403


async def test_the_overview_checks_at_most_a_twentieth_of_the_time(
    ui: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[None] = []

    async def check(*_: object) -> list[Finding]:
        began.append(None)
        return []

    monkeypatch.setattr("orchestration_queue.http.console.findings.findings", check)
    await page(ui, "")
    await wait_until(lambda: len(began) == 1, "a check to begin", 60)
    for _ in range(3):
        await page(ui, "")
    assert len(began) == 1


async def test_what_is_wrong_is_shown_and_fixed(ui: httpx.AsyncClient, queue: AsyncQueue, raw: redis.Redis) -> None:
    async def found(words: str) -> str:
        async with asyncio.timeout(60):
            while words not in (text := await page(ui, "/doctor")):  # noqa: ASYNC110  a check takes its time
                await asyncio.sleep(0.1)
        return text

    job = await queue.add("a", None, {"delay": 9999})
    raw.zrem(queue.keys.scheduled, job.id)
    async with asyncio.timeout(60):
        while "is in no list" not in (overview := await page(ui, "")):  # noqa: ASYNC110  it checks without a click
            await asyncio.sleep(0.1)
    assert "checked " in overview
    wrong = await found(f"Job {job.id} has state delayed, but is in no list")
    section = next(each for each in wrong.split("<section")[1:] if "is in no list" in each)
    (wanted,) = re.findall(r'name="id" value="([0-9a-f]+)"', section)
    asked = await submit(ui, "/doctor/fix", "fix", id=wanted)
    assert "What will be done" in asked.text
    assert await queue.find(job.id) is not None
    assert (await queue.counts()).delayed == 0
    done = await submit(ui, "/doctor/fix", "fix", id=wanted, confirmed="yes")
    assert (done.status_code, "is%20due%20now" in done.headers["location"]) == (303, True)
    assert (await queue.counts()).delayed == 1
    assert "is in no list" not in await page(ui, "/doctor")
    assert (await submit(ui, "/doctor", "check")).headers["location"] == "/ui/doctor"
    assert (await submit(ui, "/doctor/fix", "fix", id=wanted, confirmed="yes")).status_code == 409
    entries: Any = raw.xrange("glide:audit")
    assert any(fields["act"] == "fix" and job.id in fields["subject"] for _, fields in entries)


async def test_forged_forms_and_foreign_pages_change_nothing(ui: httpx.AsyncClient, queue: AsyncQueue) -> None:
    path = f"/ui/queues/{queue.name}/control"
    assert (await ui.post(path, data={"act": "pause"})).status_code == 403
    assert (await ui.post(path, data={"act": "pause", "csrf": "0" * 64})).status_code == 403
    foreign = {"origin": "https://evil.example"}
    assert (await ui.post(f"/queues/{queue.name}/pause", headers=foreign)).status_code == 403
    assert not await queue.is_paused()
    back = await submit(ui, f"/queues/{queue.name}/control", "resume", back="https://evil.example")
    assert back.headers["location"].startswith("/ui/")


async def test_only_known_host_names_are_answered(server_url: str, raw: redis.Redis) -> None:
    async with called(create_app(server_url, console=True, hosts=["localhost"])) as client:
        assert (await client.get("/ui", headers={"host": "evil.example:8080"})).status_code == 403
        assert (await client.get("/ui", headers={"host": "localhost:8080"})).status_code == 200


@pytest.fixture
async def guarded(server_url: str, raw: redis.Redis) -> HttpApp:
    scopes = ("read", "add", "act", "admin")
    tokens = [Token.of(name, name, [name]) for name in scopes]
    return create_app(server_url, console=True, access=Access([*tokens, Token.of("some", "some", ["admin"], ["q-*"])]))


async def test_sign_in_and_roles(guarded: HttpApp, queue: AsyncQueue) -> None:
    await queue.add("a")
    async with called(guarded) as ui:
        assert (await ui.get("/ui")).headers["location"] == "/ui/login"
        assert (await submit(ui, "/login", "", token="wrong")).status_code == 401
        entered = await submit(ui, "/login", "", token="read")
        assert (entered.status_code, entered.headers["location"]) == (303, "/ui")
        assert {"HttpOnly", "SameSite=Strict"} <= set(entered.headers["set-cookie"].split("; "))
        shown = await page(ui, f"/queues/{queue.name}")
        assert "Pause" not in shown
        assert (await submit(ui, f"/queues/{queue.name}/control", "pause")).status_code == 403
        await submit(ui, "/login", "", token="act")
        shown = await page(ui, f"/queues/{queue.name}")
        assert "Pause" in shown
        assert "Drain" not in shown
        assert (await submit(ui, f"/queues/{queue.name}/remove", "drain", confirmed="y")).status_code == 403
        assert (await submit(ui, f"/queues/{queue.name}/control", "pause")).status_code == 303
    assert await queue.is_paused()


async def test_every_page_and_act_needs_its_scope(guarded: HttpApp) -> None:
    async with called(guarded) as ui:
        for route in guarded.console.routes if guarded.console else ():
            if route.scope is Scope.OPEN:
                continue
            path = route.path.replace(":name", "q").replace(":id", "1").replace(":tag", "t").removeprefix("/ui")
            wanted = {"read": {"read", "act", "admin"}, "act": {"act", "admin"}, "admin": {"admin"}}[route.scope]
            for token in ("read", "add", "act", "admin", "some"):  # the last may do everything, to other queues
                await submit(ui, "/login", "", token=token)
                if route.method == "POST":
                    status = (await submit(ui, path, "none")).status_code
                elif path.endswith(("/live", "/stream")):
                    continue  # endless; their scope is that of the pages
                else:
                    status = (await ui.get(f"/ui{path}")).status_code
                assert (status == 403) is (token not in wanted), (route.path, token, status)


async def test_the_server_page_shows_libraries_and_slow_commands(
    ui: httpx.AsyncClient, queue: AsyncQueue, raw: redis.Redis
) -> None:
    await queue.add("a")
    usual = raw.config_get("slowlog-log-slower-than")["slowlog-log-slower-than"]
    raw.slowlog_reset()  # of a busy machine's log, the page shows only the slowest
    raw.config_set("slowlog-log-slower-than", 0)
    raw.echo(HOSTILE)
    raw.config_set("slowlog-log-slower-than", -1)
    shown = await page(ui, "/server")
    raw.slowlog_reset()
    empty = await page(ui, "/server")
    raw.config_set("slowlog-log-slower-than", usual or 10_000)
    assert "glidemq, orchestration_queue_1" in shown
    assert re.search(r"<dt>Keys</dt><dd>\d+, of which \d+ expire</dd>", shown)
    assert "ECHO &lt;img src=x" in shown
    assert "The log is empty" in empty


async def test_the_first_page_is_small(ui: httpx.AsyncClient, queue: AsyncQueue) -> None:
    await queue.add("a")
    first = await page(ui, "")
    files = re.findall(r'"(/ui/static/[^"]+)"', first)
    sizes = [len((await ui.get(path)).content) for path in files]
    assert len(files) == 3
    assert len(first) + sum(sizes) < 40_000
    assert (await ui.get("/ui/static/..%2F__init__.py")).status_code == 404


async def test_the_page_of_events_shows_the_newest_of_a_long_stream(ui: httpx.AsyncClient, queue: AsyncQueue) -> None:
    async with queue.events():  # a registered reader, so all stay
        await queue.add_bulk([NewJob("a", options=JobOptions(job_id=f"job-{number}")) for number in range(3000)])
        shown = re.findall(r"job-\d+", await page(ui, f"/queues/{queue.name}/tail"))
    assert list(dict.fromkeys(shown)) == [f"job-{number}" for number in range(2999, 2799, -1)]


async def test_pages_walk_no_keys_while_they_are_watched(
    ui: httpx.AsyncClient, queue: AsyncQueue, raw: redis.Redis
) -> None:
    job = await queue.add("a")
    base = f"/queues/{queue.name}"
    paths = ("", base, f"{base}/jobs/{job.id}", f"{base}/tail", "/flows", "/schedules", "/dead", "/server")

    def walks() -> int:
        stats = raw.info("commandstats")
        return sum(int(stats.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in ("scan", "keys"))

    for path in (*paths, "/workers"):
        await page(ui, path)
    before = walks()
    began = time.monotonic()
    for path in (*paths, "/workers", *paths):
        await page(ui, path)
    # Names and workers are read again after some seconds, however many pages were asked for.
    assert walks() - before <= 4 * (1 + (time.monotonic() - began) // 3)


async def test_the_overview_does_not_wait_for_a_walk_over_all_keys(
    ui: httpx.AsyncClient, queue: AsyncQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.add("a")
    monkeypatch.setattr(cache, "PATIENCE_S", 0)
    assert "are being looked for" in await page(ui, "")
    monkeypatch.setattr(cache, "PATIENCE_S", 60)
    assert f">{queue.name}<" in await page(ui, "")


async def test_the_overview_reads_all_queues_in_few_exchanges(
    ui: httpx.AsyncClient, queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    for number in range(30):
        async with AsyncQueue(f"{queue.name}-{number}", url=server_url) as each:
            await each.add("a", number)
    async with asyncio.timeout(60):
        while "checked " not in (text := await page(ui, "")):  # noqa: ASYNC110  the check reads, too
            await asyncio.sleep(0.1)

    def reads() -> int:
        return int(raw.info("stats")["total_reads_processed"])

    before = reads()
    await page(ui, "")
    assert reads() - before < 20
    assert text.count('<td class="name short">') == 30


async def test_long_queues_are_shown_by_page(ui: httpx.AsyncClient, queue: AsyncQueue, raw: redis.Redis) -> None:
    await queue.add("first", None, {"job_id": "first"})
    for n in range(120):
        await queue.add("n", n)
    text = await page(ui, f"/queues/{queue.name}?state=waiting&page=3")
    assert text.count('name="id"') == 21
    assert "page 3 of 3" in text
    assert "first" in await page(ui, f"/queues/{queue.name}?state=waiting&q=first")


async def test_pools_are_shown_set_and_removed(
    ui: httpx.AsyncClient, queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    done = asyncio.Event()

    async def hold(_: AsyncActiveJob) -> None:
        await done.wait()

    assert "No pool is defined" in await page(ui, "/pools")
    saved = await submit(ui, "/pools", "set-pool", pool=HOSTILE_POOL, slots="1")
    assert saved.headers["location"] == "/ui/pools?done=set-1"
    job = await queue.add("a", None, {"pools": {HOSTILE_POOL: 1}})
    async with working(queue, hold, server_url):
        async with asyncio.timeout(60):
            while f">{queue.name} {job.id}</a>" not in (shown := await page(ui, "/pools")):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert "1<span" in shown
        assert "<img" not in shown
        refused = await submit(ui, "/pools/remove", "remove-pool", pool=HOSTILE_POOL, confirmed="yes")
        assert (refused.status_code, "is in use" in refused.text) == (409, True)
        done.set()
        await job.wait(30)
    for fields in ({"slots": "x"}, {"slots": "-1"}, {"slots": "1001"}, {"slots": ""}, {"pool": "a:b"}, {"pool": ""}):
        refused = await submit(ui, "/pools", "set-pool", **{"pool": "p", "slots": "2"} | fields)
        assert refused.status_code == 400, fields
        assert 'role="alert"' in refused.text
    asked = await submit(ui, "/pools/remove", "remove-pool", pool=HOSTILE_POOL)
    assert "<h1>Remove pool &lt;img" in asked.text
    assert await queue.pools.find(HOSTILE_POOL) is not None
    await submit(ui, "/pools/remove", "remove-pool", pool=HOSTILE_POOL, confirmed="yes")
    assert await queue.pools.find(HOSTILE_POOL) is None
    assert noted(raw) == [("set-pool", HOSTILE_POOL), ("remove-pool", HOSTILE_POOL)]


async def test_shares_of_a_queue_are_shown_and_weighted(
    ui: httpx.AsyncClient, queue: AsyncQueue, raw: redis.Redis
) -> None:
    path = f"/queues/{queue.name}"
    assert "Fair shares" not in await page(ui, path)
    for _ in range(9):
        await queue.add("n", None, {"share": HOSTILE_POOL})
    shown = await page(ui, path)
    assert 'aria-label="Weight of &lt;img' in shown
    assert "<img" not in shown
    saved = await submit(ui, f"{path}/shares", "set-share", share=HOSTILE_POOL, weight="7")
    assert saved.headers["location"] == f"/ui{path}?done=set-share-1"
    (share,) = await queue.shares.list()
    assert (share.name, share.weight, share.waiting) == (HOSTILE_POOL, 7, 1)
    for fields in (
        {"weight": "x"},
        {"weight": "0"},
        {"weight": "1001"},
        {"weight": ""},
        {"share": "a:b"},
        {"share": ""},
    ):
        refused = await submit(ui, f"{path}/shares", "set-share", **{"share": "p", "weight": "2"} | fields)
        assert refused.status_code == 400, fields
    assert (await submit(ui, f"{path}/shares", "other", share="p")).status_code == 400
    assert await queue.shares.list() == [share]
    await submit(ui, f"{path}/shares", "unset-share", share=HOSTILE_POOL)
    assert [each.weight for each in await queue.shares.list()] == [1]
    assert noted(raw) == [("set-share", HOSTILE_POOL), ("unset-share", HOSTILE_POOL)]


async def test_some_queues_do_not_change_the_pools_of_all(server_url: str, raw: redis.Redis, queue: AsyncQueue) -> None:
    await queue.pools.set("warehouse", 2)
    async with called(create_app(server_url, console=True, queues=[queue.name])) as ui:
        shown = await page(ui, "/pools")
        assert ("warehouse" in shown, "Set slots" in shown) == (True, False)
        assert (await submit(ui, "/pools", "set-pool", pool="warehouse", slots="9")).status_code == 403
        assert (await ui.put("/v1/pools/warehouse", json={"slots": 9})).status_code == 403
    found = await queue.pools.find("warehouse")
    assert found is not None
    assert found.slots == 2
