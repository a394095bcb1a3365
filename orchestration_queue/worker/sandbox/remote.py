"""The running job as a sandboxed handler sees it: the same object as elsewhere, whose calls the worker makes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast, get_type_hints

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

from orchestration_queue.errors import UsageError
from orchestration_queue.flows import Node
from orchestration_queue.flows.called import dump_nodes
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection
from orchestration_queue.worker.job import ActiveJob, AsyncActiveJob

__all__ = ["Asking", "PlainRemoteJob", "RemoteJob", "answer"]

_LOCAL_METHODS = {"step", "sleep", "wait_for", "call", "gather"}
"""Methods that run in the sandbox itself, with what they need of the worker below."""
_STEP_METHODS = {
    "_read_steps", "_read_step_results", "_store_step", "_start_calls", "_read_calls", "_read_origin", "_find_gone",
}  # fmt: skip
_METHODS = {
    name: method
    for name, method in inspect.getmembers(AsyncActiveJob, inspect.iscoroutinefunction)
    if name in _STEP_METHODS or not (name.startswith("_") or name in _LOCAL_METHODS)
}
"""What a sandbox may request: the job's public methods and its stored steps, and nothing else of the worker."""


class Asking(Protocol):
    """The connection of a sandboxed job to the worker."""

    async def ask(self, job: RemoteJob, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Have the worker call a method of the job; return its result as JSON."""

    def discard(self, job: RemoteJob) -> None:
        """Have the worker use no further attempts of the job."""


class RemoteJob(AsyncActiveJob):
    """A job in a sandbox process. Its data were sent along; its methods are called in the worker.

    Attributes:
        run: Which of the process's runs this is, so that code left over from an earlier one can't act for it.
    """

    def __init__(self, record: JobRecord, keys: QueueKeys, worker: Asking, run: int) -> None:
        # Without a connection: all methods that would use one are replaced.
        super().__init__(record, keys, cast(AsyncConnection, None))
        self._worker = worker
        self.run = run

    def discard(self) -> None:
        """Use no further attempts. The worker learns of it immediately, in case this process dies."""
        super().discard()
        self._worker.discard(self)

    def follow(self, record: JobRecord) -> None:
        """Update the job to its current record."""
        self._state.record = record


class PlainRemoteJob(ActiveJob):
    """The same for a plain function."""

    def discard(self) -> None:
        """As :meth:`RemoteJob.discard`."""
        self._job.discard()


def _remote(name: str) -> Callable[..., Any]:
    signature, result_type = inspect.signature(_METHODS[name]), None

    @functools.wraps(_METHODS[name])
    async def call(self: RemoteJob, *args: Any, **kwargs: Any) -> Any:
        nonlocal result_type
        signature.bind(self, *args, **kwargs)
        result = await self._worker.ask(self, name, [_plain(value) for value in args], _plain_values(kwargs))
        if result_type is None:
            result_type = TypeAdapter(get_type_hints(_METHODS[name])["return"])
        return result_type.validate_python(result)

    return call


for _name in _METHODS:
    setattr(RemoteJob, _name, _remote(_name))


async def answer(job: AsyncActiveJob, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call the method of the job that a sandboxed handler requested.

    Raises:
        UsageError: There is no such method.
    """
    if name not in _METHODS:
        raise UsageError(f"A job has no method {name!r} for its handler to call; check the name.")
    bound = inspect.signature(_METHODS[name]).bind(job, *args, **kwargs)
    for parameter, model in _models(name).items():
        if parameter in bound.arguments:
            bound.arguments[parameter] = model.model_validate(bound.arguments[parameter])
    return to_jsonable_python(await _METHODS[name](*bound.args, **bound.kwargs))


@functools.cache
def _models(name: str) -> dict[str, type[BaseModel]]:
    """Return which parameters are pydantic models. All others are passed as JSON and checked by the method."""
    hints = get_type_hints(_METHODS[name])
    return {
        parameter: hint
        for parameter, hint in hints.items()
        if parameter != "return" and isinstance(hint, type) and issubclass(hint, BaseModel)
    }


def _plain(value: Any) -> Any:
    """Return an argument as JSON. Payloads are unchanged: if they are not JSON, the caller gets the error."""
    if isinstance(value, list) and value and isinstance(value[0], Node):
        return dump_nodes(value)
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def _plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in values.items()}
