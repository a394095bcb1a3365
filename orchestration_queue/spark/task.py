"""Spark work as plain functions that a worker's task registry takes like any other."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from orchestration_queue.errors import TransportError, UsageError
from orchestration_queue.spark.options import SparkOptions
from orchestration_queue.spark.registry import register
from orchestration_queue.spark.run import run_spark

if TYPE_CHECKING:
    from orchestration_queue.worker import ActiveJob

__all__ = ["spark_script", "spark_task"]

P = ParamSpec("P")
R = TypeVar("R")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_JOB = "_job"
"""The parameter by which a worker's registry passes the running job."""


@overload
def spark_task(function: Callable[Concatenate[Any, P], R], /) -> Callable[P, R]: ...
@overload
def spark_task(
    *, options: SparkOptions | None = None
) -> Callable[[Callable[Concatenate[Any, P], R]], Callable[P, R]]: ...


def spark_task(function: Callable[..., Any] | None = None, /, *, options: SparkOptions | None = None) -> Any:
    """Make ``f(spark, **arguments)`` a function ``f(**arguments)`` that runs in a Spark process of its own.

    Stacked under ``@tasks.task`` it runs as a queue job: what it prints becomes the job's log, the application carries
    the job's id, and the job's timeout ends every process of it. Arguments and result are JSON. The undecorated
    function stays at hand as ``f.__wrapped__``.

    Args:
        function: The function, when used as a bare decorator. It must stand at the top level of a module.
        options: How it runs.

    Raises:
        InvalidOptionError: The function cannot be imported by another process.
        UsageError: It has no parameter for the session.

    Example:
        ::

            @tasks.task
            @spark_task(options=SparkOptions(memory="2g"))
            def count(spark: SparkSession, path: str) -> int:
                return spark.read.parquet(path).count()
    """
    if function is None:
        return functools.partial(_decorate, options=options)
    return _decorate(function, options)


def spark_script(script: str | Path, options: SparkOptions | None = None) -> Callable[..., Any]:
    """Make a PySpark script a function ``f(arguments: list[str])``, named after the file, for a task registry.

    Args:
        script: Its path. The words arrive in ``sys.argv``; the result is what it leaves in a variable ``result``.
        options: How it runs.
    """
    path = Path(script).absolute()

    def run(arguments: Sequence[str] = (), _job: ActiveJob | None = None) -> Any:
        return _run(path, list(arguments), options, _job)

    run.__name__ = run.__qualname__ = path.stem
    run.__annotations__[_JOB] = _job_type()
    return run


def _decorate(function: Callable[..., Any], options: SparkOptions | None) -> Callable[..., Any]:
    name = register(function)
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if not parameters or parameters[0].kind not in _POSITIONAL:
        raise UsageError(f"Spark work {name} has no first parameter to receive the session; write it as f(spark, ...).")
    session, *others = parameters
    bare = signature.replace(parameters=others)

    @functools.wraps(function)
    def run(*args: Any, _job: ActiveJob | None = None, **kwargs: Any) -> Any:
        return _run(name, bare.bind(*args, **kwargs).arguments, options, _job)

    job = inspect.Parameter(_JOB, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_job_type())
    run.__signature__ = bare.replace(parameters=[*others, job])  # type: ignore[attr-defined]  # read by inspect
    annotations = {key: hint for key, hint in function.__annotations__.items() if key != session.name}
    run.__annotations__ = annotations | {_JOB: _job_type()}
    return run


def _job_type() -> type[ActiveJob]:
    """Imported late: a process that runs a plain function needs no worker, and starts half a second sooner without."""
    from orchestration_queue.worker import ActiveJob

    return ActiveJob


def _run(
    target: str | Path,
    arguments: Mapping[str, Any] | Sequence[str],
    options: SparkOptions | None,
    job: ActiveJob | None,
) -> Any:
    if job is None:
        return run_spark(target, arguments, options)

    def log(line: str) -> None:
        # A server that is away for a moment costs lines, not the work; away for longer, it costs the lease.
        with contextlib.suppress(TransportError):
            job.log(line)

    return run_spark(target, arguments, options, log=log, should_stop=lambda: job.should_stop, job_id=job.id)
