"""Turn PySpark functions, scripts and applications into functions that a worker's task registry accepts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, get_args, overload

from orchestration_queue.errors import UsageError
from orchestration_queue.spark.connect.server import ConnectServer
from orchestration_queue.spark.dataframes import (
    DataFrameRef,
    dataframe_parameters,
    mentions_dataframe,
    mentions_row,
    returned_shape,
)
from orchestration_queue.spark.functions import check_function, check_program, reference, register
from orchestration_queue.spark.options import SparkOptions
from orchestration_queue.spark.run import run_spark
from orchestration_queue.spark.runtime import Runtime, default_runtime, job_log, run_task
from orchestration_queue.spark.submit.options import SparkSubmit
from orchestration_queue.spark.submit.run import run_submit

if TYPE_CHECKING:
    from orchestration_queue.worker import ActiveJob

__all__ = ["spark_script", "spark_submit", "spark_task"]

P = ParamSpec("P")
R = TypeVar("R")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_JOB = "_job"
"""The parameter by which a worker's registry passes the running job."""


@overload
def spark_task(function: Callable[Concatenate[Any, P], R], /) -> Callable[P, R]: ...
@overload
def spark_task(
    *, options: SparkOptions | None = None, runtime: Runtime | None = None, server: ConnectServer | None = None
) -> Callable[[Callable[Concatenate[Any, P], R]], Callable[P, R]]: ...


def spark_task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    options: SparkOptions | None = None,
    runtime: Runtime | None = None,
    server: ConnectServer | None = None,
) -> Any:
    """Make ``f(spark, **arguments)`` a function ``f(**arguments)`` that runs in its own Spark session.

    Combined with ``@tasks.task`` it runs as a queue job: its output becomes the job's log, the progress of its queries
    the job's progress, and its session ends when the job ends, for any reason. Arguments and result are JSON. A
    DataFrame that it returns, alone or in lists, tuples and dicts, is written to ``options.results``, and the job's
    result contains a :class:`DataFrameRef` instead. A parameter annotated ``DataFrame`` receives the DataFrame of a
    reference: one in the job's data, or the one returned by the flow's node with the parameter's name, alone or as the
    only DataFrame of a dict (``{"table": frame, "rows": 3}``). ``list[DataFrame]``, ``tuple[DataFrame, ...]`` and
    ``dict[str, DataFrame]`` (by node) receive those of all nodes. The undecorated function is ``f.__wrapped__``.

    Args:
        function: The function, if used as a bare decorator. With ``runtime="process"`` it must be at the top level of a
            module.
        options: How it runs.
        runtime: ``connect``: in the worker, with its session on an existing Spark Connect server. ``process``: in a
            separate process with its own Java. Default: ``connect`` if PySpark has the packages for it.
        server: The Connect server; default: the one at ``SPARK_REMOTE``, or else one on this machine with the master,
            memory, environment and Java of the options.

    Raises:
        InvalidOptionError: With ``runtime="process"``, another process can't import the function.
        UsageError: It has no parameter for the session, there is no such runtime, or the options apply to the server
            and a server is given.

    Examples:
        ::

            @tasks.task
            @spark_task(options=SparkOptions(memory="2g"))
            def count(spark: SparkSession, path: str) -> int:
                return spark.read.parquet(path).count()
    """
    config = _TaskConfig.of(SparkOptions.coerce(options, "options"), runtime, server)
    if function is None:
        return functools.partial(_decorate, config=config)
    return _decorate(function, config)


@dataclass(frozen=True, slots=True)
class _TaskConfig:
    """How a decorated function runs."""

    options: SparkOptions
    runtime: Runtime | None
    server: ConnectServer | None

    @classmethod
    def of(cls, options: SparkOptions, runtime: Runtime | None, server: ConnectServer | None) -> _TaskConfig:
        """Return the configuration, unless its parts contradict each other."""
        if runtime not in (None, *get_args(Runtime)):
            raise UsageError(f"`runtime` must be 'connect' or 'process', got {runtime!r}; pass one, or leave it out.")
        if server is not None:
            if not isinstance(server, ConnectServer):
                raise UsageError(f"`server` must be a ConnectServer, got {server!r}; pass ConnectServer(url=...).")
            if runtime == "process":
                raise UsageError("`server` needs runtime='connect', got runtime='process'; remove one of the two.")
            if of_server := sorted(options.of_server.model_fields_set & options.model_fields_set):
                raise UsageError(
                    f"SparkOptions.{of_server[0]} configures the server, but `server` is given; pass it to "
                    "ConnectServer(SparkOptions(...)) instead."
                )
            return cls(options, "connect", server)
        return cls(options, runtime, None)


