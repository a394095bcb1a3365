"""Steps that call other jobs: one attempt's view of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from orchestration_queue.errors import JobFailedError, UsageError
from orchestration_queue.flows import Node
from orchestration_queue.flows.called import ENDS_AT_ONCE, GONE, CalledEnd, check_calls, is_known, ref_of
from orchestration_queue.options import StepOptions, milliseconds
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.history import HistoryEvent
from orchestration_queue.protocol.lease import ChildrenWait, Postponement
from orchestration_queue.protocol.operations.steps import JobStep, StepKind, StoredOutcome
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server.clock import epoch_ms, now_ms
from orchestration_queue.worker.active_job import JobInterrupt
from orchestration_queue.worker.steps import StepBook

__all__ = ["gather_calls", "make_call"]

_LOOK_AGAIN = timedelta(seconds=1)
"""How often a job looks for the end of a called job that was retried by hand, of which no notification says."""
_ENDS = (HistoryEvent.FAILED, HistoryEvent.RETRIED)
_REMOVED = "its job was removed before its result was read"


class CallStore(Protocol):
    """What calls need of their job."""

    @property
    def id(self) -> str:
        """The job's id."""

    @property
    def record(self) -> JobRecord:
        """The job when it started."""

    @property
    def _book(self) -> StepBook:
        """The steps of this attempt."""

    async def _start_calls(self, nodes: Sequence[Node], replaced: Mapping[str, int]) -> list[StoredOutcome]:
        """Store which jobs steps call, unless they have, and add these jobs; return the outcomes that count."""

    async def _read_calls(self, members: Sequence[str]) -> list[CalledEnd]:
        """Return how the first of some called jobs ended, at least one."""


def make_call(name: str | Node, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Node:
    """Return what `job.call` calls: a node, a task with arguments, or a task's name with its data.

    Raises:
        UsageError: It is none of these, or the arguments don't match.
    """
    if isinstance(name, Node):
        if task is not None or args or kwargs:
            raise UsageError(f"Step {name.name!r} calls a node, which has its arguments; pass the node alone.")
        return name
    if isinstance(task, str) and task:
        if args:
            raise UsageError(
                f"Step {name!r} calls task {task!r} by its name, so its arguments need theirs, too; pass them as "
                "keyword arguments, or pass the task itself."
            )
        return Node(name, task, data=dict(kwargs))
    make_node = getattr(task, "node", None)
    if not callable(make_node):
        raise UsageError(f"Step {name!r} can't call {task!r}; pass a task, the name of one, or `Node(...)` alone.")
    node = make_node(name)(*args, **kwargs)
    if not isinstance(node, Node):
        raise UsageError(f"Step {name!r} can't call {task!r}, which makes no node; pass a task, or `Node(...)` alone.")
    return node


async def gather_calls(
    job: CallStore,
    nodes: Sequence[Node],
    options: StepOptions | Mapping[str, Any] | None,
    *,
    return_exceptions: bool = False,
) -> list[Any]:
    """Return the results of called jobs, in order; end the attempt until all have ended.

    Raises:
        JobFailedError: One failed for good: the first of those that did.
        UsageError: A node or an option is impossible, or a name was used already.
        JobInterrupt: Some have not ended.
    """
    checked = StepOptions.coerce(options, "options")
    if strange := checked.model_fields_set - {"store_errors"}:
        given = min(strange)
        advice = "results of tasks are JSON" if given == "codec" else f"give its task JobOptions({given}=...)"
        raise UsageError(f"A call has no {given} of its own; {advice}.")
    check_calls(nodes)
    kinds = (StepKind.COMPLETED, StepKind.FAILED, StepKind.CALLS)
    found = await job._book.find_all([node.name for node in nodes], *kinds)
    run = _Calls(job, nodes, checked)
    outcomes = await run.resolve(found)
    if not return_exceptions and (error := next((one for one in outcomes if isinstance(one, JobFailedError)), None)):
        raise error
    return outcomes


class _Calls:
    """Some calls of one attempt."""

    def __init__(self, job: CallStore, nodes: Sequence[Node], options: StepOptions) -> None:
        self._job = job
        self._nodes = nodes
        self._store_errors = options.store_errors
        self._replaced: dict[str, int] = {}

    async def resolve(self, found: Sequence[StoredOutcome | None]) -> list[Any]:
        """Return results and errors, in order; store the first ones, and start what was not."""
        calling = [one for one in found if one is not None and one.step.kind is StepKind.CALLS]
        done = {one.step.name: _replay(one) for one in found if one is not None and one not in calling}
        while calling:
            ends = await self._job._read_calls([one.result or "" for one in calling[:ENDS_AT_ONCE]])
            for one, end in zip(calling, ends, strict=False):
                outcome = await self._end(one, end)
                if outcome is not None:
                    done[one.step.name] = outcome if isinstance(outcome, JobFailedError) else _replay(outcome)
            del calling[: len(ends)]
        if left := [node for node in self._nodes if node.name not in done]:
            started = await self._job._start_calls(left, self._replaced)
            self._wait([one for one in started if one.step.kind is StepKind.CALLS])
            # Another attempt of the job was faster.
            done |= {one.step.name: _replay(one) for one in started}
        return [done[node.name] for node in self._nodes]

    async def _end(self, calling: StoredOutcome, end: CalledEnd) -> StoredOutcome | JobFailedError | None:
        """Return the outcome of a call, or its error; None if it has none, or must be made again."""
        step, member = calling.step, calling.result or ""
        if end.outcome == "completed":
            return await self._store(calling, StepKind.COMPLETED, end.payload)
        if end.outcome == GONE and is_known(self._job.record, member):
            end = CalledEnd("failed", _REMOVED)
        if end.outcome != "failed":
            return None
        ref = ref_of(member)
        error = JobFailedError(ref.keys.queue, ref.job_id, end.payload, end.kind)
        if isinstance(error, self._store_errors):
            stored = codec.encode([error.queue, error.job_id, error.reason, error.kind], "The error")
            return await self._store(calling, StepKind.FAILED, stored)
        if not self._has_failed_since(step):
            return error
        # As a step that failed runs again in the next attempt.
        self._replaced[step.name] = step.number
        return None

    def _has_failed_since(self, step: JobStep) -> bool:
        """Whether an attempt has failed since a step called. A retry by a user begins with attempt 1 again."""
        record = self._job.record
        return step.attempt != record.attempts_made + 1 or any(
            entry.event in _ENDS and entry.ended_at and step.ended_at and entry.ended_at >= step.ended_at
            for entry in record.history
        )

    async def _store(self, calling: StoredOutcome, kind: StepKind, result: str) -> StoredOutcome:
        step = calling.step
        began_ms = epoch_ms(step.ended_at) if step.ended_at else now_ms()
        duration_ms = max(0, now_ms() - began_ms)
        return await self._job._book.store(step.name, kind, duration_ms=duration_ms, result=result)

    def _wait(self, calling: Sequence[StoredOutcome]) -> None:
        """End the attempt if calls have no outcome."""
        if any(is_known(self._job.record, one.result or "") for one in calling):
            until_ms = now_ms() + milliseconds(_LOOK_AGAIN)
            raise JobInterrupt(partial(Postponement, until_ms=until_ms))
        if calling:
            raise JobInterrupt(ChildrenWait)


def _replay(found: StoredOutcome) -> Any:
    """Return a stored result or error."""
    stored = codec.decode(found.result or "null", f"The result of step {found.step.name!r}")
    return JobFailedError(*stored) if found.step.kind is StepKind.FAILED else stored
