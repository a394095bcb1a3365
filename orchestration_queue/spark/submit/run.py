"""Run an application with ``spark-submit``, and wait for it."""

from __future__ import annotations

import json
import re
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import InvalidOptionError, SparkFailedError
from orchestration_queue.options import as_timedelta
from orchestration_queue.spark.environment import spark_environment, spark_home, spark_python
from orchestration_queue.spark.failure import LINES_KEPT, describe_exit, failure_error, is_noise, stop_error
from orchestration_queue.spark.functions import check_callbacks, check_program, check_words
from orchestration_queue.spark.options import write_properties
from orchestration_queue.spark.process import ProcessOutcome, run_child, scratch_directory
from orchestration_queue.spark.progress import ListenerFollower, with_listener
from orchestration_queue.spark.submit.attempt import EndedByOthersError
from orchestration_queue.spark.submit.cluster import run_on_cluster
from orchestration_queue.spark.submit.livy import Livy
from orchestration_queue.spark.submit.options import SparkSubmit
from orchestration_queue.spark.submit.remote import RemoteRun, run_by_livy
from orchestration_queue.spark.submit.trackers import add_tag, find_tracker

__all__ = ["build_command", "check_application", "run_submit"]

_logger = get_logger("orchestration_queue.spark")

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

    With ``deploy_mode="cluster"``, or with Livy, its driver runs on a machine of the cluster. If an attempt dies, the
    next one finds the driver again. When this call must stop, it kills the driver: on a standalone cluster, with Livy,
    and on YARN and Kubernetes if the options give their API.

    Args:
        application: The path of a Python program or a jar, or a URI that Spark can read.
        arguments: Its arguments.
        options: How it runs.
        log: Called with each line it prints, including Spark's warnings.
        should_stop: Called a few times a second; the application is stopped when it returns true.
        job_id: The job that it runs for, stored in the application's property ``spark.orchestration_queue.job``.
        progress: Called with its progress, in a job's format: ``percent``, ``text``, and its id under ``spark``.
        earlier: The progress left by an earlier attempt of the job, whose driver may run on a cluster.

    Returns:
        ``exit_code``, which is 0; for a driver on a cluster, ``driver`` or ``batch``; and if its listener reports them,
        ``application``, ``ui`` (the URL of its page), ``input_rows``, ``input_bytes``, ``output_rows`` and
        ``output_bytes``.

    Raises:
        SparkFailedError: It ended with another exit code, or was killed.
        SparkTimeoutError: It took longer than ``options.timeout``.
        SparkCancelledError: ``should_stop`` returned true.
        InvalidOptionError: The application does not exist, or its arguments or options are invalid.
        JavaNotFoundError: No suitable Java was found.
    """
    check_callbacks(log=log, should_stop=should_stop, progress=progress)
    options = SparkSubmit.coerce(options, "options").complete()
    is_here = options.deploy_mode == "client"
    path, words = check_application(application, arguments, options.main_class, is_here=is_here)
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
    tracker = Livy.at(options.livy_url) if options.livy_url else find_tracker(options)
    run = RemoteRun(tracker, name, options, should_stop, log, progress) if tracker else None
    if run and (found := run.resume(earlier)):
        try:
            return run.follow(found)
        except EndedByOthersError as ended:
            log(f"{ended}; submitting it again")
    if run and options.livy_url:
        return run_by_livy(path, words, options, run, options.properties(Path(), name, job_id))
    return _run_here(path, words, options, run, log=log, should_stop=should_stop, job_id=job_id, progress=progress)


def _run_here(
    path: str,
    words: Sequence[str],
    options: SparkSubmit,
    run: RemoteRun | None,
    *,
    log: Callable[[str], None],
    should_stop: Callable[[], bool],
    job_id: str | None,
    progress: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Run ``spark-submit`` on the worker's machine; without ``run``, the driver runs inside it."""
    name = Path(path).stem
    lines: deque[str] = deque(maxlen=LINES_KEPT)

    def record(line: str) -> None:
        if not is_noise(line):
            lines.append(line)
            log(line)

    with scratch_directory() as scratch:
        follower = ListenerFollower(progress, scratch / "progress.json", ui=options.ui_template)
        wanted = options.properties(scratch, name, job_id)
        if options.deploy_mode == "client":
            wanted = with_listener(wanted, str(scratch / "progress.json"))
        if run:
            wanted = add_tag(wanted, run.reserve())
        properties = write_properties(scratch, wanted)
        environment = spark_environment(options, scratch)
        environment["PYSPARK_DRIVER_PYTHON"] = spark_python(options, scratch)
        submit = build_command(spark_home(environment), properties, options.main_class, path, words, options.proxy_user)
        outcome = run_child(
            [sys.executable, "-m", _LAUNCH, *submit],
            b"",
            env=environment,
            log=record,
            should_stop=partial(follower.poll_and_ask, should_stop),
            timeout=as_timedelta(options.timeout),
            grace=as_timedelta(options.grace),
        )
        code = json.loads(outcome.reply)["exit_code"] if outcome.reply else outcome.exit_code
        if run and (found := run.conclude(outcome.stopped, code)):
            return run.follow(found)
        if outcome.stopped or code:
            raise _exit_error(name, outcome, code, lines, options)
        return {"exit_code": 0, **follower.finish()}


def _exit_error(
    name: str, outcome: ProcessOutcome, code: int, lines: Sequence[str], options: SparkSubmit
) -> SparkFailedError:
    if outcome.stopped:
        return stop_error(name, outcome.stopped, options, "with all its processes", exit_code=code)
    return failure_error(name, describe_exit(code), lines, options, exit_code=code)


_IS_URI = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)


def check_application(
    application: str | Path, arguments: Sequence[str], main_class: str | None, *, is_here: bool = True
) -> tuple[str, list[str]]:
    """Check the application and its arguments, and return them in the form of a command line.

    Args:
        application: The path of a Python program or a jar, or a URI.
        arguments: Its arguments.
        main_class: The main class of a jar.
        is_here: Whether a path is on this machine.

    Raises:
        InvalidOptionError: The application does not exist, or they are invalid.
    """
    program = check_program(application, "application")
    words = check_words(program, arguments, "application")
    if main_class and not program.endswith(".jar"):
        raise InvalidOptionError(f"`main_class` needs a jar, got the application {program}; remove it.")
    if _IS_URI.match(program):
        return program, words
    path = Path(program).absolute()
    if is_here and not path.is_file():
        raise InvalidOptionError(f"Application {path} does not exist; correct the path.")
    return str(path), words


def build_command(
    home: str,
    properties: Path,
    main_class: str | None,
    path: str,
    words: Sequence[str],
    proxy_user: str | None = None,
) -> list[str]:
    """Build the command that submits an application. Secrets and the master are in the properties file only.

    Args:
        home: The home of Spark.
        properties: The file of Spark's properties.
        main_class: The main class of a jar.
        path: The application.
        words: Its arguments.
        proxy_user: The user to run it as, which has no property.
    """
    kind = ["--class", main_class] if main_class else []
    user = ["--proxy-user", proxy_user] if proxy_user else []
    submit = [f"{home}/bin/spark-submit", "--load-spark-defaults", *kind, *user]
    return [*submit, "--properties-file", str(properties), path, *words]
