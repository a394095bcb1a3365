"""Jobs with reserved names, which workers run themselves."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from orchestration_queue.errors import UnrecoverableError, UsageError
from orchestration_queue.flows import Dag, compile  # noqa: A004
from orchestration_queue.flows.mapping import MAP
from orchestration_queue.flows.submit import launch
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.schedules import SUBMIT_FLOW, flow_id_of
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.worker.fanout import FanOut
from orchestration_queue.worker.job import AsyncActiveJob
from orchestration_queue.worker.runner import Handler, Router

__all__ = ["ReservedNames", "reserved_handlers"]


class ReservedNames:
    """A router that handles reserved names itself.

    Args:
        handler: For all other jobs.
        reserved: Handlers by reserved name.
    """

    def __init__(self, handler: Handler | Router, reserved: Mapping[str, Handler]) -> None:
        self._find = handler.handler if isinstance(handler, Router) else lambda _name: handler
        self._reserved = reserved

    def handler(self, name: str) -> Handler:
        """Return the handler for jobs with this name."""
        return self._reserved.get(name) or self._find(name)


def reserved_handlers(keys: QueueKeys, connection: AsyncConnection) -> dict[str, Handler]:
    """Return the handlers of reserved names, for a worker of this queue."""

    async def submit_flow(job: AsyncActiveJob) -> str:
        """Submit the flow in a schedule's job. The id is derived from the job's, so repeating it joins it."""
        try:
            plan = compile(_dag(job), flow_id_of(job.id), prefix=keys.prefix)
        except UsageError as error:
            raise UnrecoverableError(f"The schedule's flow cannot be submitted: {error}") from error
        await connection.follow(launch(plan.submission(), now_ms(), is_fresh=False))
        return plan.flow_id

    return {SUBMIT_FLOW: submit_flow, MAP: FanOut(keys, connection)}


_DAG = TypeAdapter(Dag)


def _dag(job: AsyncActiveJob) -> Dag:
    stored = job.data.get("dag") if isinstance(job.data, dict) else None
    try:
        return _DAG.validate_python(stored)
    except ValidationError as error:
        raise UnrecoverableError(
            f"Job {job.id} is to submit a flow and holds none ({error.errors()[0]['msg']}); set its schedule again."
        ) from error
