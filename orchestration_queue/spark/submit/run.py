"""Run an application by ``spark-submit``, and wait for it."""

from __future__ import annotations

import json
import logging
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from orchestration_queue.errors import SparkCancelledError, SparkFailedError, SparkTimeoutError
from orchestration_queue.spark.environment import spark_environment, spark_home
from orchestration_queue.spark.failure import Failure, how_it_ended, is_noise
from orchestration_queue.spark.listener import Listening, with_listener
from orchestration_queue.spark.options import write_properties
from orchestration_queue.spark.process import Ended, run_child
from orchestration_queue.spark.scratch import scratch_directory
from orchestration_queue.spark.submit.command import checked, command_line
from orchestration_queue.spark.submit.options import SparkSubmit

__all__ = ["run_submit"]

_logger = logging.getLogger("orchestration_queue.spark")

_LINES_KEPT = 300
_OUT_OF_MEMORY = "java.lang.OutOfMemoryError"
_LAUNCH = "orchestration_queue.spark.submit.launch"


def run_submit(
    application: str | Path,
    arguments: Sequence[str] = (),
    options: SparkSubmit | None = None,
    *,
    log: Callable[[str], None] = _logger.info,
    should_stop: Callable[[], bool] = lambda: False,
    job_id: str | None = None,
    progress: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Run an application, and wait for its end. Its driver runs here, and dies with this process.

    Args:
        application: The path of a Python program or a jar, or a URI that Spark can read.
        arguments: Its words.
        options: How it runs.
        log: Receives the lines it prints, and Spark's warnings.
        should_stop: Asked a few times a second; true stops it.
        job_id: The job it is for, which the application carries as the property ``spark.orchestration_queue.job``.
        progress: Receives how far it is, as a job's progress: ``percent``, ``text``, and under ``spark`` its id.

    Returns:
        ``exit_code``, which is 0; and where its listener could tell, ``application``, ``input_rows``, ``input_bytes``,
        ``output_rows`` and ``output_bytes``.

    Raises:
        SparkFailedError: It ended with another exit code, or was killed.
        SparkTimeoutError: It took longer than ``options.timeout``.
        SparkCancelledError: ``should_stop`` said so.
        InvalidOptionError: There is no such application, or its words or options cannot be used.
        JavaNotFoundError: There is no Java for it.
    """
    options = (options or SparkSubmit()).complete()
    path, words = checked(application, arguments, options.main_class)
    name = Path(path).stem
    lines: deque[str] = deque(maxlen=_LINES_KEPT)

    def tell(line: str) -> None:
        if not is_noise(line):
            lines.append(line)
            log(line)

    with scratch_directory() as scratch:
        listening = Listening(progress, scratch / "progress.json")
        wanted = options.properties(scratch, name, job_id)
        if options.deploy_mode == "client":
            wanted = with_listener(wanted, str(scratch / "progress.json"))
        properties = write_properties(scratch, wanted)
        environment = spark_environment(options, scratch)
        environment["PYSPARK_DRIVER_PYTHON"] = str(options.python or sys.executable)
        submit = command_line(spark_home(environment), properties, options.main_class, path, words)
        ended = run_child(
            [sys.executable, "-m", _LAUNCH, *submit],
            b"",
            env=environment,
            log=tell,
            should_stop=partial(listening.look_and_ask, should_stop),
            timeout=options.timeout,
            grace=options.grace,
        )
        code = json.loads(ended.reply)["exit_code"] if ended.reply else ended.exit_code
        if ended.stopped or code:
            raise _failed(name, ended, code, lines, options)
        return {"exit_code": 0, **listening.finish()}


def _failed(name: str, ended: Ended, code: int, lines: Sequence[str], options: SparkSubmit) -> SparkFailedError:
    if ended.stopped == "timeout":
        return SparkTimeoutError(
            f"Spark application {name!r} took longer than {options.timeout} and was stopped with all its processes; "
            "raise SparkSubmit.timeout if it may take longer.",
            exit_code=code,
        )
    if ended.stopped == "cancelled":
        return SparkCancelledError(
            f"Spark application {name!r} was told to stop, and was stopped with all its processes.", exit_code=code
        )
    if any(_OUT_OF_MEMORY in line for line in lines):
        return SparkFailedError(
            f"The driver of Spark application {name!r} was out of memory (its heap is {options.memory}); raise "
            "SparkSubmit.memory, or have it collect less.",
            kind="OutOfMemoryError",
            exit_code=code,
        )
    if failure := Failure.of_output(lines):
        return SparkFailedError(str(failure), kind=failure.kind, exit_code=code)
    said = f"; its last words: {lines[-1][:500]}" if lines else ""
    return SparkFailedError(f"Spark application {name!r} {how_it_ended(code)}{said}", exit_code=code)
