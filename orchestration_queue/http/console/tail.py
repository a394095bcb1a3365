"""Live tails of a queue, a flow or a worker, a job's log that follows, and the changes that pages listen to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from orchestration_queue.client.tailing import LOG, TAIL_KINDS, TailFilter
from orchestration_queue.errors import FlowNotFoundError
from orchestration_queue.http.console.views import Views, part
from orchestration_queue.http.event_routes import CONNECTED, KEEPALIVE, message, resume_id
from orchestration_queue.http.messages import Raw, Request, Stream, integer
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.http.service import Service
from orchestration_queue.http.tails import TailEntry, TailView
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.event_log import EVENT_TYPES

__all__ = ["TailPages"]

_IDLE_S = 5.0
_QUIET_S = 0.25
"""Pause between two messages to one viewer."""
_MOST_QUEUES = 16
"""Queues of a flow that are followed."""
_MOST_AT_END = 1000
_SUBJECTS = ("", "/flows/:id", "/workers/:worker")
_GROUPS = {
    "": (),
    "events": tuple(sorted(EVENT_TYPES)),
    "problems": ("expired", "failed", "retrying", "revoked", "stalled"),
}
_CHOICES = [
    ("", "Events and logs"),
    ("log", "Logs"),
    ("events", "Events"),
    ("problems", "Failures, retries and takeovers"),
]
_CHOICES += [(kind, kind.replace("-", " ")) for kind in TAIL_KINDS if kind != LOG]
_ENDS = ("completed", "failed")
_ANY_EVENT = TailView(TailFilter(_GROUPS["events"]))


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is followed.

    Attributes:
        queues: Its queues.
        view: The filters.
        title: Its name.
        path: The page's path.
        flow: The flow's id; empty for other subjects.
        queues_left_out: Queues that are not followed.
    """

    queues: Sequence[QueueKeys]
    view: TailView
    title: str
    path: str
    flow: str = ""
    queues_left_out: int = 0


