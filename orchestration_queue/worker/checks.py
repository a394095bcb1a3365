"""Check a worker's arguments when it is created, so that each mistake is refused in one sentence."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from orchestration_queue.errors import UsageError
from orchestration_queue.options import WorkerOptions
from orchestration_queue.server import parse_url
from orchestration_queue.worker.runner import Router
from orchestration_queue.worker.slots import SharedSlots

__all__ = ["check_collaborators", "check_handler", "check_middleware", "check_options"]


def check_options(options: object) -> WorkerOptions:
    """Return the options; a mapping is validated into them.

    Raises:
        InvalidOptionError: The mapping has a wrong value or an unknown name.
        UsageError: They are something else.
    """
    if options is None:
        return WorkerOptions()
    if isinstance(options, WorkerOptions):
        return options
    if isinstance(options, Mapping) and all(isinstance(name, str) for name in options):
        return WorkerOptions(**options)
    raise UsageError(f"`options` must be WorkerOptions or a dict of them, got {options!r}; pass WorkerOptions().")


def check_handler(handler: object) -> None:
    """Refuse handlers that can't run jobs.

    Raises:
        UsageError: It is neither a function of one argument nor a router.
    """
    if isinstance(handler, Router) and not isinstance(handler, type):
        return
    advice = "pass a function of the job, or a router such as Tasks"
    if isinstance(handler, type):
        raise UsageError(f"`handler` must be a function or a router, got the class {_name(handler)}; {advice}.")
    if not callable(handler):
        raise UsageError(f"`handler` must be a function of one job or a router, got {handler!r}; {advice}.")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise UsageError(f"`handler` {_name(handler)} is a generator, whose values no job could return; {advice}.")
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return  # builtins without a signature
    try:
        signature.bind(object())
    except TypeError:
        raise UsageError(f"`handler` {_name(handler)}{signature} cannot be called with one job; {advice}.") from None


def check_middleware(middleware: object) -> None:
    """Refuse middleware that would only fail when the first job runs.

    Raises:
        UsageError: It is not a list of callables.
    """
    if isinstance(middleware, str) or not isinstance(middleware, Sequence):
        raise UsageError(f"`middleware` must be a list of callables, got {middleware!r}; pass [] for none.")
    for each in middleware:
        if not callable(each):
            raise UsageError(f"`middleware` must hold callables, got {each!r}; pass `async def f(job, call_next)`.")


def check_collaborators(url: Any, middleware: object, strategies: object, slots: object) -> None:
    """Refuse arguments that would only fail when the first job runs.

    Raises:
        UsageError: An argument has the wrong type.
    """
    if url is not None:
        parse_url(url)
    check_middleware(middleware)
    if strategies is not None and not (
        isinstance(strategies, Mapping) and all(isinstance(n, str) and callable(f) for n, f in strategies.items())
    ):
        raise UsageError(
            f"`strategies` must map names to functions of (failures, error), got {strategies!r}; pass a dict."
        )
    if slots is not None and not isinstance(slots, SharedSlots):
        raise UsageError(f"`slots` must be SharedSlots, got {slots!r}; pass SharedSlots(4), or set `concurrency`.")


def _name(handler: object) -> str:
    return str(getattr(handler, "__qualname__", None) or type(handler).__qualname__)
