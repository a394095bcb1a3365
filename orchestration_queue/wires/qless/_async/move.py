"""Move a queue from qless's protocol to this package's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Self

from orchestration_queue.client import AsyncFlowProducer, AsyncQueue
from orchestration_queue.errors import OrchestrationQueueError, ServerError, StateError, UsageError
from orchestration_queue.protocol.call import Call, Reply, Word, text, texts
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.server.clock import now_ms
from orchestration_queue.wires.identity import own_id
from orchestration_queue.wires.qless._async.client import AsyncQlessClient
from orchestration_queue.wires.qless.commands import text_word
from orchestration_queue.wires.qless.moving import PlacedJob, QlessMoved, groups, own_flow, own_job, own_recurring
from orchestration_queue.wires.qless.records import QlessJob, decode_json

__all__ = ["AsyncQlessMove"]

_PAGE = 200
_STAYS = (UsageError, StateError)


class AsyncQlessMove:
    """Moves the jobs and recurring jobs of a qless queue to a queue of this package. A context manager.

    The qless queue is paused meanwhile, so that no job starts twice. A job is added to our queue before it is removed
    from qless, with an id derived from its own. So a move that was interrupted loses nothing; run it again, and jobs in
    both places are added once. Running, failed and completed jobs stay, and so do those that our protocol can't
    represent, which are counted with the reason. A job whose lock expired longer ago than the grace period is taken
    from its worker and moved.

    Args:
        theirs: The name of the qless queue.
        ours: The name of the queue of this package; default: the same.
        url: The server of the qless queue; default ``OQ_URL``, or else the embedded server of this directory.
        our_url: The server of our queue; default: the same.
        prefix: First part of every key of our queue.

    Raises:
        UsageError: A name or a URL is invalid.
    """

    def __init__(
        self,
        theirs: str,
        ours: str | None = None,
        *,
        url: str | None = None,
        our_url: str | None = None,
        prefix: str = DEFAULT_PREFIX,
    ) -> None:
        self._queue = text_word(theirs, "theirs")
        self._theirs = AsyncQlessClient(url=url)
        ours_at = url if our_url is None else our_url
        self._ours = AsyncQueue(theirs if ours is None else ours, url=ours_at, prefix=prefix)
        self._flows = AsyncFlowProducer(url=ours_at, prefix=prefix)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for client in (self._theirs, self._ours, self._flows):
            await self._stack.enter_async_context(client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def to_ours(self) -> QlessMoved:
        """Move ready, delayed, recurring and dependent jobs of the queue."""
        moved = QlessMoved()
        was_paused = (await self._theirs.counts(self._queue)).paused
        await self._theirs.pause(self._queue)
        try:
            await self._free_stalled()
            await self._move_recurring(moved)
            linked = await self._move_jobs("work", moved) | await self._move_jobs("scheduled", moved)
            await self._move_linked(linked | await self._read_waiting(moved), moved)
        finally:
            if not was_paused:
                await self._theirs.unpause(self._queue)
        return moved

    async def _read(self, name: str, place: str, *args: Word) -> Reply:
        return await self._theirs._execute(Call(name, (f"ql:q:{self._queue}-{place}",), args))

    async def _free_stalled(self) -> None:
        """Make jobs whose locks expired ready; no pop does it while the queue is paused."""
        grace = float(await self._theirs.get_config("grace-period") or 0)
        latest = now_ms() / 1000 - max(0.0, grace)
        for jid in texts(await self._read("ZRANGEBYSCORE", "locks", "-inf", latest)):
            with suppress(ServerError):  # it ended meanwhile
                await self._theirs.timeout(jid)

    async def _move_recurring(self, moved: QlessMoved) -> None:
        while await self._read("ZCOUNT", "recur", "-inf", now_ms() / 1000):
            await self._theirs.peek(self._queue, _PAGE)  # adds late jobs
        for jid, due in _pair_scores(await self._read("ZRANGE", "recur", 0, -1, "WITHSCORES")):
            try:
                recurring = await self._theirs.recurring(jid)
                if recurring is not None:
                    await self._ours.schedulers.upsert(own_id(jid), *own_recurring(recurring, due))
                    await self._theirs.unrecur(jid)
                    moved.schedules += 1
            except _STAYS as error:
                moved.left[_reason(error)] += 1

    async def _move_jobs(self, place: str, moved: QlessMoved) -> dict[str, PlacedJob]:
        """Move the jobs of a place page by page; return those that are linked to others, which stay."""
        linked: dict[str, PlacedJob] = {}
        offset = 0
        # In the order in which qless pops them: the highest priority first.
        command = "ZREVRANGE" if place == "work" else "ZRANGE"
        while page := _pair_scores(await self._read(command, place, offset, offset + _PAGE - 1, "WITHSCORES")):
            placed = await self._place(page, moved, is_timed=place == "scheduled")
            linked |= {jid: one for jid, one in placed.items() if one.linked}
            count = await self._move_page([one for one in placed.values() if not one.linked], moved)
            if place == "work":
                moved.jobs += count
            else:
                moved.delayed += count
            offset += len(page) - count
        return linked

    async def _place(
        self, page: Sequence[tuple[str, float]], moved: QlessMoved, *, is_timed: bool
    ) -> dict[str, PlacedJob]:
        """Read jobs; count those that can't be read."""
        due = dict(page)
        found = {}
        for fields in decode_json(await self._theirs.command("multiget", *due)) or ():
            try:
                job = QlessJob.read(fields)
            except ServerError:
                moved.left["its record cannot be read"] += 1
            else:
                if job.state == "complete":
                    moved.left["its record says that it is complete"] += 1
                    continue
                found[job.jid] = PlacedJob(job, due[job.jid] if is_timed else 0)
        return found

    async def _move_page(self, page: Sequence[PlacedJob], moved: QlessMoved) -> int:
        now = now_ms() / 1000
        jobs = {}
        for placed in page:
            try:
                jobs[placed.job.jid] = own_job(placed, now)
            except _STAYS as error:
                moved.left[_reason(error)] += 1
        if not jobs:
            return 0
        await self._ours.add_bulk(list(jobs.values()))
        return await self._cancel(list(jobs), moved)

    async def _cancel(self, jids: Sequence[str], moved: QlessMoved) -> int:
        """Remove jobs that were added to this package's queue; return how many."""
        try:
            await self._theirs.cancel(*jids)
        except ServerError:
            if len(jids) > 1:
                return sum([await self._cancel([jid], moved) for jid in jids])
            # Another job began to wait for this one after it was read.
            await self._ours.remove(own_id(jids[0]))
            moved.left["a job began to wait for it while it was moved"] += 1
            return 0
        return len(jids)

    async def _read_waiting(self, moved: QlessMoved) -> dict[str, PlacedJob]:
        """Return the jobs that wait for others, with their due times, which only their records have."""
        found: dict[str, PlacedJob] = {}
        for offset in range(0, int(await self._read("ZCARD", "depends")), _PAGE):
            page = _pair_scores(await self._read("ZRANGE", "depends", offset, offset + _PAGE - 1, "WITHSCORES"))
            placed = await self._place(page, moved, is_timed=False)
            for jid, one in placed.items():
                due = await self._theirs._execute(Call("HGET", (f"ql:j:{jid}",), ("scheduled",)))
                found[jid] = PlacedJob(one.job, float(due or 0))
        return found

    async def _move_linked(self, placed: Mapping[str, PlacedJob], moved: QlessMoved) -> None:
        now = now_ms() / 1000
        outside = {other for one in placed.values() for other in one.linked} - placed.keys()
        live = await self._live(outside)
        for group in groups(placed):
            try:
                flow_id, dag = own_flow(group, self._ours.name, live, now)
                await self._flows.submit(dag, flow_id=flow_id)
            except _STAYS as error:
                moved.left[_reason(error)] += len(group)
                continue
            # Removed dependents are named, too: qless refuses to remove a job while an unnamed one waits for it.
            await self._theirs.cancel(*{jid for one in group for jid in (one.job.jid, *one.job.dependents)})
            moved.dependent += len(group)
            moved.flows += 1

    async def _live(self, jids: Iterable[str]) -> frozenset[str]:
        """Return those jobs that exist and are not complete."""
        found = await self._theirs.get_many(sorted(jids))
        return frozenset(job.jid for job in found if job.state != "complete")


def _pair_scores(reply: Reply) -> list[tuple[str, float]]:
    return [(text(member), float(score)) for member, score in zip(reply[::2], reply[1::2], strict=True)]


def _reason(error: OrchestrationQueueError) -> str:
    return str(error).removesuffix(".")
