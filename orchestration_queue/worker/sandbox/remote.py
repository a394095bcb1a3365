"""The running job as a sandboxed handler sees it: the same object as elsewhere, whose calls go to the worker."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, TypeAlias, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, validate_call
from pydantic_core import to_jsonable_python

from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection
from orchestration_queue.worker.job import AsyncActiveJob

__all__ = ["Ask", "RemoteJob", "answer"]

Ask: TypeAlias = Callable[[str, Sequence[Any], Mapping[str, Any]], Awaitable[Any]]
"""Has the worker call a method of the job; returns its result as JSON has it."""

_CALLS = frozenset(
    name for name, _ in inspect.getmembers(AsyncActiveJob, inspect.iscoroutinefunction) if not name.startswith("_")
)
"""What a sandbox may ask for: the job's public methods, and nothing else of the worker."""

_ANY_TYPE = ConfigDict(arbitrary_types_allowed=True)


class RemoteJob(AsyncActiveJob):
    """A job in a sandbox process. What it knows came along; what it does, the worker does for it."""

    def __init__(self, record: JobRecord, keys: QueueKeys, ask: Ask) -> None:
        # There is no connection here, and no method left that would use one.
        super().__init__(record, keys, cast(AsyncConnection, None))
        self._ask = ask


def _remote(name: str) -> Callable[..., Any]:
    local = getattr(AsyncActiveJob, name)

    @functools.wraps(local)
    async def call(self: RemoteJob, *args: Any, **kwargs: Any) -> Any:
        result = await self._ask(name, [_plain(value) for value in args], {k: _plain(v) for k, v in kwargs.items()})
        return _result_type(name).validate_python(result)

    return call


for _name in _CALLS:
    setattr(RemoteJob, _name, _remote(_name))


async def answer(job: AsyncActiveJob, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Do for a sandboxed handler what it asked of its job. The arguments are checked against the method's types.

    Raises:
        UsageError: There is no such method.
        ValidationError: Arguments that do not fit.
    """
    if name not in _CALLS:
        raise UsageError(f"A job has no method {name!r} for its handler to call; check the name.")
    return to_jsonable_python(await _checked(name)(job, *args, **kwargs))


@functools.cache
def _checked(name: str) -> Callable[..., Awaitable[Any]]:
    method: Callable[..., Awaitable[Any]] = getattr(AsyncActiveJob, name)
    return validate_call(config=_ANY_TYPE)(method)


@functools.cache
def _result_type(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(get_type_hints(getattr(AsyncActiveJob, name)).get("return", Any), config=_ANY_TYPE)


def _plain(value: Any) -> Any:
    """An argument as JSON has it. Payloads are left alone: what is no JSON in them is the caller's mistake."""
    return to_jsonable_python(value) if isinstance(value, (timedelta, date, BaseModel)) else value
