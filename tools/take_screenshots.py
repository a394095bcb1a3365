"""Take the documentation's pictures of the console and of a run in Dagster, with real servers, workers, and Chromium.

Run ``python -m tools.take_screenshots`` at the top of the repository; it writes docs/assets/console-*.png,
dagster-run.png, and night-*.png of a replayed day. Name ``console``, ``dagster`` or ``night`` for one of them.
"""

from __future__ import annotations

import asyncio
import io
import random
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvicorn
from PIL import Image

from orchestration_queue import (
    AsyncActiveJob,
    AsyncFlow,
    AsyncFlowProducer,
    AsyncQueue,
    Cron,
    Dag,
    Every,
    JobTemplate,
    NewJob,
    Node,
    UnrecoverableError,
    Worker,
)
from orchestration_queue.alerts import AlertEvaluator, read_receivers
from orchestration_queue.client import AsyncAlerts
from orchestration_queue.http import create_app
from orchestration_queue.protocol import statistics
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.statistics import Tally
from orchestration_queue.server import AsyncConnection
from tests import past_flows
from tests.alerts.receivers import hook
from tests.bench.server import server
from tests.console.day import replayed
from tests.dagster.develop import Dev, running_dev
from tests.http.browser import Page, started
from tests.processes import OQ

ASSETS = Path(__file__).parent.parent / "docs" / "assets"
PAGES = {
    "overview": "/ui",
    "queue": "/ui/queues/reports?state=failed&q=render",
    "job": "/ui/queues/reports/jobs/report-7",
    "flow": "/ui/queues/flights/flows/flights-2026-11-22",
    "runs": "/ui/queues/flights/runs?flow=flights&a=flights-2026-11-18",
    "schedule": "/ui/queues/reports/schedulers/nightly-export",
    "calendar": "/ui/schedules/calendar?zone=Europe/Berlin",
    "dead-letters": "/ui/dead",
    "statistics": "/ui/queues/reports/statistics",
    "tail": "/ui/queues/reports/tail",
    "alerts": "/ui/alerts",
}
_NEUTRAL = f"""for (const each of document.querySelectorAll('pre'))
  each.textContent = each.textContent.replaceAll({str(Path(__file__).parent)!r}, '/app')"""
"""Tracebacks in pictures say nothing of where they were taken."""
STEPS = {
    "fetch-flights": [],
    "fetch-weather": [],
    "parse": ["fetch-flights"],
    "clean-weather": ["fetch-weather"],
    "join": ["parse", "clean-weather"],
    "by-carrier": ["join"],
    "by-airport": ["join"],
    "by-month": ["join"],
    "report": ["by-carrier", "by-airport", "by-month"],
    "publish": ["report"],
}
WORDS = ("connection to smtp.example.org refused", "template 'invoice' lacks a value for 'total'", "mailbox is full")


