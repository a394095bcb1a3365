"""The page of runs side by side: a grid of nodes and runs, and two runs on one time axis."""

from __future__ import annotations

from collections.abc import Mapping

from orchestration_queue.client import FlowRun, FlowRuns, RunsOf
from orchestration_queue.client.run_reading import MOST_READ, MOST_RUNS
from orchestration_queue.errors import UsageError
from orchestration_queue.http.console.cache import Recent
from orchestration_queue.http.console.run_drawing import LEGEND, draw_grid, draw_pair, gap, remarks
from orchestration_queue.http.console.views import Views
from orchestration_queue.http.messages import Raw, Request
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.http.service import Service

__all__ = ["RunsPage"]

_KEPT_S, _REST, _MOST_KEPT = 1.0, 4, 16
_MOST_LISTED = 20
_TITLES = {RunsOf.FLOW: "Flow", RunsOf.SCHEDULER: "Schedule", RunsOf.DAGSTER_JOB: "Dagster job"}
_MEANINGS = {
    RunsOf.FLOW: "Runs of one flow are the graphs of this name whose record is in this queue, among its newest 1,000.",
    RunsOf.SCHEDULER: "Runs of one schedule are those in its history, the last 50: the flow or the job that it added. "
    "Node's leaders record no history.",
    RunsOf.DAGSTER_JOB: "Runs of one Dagster job are those that the headers of this queue's steps name, among the "
    "5,000 jobs that completed and the 5,000 that failed last. Dependencies, and steps in other queues, are not shown.",
}


class RunsPage:
    """The page of runs side by side.

    Args:
        service: The app's service.
        views: Renders the page.
    """

    def __init__(self, service: Service, views: Views) -> None:
        self._service, self._views = service, views
        self._found = Recent(_KEPT_S, rest=_REST, most=_MOST_KEPT)
        self.routes = (Route("GET", "/ui/queues/:name/runs", Scope.READ, self._show),)

    async def aclose(self) -> None:
        """Stop background reads."""
        await self._found.aclose()

    async def _show(self, request: Request) -> Raw:
        """Show the runs of a flow, a schedule or a Dagster job."""
        queue = self._service.queue(request.params["name"])
        given = {of: name for of in RunsOf if (name := request.query.get(of))}
        if len(given) != 1:
            raise UsageError("The page needs the name of one flow, scheduler or Dagster job; open it from a flow's.")
        ((of, name),) = given.items()
        flow, scheduler, dagster_job = (given.get(each) for each in RunsOf)
        found = await self._found.get(
            (queue.name, of, name),
            lambda: queue.flows.runs(flow, scheduler=scheduler, dagster_job=dagster_job),
        )
        # What was read may be another user's reading, so rights are checked for each request.
        request.allow(found.queues)
        pair = _choose(found, request.query)
        return self._views.page(
            "runs.html", title=name, name=queue.name, found=found, kind=_TITLES[of], meaning=_MEANINGS[of],
            grid=draw_grid(found), pair=pair and draw_pair(found, *pair), chosen=pair and [each.id for each in pair],
            comparable=[run for run in found.runs if run.nodes], remarks=remarks, listed=found.runs[:_MOST_LISTED],
            legend=LEGEND, most_read=MOST_READ, most_runs=MOST_RUNS, of=str(of),
            unread=sum(run.nodes is None for run in found.runs),
            gap=gap,
        )  # fmt: skip


def _choose(found: FlowRuns, asked: Mapping[str, str]) -> tuple[FlowRun, FlowRun] | None:
    """Return the two runs to compare: by default the newest, with the newest that completed before it."""
    runs = [run for run in found.runs if run.nodes]
    by_id = {run.id: run for run in runs}
    first = by_id.get(asked.get("a", "")) or next(iter(runs), None)
    if first is None:
        return None
    older = runs[runs.index(first) + 1 :]
    before = next((run for run in older if run.state == "completed"), None)
    second = by_id.get(asked.get("b", "")) or before or next((run for run in runs if run is not first), None)
    return None if second is None else (first, second)