def spark_script(script: str | Path, options: SparkOptions | None = None) -> Callable[..., Any]:
    """Make a PySpark script a function ``f(arguments: list[str])``, named after the file, for a task registry.

    Args:
        script: Its path. It finds the arguments in ``sys.argv``; the result is its variable ``result``.
        options: How it runs.
    """
    path = Path(check_program(script, "script")).absolute()
    return _make_program_task(path.stem, functools.partial(run_spark, path), SparkOptions.coerce(options, "options"))


def spark_submit(application: str | Path, options: SparkSubmit | None = None) -> Callable[..., Any]:
    """Make an application a function ``f(arguments: list[str])``, named after the file, for a task registry.

    It runs by ``spark-submit``, whose driver is stopped when the job ends, for any reason.

    Args:
        application: The path of a Python program or a jar, or a URI that Spark can read.
        options: How it runs.

    Example:
        ::

            nightly = SparkSubmit(master="spark://host:7077", executor_memory="8g", py_files=("lib.zip",))
            tasks.task(spark_submit("nightly.py", nightly))
    """
    path = check_program(application, "application")
    options = SparkSubmit.coerce(options, "options")
    return _make_program_task(Path(path).stem, functools.partial(run_submit, path), options, is_resumed=True)


def _make_program_task(
    name: str, runs: Callable[..., Any], options: SparkOptions | None, *, is_resumed: bool = False
) -> Callable[..., Any]:
    """Make a task that runs a program; one that can be resumed receives the progress of the earlier attempt."""

    def run(arguments: Sequence[str] = (), _job: ActiveJob | None = None) -> Any:
        if _job is None:
            return runs(arguments, options)
        left = {"earlier": _job.record.progress} if is_resumed else {}
        return runs(
            arguments,
            options,
            **left,
            log=job_log(_job),
            should_stop=lambda: _job.should_stop,
            job_id=_job.id,
            progress=_job.update_progress,
        )

    run.__name__ = run.__qualname__ = name
    run.__annotations__[_JOB] = _job_type()
    return run


def _decorate(function: Callable[..., Any], config: _TaskConfig) -> Callable[..., Any]:
    check_function(function)
    if config.runtime == "process":
        reference(function)
    name = register(function)
    session, signature = _split_signature(function, name)

    @functools.wraps(function)
    def run(*args: Any, _job: ActiveJob | None = None, **kwargs: Any) -> Any:
        return run_task(
            name,
            function,
            signature.bind(*args, **kwargs).arguments,
            runtime=config.runtime or default_runtime(),
            server=config.server,
            options=config.options,
            job=_job,
        )

    job = inspect.Parameter(_JOB, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_job_type())
    with_job = signature.replace(parameters=[*signature.parameters.values(), job])
    run.__signature__ = with_job  # type: ignore[attr-defined]  # read by inspect
    annotations = {key: hint for key, hint in function.__annotations__.items() if key != session}
    annotations |= {name: shape.annotate(DataFrameRef) | None for name, shape in dataframe_parameters(function).items()}
    if shape := returned_shape(function):
        annotations["return"] = shape.annotate(DataFrameRef)
    elif mentions_dataframe(returned := annotations.get("return")) or mentions_row(returned):
        annotations["return"] = Any  # among other values, references in the places of DataFrames, objects of Rows
    run.__annotations__ = annotations | {_JOB: _job_type()}
    return run


def _split_signature(function: Callable[..., Any], name: str) -> tuple[str, inspect.Signature]:
    """Return the session's parameter, and the signature for callers: without it, and with references by name only."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if not parameters or parameters[0].kind not in _POSITIONAL:
        raise UsageError(f"Spark function {name} needs a first parameter for the session; define it as f(spark, ...).")
    frames = dataframe_parameters(function)
    plain = [parameter for parameter in parameters[1:] if parameter.name not in frames]
    by_name = [
        signature.parameters[frame].replace(
            kind=inspect.Parameter.KEYWORD_ONLY, default=None, annotation=shape.annotate(DataFrameRef) | None
        )
        for frame, shape in frames.items()
    ]
    last = [parameter for parameter in plain if parameter.kind is inspect.Parameter.VAR_KEYWORD]
    others = [parameter for parameter in plain if parameter not in last]
    return parameters[0].name, signature.replace(parameters=[*others, *by_name, *last])


def _job_type() -> type[ActiveJob]:
    """Import it lazily: a process that runs a plain function needs no worker, and starts half a second faster."""
    from orchestration_queue.worker import ActiveJob

    return ActiveJob
