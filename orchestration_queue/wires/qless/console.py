"""Pages of qless's queues, with the actions that the wire supports."""

from __future__ import annotations

from typing import Final

from orchestration_queue.http.console.views import Views, part
from orchestration_queue.http.messages import HttpError, Raw, Request
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.wires.qless.http import STATES, Served, jobs_of

__all__ = ["KEY", "Pages"]

KEY: Final = "l"
_SHOWN = 50


class Pages:
    """Pages of qless's queues.

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
        )
        self.routes = tuple(
            Route(method, f"/ui/qless{path}", scope, handler, is_of_wire=True)
            for method, path, scope, handler in routes
        )

    async def _list(self, _: Request) -> Raw:
        """Count the jobs of all queues that are named, and list failures, workers and tracked jobs."""
        found = await self._served.overview()
        return self._views.page("qless/queues.html", title="qless", qless=found, states=STATES)

    async def _show(self, request: Request) -> Raw:
        """Show a qless queue and its jobs of a state."""
        name = request.params["name"]
        counts = await self._served.client(name).counts(name)
        state = request.query.get("state", "")
        if state not in STATES:
            state = next((each for each in STATES if getattr(counts, each)), "waiting")
        return self._views.page(
            "qless/queue.html", title=name, name=name, counts=counts, states=STATES, state=state, most=_SHOWN,
            jobs=await jobs_of(self._served, name, state, _SHOWN), did=request.query.get("done", ""),
        )  # fmt: skip

    async def _act(self, request: Request) -> Raw:
        """Pause or resume a qless queue."""
        name, act = request.params["name"], request.form.get("act", [""])[0]
        client = self._served.client(name)
        match act:
            case "pause":
                await client.pause(name)
            case "resume":
                await client.unpause(name)
            case _:
                raise _refuse_act(act)
        return self._views.redirect(f"/ui/qless/{part(name)}?done={act}-1")


def _refuse_act(act: str) -> HttpError:
    return HttpError(400, f"Unknown action {act!r}; go back and use a button on the page.")
