"""The console in a real Chromium: each page on a desk and a phone, light and dark, live, by mouse and by keyboard."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import redis

from orchestration_queue import AsyncActiveJob, AsyncFlowProducer, AsyncQueue, Cron, Dag, Node, UnrecoverableError
from orchestration_queue.client import AsyncAlerts, NewJob
from orchestration_queue.http import create_app
from orchestration_queue.protocol.alerts import AlertEvaluation, AlertEvent, AlertState, Breach, deliveries_of
from orchestration_queue.protocol.operations import alerts as operations
from orchestration_queue.wires.chasquimq import AsyncChasquiQueue
from orchestration_queue.wires.qless import AsyncQlessClient
from tests.http.browser import Browser, Page, find_chromium, started
from tests.http.conftest import served
from tests.waiting import wait_until
from tests.workers import working

pytestmark = pytest.mark.skipif(
    find_chromium() is None, reason="NOT TESTED: the console in a browser; install chromium"
)

OTHER = "<img src=x>"
POOL = "<img src=x onerror=hit()>"
HOSTILE = "<img src=x onerror=\"document.title='hit'\">"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    directory: Path = tmp_path_factory.mktemp("chromium")
    with started(directory) as browser:
        yield browser


@pytest.fixture
async def queue(server_url: str, raw: redis.Redis, queue_name: str) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


@pytest.fixture
async def site(server_url: str, raw: redis.Redis) -> AsyncIterator[str]:
    async with served(create_app(server_url, console=True, wires={"chasquimq": [OTHER], "qless": [OTHER]})) as client:
        yield str(client.base_url).rstrip("/")


@pytest.fixture
async def page(browser: Browser, site: str) -> AsyncIterator[Page]:
    async with browser.page() as page:
        await page.look()
        yield page
        assert page.complaints == []


async def handle(job: AsyncActiveJob) -> str:
    await job.log(HOSTILE)
    if job.name == HOSTILE:
        raise UnrecoverableError(HOSTILE)
    return HOSTILE


async def fill_other_wires(url: str) -> None:
    async with AsyncChasquiQueue(OTHER, url=url) as chasqui:
        await chasqui.add(HOSTILE, {HOSTILE: HOSTILE})
        await chasqui.add(HOSTILE, None, delay=9999)
        await chasqui.put_schedule(HOSTILE, every=60)
    async with AsyncQlessClient(url=url) as qless:
        await qless.put(OTHER, HOSTILE, {HOSTILE: HOSTILE}, jid="tracked")
        await qless.track("tracked")
        await qless.put(OTHER, HOSTILE, jid="failed", priority=5)
        (taken,) = await qless.pop(OTHER)
        await qless.fail(taken, HOSTILE, HOSTILE)


@pytest.mark.timeout(300)  # each page is read twice, and in two widths
async def test_every_page_is_accessible_quiet_and_fits(
    page: Page, site: str, queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    async with working(queue, handle, server_url, dead_letter_queue=f"{queue.name}-dead") as worker:
        bad = await queue.add(HOSTILE, {HOSTILE: 1}, {"job_id": "bad", "tags": ["x"]})
        await queue.pools.set(POOL, 2)
        async with AsyncAlerts(url=server_url) as alerts:
            await alerts.set("mail-backlog", {"kind": "backlog", "queue": "mail-*", "to": ["ops"], "note": HOSTILE})
            await alerts.silence("mail-backlog", 3600, by=HOSTILE)
            await alerts.set("etl-failures", {"kind": "failure_rate", "queue": "etl", "to": ["ops"], "pending": 60})
        breach = Breach(HOSTILE, 9, HOSTILE, 1)
        state = AlertState("firing", "mail-backlog.1", 1, (breach,), (), ("ops",), 1)
        sent = deliveries_of({"rule": "mail-backlog", "id": "1"}, ["ops"], 1)
        event = AlertEvent("mail-backlog", "firing", "mail-backlog.1", HOSTILE)
        evaluation = AlertEvaluation({"mail-backlog": state}, sent, [event])
        await queue._connection.pipeline(operations.write(queue.keys, evaluation), atomic=True)
        await queue.shares.set(POOL, 2)
        await fill_other_wires(server_url)
        await queue.schedulers.upsert("nightly", Cron("0 3 * * *", tz="Europe/Berlin"))
        async with AsyncFlowProducer(url=server_url) as producer:
            nodes = [Node("a"), Node("b", deps=["a"]), Node("c", deps=["a"])]
            for flow_id in ("f0", "f1"):
                await (await producer.submit(Dag("sales", nodes, queue=queue.name), flow_id=flow_id)).wait(30)
        with pytest.raises(Exception, match="onerror"):
            await bad.wait(30)
        await queue.add("later", None, {"delay": 9999})
        base = f"/ui/queues/{queue.name}"
        paths = [
            "/ui", base, f"{base}?state=failed", f"{base}?state=failed&q={quote(HOSTILE)}", f"{base}/jobs/bad",
            f"{base}/flows/f1", f"{base}/runs?flow=sales", f"{base}/runs?scheduler={quote(HOSTILE)}", f"{base}/tail",
            f"{base}/tail?kind=log&text=onerror", f"{base}/flows/f1/tail", f"{base}/workers/{worker.id}/tail",
            f"{base}/settings", f"{base}/statistics", f"{base}/statistics?compare=week",
            f"{base}?state=failed&from=2026-01-01T00:00&to=2126-01-01T00:00", f"{base}/tags", f"{base}/tags/x",
            "/ui/flows", "/ui/schedules/calendar?days=31&zone=Asia/Kolkata",
            "/ui/schedules", f"{base}/schedulers/nightly", "/ui/dead", "/ui/broadcasts", "/ui/workers", "/ui/pools",
            "/ui/alerts", "/ui/chasquimq", "/ui/qless", f"/ui/chasquimq/{quote(OTHER)}", f"/ui/qless/{quote(OTHER)}",
            "/ui/doctor", "/ui/server", "/ui/login",
        ]  # fmt: skip
        found: list[str] = []
        for path in paths:
            await page.look(scheme="light")
            await page.open(site + path)
            found += [f"{path}: {each}" for each in await page.violations()]
            assert await page.run("document.querySelectorAll('main img').length") == 0, path
            assert await page.run("document.title") != "hit"
            await page.look(scheme="dark")
            found += [f"{path} in the dark: {each}" for each in await page.violations()]
            await page.look(width=390)
            if await page.run("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
                found.append(f"{path}: wider than a phone")
        assert found == []
    for key in (*raw.scan_iter("{chasqui:*"), *raw.scan_iter("ql:*")):
        raw.delete(key)


async def test_pages_follow_the_queue(page: Page, site: str, queue: AsyncQueue) -> None:
    await queue.add("first")
    await page.open(f"{site}/ui/queues/{queue.name}?state=waiting")
    await page.until("document.querySelector('.live.on')")
    await page.run("window.same = true")
    await queue.add("second")
    await page.until("document.querySelectorAll('tbody tr').length === 2")
    assert await page.run("window.same") is True
    await page.open(f"{site}/ui")
    await queue.add("third")
    await page.until("document.querySelector('.tile b').textContent === '3'")


async def test_selected_jobs_are_cancelled_after_a_question(page: Page, site: str, queue: AsyncQueue) -> None:
    for name in ("a", "b", "c"):
        await queue.add(name, None, {"delay": 9999})
    await page.open(f"{site}/ui/queues/{queue.name}?state=delayed")
    due = "[...document.querySelectorAll('tbody tr time')].find((each) => each.textContent === 'in 2 h 46 min')"
    local = "new Date(t.dateTime).toLocaleString(undefined, {timeZoneName: 'short'})"
    await page.until(f"(t => t && t.title === {local})({due})")
    await page.run("document.querySelector('[data-all]').click()")
    await page.run("document.querySelectorAll('tbody input')[0].click()")
    assert await page.run("document.querySelector('[data-count]').textContent") == "2 selected"
    assert await page.run("document.querySelector('#bulk').checkVisibility()")
    await page.run("document.querySelector('button[value=cancel]').click()")
    await page.until("document.querySelector('h1')?.textContent.startsWith('Cancel 2 jobs of')")
    assert (await queue.counts()).delayed == 3
    await page.run("document.querySelector('button.danger.primary').click()")
    await page.until("document.querySelector('.notice')?.textContent.includes('cancel, 2 in all')")
    assert (await queue.counts()).failed == 2


async def test_the_first_screen_shows_what_is_wrong_and_the_last_minute(
    page: Page, site: str, queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    async with working(queue, handle, server_url):
        await (await queue.add("done")).wait(30)
    broken = await queue.add("a", None, {"delay": 9999})
    raw.zrem(queue.keys.scheduled, broken.id)
    await page.look(width=1180, height=720)
    await page.open(f"{site}/ui")
    row = "[...document.querySelectorAll('.wrong .bar')].find((each) => each.textContent.includes('is in no list'))"
    await page.until(row, 60)  # without a click
    for selector in (".wrong", ".wrong button[value=fix]"):
        assert await page.run(f"document.querySelector('{selector}').getBoundingClientRect().bottom") < 720
    await page.until("document.querySelector('td.chart path')")
    box = "document.querySelector('{}').getBoundingClientRect()"
    bar, drawn, card = (box.format(each) for each in ("td.chart path", "td.chart svg", "[aria-label=Queues]"))
    assert await page.run(f"{bar}.right <= {drawn}.right + 0.5 && {drawn}.right + 16 <= {card}.right")
    await page.run(f"{row}.querySelector('button[value=fix]').click()")
    await page.arrive(title_is("Fix it at"))
    await page.press("Enter")
    await page.arrive("document.querySelector('.notice')?.textContent.includes('Fixed')")
    assert (await queue.counts()).delayed == 1


async def test_names_of_queues_and_figures_fit_into_the_overview(page: Page, site: str, server_url: str) -> None:
    names = ("emails", "emails-dead")
    for name in names:
        async with AsyncQueue(name, url=server_url) as queue:
            await queue.add("a")
    for width in (1300, 1180, 820, 390):
        await page.look(width=width)
        await page.open(f"{site}/ui")
        await page.until("document.querySelectorAll('td.name a').length === 2")
        heights = await page.run("[...document.querySelectorAll('tbody tr')].map((each) => each.offsetHeight)")
        assert heights[0] == heights[1], width  # no name takes a second line
        card = "document.querySelector('[aria-label=Queues]')"
        assert await page.run(f"{card}.scrollWidth <= {card}.clientWidth"), width


async def test_keys_and_colors(page: Page, site: str, queue: AsyncQueue) -> None:
    await queue.add("a")
    await page.open(f"{site}/ui")
    await page.press("/")
    await page.until("document.activeElement.type === 'search'")
    await page.run("document.activeElement.blur()")
    await page.press("j")
    await page.until(f"document.activeElement.textContent === '{queue.name}'")
    await page.run("document.querySelector('[data-theme-button]').click()")
    assert await page.run("document.documentElement.dataset.theme") == "dark"
    await page.press("g")
    await page.press("f")
    await page.until("location.pathname === '/ui/flows' && document.documentElement.dataset.theme === 'dark'")


def title_is(text: str) -> str:
    return f"document.querySelector('h1')?.textContent.startsWith({text!r})"


def says(text: str) -> str:
    return f"document.querySelector('.notice')?.textContent.includes({text!r})"


async def test_jobs_are_found_and_changed_by_keyboard(page: Page, site: str, queue: AsyncQueue) -> None:
    for name in ("send", "send", "other"):
        await queue.add(name, {"to": name}, {"delay": 9999})
    await page.open(f"{site}/ui")
    await page.keys("j", "Enter")
    await page.arrive(title_is(queue.name))
    assert not await page.run("document.querySelector('#bulk').checkVisibility()")
    await page.keys("j", "x")
    assert await page.run("document.querySelector('[data-count]').textContent") == "1 selected"
    await page.choose("#bulk button[value=promote]", says("promote"))
    assert (await queue.counts()).delayed == 2
    await page.open(f"{site}/ui/queues/{queue.name}?state=delayed")
    await page.press("/")
    await page.type("send")
    await page.press("Enter")
    await page.arrive("document.querySelectorAll('tbody tr').length === 1 && location.search.includes('q=send')")
    await page.choose(".all button[value=cancel]", title_is("Cancel 1 job of"))
    await page.press("Escape")
    await page.arrive("location.search.includes('q=send')")
    await page.choose(".all button[value=cancel]", title_is("Cancel 1 job of"))
    await page.press("Enter")
    await page.arrive(says("cancel"))
    counts = await queue.counts()
    assert (counts.delayed, counts.failed) == (1, 1)


async def test_the_calendar_and_the_tables_behind_charts_work_by_keyboard(
    page: Page, site: str, queue: AsyncQueue, raw: redis.Redis, server_url: str
) -> None:
    async with working(queue, handle, server_url):
        await (await queue.add("done")).wait(30)
        await wait_until(lambda: raw.keys(queue.keys.statistics("*")), "the worker to write its statistics")
    await queue.schedulers.upsert("hourly", Cron("5 * * * *"))
    await page.open(f"{site}/ui/schedules")
    await page.choose(".tabs a[href$=calendar]", "location.pathname.endsWith('/calendar')")
    await page.tab_to("input[name=queue]")
    await page.type(queue.name)
    await page.press("Enter")
    await page.arrive(f"location.search.includes('queue={queue.name}')")
    await page.tab_to("table.hours tr:last-child a")
    assert await page.run("[...document.querySelectorAll('details')].at(-1).open") is False
    await page.press("Enter")
    await page.until("[...document.querySelectorAll('details')].at(-1).open")
    await page.choose("details:last-of-type td.name a", "location.pathname.endsWith('/schedulers/hourly')")
    await page.open(f"{site}/ui/queues/{queue.name}/statistics")
    await page.tab_to("figure summary")
    await page.press("Enter")
    await page.until("document.querySelectorAll('figure details[open] tbody tr').length === 60")
    assert await page.violations() == []


async def test_a_time_is_chosen_in_a_chart_or_by_keyboard_and_its_jobs_are_listed(
    page: Page, site: str, queue: AsyncQueue, raw: redis.Redis, server_url: str
) -> None:
    async with working(queue, handle, server_url):
        await (await queue.add("done")).wait(30)
        await wait_until(lambda: raw.keys(queue.keys.metrics_completed), "the minute to be counted")
    await page.open(f"{site}/ui/queues/{queue.name}/statistics")
    await page.tab_to("select[name=compare]")
    await page.press("ArrowDown")
    await page.press("ArrowDown")
    await page.choose("form.ask button", "location.search === '?compare=week'")
    await page.tab_to("select[name=state]")
    await page.press("ArrowDown")
    await page.choose("form.times button", "location.pathname.endsWith(" + repr(queue.name) + ")")
    await page.arrive("document.querySelectorAll('tbody tr').length === 1 && location.search.includes('&from=')")
    await page.open(f"{site}/ui/queues/{queue.name}/statistics?compare=before")
    places = await page.run(
        "[...document.querySelectorAll('.area[data-step]')][0].querySelectorAll('.hit').values().map((each) => "
        "{const box = each.getBoundingClientRect(); return [box.x + box.width / 2, box.y + 50]}).toArray()"
    )
    assert len(places) == 60
    begin = await page.run("Number(document.querySelector('.area[data-step]').dataset.begin)")
    await page.drag(places[59], places[50])  # also backwards
    chosen = await page.run(
        "[...document.querySelectorAll('form.times input')].map((each) => Date.parse(each.value + 'Z'))"
    )
    assert chosen == [1000 * (begin + 50 * 60), 1000 * (begin + 60 * 60)]
    assert await page.run("document.querySelectorAll('rect.chosen').length") == 10
    assert await page.run("document.activeElement.textContent") == "List"
    assert await page.violations() == []
    await page.run("document.querySelector('select[name=state]').value = 'completed'")
    await page.press("Enter")
    await page.arrive("location.search.includes('&to=') && document.querySelectorAll('tbody tr').length === 1")


async def test_runs_are_compared_by_keyboard(
    page: Page, site: str, queue: AsyncQueue, raw: redis.Redis, server_url: str
) -> None:
    async with working(queue, handle, server_url):
        async with AsyncFlowProducer(url=server_url) as producer:
            for flow_id in ("f1", "f2", "f3"):
                nodes = [Node("a"), Node("b", deps=["a"])]
                await (await producer.submit(Dag("sales", nodes, queue=queue.name), flow_id=flow_id)).wait(30)
        await wait_until(lambda: raw.zcard(queue.keys.flows_ended) == 3, "their ends to be recorded")
    await page.open(f"{site}/ui/queues/{queue.name}/flows/f3")
    await page.choose("a[href$='runs?flow=sales']", title_is("sales"))
    table = "document.querySelector('table.grid')"
    assert await page.run(f"[...{table}.rows].map((row) => row.cells.length)") == [6, 6, 6, 6]
    heads = f"[...{table}.querySelectorAll('tbody th[scope=row]')].map((each) => each.textContent)"
    assert await page.run(heads) == ["Run", "a", "b"]
    await page.tab_to("table.grid a")
    assert await page.run("document.activeElement.pathname.endsWith('/flows/f3')")
    for key, job in (("ArrowDown", "f3.a"), ("ArrowRight", "f2.a"), ("ArrowDown", "f2.b"), ("ArrowDown", "f2.b")):
        await page.press(key)
        assert await page.run("decodeURIComponent(document.activeElement.pathname)") == (
            f"/ui/queues/{queue.name}/jobs/{job}"
        )
    said = await page.run("document.querySelector('[data-says]').textContent")
    assert said.startswith("b, ")
    assert "completed" in said
    await page.tab_to("select[name=a]")  # one Tab leaves the grid
    await page.press("ArrowDown")
    await page.choose("form.ask button", "location.search.includes('a=f2&b=f2')")
    assert await page.run("document.querySelectorAll('table.pair tbody tr').length") == 3
    assert await page.run("document.querySelectorAll('table.pair rect.path').length") == 4
    await page.open(f"{site}/ui/queues/{queue.name}/runs?flow=sales")
    await page.tab_to("table.grid a")
    await page.press("ArrowDown")
    await page.run("window.isOld = true")
    await page.press("Enter")
    await page.arrive("!window.isOld && location.pathname.endsWith('/jobs/f3.a')")


async def test_a_queue_s_other_pages_work_by_keyboard(
    page: Page, site: str, queue: AsyncQueue, raw: redis.Redis, server_url: str
) -> None:
    async with working(queue, handle, server_url):
        await (await queue.add("done")).wait(30)
        await wait_until(lambda: raw.keys(queue.keys.statistics("*")), "the worker to write its statistics")
        await queue.add("late", None, {"delay": 9999, "tags": ["month"]})
        await page.open(f"{site}/ui/queues/{queue.name}")
        await page.choose(".tabs a[href$=settings]", "location.pathname.endsWith('/settings')")
        await page.tab_to("input[name=attempts]")
        await page.type("3")
        await page.press("Enter")
        await page.arrive(says("save"))
        assert (await queue.settings()).attempts == 3
        await page.choose(".tabs a[href$=statistics]", "location.pathname.endsWith('/statistics')")
        await page.choose("main a[href*='?day=']", "location.search.startsWith('?day=')")
        await page.choose(".tabs a[href$=tags]", "location.pathname.endsWith('/tags')")
        await page.keys("j", "Enter")
        await page.arrive("location.pathname.endsWith('/tags/month')")
        await page.choose("button[value=cancel-tagged]", title_is("Cancel the unfinished jobs of this tag: 1 job"))
        await page.press("Enter")
        await page.arrive(says("cancel"))
        assert (await queue.counts()).failed == 1
        await page.keys("g", "w")
        await page.arrive("location.pathname === '/ui/workers' && document.querySelector('input[name=slots]')")
        await page.tab_to("input[name=slots]")
        await page.type("7")
        await page.press("Enter")
        await page.arrive(says("concurrency"))
        assert [each.concurrency for each in await queue.workers()] == [7]


async def test_pages_of_all_queues_work_by_keyboard(
    page: Page, site: str, queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    await fill_other_wires(server_url)
    await page.open(f"{site}/ui")
    await page.keys("g", "p")
    await page.arrive(title_is("Pools"))
    await page.tab_to("form.edit input[name=pool]")
    await page.type("smtp")
    await page.press("Tab")
    await page.type("5")
    await page.press("Enter")
    await page.arrive("document.querySelector('td.name')?.textContent === 'smtp'")
    for answer, left in (("Escape", 1), ("Enter", 0)):
        await page.choose("button[value=remove-pool]", title_is("Remove pool smtp"))
        await page.press(answer)
        await page.arrive(f"{title_is('Pools')} && document.querySelectorAll('td.name').length === {left}")
    await page.keys("g", "a")
    await page.arrive(title_is("Alerts"))
    await page.tab_to("form.edit input[name=name]")
    await page.type("backlog")
    await page.tab_to("form.edit input[name=to]")
    await page.type("ops")
    await page.press("Enter")
    await page.arrive("document.querySelector('td.name')?.textContent === 'backlog'")
    await page.choose("button[name=seconds]", "document.querySelector('button[value=\"0\"]')")
    await page.choose('button[value="0"]', "document.querySelector('button[value=\"3600\"]')")
    await page.choose("td button[value=remove]", title_is("Remove rule backlog"))
    await page.press("Enter")
    await page.arrive(f"{title_is('Alerts')} && !document.querySelector('td.name')")
    await page.keys("g", "c")
    await page.arrive(title_is("Doctor"))
    await page.choose(
        "button[value=check]", "document.querySelector('#main [role=status]')?.textContent.startsWith('Checked')"
    )
    for path, key, title in (("chasquimq", "q", "ChasquiMQ"), ("qless", "l", "qless")):
        await page.keys("g", key)
        await page.arrive(title_is(title))
        await page.choose(f"a[href^='/ui/{path}/']", f"location.pathname.startsWith('/ui/{path}/')")
        await page.choose("button[value=pause]", "document.querySelector('button[value=resume]')")
    for key in (*raw.scan_iter("{chasqui:*"), *raw.scan_iter("ql:*")):
        raw.delete(key)


async def test_a_tail_goes_on_and_is_paused_by_keyboard(
    page: Page, site: str, queue: AsyncQueue, server_url: str
) -> None:
    rows = "document.querySelectorAll('tbody[data-tail] tr').length"
    async with working(queue, handle, server_url):
        await page.open(f"{site}/ui/queues/{queue.name}")
        await page.choose(".tabs a[href$=tail]", "location.pathname.endsWith('/tail')")
        await page.until("document.querySelector('.live.on') && !document.querySelector('[data-pause]').hidden")
        await page.run("window.same = true")
        await (await queue.add("first", None, {"job_id": "first"})).wait(30)
        line = "[...document.querySelectorAll('tr.said')].map((each) => each.cells[3].textContent).join()"
        await page.until(f"{line}.includes('onerror')")
        assert await page.run("document.querySelectorAll('main img').length") == 0
        await page.press("p")
        await page.until("document.querySelector('[data-pause][aria-pressed=true]')")
        before = await page.run(rows)
        await (await queue.add("second", None, {"job_id": "second"})).wait(30)
        await page.until("/Continue, [3-9] new/.test(document.querySelector('[data-pause]').textContent)")
        assert await page.run(rows) == before
        await page.press("p")
        await page.until(f"{rows} > {before}")
        assert await page.run("document.querySelector('[data-tail] tr').textContent.includes('second')")
        assert await page.run("window.same") is True
        assert await page.violations() == []
        await page.tab_to("select[name=kind]")
        await page.type("c")
        await page.press("ArrowDown")
        await page.run("document.querySelector('select[name=kind]').value = 'completed'")
        await page.tab_to("input[name=text]")
        await page.type("FIRST")
        await page.press("Enter")
        await page.arrive("location.search === '?kind=completed&text=FIRST&job='")
        await page.until(f"{rows} === 1")
        await page.tab_to("tbody a")
        await page.run("window.isOld = true")
        await page.press("Enter")
        await page.arrive("!window.isOld && location.pathname.endsWith('/jobs/first')")


async def test_a_tail_keeps_few_rows(page: Page, site: str, queue: AsyncQueue) -> None:
    await page.open(f"{site}/ui/queues/{queue.name}/tail")
    await page.until("document.querySelector('.live.on')")
    for _ in range(4):
        await queue.add_bulk([NewJob("n") for _ in range(250)])
        newest = await queue.add("newest")
        await page.until(f"document.querySelector('[data-tail] tr').textContent.includes('{newest.id}')")
    assert await page.run("document.querySelectorAll('[data-tail] tr').length") == 500


async def test_a_job_s_log_follows_on_its_page(page: Page, site: str, queue: AsyncQueue, server_url: str) -> None:
    may_end = asyncio.Event()
    jobs: list[AsyncActiveJob] = []

    async def speak(job: AsyncActiveJob) -> None:
        jobs.append(job)
        await may_end.wait()
        await job.log("the end")

    async with working(queue, speak, server_url):
        await queue.add("long", None, {"job_id": "long"})
        await wait_until(lambda: jobs, "the job to begin")
        await page.open(f"{site}/ui/queues/{queue.name}/jobs/long")
        await page.run("window.same = true")
        log = "document.querySelector('pre[data-follow]').textContent"
        await jobs[0].log(HOSTILE, *(f"line {number}" for number in range(60)))
        await page.until(f"{log}.includes('line 59')")
        assert await page.run(f"{log}.startsWith({json.dumps(HOSTILE)})")
        at_end = "(e => e.scrollTop > 0 && e.scrollTop + e.clientHeight >= e.scrollHeight - 4)"
        assert await page.run(f"{at_end}(document.querySelector('pre[data-follow]'))")
        may_end.set()
        await page.until(f"{log}.endsWith('the end')")
        assert await page.run("window.same") is True
        await page.until("document.querySelector('.timeline rect.s-completed')")
        await page.tab_to("details[data-key=timeline] summary")
        await page.press("Enter")
        await page.until("document.querySelectorAll('details[data-key=timeline][open] tbody tr').length === 3")
        assert await page.violations() == []


async def test_a_queue_is_paused_and_resumed(page: Page, site: str, queue: AsyncQueue, raw: redis.Redis) -> None:
    await queue.add("a")
    await page.open(f"{site}/ui/queues/{queue.name}")
    await page.run("document.querySelector('button[value=pause]').click()")
    await page.until("document.querySelector('button[value=resume]')")
    await wait_until(lambda: raw.hget(f"glide:{{{queue.name}}}:meta", "paused") == "1", "the pause")
    await page.run("document.querySelector('button[value=resume]').click()")
    await page.until("document.querySelector('button[value=pause]')")
    assert not await queue.is_paused()
