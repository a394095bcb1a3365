"""Sandboxed handlers, and the address by which their process finds them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, overload

from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.options import Duration
from orchestration_queue.options.durations import checked_duration

__all__ = ["Address", "Sandboxed", "sandboxed"]

_GRACE = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Address:
    """Where another process finds a function. Only this text is sent, never code.

    Attributes:
        module: The module's import name; '' for the program's own file.
        name: The qualified name within it.
        script: The program's file if it defines the function, otherwise ''.
        is_wrapped: The name must refer to a sandboxed handler or a task, because the bare function is not the handler.
    """

    module: str
    name: str
    script: str = ""
    is_wrapped: bool = False

    @classmethod
    def of(cls, function: Callable[..., Any], *, is_wrapped: bool = False) -> Address:
        """Return the address of a function.

        Raises:
            UsageError: Another process could not find it.
        """
        module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
        if not module or not name or "<" in name:
            raise UsageError(
                f"A sandboxed handler runs in another process, which cannot find {_described(function)} by a name; "
                "pass a function defined with `def` at the top level of a module."
            )
        if module != "__main__":
            return cls(module, name, is_wrapped=is_wrapped)
        program = sys.modules["__main__"]
        if (spec := program.__spec__) is not None:
            return cls(spec.name, name, is_wrapped=is_wrapped)
        script = getattr(program, "__file__", None)
        if script is None or not Path(script).is_file():
            raise UsageError(
                f"A sandboxed handler runs in another process, and {name!r} is defined in a program without a file "
                "(a prompt, a notebook or `python -c`), which cannot be imported there; move it to a module."
            )
        return cls("", name, str(Path(script).resolve()), is_wrapped)


def _described(function: object) -> str:
    name = getattr(function, "__qualname__", None)
    if not name:
        return f"a {type(function).__name__}"
    if name.endswith("<lambda>"):
        return "a lambda"
    return f"{name!r}, a function inside of another"


@dataclass(frozen=True)
class Sandboxed:
    """A handler that workers run in a separate process. Calling it calls the function in this process.

    Attributes:
        function: The function.
        address: Where the process finds it.
        max_jobs: The process is replaced after this number of jobs.
        max_memory_bytes: The process is replaced once it uses more than this after a job.
        grace_s: Seconds between the request to end and the kill.
    """

    function: Callable[[Any], Any]
    address: Address
    max_jobs: int | None = None
    max_memory_bytes: int | None = None
    grace_s: float = _GRACE.total_seconds()

    def __call__(self, job: Any) -> Any:
        """Run the handler in this process."""
        return self.function(job)


@overload
def sandboxed(
    handler: Callable[[Any], Any],
    /,
    *,
    named: Callable[..., Any] | None = None,
    max_jobs: int | None = None,
    max_memory_mb: int | None = None,
    grace: Duration = _GRACE,
) -> Sandboxed: ...
@overload
def sandboxed(
    handler: None = None,
    /,
    *,
    named: Callable[..., Any] | None = None,
    max_jobs: int | None = None,
    max_memory_mb: int | None = None,
    grace: Duration = _GRACE,
) -> Callable[[Callable[[Any], Any]], Sandboxed]: ...
def sandboxed(
    handler: Callable[[Any], Any] | None = None,
    /,
    *,
    named: Callable[..., Any] | None = None,
    max_jobs: int | None = None,
    max_memory_mb: int | None = None,
    grace: Duration = _GRACE,
) -> Sandboxed | Callable[[Callable[[Any], Any]], Sandboxed]:
    """Run a handler in a separate, warm process: for work that is CPU-bound, blocks or crashes.

    Use it on a handler, ``Worker("q", sandboxed(resize))``, or as a decorator. The process is stopped when the job's
    timeout expires or the job is revoked. It does not isolate permissions: it has the same user and the same files.

    Args:
        handler: A function of one job at the top level of a module, plain or a coroutine function.
        named: The function or task by whose name the process finds the handler; default: the handler itself.
        max_jobs: Replace the process after this number of jobs; default: never.
        max_memory_mb: Replace the process once it uses more MB of memory than this after a job; default: never.
        grace: How long it may clean up when it is stopped, before it is killed; default: one second.

    Raises:
        UsageError: Another process could not find the handler: it is a lambda, or defined inside a function.
        InvalidOptionError: A limit is not positive.
    """
    for option, value in {"max_jobs": max_jobs, "max_memory_mb": max_memory_mb}.items():
        if value is not None and value < 1:
            raise InvalidOptionError(f"`{option}` is {value}, and a process runs at least one job; pass 1 or more.")

    def wrap(function: Callable[[Any], Any]) -> Sandboxed:
        return Sandboxed(
            function,
            Address.of(named or function, is_wrapped=named is not None),
            max_jobs,
            None if max_memory_mb is None else max_memory_mb << 20,
            checked_duration(grace, "grace").total_seconds(),
        )

    return wrap if handler is None else wrap(handler)
