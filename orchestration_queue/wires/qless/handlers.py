"""A job's handler: its result, and how it is found by the job's class."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Protocol, TypeAlias, runtime_checkable

from pydantic import TypeAdapter

from orchestration_queue.errors import UnrecoverableError
from orchestration_queue.wires.handling import JobForm
from orchestration_queue.wires.qless.commands import duration_s
from orchestration_queue.wires.qless.records import QlessJob

__all__ = ["FORM", "QlessHandler", "QlessNext", "QlessRouter", "handler_of_class", "run_class"]

QlessHandler: TypeAlias = Callable[[QlessJob], Any]
"""A function or coroutine function of one :class:`QlessJob`."""


@runtime_checkable
class QlessRouter(Protocol):
    """Finds the handler for a job's class; :class:`orchestration_queue.tasks.Tasks` is one."""

    def handler(self, name: str) -> Callable[[Any], Any]:
        """Return the handler for jobs with this class; raise UnrecoverableError for an unknown class."""


@dataclass(frozen=True, slots=True)
class QlessNext:
    """Returned by a handler to move the job to another queue instead of completing it.

    Attributes:
        queue: That queue.
        data: The job's new data; None keeps them.
        delay: How long it waits there.
        depends: Ids of jobs that it waits for there.
    """

    queue: str
    data: Any = None
    delay: timedelta | float = 0
    depends: Sequence[str] = ()


def handler_of_class(job: QlessJob) -> QlessHandler:
    """Return the handler of a job whose class names a Python class, as other Python clients find it.

    ``app.Import`` of queue ``nightly`` is the static method ``Import.nightly`` of module ``app``, or else
    ``Import.process``.

    Raises:
        UnrecoverableError: There is no such class or method.
    """
    module, _, name = job.klass.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnrecoverableError(
            f"Job {job.jid} names the class {job.klass!r}, which can't be imported ({error}); "
            "install it where the worker runs."
        ) from error
    handler = getattr(found, job.queue, None) or getattr(found, "process", None)
    if not callable(handler):
        raise UnrecoverableError(
            f"Class {job.klass!r} has neither a method {job.queue!r} nor a method 'process'; define one of them."
        )
    return handler  # type: ignore[no-any-return]


def run_class(job: QlessJob) -> Any:
    """Run the method of the Python class that a job names, as a worker without a handler does.

    ``QlessWorker("imports", sandboxed(run_class))`` does so in a separate process and working directory.

    Raises:
        UnrecoverableError: There is no such class or method.
    """
    return handler_of_class(job)(job)


_JOB = TypeAdapter(QlessJob)


def _next_as_json(returned: Any) -> dict[str, Any] | None:
    """Return what a handler returned as JSON has it; only a :class:`QlessNext` counts."""
    if not isinstance(returned, QlessNext):
        return None
    return {
        "queue": returned.queue,
        "data": returned.data,
        "delay": duration_s(returned.delay, "delay"),
        "depends": list(returned.depends),
    }


FORM = JobForm(
    home=__name__,
    id_of=lambda job: job.jid,
    dump=partial(_JOB.dump_python, mode="json"),
    load=_JOB.validate_python,
    dump_result=_next_as_json,
    load_result=lambda returned: QlessNext(**returned) if isinstance(returned, Mapping) else None,
)
