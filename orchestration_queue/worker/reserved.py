"""Jobs with reserved names, which workers run themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, NoReturn

from pydantic import TypeAdapter, ValidationError

from orchestration_queue.errors import InvalidOptionError, LeaseLostError, PayloadError, UnrecoverableError, UsageError
from orchestration_queue.flows import Dag, compile  # noqa: A004
from orchestration_queue.flows.elements import PAGE, ends, list_of
from orchestration_queue.flows.mapping import MAP, MAX_ELEMENTS, ElementMap
from orchestration_queue.flows.record import job_id_of, split_job_id
from orchestration_queue.flows.submit import launch
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.functions.oq1 import NewJob
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import ChildrenWait, Lease
from orchestration_queue.protocol.operations.exchanges import add_children
from orchestration_queue.schedules import SUBMIT_FLOW, flow_id_of
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.worker.active_job import JobInterrupt
from orchestration_queue.worker.interfaces import Handler
from orchestration_queue.worker.job import AsyncActiveJob

__all__ = ["FanOut", "reserved_handlers"]

_DAG = TypeAdapter(Dag)
_PIECE = 200
"""Elements added per call, which blocks the server for about 5 ms."""
_PIECE_LENGTH = 1024 * 1024
_NAMED = 5
"""How many failed elements the error names."""
_REASON_LENGTH = 200
_LOOK_AGAIN = timedelta(seconds=1)


def reserved_handlers(keys: QueueKeys, connection: AsyncConnection) -> dict[str, Handler]:
    """Return the handlers of reserved names, for a worker of this queue."""

    async def submit_flow(job: AsyncActiveJob) -> str:
        """Submit the flow in a schedule's job. The id is derived from the job's, so repeating it joins it."""
        try:
            plan = compile(_dag(job), flow_id_of(job.id), prefix=keys.prefix)
        except UsageError as error:
            raise UnrecoverableError(
                f"The schedule's flow can't be submitted ({str(error).rstrip('.')}); set the schedule again."
            ) from error
        await connection.follow(launch(plan.submission(), now_ms(), is_fresh=False))
        return plan.flow_id

    return {SUBMIT_FLOW: submit_flow, MAP: FanOut(keys, connection)}


def _dag(job: AsyncActiveJob) -> Dag:
    stored = job.data.get("dag") if isinstance(job.data, dict) else None
    try:
        return _DAG.validate_python(stored)
    except ValidationError as error:
        raise UnrecoverableError(
            f"Job {job.id} has no valid flow to submit ({error.errors()[0]['msg']}); set its schedule again."
        ) from error


class FanOut:
    """The handler of mapped nodes, for a worker of this queue.

    The job runs at least twice. First it adds its children, in pieces, under its lease, with ids derived from its own,
    so that the attempt after a crash adds what is missing, and stores in its data how many there are. When all have
    ended it runs again, reads their outcomes, and ends itself.

    Args:
        keys: The queue's keys.
        connection: Connection for calls.
    """

    def __init__(self, keys: QueueKeys, connection: AsyncConnection) -> None:
        self._keys = keys
        self._connection = connection

    async def __call__(self, job: AsyncActiveJob) -> dict[str, Any]:
        """Add missing elements and wait, or end once all elements have ended.

        Raises:
            UnrecoverableError: There is no list, or elements failed.
            JobInterrupt: The job must wait.
        """
        plan = _plan(job)
        if plan.count is None:
            await self._add(job, plan, await self._elements(job, plan))
        return await self._check_outcomes(job, plan, plan.count or 0)

    async def _elements(self, job: AsyncActiveJob, plan: ElementMap) -> list[Any]:
        own = split_job_id(job.id)
        if own is None or plan.over_queue is None:
            raise UnrecoverableError(f"Job {job.id!r} maps over a node, but belongs to no flow; submit it in a flow.")
        there = QueueKeys(plan.over_queue, self._keys.prefix)
        stored = await self._connection.follow(list_of(there, job_id_of(own[0], plan.over)))
        if stored is None:
            raise UnrecoverableError(
                f"The result of node {plan.over!r} does not exist, so its list can't be mapped over; let the "
                "node return a list, and keep its job."
            )
        values = codec.decode(stored, f"The result of node {plan.over!r}")
        if not isinstance(values, list):
            raise UnrecoverableError(
                f"Node {plan.over!r} returned a {type(values).__name__}, but only lists can be mapped over; return one."
            )
        if len(values) > MAX_ELEMENTS:
            raise UnrecoverableError(
                f"Node {plan.over!r} returned {len(values):,} elements, more than the maximum of {MAX_ELEMENTS:,}; "
                "return lists of several elements, and let the task handle a list."
            )
        return values

    async def _add(self, job: AsyncActiveJob, plan: ElementMap, values: list[Any]) -> None:
        """Add the elements' jobs and wait for them; return if there are none."""
        if not values:
            return
        lease, at_ms, headers = Lease(job.record, ""), now_ms(), job.headers
        try:
            for _ in plan.jobs(job.id, values, at_ms, headers):
                pass  # encode all before adding any
            for piece in _pieces(plan.jobs(job.id, values, at_ms, headers)):
                await self._connection.run(add_children(self._keys, lease, piece, now_ms(), until_ended=True))
        except (PayloadError, InvalidOptionError) as error:
            raise UnrecoverableError(str(error)) from error
        except LeaseLostError as error:
            # If another worker holds the job, this has no effect.
            raise UnrecoverableError("revoked") from error
        await job.update_data({**job.data, "count": len(values)})
        raise JobInterrupt(ChildrenWait)

    async def _check_outcomes(self, job: AsyncActiveJob, plan: ElementMap, count: int) -> dict[str, Any]:
        failures: dict[str, str] = {}
        failed = 0
        for start in range(0, count, PAGE):
            for child_id, record in await self._connection.follow(ends(self._keys, job.id, start, count)):
                if record is not None and not record.is_finished:
                    self._wait_again(job, child_id)
                if record is None or record.state == "failed":
                    failed += 1
                    if len(failures) < _NAMED:
                        reason = (record and record.failed_reason) or "its job was removed"
                        failures[_short(child_id)] = reason[:_REASON_LENGTH]
        if not failed:
            return {"count": count}
        if not plan.allow_failures:
            raise UnrecoverableError(_describe_failures(failed, count, failures))
        return {"count": count, "failed": failed, "failures": failures}

    def _wait_again(self, job: AsyncActiveJob, child_id: str) -> NoReturn:
        """Wait for elements that have not ended: this run followed a crash, or an element was retried by hand.

        No notification says when elements that were retried by hand end again.
        """
        member, known = self._keys.member(child_id), job.record.fields
        if f"depdone:{member}" in known or known.get("depsFailed", "0") != "0":
            job.move_to_delayed(_LOOK_AGAIN)
        raise JobInterrupt(ChildrenWait)


def _plan(job: AsyncActiveJob) -> ElementMap:
    try:
        return ElementMap.model_validate(job.data)
    except ValidationError as error:
        raise UnrecoverableError(
            f"Job {job.id} is not a valid mapped node ({error.errors()[0]['msg']}); add it with `map` of a builder "
            "or a task."
        ) from error


def _pieces(jobs: Iterable[NewJob]) -> Iterator[list[NewJob]]:
    """Split the jobs so that no call blocks the server for long."""
    piece: list[NewJob] = []
    size = 0
    for job in jobs:
        piece.append(job)
        size += len(job.data)
        if len(piece) == _PIECE or size >= _PIECE_LENGTH:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _short(job_id: str) -> str:
    """Return an element's name within its flow."""
    own = split_job_id(job_id)
    return own[1] if own else job_id


def _describe_failures(failed: int, count: int, failures: dict[str, str]) -> str:
    named = "; ".join(f"{name}: {reason}" for name, reason in failures.items())
    more = "" if failed == len(failures) else f"; and {failed - len(failures)} more"
    return f"{failed} of {count} elements failed ({named}{more}); fix what they name and retry the flow."
