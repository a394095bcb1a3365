"""Pages of ChasquiMQ and qless queues, with the actions that these wires support."""

from __future__ import annotations

import asyncio

from orchestration_queue.http.console.views import Views, part
from orchestration_queue.http.messages import HttpError, Raw, Request
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.http.service import Service
from orchestration_queue.http.v1.dialects import QLESS_STATES, qless_jobs

__all__ = ["DialectPages"]

_SHOWN = 50
_STATES = ("waiting", *QLESS_STATES)


class DialectPages:
    """Pages of the queues of other wires.

    Args:
        service: The app's service.
        views: Renders the pages.
    """

    def __init__(self, service: Service, views: Views) -> None:
        self._service, self._views, self._dialects = service, views, service.dialects
        views.show_dialects(service.dialects.are_any)
        chasqui, qless = "/ui/chasquimq/:name", "/ui/qless/:name"
        self.routes = (
            Route("GET", "/ui/dialects", Scope.READ, self._list),
            Route("GET", chasqui, Scope.READ, self._chasqui),
            Route("POST", chasqui, Scope.ACT, self._act_on_chasqui),
            Route("POST", f"{chasqui}/drop", Scope.ADMIN, self._drop),
            Route("GET", qless, Scope.READ, self._qless),
            Route("POST", qless, Scope.ACT, self._act_on_qless),
        )

    async def _list(self, _: Request) -> Raw:
        """Count the jobs of all queues that are named, and list qless's failures, workers and tracked jobs."""
        chasqui, qless = await asyncio.gather(self._dialects.chasqui_counts(), self._dialects.qless_overview())
        return self._views.page(
            "dialects.html", title="ChasquiMQ and qless", chasqui=chasqui, qless=qless, states=_STATES
        )

    async def _chasqui(self, request: Request) -> Raw:
        """Show a ChasquiMQ queue: jobs, dead letters, repeatable jobs."""
        name = request.params["name"]
        queue = self._dialects.chasqui_queue(name)
        counts, jobs, delayed, letters, schedules = await asyncio.gather(
            queue.counts(), queue.list_jobs(_SHOWN), queue.list_delayed(_SHOWN), queue.dead_letters(_SHOWN),
            queue.schedules(_SHOWN),
        )  # fmt: skip
        return self._views.page(
            "chasquimq.html", title=name, name=name, counts=counts, jobs=jobs, delayed=delayed, letters=letters,
            schedules=schedules, most=_SHOWN, did=request.query.get("done", ""),
        )  # fmt: skip

    async def _act_on_chasqui(self, request: Request) -> Raw:
        """Pause or resume a ChasquiMQ queue, or make dead jobs ready again."""
        name, act = request.params["name"], request.form.get("act", [""])[0]
        queue, done = self._dialects.chasqui_queue(name), 1
        match act:
            case "pause":
                await queue.pause()
            case "resume":
                await queue.resume()
            case "replay":
                done = await queue.replay_dead_letters(ids=request.form.get("id", []))
            case "replay-all":
                done = await queue.replay_dead_letters()
            case _:
                raise _unknown(act)
        return self._views.redirect(f"/ui/chasquimq/{part(name)}?done={act}-{done}")

    async def _drop(self, request: Request) -> Raw:
        """Drop a ChasquiMQ queue's dead letters, after a question."""
        name, act = request.params["name"], request.form.get("act", [""])[0]
        if act != "purge":
            raise _unknown(act)
        queue, back = self._dialects.chasqui_queue(name), f"/ui/chasquimq/{part(name)}"
        if "confirmed" not in request.form:
            return self._views.page(
                "confirm.html", title="Confirm", act=act, subject="", count=(await queue.counts()).dead_letters,
                name=name, fields=[("act", act)], back=back,
            )  # fmt: skip
        return self._views.redirect(f"{back}?done=purge-{await queue.purge_dead_letters()}")

    async def _qless(self, request: Request) -> Raw:
        """Show a qless queue and its jobs of a state."""
        name = request.params["name"]
        counts = await self._dialects.qless_client(name).counts(name)
        state = request.query.get("state", "")
        if state not in _STATES:
            state = next((each for each in _STATES if getattr(counts, each)), "waiting")
        return self._views.page(
            "qless.html", title=name, name=name, counts=counts, states=_STATES, state=state, most=_SHOWN,
            jobs=await qless_jobs(self._service, name, state, _SHOWN), did=request.query.get("done", ""),
        )  # fmt: skip

    async def _act_on_qless(self, request: Request) -> Raw:
        """Pause or resume a qless queue."""
        name, act = request.params["name"], request.form.get("act", [""])[0]
        client = self._dialects.qless_client(name)
        match act:
            case "pause":
                await client.pause(name)
            case "resume":
                await client.unpause(name)
            case _:
                raise _unknown(act)
        return self._views.redirect(f"/ui/qless/{part(name)}?done={act}-1")


def _unknown(act: str) -> HttpError:
    return HttpError(400, f"Unknown action {act!r}; go back and use a button on the page.")
