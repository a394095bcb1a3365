"""Pages of ChasquiMQ's queues, with the actions that the wire supports."""

from __future__ import annotations

import asyncio
from typing import Final

from orchestration_queue.http.console.views import Views, part
from orchestration_queue.http.messages import HttpError, Raw, Request
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.wires.chasquimq.http import Served

__all__ = ["KEY", "Pages"]

KEY: Final = "q"
_SHOWN = 50


class Pages:
    """Pages of ChasquiMQ's queues.

    Args:
        served: The clients of the queues.
        views: Renders the pages.
    """

    def __init__(self, served: Served, views: Views) -> None:
        self._served, self._views = served, views
        routes = (
            ("GET", "", Scope.READ, self._list),
            ("GET", "/:name", Scope.READ, self._show),
            ("POST", "/:name", Scope.ACT, self._act),
            ("POST", "/:name/drop", Scope.ADMIN, self._drop),
        )
        self.routes = tuple(
            Route(method, f"/ui/chasquimq{path}", scope, handler, is_of_wire=True)
            for method, path, scope, handler in routes
        )

    async def _list(self, _: Request) -> Raw:
        """Count the jobs of all queues that are named."""
        return self._views.page("chasquimq/queues.html", title="ChasquiMQ", queues=await self._served.counts())

    async def _show(self, request: Request) -> Raw:
        """Show a ChasquiMQ queue: jobs, dead letters, repeatable jobs."""
        name = request.params["name"]
        queue = self._served.queue(name)
        counts, jobs, delayed, letters, schedules = await asyncio.gather(
            queue.counts(), queue.list_jobs(_SHOWN), queue.list_delayed(_SHOWN), queue.dead_letters(_SHOWN),
            queue.schedules(_SHOWN),
        )  # fmt: skip
        return self._views.page(
            "chasquimq/queue.html", title=name, name=name, counts=counts, jobs=jobs, delayed=delayed, letters=letters,
            schedules=schedules, most=_SHOWN, did=request.query.get("done", ""),
        )  # fmt: skip

    async def _act(self, request: Request) -> Raw:
        """Pause or resume a ChasquiMQ queue, or make dead jobs ready again."""
        name, act = request.params["name"], request.form.get("act", [""])[0]
        queue, done = self._served.queue(name), 1
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
                raise _refuse_act(act)
        return self._views.redirect(f"/ui/chasquimq/{part(name)}?done={act}-{done}")

    async def _drop(self, request: Request) -> Raw:
        """Drop a ChasquiMQ queue's dead letters, after a question."""
        name, act = request.params["name"], request.form.get("act", [""])[0]
        if act != "purge":
            raise _refuse_act(act)
        queue, back = self._served.queue(name), f"/ui/chasquimq/{part(name)}"
        if "confirmed" not in request.form:
            return self._views.page(
                "confirm.html", title="Confirm", act=act, subject="", count=(await queue.counts()).dead_letters,
                name=name, fields=[("act", act)], back=back,
            )  # fmt: skip
        return self._views.redirect(f"{back}?done=purge-{await queue.purge_dead_letters()}")


def _refuse_act(act: str) -> HttpError:
    return HttpError(400, f"Unknown action {act!r}; go back and use a button on the page.")
