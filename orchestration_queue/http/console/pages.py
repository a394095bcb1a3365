"""The console's pages of queues, jobs, flows, workers and the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from orchestration_queue.client import AsyncBroadcast, AsyncFlow, AsyncJob, AsyncQueue, FlowNode, FlowStatus
from orchestration_queue.client.flow_status import critical_path
from orchestration_queue.errors import FlowNotFoundError, JobNotFoundError, OrchestrationQueueError
from orchestration_queue.http.console.alerts import AlertPages
from orchestration_queue.http.console.cache import PATIENCE_S, Rates, Recent, Registry, or_none
from orchestration_queue.http.console.calendar import CalendarPage
from orchestration_queue.http.console.drawing import draw_graph, draw_run, state_of
from orchestration_queue.http.console.findings import FindingPages
from orchestration_queue.http.console.overview import MOST_QUEUES, STATES, OverviewPage, depth, ended_until, minutes_of
from orchestration_queue.http.console.queue_pages import PoolPages, QueuePages, Search
from orchestration_queue.http.console.runs import RunsPage
from orchestration_queue.http.console.schedules import SchedulePages
from orchestration_queue.http.console.statistics import StatisticsPage
from orchestration_queue.http.console.tail import TailPages
from orchestration_queue.http.console.timeline import draw_timeline
from orchestration_queue.http.console.views import Views
from orchestration_queue.http.messages import FINISHED, Raw, Request
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.http.service import Service
from orchestration_queue.protocol.call import Call, Reply, text, together
from orchestration_queue.protocol.keys import PERMANENT_KEYS
from orchestration_queue.protocol.operations import http_records, job_records
from orchestration_queue.protocol.operations.dead_letters import group_letters
from orchestration_queue.protocol.operations.steps import COUNTER
from orchestration_queue.protocol.record import JobRecord, when
from orchestration_queue.server.clock import now, now_ms
from orchestration_queue.wires import WIRES

__all__ = ["Pages"]

_PER_PAGE = 50
_REASONS_S = 3.0
_FLOW_REST, _MOST_FLOWS = 4, 16
"""Reading a large flow takes at most a fifth of the time, for any number of viewers."""
_LOG_LINES = 200
_MOST_STEPS = 200
_MOST_FOUND = 200
_MOST_WORDS, _LONGEST_COMMAND = 12, 200
_DAY, _HOUR, _SLOT = 1440, 60, 15
# Servers keep 128 slow commands by default.
_SLOWEST, _SLOWEST_OF = 10, 128


class Pages:
    """The pages that show queues and the server; they change nothing.

    Args:
        service: The app's service.
        views: Renders the pages.
    """

    def __init__(self, service: Service, views: Views) -> None:
        self._service, self._views = service, views
        self._registry = Registry(service)
        self._reasons = Recent(_REASONS_S)
        self._flows = Recent(0, rest=_FLOW_REST, most=_MOST_FLOWS)
        self._doctor = FindingPages(service, views)
        self._rates = Rates()
        self._overview = OverviewPage(service, views, self._registry, self._doctor, self._rates)
        shown: list[tuple[str, Callable[[Request], Awaitable[Raw]]]] = [
            ("/ui", self._overview.show),
            ("/ui/queues/:name", self.queue),
            ("/ui/queues/:name/jobs/:id", self.job),
            ("/ui/queues/:name/flows/:id", self.flow),
            ("/ui/flows", self.flows),
            ("/ui/dead", self.dead),
            ("/ui/broadcasts", self.broadcasts),
            ("/ui/workers", self.workers),
            ("/ui/server", self.server),
        ]
        schedules = SchedulePages(service, views, self._of_queues)
        self._statistics = StatisticsPage(service, views)
        self._calendar = CalendarPage(service, views, self._registry)
        self._runs = RunsPage(service, views)
        own = [Route("GET", path, Scope.READ, handler) for path, handler in shown]
        groups = (
            schedules,
            self._calendar,
            self._runs,
            self._statistics,
            self._doctor,
            QueuePages(service, views),
            TailPages(service, views),
            PoolPages(service, views),
            AlertPages(service, views),
            *(wire.load("console").Pages(service.wires[wire.name], views) for wire in WIRES),
        )
        self._readers = (
            *(self._registry, self._reasons, self._flows, self._doctor),
            *(self._overview, self._calendar, self._runs, self._statistics),
        )
        views.show_wires([wire for wire in WIRES if service.wires[wire.name].names])
        self.routes = (*own, *(route for group in groups for route in group.routes))

    async def aclose(self) -> None:
        """Stop background reads."""
        for each in self._readers:
            await each.aclose()

    async def _of_queues(self, request: Request) -> list[AsyncQueue]:
        names = await self._registry.queues()
        wanted = request.query.get("queue")
        return [self._service.queue(name) for name in names if wanted in (None, "", name)][:MOST_QUEUES]

    async def queue(self, request: Request) -> Raw:
        """Show a queue and a page of its jobs."""
        queue = self._service.queue(request.params["name"])
        now = now_ms() / 1000
        minute = int(now) // 60
        (counts, is_paused, concurrency, limit, shares, workers), ended = await asyncio.gather(
            asyncio.gather(
                queue.counts(), queue.is_paused(), queue.global_concurrency(), queue.global_rate_limit(),
                queue.shares.list(), self._registry.workers_soon(queue),
            ),
            self._service.connection.follow(together(ended_until(queue.keys, minute, _DAY))),
        )  # fmt: skip
        recent = [minutes_of(each, minute, _HOUR, 1) for each in ended]
        rate = self._rates.look(queue.name, now, depth(counts), list(map(sum, zip(*recent, strict=True))))
        done, failed = (minutes_of(each, minute, _DAY, _SLOT) for each in ended)
        state = request.query.get("state", "")
        if state not in STATES:
            state = next((each for each in STATES if getattr(counts, each)), "waiting")
        search = Search.read(state, request.query.get)
        page = int(digits) if (digits := request.query.get("page", "1")).isdecimal() and len(digits) < 7 else 1
        page = max(1, page)
        jobs = await (search.jobs(queue, _MOST_FOUND) if search.is_narrowed else self._jobs(queue, state, page))
        due = await self._due(queue, [job.id for job in jobs]) if state == "delayed" else {}
        total = len(jobs) if search.is_narrowed else getattr(counts, state)
        return self._views.page(
            "queue.html", title=queue.name, name=queue.name, states=STATES, state=state, search=search, page=page,
            counts={each: getattr(counts, each) for each in STATES}, paused=is_paused, concurrency=concurrency,
            rate=rate, limit=limit, shares=shares, workers=workers, done=done, failed=failed, jobs=jobs, due=due,
            total=total,
            pages=1 if search.is_narrowed else max(1, -(-total // _PER_PAGE)), finished=FINISHED, most=_MOST_FOUND,
            live=f"/ui/queues/{request.params['name']}/live", did=request.query.get("done", ""),
            took=_took,
        )  # fmt: skip

    @staticmethod
    async def _jobs(queue: AsyncQueue, state: str, page: int) -> list[AsyncJob]:
        if state not in FINISHED:
            return await queue.jobs(state, limit=_PER_PAGE, offset=(page - 1) * _PER_PAGE)
        total = getattr(await queue.counts(), state)
        # Finished jobs are stored oldest first and shown newest first.
        end = max(0, total - (page - 1) * _PER_PAGE)
        start = max(0, end - _PER_PAGE)
        return (await queue.jobs(state, limit=end - start, offset=start))[::-1]

    async def _due(self, queue: AsyncQueue, ids: list[str]) -> dict[str, datetime | None]:
        found = await self._service.connection.follow(job_records.due_times_ms(queue.keys, ids))
        return dict(zip(ids, map(when, found), strict=True))

    async def job(self, request: Request) -> Raw:
        """Show one job."""
        queue = self._service.queue(request.params["name"])
        job = await queue.find(request.params["id"])
        if job is None:
            raise JobNotFoundError(queue.name, request.params["id"])
        (length, logs), parents, children, suspended, due = await asyncio.gather(
            self._log(queue, job.id), job.parents(), job.children(), queue.suspend_info(job.id),
            self._due(queue, [job.id]),
        )  # fmt: skip
        record = job.record
        steps = await job.steps() if COUNTER in record.fields else []
        reason = await self._reasons.within(
            PATIENCE_S, (queue.name, job.id, record.fields.get("state")), lambda: or_none(job.explain())
        )
        flow_id, _, node = job.id.rpartition(".")
        flow = await queue.flows.find(flow_id) if node and flow_id else None
        return self._views.page(
            "job.html", title=f"{record.name} {job.id}", name=queue.name, job=job, record=record, logs=logs,
            length=length, parents=parents, children=children, suspended=suspended, data=_readable(lambda: record.data),
            result=_readable(lambda: record.result), flow=flow, state=record.fields.get("state", "unknown"),
            stages=_stages(record), due=due[job.id], history=record.history[::-1], reason=reason, steps=steps,
            most_steps=_MOST_STEPS, timeline=draw_timeline(record, steps[-_MOST_STEPS:], now()),
            live=f"/ui/queues/{request.params['name']}/live", did=request.query.get("done", ""),
        )  # fmt: skip

    async def _log(self, queue: AsyncQueue, job_id: str) -> tuple[int, list[str]]:
        """Return the number of lines of a job's log, and the last of these."""
        length = await self._service.connection.look(job_records.log_length(queue.keys, job_id))
        shown = min(length, _LOG_LINES)
        return length, await queue.logs(job_id, limit=shown, offset=length - shown) if shown else []

    async def flows(self, request: Request) -> Raw:
        """List the flows of all queues, newest first."""
        queues = await self._of_queues(request)
        listed = await asyncio.gather(*(queue.flows.list(limit=_PER_PAGE) for queue in queues))
        rows = [(queue.name, flow) for queue, flows in zip(queues, listed, strict=True) for flow in flows]
        rows.sort(key=lambda row: str(row[1].created_at), reverse=True)
        return self._views.page("flows.html", title="Flows", rows=rows[: 2 * _PER_PAGE])

    async def flow(self, request: Request) -> Raw:
        """Show one flow: its graph and its run."""
        queue = self._service.queue(request.params["name"])
        did = request.query.get("done", "")  # part of the key, so that an action's effect is visible

        async def read() -> tuple[AsyncFlow, set[str], FlowStatus, list[FlowNode]]:
            flow = await queue.flows.find(request.params["id"])
            if flow is None:
                raise FlowNotFoundError(queue.name, request.params["id"])
            queues = {queue.name, *(job.keys.queue for job in flow.graph.jobs.values())}
            return flow, queues, *await asyncio.gather(flow.status(), flow.tree())

        flow, queues, status, nodes = await self._flows.get((queue.name, request.params["id"], did), read)
        # What was read may be another user's reading, so rights are checked for each request.
        request.allow(queues)
        key = (queue.name, "flow", flow.id, str(status.counts))
        reason = await self._reasons.within(PATIENCE_S, key, lambda: or_none(flow.explain()))
        return self._views.page(
            "flow.html", title=status.name, name=queue.name, flow=flow, status=status, nodes=nodes[:_MOST_FOUND],
            total=len(nodes), graph=draw_graph(nodes), chart=draw_run(nodes), did=did,
            critical={node.name for node in critical_path(nodes)},
            state_of=state_of, reason=reason, live=f"/ui/queues/{request.params['name']}/live",
        )  # fmt: skip

    async def dead(self, request: Request) -> Raw:
        """List the dead letters of all queues by kind, name and reason."""
        queues = await self._of_queues(request)
        listed = await asyncio.gather(*(queue.dead_letters.list(limit=_MOST_FOUND) for queue in queues))
        found = zip(queues, listed, strict=True)
        rows = [(queue.name, len(letters), group_letters(letters)) for queue, letters in found if letters]
        return self._views.page(
            "dead.html", title="Dead letters", queues=rows, most=_MOST_FOUND, did=request.query.get("done", "")
        )

    async def broadcasts(self, request: Request) -> Raw:
        """List the subscriptions of broadcasts."""
        rows = []
        for queue in await self._of_queues(request):
            broadcast = AsyncBroadcast(queue.name, connection=self._service.connection, prefix=self._service.prefix)
            found = [each for each in await broadcast.subscriptions() if each.name != "workers"]
            rows += [(queue.name, each) for each in found]
        return self._views.page("broadcasts.html", title="Broadcasts", rows=rows)

    async def workers(self, request: Request) -> Raw:
        """List the workers of all queues, with what they run."""
        queues = await self._of_queues(request)
        listed = await asyncio.gather(*map(self._registry.workers, queues))
        rows = [(queue.name, worker) for queue, workers in zip(queues, listed, strict=True) for worker in workers]
        return self._views.page("workers.html", title="Workers", rows=rows, did=request.query.get("done", ""))

    async def server(self, _: Request) -> Raw:
        """Show the server's figures, its keys by kind, its slow log and the last actions."""
        connection = self._service.connection
        info, functions, logged = await asyncio.gather(
            connection.execute(Call("INFO")), or_none(connection.execute(Call("FUNCTION", args=("LIST",)))),
            or_none(connection.execute(Call("SLOWLOG", args=("GET", _SLOWEST_OF)))),
        )  # fmt: skip
        acts = await connection.run(http_records.recent_acts(self._service.prefix, 100))
        slow = _slow_log(logged or ())[:_SLOWEST]
        return self._views.page(
            "server.html", title="Server", url=str(connection.url), facts=_facts(info, functions or ()), slow=slow,
            acts=acts, kinds=await self._registry.kinds_soon(), meanings=PERMANENT_KEYS,
        )  # fmt: skip


