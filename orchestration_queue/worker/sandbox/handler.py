"""Sandboxed handlers, and the address by which their process finds them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, overload

from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.options import Duration
from orchestration_queue.options.durations import check_duration

__all__ = ["Address", "Sandboxed", "find", "refuse_worker_while_importing", "sandboxed"]

_GRACE = timedelta(seconds=1)
_PROGRAM = "__mp_main__"
"""The name under which a program's file is imported, the same as in :mod:`multiprocessing`."""
_importing: set[str] = set()


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

    @property
    def as_json(self) -> list[str | bool]:
        """Its arguments, as they are sent."""
        return [self.module, self.name, self.script, self.is_wrapped]

    @classmethod
    def of(cls, function: Callable[..., Any], *, is_wrapped: bool = False) -> Address:
        """Return the address of a function.

        Raises:
            UsageError: Another process could not find it.
        """
        module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
        if not module or not name or "<" in name:
            raise UsageError(
                f"A sandboxed handler runs in another process, which cannot find {_describe(function)} by a name; "
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
                f"A sandboxed handler runs in another process, but {name!r} is defined in a program without a file "
                "(a prompt, a notebook or `python -c`), which cannot be imported there; move it to a module."
            )
        return cls("", name, str(Path(script).resolve()), is_wrapped)


def _describe(function: object) -> str:
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
            raise InvalidOptionError(f"`{option}` must be at least 1, got {value}; pass None for no limit.")

    def wrap(function: Callable[[Any], Any]) -> Sandboxed:
        return Sandboxed(
            function,
            Address.of(named or function, is_wrapped=named is not None),
            max_jobs,
            None if max_memory_mb is None else max_memory_mb << 20,
            check_duration(grace, "grace").total_seconds(),
        )

    return wrap if handler is None else wrap(handler)


def find(address: Address) -> Callable[[Any], Any]:
    """Return the handler at an address.

    Raises:
        UsageError: There is no function at the address.
    """
    where = address.script or address.module
    try:
        module = _program(address.script) if address.script else importlib.import_module(address.module)
        found: Any = module
        for part in address.name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"The sandbox process cannot find {address.name!r} in {where} ({error}); "
            "define the handler under that name at the top level, where importing the module defines it, too."
        ) from error
    is_wrapped = isinstance(found, Sandboxed)
    if not is_wrapped and (task := getattr(found, "as_handler", None)) is not None:
        found, is_wrapped = task, True
    if address.is_wrapped and not is_wrapped:
        raise UsageError(
            f"{address.name!r} in {where} is the plain function instead of its task; "
            "decorate it with `@tasks.task`, so that its name refers to the task."
        )
    return found.function if isinstance(found, Sandboxed) else found


def _program(script: str) -> Any:
    """Return the program that started the worker, imported once, without its `if __name__ == "__main__"` part."""
    if _PROGRAM not in sys.modules:
        spec = importlib.util.spec_from_file_location(_PROGRAM, script)
        if spec is None or spec.loader is None:
            raise ImportError(f"{Path(script).name} is not a Python file")
        module = sys.modules[_PROGRAM] = importlib.util.module_from_spec(spec)
        _importing.add(_PROGRAM)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[_PROGRAM]
            raise
        finally:
            _importing.clear()
    return sys.modules[_PROGRAM]


def refuse_worker_while_importing() -> None:
    """Prevent a program from starting its worker again in each sandbox process.

    Raises:
        UsageError: This is a sandbox process that is importing its program.
    """
    if _importing:
        raise UsageError(
            "The program starts its worker when it is imported, and its sandbox process imports it, too; "
            'put what starts the worker under `if __name__ == "__main__":`.'
        )
