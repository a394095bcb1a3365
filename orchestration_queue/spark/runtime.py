"""How a Spark task runs: on a Connect server that is there already, or in a process with a Java of its own."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import ValidationError

from orchestration_queue.errors import TransportError, UnrecoverableError, UsageError
from orchestration_queue.spark.connect.server import ConnectServer
from orchestration_queue.spark.options import SparkOptions
from orchestration_queue.spark.references import DataFrameRef, ResultLocation, call_with_frames, dataframe_parameters
from orchestration_queue.spark.run import run_spark
from orchestration_queue.worker.tracing_hooks import span

if TYPE_CHECKING:
    from orchestration_queue.worker import ActiveJob

__all__ = ["Runtime", "default_runtime", "job_log", "result_location", "run_task", "server_for"]

Runtime: TypeAlias = Literal["connect", "process"]

_CONNECT_NEEDS = ("grpc", "grpc_status", "google.rpc", "zstandard", "pandas", "pyarrow")
_REMOTE = "SPARK_REMOTE"
_RESULTS = "OQ_SPARK_RESULTS"


@cache
def default_runtime() -> Runtime:
    """``connect`` where all is installed that PySpark needs for it."""
    with contextlib.suppress(ModuleNotFoundError):  # of the parent of google.rpc
        if all(find_spec(name) for name in _CONNECT_NEEDS):
            return "connect"
    return "process"


def server_for(options: SparkOptions) -> ConnectServer:
    """The server for tasks that name none: Spark's own variable ``SPARK_REMOTE`` says where, or it is one of ours."""
    if remote := os.environ.get(_REMOTE):
        return _remote(remote)
    return _local(options.of_server.model_dump_json(exclude_unset=True))


@cache
def _remote(url: str) -> ConnectServer:
    return ConnectServer(url=url)


@cache
def _local(options: str) -> ConnectServer:
    return ConnectServer(SparkOptions.model_validate_json(options))


def run_task(
    name: str,
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    *,
    runtime: Runtime,
    server: ConnectServer | None,
    options: SparkOptions,
    job: ActiveJob | None,
) -> Any:
    """Run a Spark task's function.

    Args:
        name: Its importable name.
        function: ``f(spark, **arguments)``.
        arguments: Its arguments; references where it takes DataFrames.
        runtime: Where.
        server: Whose sessions, on a Connect server; None finds one.
        options: How.
        job: The job that it is for.
    """
    arguments = dict(arguments) | _upstream(name, function, arguments, job)
    with span(f"spark {name}", {"spark.runtime": runtime}):
        return _run(name, function, arguments, runtime, server, options, job)


def _run(
    name: str,
    function: Callable[..., Any],
    arguments: dict[str, Any],
    runtime: Runtime,
    server: ConnectServer | None,
    options: SparkOptions,
    job: ActiveJob | None,
) -> Any:
    if runtime == "process":
        should_stop = (lambda: job.should_stop) if job else (lambda: False)
        if job is None:
            return run_spark(name, arguments, options)
        return run_spark(
            name,
            arguments,
            options,
            log=job_log(job),
            should_stop=should_stop,
            job_id=job.id,
            progress=job.update_progress,
            results=result_location(options, job),
        )
    from orchestration_queue.spark.connect.run import run_connect  # it needs gRPC, and takes a second to load

    results = result_location(options, job) if job else None
    return run_connect(
        name,
        lambda spark: call_with_frames(function, spark, arguments, results),
        server or server_for(options),
        options,
        job,
    )


def result_location(options: SparkOptions, job: ActiveJob) -> ResultLocation | None:
    """Where a job's DataFrame is kept; None when nothing says so."""
    root = options.results or os.environ.get(_RESULTS)
    return ResultLocation(root, job.queue, job.id, lambda: not job.should_stop) if root else None


def job_log(job: ActiveJob) -> Callable[[str], None]:
    """Writes lines to a job's log."""

    def log(line: str) -> None:
        # A server that is away for a moment costs lines, not the work; away for longer, it costs the lease.
        with contextlib.suppress(TransportError):
            job.log(line)

    return log


def _upstream(
    name: str, function: Callable[..., Any], arguments: Mapping[str, Any], job: ActiveJob | None
) -> dict[str, DataFrameRef]:
    """DataFrames that the job's data do not give: what the nodes of those names returned, or the only one that did."""
    parameters = inspect.signature(function).parameters
    missing = [parameter for parameter in dataframe_parameters(function) if arguments.get(parameter) is None]
    required = [parameter for parameter in missing if parameters[parameter].default is inspect.Parameter.empty]
    if required and job is None:
        raise UsageError(f"{name} needs the DataFrame {required[0]!r}; pass a DataFrameRef by that name.")
    results = job.upstream_results() if job and missing else {}
    found = {node: ref for node, value in results.items() if (ref := _reference(value))}
    if len(missing) == len(found) == 1:
        return {missing[0]: next(iter(found.values()))}
    if unknown := [parameter for parameter in required if parameter not in found]:
        raise UnrecoverableError(
            f"{name} needs the DataFrame {unknown[0]!r}, and no node of that name before it returned one; rename the "
            "parameter or the node, or pass a DataFrameRef in the job's data."
        )
    return {parameter: found[parameter] for parameter in missing if parameter in found}


def _reference(value: object) -> DataFrameRef | None:
    if not isinstance(value, dict) or value.get("kind") != "dataframe":
        return None
    with contextlib.suppress(ValidationError):
        return DataFrameRef.model_validate(value)
    return None
