"""Run a PySpark function or script in a separate process, and return its result."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import (
    InvalidOptionError,
    SparkCancelledError,
    SparkFailedError,
    SparkTimeoutError,
    UnrecoverableError,
)
from orchestration_queue.options import as_timedelta
from orchestration_queue.protocol import codec
from orchestration_queue.spark.environment import spark_environment
from orchestration_queue.spark.failure import describe_exit, is_noise
from orchestration_queue.spark.functions import check_callbacks, check_program, check_words, reference
from orchestration_queue.spark.options import SparkOptions, write_properties
from orchestration_queue.spark.process import ProcessOutcome, run_child, scratch_directory
from orchestration_queue.spark.progress import ListenerFollower, with_listener
from orchestration_queue.spark.result_files import ResultLocation
from orchestration_queue.worker.observability import annotate

__all__ = ["run_spark"]

_logger = get_logger("orchestration_queue.spark")


def run_spark(
    target: Callable[..., Any] | str | Path,
    arguments: Mapping[str, Any] | Sequence[str] = (),
    options: SparkOptions | None = None,
    *,
    log: Callable[[str], None] = _logger.info,
    should_stop: Callable[[], bool] = lambda: False,
    job_id: str | None = None,
    progress: Callable[[dict[str, Any]], None] = lambda _: None,
    results: ResultLocation | None = None,
) -> Any:
    """Run PySpark work in a new process, and wait for it.

    The process leads its own process group and dies with this one. When the run ends, for any reason, all processes
    that it started are ended as well.

    Args:
        target: A module's function ``f(spark, **arguments)``, or its name ``"module:function"``; or the path of a
            script, whose result is its variable ``result``.
        arguments: A function's keyword arguments, which must be JSON; a script's arguments, as ``sys.argv[1:]``.
        options: How it runs.
        log: Called with each line it prints, including Spark's warnings.
        should_stop: Called a few times a second; the work is stopped when it returns true.
        job_id: The job that it runs for, stored in the application's property ``spark.orchestration_queue.job``.
        progress: Called with its progress, in a job's format: ``percent``, ``text``, and its id under ``spark``.
        results: Where a DataFrame that a function returns is stored.

    Returns:
        What the function returned, as JSON.

    Raises:
        SparkFailedError: The work raised an error, or its process ended without a result.
        SparkTimeoutError: It took longer than ``options.timeout``.
        SparkCancelledError: ``should_stop`` returned true.
        UnrecoverableError: The work raised it.
        JavaNotFoundError: No suitable Java was found.
        UsageError: The target can't be imported, or its arguments can't be passed.
    """
    check_callbacks(log=log, should_stop=should_stop, progress=progress)
    options = SparkOptions.coerce(options, "options")
    name, request = _request(target, arguments, results)
    with scratch_directory() as scratch:
        follower = ListenerFollower(progress, scratch / "progress.json")
        wanted = with_listener(options.properties(scratch, name, job_id), str(scratch / "progress.json"))
        properties = write_properties(scratch, wanted)
        outcome = run_child(
            [str(options.python or sys.executable), "-m", "orchestration_queue.spark.child"],
            request,
            env=_environment(options, properties),
            log=lambda line: None if is_noise(line) else log(line),
            should_stop=partial(follower.poll_and_ask, should_stop),
            timeout=as_timedelta(options.timeout),
            grace=as_timedelta(options.grace),
        )
        result = _result(name, outcome, options)
        follower.finish()
    return result


def _request(
    target: Callable[..., Any] | str | Path, arguments: object, results: ResultLocation | None
) -> tuple[str, bytes]:
    """Return the run's name, and the request that the child reads."""
    if callable(target):
        target = reference(target)
    if isinstance(target, str) and ":" in target:
        if not isinstance(arguments, Mapping) and arguments != ():
            raise InvalidOptionError(f"`arguments` of function {target} must be a mapping; pass {{'path': 'data'}}.")
        named = dict(arguments or {})
        kept = {"results": results.to_json()} if results else {}
        return _request_of(target.rpartition(":")[2], {"function": target, "arguments": named, **kept})
    script = Path(check_program(target, "script")).absolute()
    words = [str(word) for word in check_words(target, arguments, "script")]
    if not script.is_file():
        raise InvalidOptionError(f"Script {script} does not exist; correct the path, or pass 'module:function'.")
    return _request_of(script.stem, {"script": str(script), "arguments": words})


def _request_of(name: str, request: dict[str, Any]) -> tuple[str, bytes]:
    return name, codec.encode(request, "The arguments of the Spark work").encode()


def _environment(options: SparkOptions, properties: Path) -> dict[str, str]:
    words = ["--load-spark-defaults", "--properties-file", str(properties), "pyspark-shell"]
    return {"PYSPARK_SUBMIT_ARGS": shlex.join(words)} | spark_environment(options, properties.parent)


def _result(name: str, outcome: ProcessOutcome, options: SparkOptions) -> Any:
    if outcome.stopped == "timeout":
        raise SparkTimeoutError(
            f"Spark work {name!r} took longer than {options.timeout} and was stopped with all its processes; "
            "raise SparkOptions.timeout if it may take longer.",
            exit_code=outcome.exit_code,
        )
    if outcome.stopped == "cancelled":
        raise SparkCancelledError(
            f"Spark work {name!r} was asked to stop, and was stopped with all its processes.",
            exit_code=outcome.exit_code,
        )
    reply = json.loads(outcome.reply) if outcome.reply else {}
    if application := reply.get("application"):
        annotate({"spark.application.id": application})
    if "result" in reply or reply.get("exit_code") == 0:
        return reply.get("result")
    if reply.get("unrecoverable"):
        raise UnrecoverableError(reply["reason"])
    said = f", saying {reply['said']!r}" if reply.get("said") else ""
    reason = reply.get("reason") or f"Spark work {name!r} {describe_exit(outcome.exit_code)} without a result{said}."
    raise SparkFailedError(reason, kind=reply.get("kind", ""), exit_code=outcome.exit_code)