def _readable(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except OrchestrationQueueError as error:
        return str(error)


def _took(record: JobRecord) -> float | None:
    """Return the seconds that the latest attempt took; None while unfinished."""
    started, finished = record.latest_start, record.finished_at
    return None if started is None or finished is None else max(0.0, (finished - started).total_seconds())


def _stages(record: JobRecord) -> list[tuple[str, datetime, float | None]]:
    """Return the stages of a job so far, each with the time since the previous one."""
    ended = "completed" if record.fields.get("state") == "completed" else "failed"
    times = [("added", record.added_at), ("started", record.latest_start), (ended, record.finished_at)]
    found: list[tuple[str, datetime, float | None]] = []
    for label, at in times:
        if at is not None:
            found.append((label, at, (at - found[-1][1]).total_seconds() if found else None))
    return found


def _facts(info: Reply, functions: Sequence[Reply]) -> Mapping[str, str]:
    """Return the members of ``INFO``, with readable keys, persistence and libraries."""
    found = dict(line.split(":", 1) for line in text(info).splitlines() if ":" in line)
    counts = dict(each.split("=", 1) for each in found.get("db0", "").split(",") if "=" in each)
    if counts:
        found["keys"] = f"{int(counts['keys']):,}, of which {int(counts['expires']):,} expire"
    found["aof"] = "on" if found.get("aof_enabled") == "1" else "off"
    libraries = [dict(zip(map(text, each[::2]), each[1::2], strict=False)) for each in functions]
    found["libraries"] = ", ".join(sorted(text(each["library_name"]) for each in libraries if "library_name" in each))
    return found


def _slow_log(entries: Sequence[Reply]) -> list[tuple[datetime | None, float, str]]:
    """Return the time, the seconds and the first words of slow commands, slowest first."""
    found: list[tuple[datetime | None, float, str]] = []
    for _, at_s, microseconds, words, *_rest in entries:
        said = " ".join(word.decode("utf-8", "replace") for word in words[:_MOST_WORDS])
        found.append((when(int(at_s) * 1000), int(microseconds) / 1e6, said[:_LONGEST_COMMAND]))
    return sorted(found, key=_seconds, reverse=True)


def _seconds(entry: tuple[Any, float, str]) -> float:
    return entry[1]
