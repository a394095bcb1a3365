"""Run Spark tasks: on a Connect server that is already running, or in a separate process with its own Java."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from orchestration_queue.errors import InvalidOptionError, TransportError, UnrecoverableError, UsageError
from orchestration_queue.spark.connect.server import ConnectServer
from orchestration_queue.spark.dataframes import DataFrameRef, FrameShape, dataframe_parameters
from orchestration_queue.spark.functions import reference
from orchestration_queue.spark.lineage import emit_lineage
from orchestration_queue.spark.options import SparkOptions
from orchestration_queue.spark.result_files import ResultLocation, call_with_frames
from orchestration_queue.spark.run import run_spark
from orchestration_queue.worker.observability import span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orchestration_queue.worker import ActiveJob

__all__ = ["Runtime", "default_runtime", "job_log", "result_location", "run_task", "server_for"]

Runtime: TypeAlias = Literal["connect", "process"]

_CONNECT_NEEDS = ("grpc", "grpc_status", "google.rpc", "zstandard", "pandas", "pyarrow")
_REMOTE = "SPARK_REMOTE"
_RESULTS = "OQ_SPARK_RESULTS"


@cache
def default_runtime() -> Runtime:
    """Return ``connect`` if the packages that PySpark needs for it are installed, or else ``process``."""
    with contextlib.suppress(ModuleNotFoundError):  # of the parent of google.rpc
        if all(find_spec(name) for name in _CONNECT_NEEDS):
            return "connect"
    return "process"


def server_for(options: SparkOptions) -> ConnectServer:
    """Return the default server of a task: the one at ``SPARK_REMOTE``, or one that is started on this machine."""
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
        arguments: Its arguments, with references in place of DataFrames.
        runtime: Where it runs.
        server: The Connect server; None uses the default one.
        options: How it runs.
        job: The job that it runs for.
    """
    arguments = dict(arguments) | _upstream(name, function, arguments, job)
    with span(f"spark {name}", {"spark.runtime": runtime}), emit_lineage(name, arguments, job) as lineage:
        lineage.result = _run(name, function, arguments, runtime, server, options, job)
        return lineage.result


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
        if taking := next((key for key, value in arguments.items() if job and value is job), None):
            raise UnrecoverableError(
                f"Parameter {taking!r} of {name} is the job, which a process of its own can't use; run the task with "
                "runtime='connect'."
            )
        reference(function)
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
    from orchestration_queue.spark.connect.run import run_connect  # needs gRPC, and takes a second to import
    from orchestration_queue.spark.step_frames import SparkJob  # needs the worker

    results = result_location(options, job) if job else None

    def call(spark: SparkSession) -> Any:
        running = SparkJob(job, spark, results) if job else None
        given = {key: running if job and value is job else value for key, value in arguments.items()}
        return call_with_frames(function, spark, given, results)

    return run_connect(
        name,
        call,
        server or server_for(options),
        options,
        job,
    )


def result_location(options: SparkOptions, job: ActiveJob) -> ResultLocation | None:
    """Return where a job's DataFrames are written; None when no location is set."""
    root = options.results or os.environ.get(_RESULTS)
    if not root:
        return None
    return ResultLocation(
        root,
        job.queue,
        job.id,
        format=options.result_format,
        partition_by=options.result_partition_by,
        files=options.result_files,
        may_commit=lambda: not job.should_stop,
    )


def job_log(job: ActiveJob) -> Callable[[str], None]:
    """Return a function that writes lines to a job's log."""

    def log(line: str) -> None:
        # A short outage of the server costs lines, not the work; a longer one costs the lease.
        with contextlib.suppress(TransportError):
            job.log(line)

    return log


def _upstream(
    name: str, function: Callable[..., Any], arguments: Mapping[str, Any], job: ActiveJob | None
) -> dict[str, Any]:
    """Return the DataFrames that are missing from the job's data.

    A parameter takes the result of the node with its name. The only required parameter without such a node takes the
    rest: a DataFrame that of the only other node that returned one, a container those of all other nodes.
    """
    shapes = dataframe_parameters(function)
    parameters = inspect.signature(function).parameters
    missing = [parameter for parameter in shapes if arguments.get(parameter) is None]
    required = [parameter for parameter in missing if parameters[parameter].default is inspect.Parameter.empty]
    required = [parameter for parameter in required if not shapes[parameter].optional]
    if required and job is None:
        raise UsageError(f"{name} needs the DataFrame {required[0]!r}; pass a DataFrameRef as {required[0]}=...")
    results = job.upstream_results() if job and missing else {}
    found = {
        parameter: value
        for parameter in missing
        if (value := _take(shapes[parameter], results.get(parameter))) is not None
    }
    left = {node: ref for node, value in results.items() if node not in found and (ref := _reference(value))}
    lacking = [parameter for parameter in missing if parameter not in found]
    if len(takers := [parameter for parameter in lacking if parameter in required] or lacking) == 1:
        gathered = _gather(shapes[takers[0]], left)
        found |= {takers[0]: gathered} if gathered is not None else {}
    if unknown := [parameter for parameter in required if parameter not in found]:
        raise UnrecoverableError(
            f"{name} needs the DataFrame {unknown[0]!r}, but no upstream node of that name returned one; rename the "
            "parameter or the node, or pass a DataFrameRef in the job's data."
        )
    return found


def _gather(shape: FrameShape, left: Mapping[str, DataFrameRef]) -> Any:
    """Return references in the shape of a parameter that no node is named after; None when they don't match it."""
    refs = list(left.values())
    if shape.kind == "one":
        return refs[0] if len(refs) == 1 else None
    if not refs or (shape.size is not None and shape.size != len(refs)):
        return None
    return dict(left) if shape.kind == "dict" else refs


def _take(shape: FrameShape, value: object) -> Any:
    """Return a node's result in the shape of a parameter; None when it does not match."""
    if value is None:
        return None
    with contextlib.suppress(ValidationError):
        return TypeAdapter(shape.annotate(DataFrameRef)).validate_python(value)
    return _reference(value) if shape.kind == "one" else None


def _reference(value: object) -> DataFrameRef | None:
    """Return the DataFrame in a node's result: the result itself, or the only one among an object's values."""
    if not isinstance(value, dict):
        return None
    if value.get("kind") == "dataframe":
        with contextlib.suppress(InvalidOptionError):
            return DataFrameRef.model_validate(value)
        return None
    inside = [item for item in value.values() if isinstance(item, dict) and item.get("kind") == "dataframe"]
    return _reference(inside[0]) if len(inside) == 1 else None