class TailPages:
    """The pages of tails, and the streams behind them.

    Args:
        service: The app's service.
        views: Renders the pages.
    """

    def __init__(self, service: Service, views: Views) -> None:
        self._service, self._views = service, views
        self._row = views.macro("tail_row.html", "row")
        base, read = "/ui/queues/:name", Scope.READ
        self.routes = (
            *(Route("GET", f"{base}{own}/tail", read, self._show) for own in _SUBJECTS),
            *(Route("GET", f"{base}{own}/tail/stream", read, self._stream) for own in _SUBJECTS),
            Route("GET", f"{base}/events", read, self._redirect),
            Route("GET", f"{base}/jobs/:id/log", read, self._log),
            Route("GET", f"{base}/live", read, self._live),
        )

    async def _redirect(self, request: Request) -> Raw:
        """Lead links to the page of events, which tails have replaced, to the queue's tail."""
        return self._views.redirect(f"/ui/queues/{part(request.params['name'])}/tail")

    async def _subject(self, request: Request) -> _Subject:
        keys = self._service.keys(request.params["name"])
        asked = {name: request.query.get(name, "").strip() for name in ("kind", "text", "job")}
        kinds = _GROUPS.get(asked["kind"], (asked["kind"],))
        chosen = TailFilter(kinds, asked["text"], asked["job"])
        base = f"/ui/queues/{part(keys.queue)}"
        if worker := request.params.get("worker"):
            return _Subject([keys], TailView(chosen, worker=worker), worker, f"{base}/workers/{part(worker)}/tail")
        if (flow_id := request.params.get("id")) is None:
            return _Subject([keys], TailView(chosen), keys.queue, f"{base}/tail")
        flow = await self._service.queue(keys.queue).flows.find(flow_id)
        if flow is None:
            raise FlowNotFoundError(keys.queue, flow_id)
        queues = list(dict.fromkeys(job.keys for job in flow.graph.jobs.values()))
        request.allow([each.queue for each in queues])
        view = TailView(chosen, prefix=f"{flow_id}.")
        path, more = f"{base}/flows/{part(flow_id)}/tail", max(0, len(queues) - _MOST_QUEUES)
        return _Subject(queues[:_MOST_QUEUES], view, flow_id, path, flow_id, more)

    async def _show(self, request: Request) -> Raw:
        """Show the last events and log lines, which the page then continues."""
        subject = await self._subject(request)
        async with self._service.tails.joined(subject.queues, subject.view) as viewer:
            entries, position = viewer.take(), viewer.position
        asked = {name: request.query.get(name, "") for name in ("kind", "text", "job")}
        return self._views.page(
            "tail.html", title=f"Tail of {subject.title}", name=request.params["name"], subject=subject,
            rows=self._rows(entries)[::-1], asked=asked, choices=_CHOICES, worker=subject.view.worker,
            stream=f"{subject.path}/stream", position=position, queues_left_out=subject.queues_left_out,
        )  # fmt: skip

    def _rows(self, entries: Sequence[TailEntry]) -> list[str]:
        return list(map(self._row, entries))

    async def _stream(self, request: Request) -> Stream:
        """Stream the rows of a tail's page, from a position on."""
        subject = await self._subject(request)
        return Stream(self._follow(subject, resume_id(request)))

    async def _follow(self, subject: _Subject, after: str) -> AsyncIterator[bytes]:
        yield CONNECTED
        async with self._service.tails.joined(subject.queues, subject.view, after) as viewer:
            while True:
                if not await viewer.wait(_IDLE_S):
                    yield KEEPALIVE
                    continue
                if entries := viewer.take():
                    yield message({"rows": self._rows(entries)}, id=viewer.position)
                await asyncio.sleep(_QUIET_S)

    async def _log(self, request: Request) -> Stream:
        """Stream the lines of a job's log after a number of them, until the job has finished."""
        keys, job_id = self._service.keys(request.params["name"]), request.params["id"]
        after = integer({"after": resume_id(request) or request.query.get("after", "0")}, "after", 0) or 0
        return Stream(self._lines(keys, job_id, after))

    async def _lines(self, keys: QueueKeys, job_id: str, after: int) -> AsyncIterator[bytes]:
        yield CONNECTED
        view = TailView(TailFilter((LOG, *_ENDS), job_id=job_id))
        queue = self._service.queue(keys.queue)
        async with self._service.tails.joined([keys], view, log_after=after) as viewer:
            # Whatever the kept entries say of earlier attempts: only the record says whether the job has finished.
            record = await queue.find(job_id)
            has_ended = record is None or record.record.is_finished
            while not has_ended:
                if not await viewer.wait(_IDLE_S):
                    yield KEEPALIVE
                entries = viewer.take()
                lines = [entry for entry in entries if entry.kind == LOG and entry.number > after]
                if lines:
                    left_out = lines[0].number - after - 1
                    after = lines[-1].number
                    yield message({"lines": [line.text for line in lines], "left_out": left_out}, id=str(after))
                if any(entry.kind in _ENDS for entry in entries):
                    record = await queue.find(job_id)
                    has_ended = record is None or record.record.is_finished
        rest = await queue.logs(job_id, offset=after, limit=_MOST_AT_END)
        yield message({"lines": rest, "left_out": 0}, id=str(after + len(rest)), event="end")

    async def _live(self, request: Request) -> Stream:
        """Stream a line whenever something changed in the queue, at most a few times per second."""
        return Stream(self._changes(self._service.keys(request.params["name"])))

    async def _changes(self, keys: QueueKeys) -> AsyncIterator[bytes]:
        async with self._service.tails.joined([keys], _ANY_EVENT) as viewer:
            viewer.take()
            yield CONNECTED
            while True:
                if not await viewer.wait(_IDLE_S):
                    yield KEEPALIVE
                    continue
                if viewer.take():
                    yield b"data: changed\n\n"
                    await asyncio.sleep(_QUIET_S)
