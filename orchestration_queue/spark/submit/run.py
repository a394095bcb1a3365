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

from orchestration_queue.errors import SparkFailedError
from orchestration_queue.options import as_timedelta
from orchestration_queue.spark.environment import spark_environment, spark_home
from orchestration_queue.spark.failure import describe_exit, is_noise
from orchestration_queue.spark.listener import ListenerFollower, with_listener
from orchestration_queue.spark.options import write_properties
from orchestration_queue.spark.process import ProcessOutcome, run_child
from orchestration_queue.spark.scratch import scratch_directory
from orchestration_queue.spark.submit.cluster import run_on_cluster
from orchestration_queue.spark.submit.command import checked, command_line
from orchestration_queue.spark.submit.failures import LINES_KEPT, failure_error, stop_error
from orchestration_queue.spark.submit.options import SparkSubmit

__all__ = ["run_submit"]

_logger = logging.getLogger("orchestration_queue.spark")

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
    earlier: object = None,
) -> dict[str, Any]:
    """Run an application, and wait for its end. Its driver runs here, and dies with this process.

    With ``deploy_mode="cluster"`` its driver runs on a machine of the cluster. On a standalone cluster it is found
    again by the attempt after one that died, and killed when this one has to stop; other clusters are not tracked.

    Args:
        application: The path of a Python program or a jar, or a URI that Spark can read.
        arguments: Its words.
        options: How it runs.
        log: Receives the lines it prints, and Spark's warnings.
        should_stop: Asked a few times a second; true stops it.
        job_id: The job it is for, which the application carries as the property ``spark.orchestration_queue.job``.
        progress: Receives how far it is, as a job's progress: ``percent``, ``text``, and under ``spark`` its id.
        earlier: The progress that an earlier attempt of the job has left, whose driver may run on a cluster.

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
    is_here = options.deploy_mode == "client"
    path, words = checked(application, arguments, options.main_class, is_here=is_here)
    if options.is_on_standalone_cluster:
        return run_on_cluster(
            path,
            words,
            options,
            log=log,
            should_stop=should_stop,
            job_id=job_id,
            progress=progress,
            earlier=earlier,
        )
    name = Path(path).stem
    lines: deque[str] = deque(maxlen=LINES_KEPT)

    def tell(line: str) -> None:
        if not is_noise(line):
            lines.append(line)
            log(line)

    with scratch_directory() as scratch:
        follower = ListenerFollower(progress, scratch / "progress.json")
        wanted = options.properties(scratch, name, job_id)
        if is_here:
            wanted = with_listener(wanted, str(scratch / "progress.json"))
        properties = write_properties(scratch, wanted)
        environment = spark_environment(options, scratch)
        environment["PYSPARK_DRIVER_PYTHON"] = str(options.python or sys.executable)
        submit = command_line(spark_home(environment), properties, options.main_class, path, words, options.proxy_user)
        outcome = run_child(
            [sys.executable, "-m", _LAUNCH, *submit],
            b"",
            env=environment,
            log=tell,
            should_stop=partial(follower.poll_and_ask, should_stop),
            timeout=as_timedelta(options.timeout),
            grace=as_timedelta(options.grace),
        )
        code = json.loads(outcome.reply)["exit_code"] if outcome.reply else outcome.exit_code
        if outcome.stopped or code:
            raise _failed(name, outcome, code, lines, options)
        return {"exit_code": 0, **follower.finish()}


def _failed(
    name: str, outcome: ProcessOutcome, code: int, lines: Sequence[str], options: SparkSubmit
) -> SparkFailedError:
    if outcome.stopped:
        return stop_error(name, outcome.stopped, options, "with all its processes", exit_code=code)
    return failure_error(name, describe_exit(code), lines, options, exit_code=code)