async def handle(job: AsyncActiveJob) -> dict[str, int] | None:
    """Work for a while; some jobs fail."""
    await asyncio.sleep(0.02)
    await job.log(f"{job.name}: reading")
    if job.name == "render":
        await job.update_progress(40)
        raise ValueError(WORDS[int(job.id.rpartition("-")[2]) % 2])
    if job.name == "send" and job.data["n"] % 9 == 0:
        raise UnrecoverableError(WORDS[job.data["n"] // 9 % 3])
    return {"rows": 99_000}


async def node(job: AsyncActiveJob) -> None:
    """Run a node of the flow; the last but one takes until the picture is taken."""
    await asyncio.sleep(60 if job.name == "report" else 0.2 + len(job.name) / 20)


@asynccontextmanager
async def running(*workers: Worker) -> AsyncIterator[None]:
    """Let workers run."""
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
        await asyncio.wait(tasks, timeout=60)


async def fill(url: str) -> None:
    """Add jobs of every kind, schedules and a flow."""
    async with AsyncQueue("emails", url=url) as emails, AsyncQueue("reports", url=url) as reports:
        await emails.add_bulk(
            [NewJob("send", {"n": number, "to": f"user{number}@example.org"}) for number in range(240)]
        )
        for number in range(40):
            options = {"job_id": f"report-{number}", "attempts": 3, "backoff": {"type": "fixed", "delay": 0.1}}
            await reports.add("render" if number < 12 else "export", {"month": f"2026-{number % 12 + 1:02}"}, options)
        for number in range(25):
            await emails.add("remind", {"n": number}, {"delay": timedelta(hours=number + 1)})
        template = JobTemplate(name="export", data={"format": "parquet"})
        await reports.schedulers.upsert("nightly-export", Cron("30 2 * * MON-FRI", tz="Europe/Berlin"), template)
        await emails.schedulers.upsert("newsletter", Cron("0 9 * * MON", tz="America/New_York"))
        await reports.schedulers.upsert("refresh", Cron("*/3 8-17 * * MON-FRI", tz="Europe/Berlin"))
        await emails.schedulers.upsert("bounce-check", Every(timedelta(minutes=10)))


async def fill_past(url: str, queue: str) -> None:
    """Write what workers would have counted on the last 30 days and in the last hour, with a bad day."""
    chance, now = random.Random(7), int(time.time())  # noqa: S311  of a picture
    async with await AsyncConnection.open(url) as connection:
        keys = QueueKeys(queue)
        for back in range(1, 30):
            at_ms, tally = 1000 * (now - back * 86_400), Tally()
            is_bad, is_weekend = back == 5, (datetime.now(UTC) - timedelta(days=back)).weekday() > 4
            for task in ("render", "export"):
                counts = tally.task(task)
                for _ in range(chance.randint(20, 40) if is_weekend else chance.randint(90, 160)):
                    counts.wait.add(int(chance.lognormvariate(6.5 if is_bad else 4, 1)))
                    counts.run.add(int(chance.lognormvariate(7, 0.7)))
                for _ in range(chance.randint(0, 8) + 30 * is_bad):
                    counts.fail("ConnectionError" if is_bad else chance.choice(("ValueError", "TimeoutError")))
            await connection.execute(statistics.count(keys, at_ms, tally))
        for minute in range(now // 60 - 60, now // 60):
            count = {f"m:{minute * 60_000}:c": chance.randint(0, 12), f"m:{minute * 60_000}:d": 1000}
            words = tuple(word for pair in count.items() for word in pair)
            await connection.execute(Call("HSET", (keys.metrics_completed,), words))


async def fill_runs(url: str, queue: str) -> None:
    """Run the flow on earlier days: on two of them a node failed, and on one it was slow."""
    chance = random.Random(7)  # noqa: S311  of a picture
    async with AsyncQueue(queue, url=url) as client, running(Worker(queue, past_flows.work, url=url)):
        for day in range(4, 22):
            fails = "by-airport" if day in (17, 18) else ""
            flow_id, times = f"{queue}-2026-11-{day:02}", dict[str, tuple[float, float]]()
            nodes = [Node(name, deps=deps, data={"fails": name == fails}) for name, deps in STEPS.items()]
            await past_flows.run_flow(url, Dag(queue, nodes, queue=queue), flow_id)
            for name, deps in STEPS.items():
                start = 2 + max((sum(times[dep]) for dep in deps if dep in times), default=0.0)
                took = 12 * len(name) * chance.uniform(0.85, 1.2) * (5 if (name, day) == ("join", 12) else 1)
                if not (fails and name in ("report", "publish")):
                    times[name] = (start, took)
            await past_flows.move_flow(client._connection, client.keys, flow_id, timedelta(days=22 - day), times)


async def submit(url: str, queue: str, flow_id: str) -> AsyncFlow:
    """Submit the flow."""
    async with AsyncFlowProducer(url=url) as flows:
        nodes = [Node(name, deps=deps) for name, deps in STEPS.items()]
        return await flows.submit(Dag("flights", nodes, queue=queue), flow_id=flow_id)


@asynccontextmanager
async def console(url: str) -> AsyncIterator[str]:
    """Serve the console; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        app = create_app(url, console=True)
        site = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on"))
        task = asyncio.create_task(site.serve([listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            await app.aclose()
            site.should_exit = True
            await asyncio.wait([task], timeout=60)


async def fill_alerts(url: str, stack: AsyncExitStack) -> None:
    """Add rules, of which one fires, and evaluate them."""
    ops = await stack.enter_async_context(hook())
    async with AsyncAlerts(url=url) as alerts:
        note = "https://wiki.example.org/reports"
        await alerts.set("failed-reports", {"kind": "dead_letters", "queue": "reports", "to": ["ops"], "note": note})
        await alerts.set("late-flights", {"kind": "flow_late", "queue": "flights", "threshold": 7200, "to": ["oncall"]})
        await alerts.set("mail-backlog", {"kind": "backlog", "queue": "emails*", "threshold": 5000, "to": ["ops"]})
        await alerts.set("no-workers", {"kind": "no_worker", "to": ["oncall", "ops"]})
        await alerts.silence("mail-backlog", 7200, by="ada")
    receivers = read_receivers({f"OQ_ALERT_RECEIVER_{name}": ops.url for name in ("OPS", "ONCALL")})
    evaluator = AlertEvaluator(receivers, url=url, interval=1)
    evaluating = asyncio.create_task(evaluator.run())

    async def stop() -> None:
        evaluator.stop()
        await evaluating

    stack.push_async_callback(stop)


async def take(url: str, profile: Path) -> None:
    """Run the workers, open each page and write its picture."""
    workers = [
        Worker("emails", handle, url=url, options={"dead_letter_queue": "emails-dead", "concurrency": 4}),
        Worker("reports", handle, url=url, options={"dead_letter_queue": "reports-dead", "concurrency": 2}),
        Worker("flights", node, url=url, options={"concurrency": 3}),
    ]
    async with AsyncExitStack() as stack:
        await fill(url)
        await fill_past(url, "reports")
        await fill_runs(url, "flights")
        await submit(url, "flights", "flights-2026-11-22")
        await fill_alerts(url, stack)
        site = await stack.enter_async_context(console(url))
        await stack.enter_async_context(running(*workers))
        browser = stack.enter_context(started(profile))
        page = await stack.enter_async_context(browser.page())
        await page.open(f"{site}/ui")  # rates are known from the second read on
        await asyncio.sleep(8)  # some jobs fail three times, and the flow comes to its last node but one
        for name, path in PAGES.items():
            height = 1150 if name == "runs" else 720
            await page.look(width=1180, height=height, scheme="dark" if name == "flow" else "light")
            await page.open(site + path)
            if name in ("job", "dead-letters"):
                await page.run("document.querySelector('details')?.setAttribute('open', '')")
            await page.run(_NEUTRAL)
            await save(page, f"console-{name}")


async def save(page: Page, name: str) -> None:
    """Write what the page looks like once it is quiet."""
    await asyncio.sleep(1.5)
    # A palette would give the states other colors in each picture.
    picture = Image.open(io.BytesIO(await page.screenshot())).convert("RGB")
    picture.save(ASSETS / f"{name}.png", optimize=True)


async def take_night(profile: Path) -> None:
    """Replay a day, and write the pictures of what happened in it."""
    async with replayed() as day, AsyncExitStack() as stack:
        queues = [await stack.enter_async_context(AsyncQueue(name, url=day.url)) for name in ("reports", "emails")]
        stalled = [job for job in await queues[0].jobs("completed", limit=1000) if job.record.stalled_count]
        refused = await queues[1].search(state="failed", kind="ConnectionRefusedError")
        pages = {
            "overview": ("/ui", 740),
            "alerts": ("/ui/alerts", 1300),
            "mail": ("/ui/queues/emails/statistics?day=2026-03-28", 960),
            "dead-letters": ("/ui/dead", 560),
            "mail-job": (f"/ui/queues/emails/jobs/{refused[0].id}", 640),
            "statement": (f"/ui/queues/reports/jobs/{stalled[0].id}", 560),
            "workers": ("/ui/workers", 560),
            "calendar": ("/ui/schedules/calendar?zone=Europe/Berlin&queue=exports", 640),
            "runs": ("/ui/queues/etl/runs?flow=catalog", 560),
            "schedule": ("/ui/queues/exports/schedulers/nightly-export", 640),
        }
        site = await stack.enter_async_context(console(day.url))
        browser = stack.enter_context(started(profile))
        page = await stack.enter_async_context(browser.page())
        await page.open(f"{site}/ui")
        await page.until("document.body.innerText.includes('checked')")
        for name, (path, height) in pages.items():
            await page.look(width=1180, height=height)
            await page.open(site + path)
            await save(page, f"night-{name}")


DEFINITIONS = """
import time
import dagster as dg
from orchestration_queue.dagster import queue_executor

def asset(name, *deps, seconds):
    @dg.asset(name=name, deps=deps)
    def run(context):
        time.sleep(seconds)
        context.log.info(f"{name} is ready")
    return run

assets = [
    asset("orders", seconds=0.5), asset("customers", seconds=0.7), asset("joined", "orders", "customers", seconds=0.6),
    asset("revenue", "joined", seconds=0.5), asset("report", "joined", seconds=0.9),
]
defs = dg.Definitions(assets=assets, executor=queue_executor)
"""


async def take_run(dev: Dev, profile: Path) -> None:
    """Run five assets, and write the picture of the run's page."""
    dev.ask("mutation { setNuxSeen }")  # else a dialog lies over the page
    for _ in range(2):  # the second run finds everything warm
        run_id = await asyncio.to_thread(dev.launch, "__ASSET_JOB")
    with started(profile) as browser:
        async with browser.page() as page:
            await page.look(width=1180, height=960)
            await page.open(f"{dev.url}/runs/{run_id}?logs=step%3Areport")
            await page.until("document.body.innerText.includes('Succeeded (5)')")
            await page.until("document.body.innerText.includes('orchestration_queue/console')")
            await asyncio.sleep(3)  # bars slide into place
            picture = Image.open(io.BytesIO(await page.screenshot())).convert("RGB").quantize(128)
            picture.save(ASSETS / "dagster-run.png", optimize=True)


def main() -> None:
    """Take the pictures that were asked for."""
    wanted = sys.argv[1:] or ["console", "dagster", "night"]
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as profile:
        if "console" in wanted:
            with server() as url:
                asyncio.run(take(url, Path(profile, "console")))
        if "night" in wanted:
            asyncio.run(take_night(Path(profile, "night")))
        if "dagster" in wanted:
            Path(directory, "definitions.py").write_text(DEFINITIONS)
            command = [OQ, "dagster", "dev", "-f", "definitions.py"]
            with running_dev(command, Path(directory), "http://console:8080") as dev:
                asyncio.run(take_run(dev, Path(profile, "dagster")))


if __name__ == "__main__":
    main()
