"""The console's actions. Those that cannot be undone must be confirmed, with the number of jobs they affect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import cast, get_args

from orchestration_queue.client import AsyncJob, AsyncQueue
from orchestration_queue.errors import NotFoundError, StateError, UsageError
from orchestration_queue.http.console.overview import STATES
from orchestration_queue.http.console.queue_pages import Search
from orchestration_queue.http.console.views import Views, part
from orchestration_queue.http.messages import HttpError, Raw, Request
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.http.service import Service
from orchestration_queue.http.v1.jobs import MOST_CHANGED, change_job, change_jobs
from orchestration_queue.options import check_share_weight
from orchestration_queue.protocol.operations import job_records
from orchestration_queue.protocol.operations.worker_signals import WorkerVerb

__all__ = ["Acts"]

_ASKED = {
    "cancel",
    "remove",
    "drain",
    "clean-completed",
    "clean-failed",
    "drop",
    "purge",
    "stop",
    "cancel-tagged",
    "remove-tagged",
    "move",
}
_OF_JOBS: dict[str, Callable[[AsyncJob], bool]] = {
    "retry": lambda job: job.record.fields.get("state") == "failed",
    "promote": lambda job: job.record.fields.get("state") == "delayed",
    "cancel": lambda job: not job.record.is_finished,
    "move": lambda job: job.record.fields.get("state") != "completed",
    "remove": lambda _: True,
}
"""The actions on jobs, each with the jobs that it applies to."""
_MOST_DIGITS = 7


class Acts:
    """The forms' targets.

    Args:
        service: The app's service.
        views: Renders the questions.
    """

    def __init__(self, service: Service, views: Views) -> None:
        self._service, self._views = service, views
        act, admin, queue = Scope.ACT, Scope.ADMIN, "/ui/queues/:name"
        self.routes = (
            Route("POST", f"{queue}/control", act, self._with(self._control)),
            Route("POST", f"{queue}/remove", admin, self._with(self._remove)),
            Route("POST", f"{queue}/jobs", act, self._with(self._jobs)),
            Route("POST", f"{queue}/flows/:id", act, self._with(self._flow)),
            Route("POST", f"{queue}/schedulers/:id", act, self._with(self._scheduler)),
            Route("POST", f"{queue}/dead", act, self._with(self._act_on_dead_letters)),
            Route("POST", f"{queue}/jobs/:id/tags", act, self._with(self._tag_job)),
            Route("POST", f"{queue}/tags/:tag", act, self._with(self._act_on_tag)),
            Route("POST", f"{queue}/tags/:tag/remove", admin, self._with(self._remove_tagged)),
            Route("POST", f"{queue}/shares", act, self._with(self._share)),
            Route("POST", f"{queue}/workers", act, self._with(self._control_workers)),
            Route("POST", f"{queue}/workers/stop", admin, self._with(self._control_workers)),
        )

    def _with(self, do: Callable[[AsyncQueue, str, Request], Awaitable[int]]) -> Callable[[Request], Awaitable[Raw]]:
        async def handler(request: Request) -> Raw:
            queue = self._service.queue(request.params["name"])
            act = request.form.get("act", [""])[0]
            if "confirmed" not in request.form:
                if "found" in request.form:
                    return await self._ask_about_found(queue, act, request)
                if act in _ASKED:
                    return self._ask(queue, act, request, await self._count(queue, act, request))
            done = await do(queue, act, request)
            back = request.form.get("back", [""])[0]
            # No redirects to other sites.
            if not back.startswith("/ui") or back.startswith("//"):
                back = f"/ui/queues/{part(queue.name)}"
            joint = "&" if "?" in back else "?"
            return self._views.redirect(f"{back}{joint}done={part(act)}-{done}")

        return handler

    def _ask(self, queue: AsyncQueue, act: str, request: Request, count: int, search: Search | None = None) -> Raw:
        given = request.form if search is None else {name: request.form.get(name, []) for name in ("act", "back", "id")}
        fields = [(name, value) for name, values in given.items() if name != "csrf" for value in values]
        return self._views.page(
            "confirm.html", title="Confirm", act=act, count=count, name=queue.name,
            subject=request.params.get("id", ""), fields=fields, back=request.form.get("back", ["/ui"])[0],
            search=search, most=MOST_CHANGED,
        )  # fmt: skip

    async def _ask_about_found(self, queue: AsyncQueue, act: str, request: Request) -> Raw:
        """Ask about the jobs that a search finds now; the confirmation lists their ids."""
        if (fits := _OF_JOBS.get(act)) is None:
            raise _refuse_act(act)
        state = request.form.get("state", [""])[0]
        search = Search.read(state if state in STATES else STATES[0], lambda name: request.form.get(name, [""])[0])
        found = [job.id for job in await search.jobs(queue, MOST_CHANGED) if fits(job)]
        request.form["id"] = found
        return self._ask(queue, act, request, len(found), search)

    @staticmethod
    async def _count(queue: AsyncQueue, act: str, request: Request) -> int:
        match act:
            case "drain":
                return (await queue.counts()).waiting
            case "clean-completed" | "clean-failed":
                return int(getattr(await queue.counts(), act.removeprefix("clean-")))
            case "purge":
                return len(await queue.dead_letters.list(limit=None))
            case "cancel-tagged" | "remove-tagged":
                jobs = await queue.tags.jobs(request.params["tag"], limit=MOST_CHANGED)
                return sum(act == "remove-tagged" or not job.record.is_finished for job in jobs)
        return len(request.form.get("id", [])) or 1

    @staticmethod
    async def _control(queue: AsyncQueue, act: str, _: Request) -> int:
        match act:
            case "pause":
                await queue.pause()
            case "resume":
                await queue.resume()
            case "retry":
                return await queue.retry_jobs()
            case _:
                raise _refuse_act(act)
        return 1

    @staticmethod
    async def _remove(queue: AsyncQueue, act: str, _: Request) -> int:
        match act:
            case "drain":
                return await queue.drain()
            case "clean-completed" | "clean-failed":
                return len(await queue.clean(timedelta(0), None, act.removeprefix("clean-")))
        raise _refuse_act(act)

    async def _jobs(self, queue: AsyncQueue, act: str, request: Request) -> int:
        ids = request.form.get("id", [])[:MOST_CHANGED]
        if act == "signal":
            for job_id in ids:
                job = await queue.get(job_id)
                await job.signal(request.form.get("signal", ["continue"])[0] or "continue")
            return len(ids)
        if act not in _OF_JOBS:
            raise _refuse_act(act)
        to = request.form.get("to", [""])[0].strip()
        if act == "move":
            self._service.keys(to)
            request.allow([queue.name, to])
        if len(ids) == 1:
            return int(await change_job(await queue.get(ids[0]), act, to))
        records = await self._service.connection.follow(job_records.jobs([(queue.keys, job_id) for job_id in ids]))
        there = [AsyncJob(self._service.connection, queue.keys, each.id, each) for each in records if each]
        return await change_jobs(there, act, to)

    @staticmethod
    async def _flow(queue: AsyncQueue, act: str, request: Request) -> int:
        flow = await queue.flows.get(request.params["id"])
        request.allow({queue.name, *(job.keys.queue for job in flow.graph.jobs.values())})
        match act:
            case "cancel":
                return len(await flow.cancel("cancelled in the console"))
            case "retry":
                return len(await flow.retry())
            case "pause":
                await flow.pause()
            case "resume":
                await flow.resume()
            case _:
                raise _refuse_act(act)
        return 1

    @staticmethod
    async def _scheduler(queue: AsyncQueue, act: str, request: Request) -> int:
        schedulers, name = queue.schedulers, request.params["id"]
        match act:
            case "run":
                return int(await schedulers.run_now(name) is not None)
            case "pause":
                await schedulers.pause(name)
            case "resume":
                await schedulers.resume(name)
            case "remove":
                return int(await schedulers.remove(name))
            case _:
                raise _refuse_act(act)
        return 1

    @staticmethod
    async def _tag_job(queue: AsyncQueue, act: str, request: Request) -> int:
        job, tag = await queue.get(request.params["id"]), request.form.get("tag", [""])[0].strip()
        match act:
            case "tag":
                await job.tag(tag)
            case "untag":
                await job.untag(tag)
            case _:
                raise _refuse_act(act)
        return 1

    @staticmethod
    async def _act_on_tag(queue: AsyncQueue, act: str, request: Request) -> int:
        request.subject = tag = request.params["tag"]
        match act:
            case "retry-tagged":
                return await queue.tags.retry(tag)
            case "cancel-tagged":
                return await queue.tags.cancel(tag)
        raise _refuse_act(act)

    @staticmethod
    async def _remove_tagged(queue: AsyncQueue, act: str, request: Request) -> int:
        request.subject = tag = request.params["tag"]
        if act != "remove-tagged":
            raise _refuse_act(act)
        return await queue.tags.remove(tag)

    @staticmethod
    async def _share(queue: AsyncQueue, act: str, request: Request) -> int:
        request.subject = share = request.form.get("share", [""])[0].strip()
        match act:
            case "set-share":
                weight = request.form.get("weight", [""])[0].strip()
                is_number = weight.isascii() and weight.isdecimal() and len(weight) < _MOST_DIGITS
                await queue.shares.set(share, check_share_weight(int(weight) if is_number else weight[:80]))
                return 1
            case "unset-share":
                return int(await queue.shares.remove(share))
        raise _refuse_act(act)

    async def _control_workers(self, queue: AsyncQueue, act: str, request: Request) -> int:
        # The two routes differ in their scope: only admins may stop workers.
        if (act == "stop") is not request.path.endswith("/stop") or act not in get_args(WorkerVerb):
            raise _refuse_act(act)
        slots = request.form.get("slots", [""])[0].strip()
        if act == "concurrency" and not (slots.isascii() and slots.isdecimal() and len(slots) < _MOST_DIGITS):
            raise UsageError(f"Slots must be an integer, got {slots[:80]!r}; enter 4, for example.")
        waiting = await self._service.waiting_queue(queue.name)
        replies = await waiting.control_workers(
            cast(WorkerVerb, act), request.form.get("id", []), concurrency=int(slots) if act == "concurrency" else None
        )
        if replies and not any(reply.has_obeyed for reply in replies):
            why = replies[0].problem or "it did not answer in time, and will obey once it receives the command"
            raise StateError(f"Worker {replies[0].worker!r} did not carry it out: {why.rstrip('.')}.")
        return sum(reply.has_obeyed for reply in replies)

    @staticmethod
    async def _act_on_dead_letters(queue: AsyncQueue, act: str, request: Request) -> int:
        match act:
            case "replay-all":
                return await queue.dead_letters.replay_all()
            case "purge":
                return await queue.dead_letters.purge()
        ids = request.form.get("id", [])[:MOST_CHANGED]
        done = 0
        for letter_id in ids:
            match act:
                case "replay":
                    try:
                        await queue.dead_letters.replay(letter_id)
                    except NotFoundError:
                        if len(ids) == 1:
                            raise
                        continue  # of many, one may have been replayed since the page was shown
                case "drop":
                    await queue.dead_letters.remove(letter_id)
                case _:
                    raise _refuse_act(act)
            done += 1
        return done


def _refuse_act(act: str) -> HttpError:
    return HttpError(400, f"Unknown action {act!r}; go back and use a button on the page.")
