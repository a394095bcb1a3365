"""The running job as a sandboxed handler sees it: the same object as elsewhere, whose calls go to the worker."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast, get_type_hints

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection
from orchestration_queue.worker.job import ActiveJob, AsyncActiveJob

__all__ = ["Asking", "PlainRemoteJob", "RemoteJob", "answer"]

_METHODS = {
    name: method
    for name, method in inspect.getmembers(AsyncActiveJob, inspect.iscoroutinefunction)
    if not name.startswith("_")
}
"""What a sandbox may ask for: what the job's public methods do, and nothing else of the worker."""


class Asking(Protocol):
    """How a job in a sandbox process reaches the worker."""

    async def ask(self, job: RemoteJob, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Have the worker call a method of the job; returns its result as JSON has it."""

    def discard(self, job: RemoteJob) -> None:
        """Have the worker give up the job's further attempts."""


class RemoteJob(AsyncActiveJob):
    """A job in a sandbox process. What it knows came along; what it does, the worker does for it.

    Attributes:
        run: Which of the process's runs this is, so that what an earlier one left behind cannot speak for it.
    """

    def __init__(self, record: JobRecord, keys: QueueKeys, worker: Asking, run: int) -> None:
        # There is no connection here, and no method left that would use one.
        super().__init__(record, keys, cast(AsyncConnection, None))
        self._worker = worker
        self.run = run

    def discard(self) -> None:
        """As elsewhere. The worker knows at once, should this process die."""
        super().discard()
        self._worker.discard(self)

    def follow(self, record: JobRecord) -> None:
        """Take over the job as it is at the server now."""
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
    """Do for a sandboxed handler what it asked of its job.

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
    """Which parameters are models: all others take what JSON says, and check it themselves."""
    hints = get_type_hints(_METHODS[name])
    return {
        parameter: hint
        for parameter, hint in hints.items()
        if parameter != "return" and isinstance(hint, type) and issubclass(hint, BaseModel)
    }


def _plain(value: Any) -> Any:
    """Return an argument as JSON has it. Payloads are left alone: what is no JSON in them is the caller's mistake."""
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def _plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in values.items()}
