"""`oq dagster`: what Dagster needs of the queue."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from orchestration_queue.cli.common import JsonFlag, Prefix, Url, report
from orchestration_queue.cli.worker import MetricsHost, MetricsPort, MetricsQueue, QueueMetrics, endpoint, log_to_stderr
from orchestration_queue.errors import UsageError
from orchestration_queue.options import WorkerOptions
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.server import parse_url
from orchestration_queue.worker import run_workers
from orchestration_queue.worker.signals import owning_signals

__all__ = ["app"]

app = typer.Typer(help="Run Dagster's steps and runs on workers.", no_args_is_help=True)

_MIB = 1 << 20
_NO_CODE = (
    "No code to load; name a module with -m, a file with -f, or a workspace with -w, or start in the directory of a "
    "project whose pyproject.toml has [tool.dagster] or [tool.dg]."
)


@app.callback()
def _group() -> None:
    pass


def _require_home(who: str) -> None:
    if not os.environ.get("DAGSTER_HOME"):
        raise UsageError(f"DAGSTER_HOME is not set, but {who} needs the instance that launches the runs; set it.")


@contextmanager
def _import_without_gc() -> Iterator[None]:
    """Import without the garbage collector, which takes a tenth of the time.

    A worker leaves Dagster to its fork servers, but is refused here if it is missing.
    """
    gc.disable()
    try:
        if importlib.util.find_spec("dagster") is None:
            raise ImportError("No module named 'dagster'")
        yield
    except ImportError as error:
        raise UsageError(
            f"Dagster is not installed here ({error}); run `pip install 'orchestration-queue[dagster]'`."
        ) from error
    finally:
        gc.enable()


@app.command("worker")
@owning_signals()
def work(
    module: Annotated[
        list[str] | None, typer.Option("--module", "-m", help="A module with definitions; can be repeated.")
    ] = None,
    file: Annotated[
        list[str] | None, typer.Option("--file", "-f", help="A Python file with definitions; can be repeated.")
    ] = None,
    workspace: Annotated[
        list[str] | None, typer.Option("--workspace", "-w", help="A workspace.yaml; can be repeated.")
    ] = None,
    working_directory: Annotated[
        str | None, typer.Option("--working-directory", "-d", help="Directory for imports; default this directory.")
    ] = None,
    queue: Annotated[str, typer.Option("--queue", "-q", envvar="OQ_QUEUE", help="The queue.")] = "dagster",
    concurrency: Annotated[int, typer.Option(envvar="OQ_CONCURRENCY", help="Concurrent steps and runs.")] = 1,
    lease: Annotated[
        float, typer.Option(help="Lease: seconds without a renewal after which a step counts as lost.")
    ] = 30,
    stalled_interval: Annotated[float, typer.Option(help="Seconds between searches for lost steps.")] = 30,
    drain: Annotated[float, typer.Option(help="Seconds that active steps get to finish after a stop signal.")] = 30,
    grace: Annotated[float, typer.Option(help="Seconds that a cancelled step gets to clean up.")] = 10,
    max_items: Annotated[
        int | None, typer.Option(help="Replace the fork server after this many items; default never.")
    ] = None,
    max_memory: Annotated[int | None, typer.Option(help="Replace it above this many MiB; default never.")] = None,
    code_version: Annotated[
        str, typer.Option(envvar="OQ_CODE_VERSION", help="Run only steps that require this code version, or none.")
    ] = "",
    first_sign: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds after which a forked step that has not started is rerun in a new process."),
    ] = 60,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    queue_metrics: QueueMetrics = False,
    metrics_queue: MetricsQueue = None,
    log_level: Annotated[str, typer.Option(envvar="OQ_LOG_LEVEL", help="debug, info, warning or error.")] = "info",
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
) -> None:
    """Run Dagster's steps and runs until SIGTERM or SIGINT, then finish active ones. A second signal exits at once.

    Without -m, -f and -w it loads the code that pyproject.toml names for Dagster.
    """
    log_to_stderr(log_level)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # Dagster's; it reports each of its plugins at import
    _require_home("a worker")
    with _import_without_gc():
        from orchestration_queue.dagster.steps import CodeLocation, DagsterWorker, Recycling
    here = working_directory or os.getcwd()  # noqa: PTH109  Dagster wants text
    locations = [CodeLocation(module=name, working_directory=here) for name in module or ()]
    locations += [CodeLocation(file=path, working_directory=here) for path in file or ()]
    locations += CodeLocation.of_workspace(workspace) if workspace else []
    if not locations and not (locations := CodeLocation.of_project(here)):
        raise UsageError(_NO_CODE)
    if code_version:
        os.environ["OQ_CODE_VERSION"] = code_version  # what runs that begin here ask of the workers of their steps
    worker = DagsterWorker(
        queue,
        locations,
        url=url,
        options=WorkerOptions(concurrency=concurrency, lease=lease, stalled_interval=stalled_interval, drain=drain),
        prefix=prefix,
        recycling=Recycling(max_items, None if max_memory is None else max_memory * _MIB),
        grace=timedelta(seconds=grace),
        code_version=code_version,
        first_sign=timedelta(seconds=first_sign),
    )
    shown = dict.fromkeys([*([queue] if queue_metrics else ()), *(metrics_queue or ())])
    with endpoint([worker], metrics_host, metrics_port, [*shown], url=url, prefix=prefix):
        told_twice = run_workers(worker)
    if told_twice:
        logging.shutdown()
        sys.exit(1)


_OQ = (sys.executable, "-c", "from orchestration_queue.cli import run; run()")


@app.command("dev")
@owning_signals()
def develop_locally(
    module: Annotated[
        list[str] | None, typer.Option("--module", "-m", help="A module with definitions; can be repeated.")
    ] = None,
    file: Annotated[
        list[str] | None, typer.Option("--file", "-f", help="A Python file with definitions; can be repeated.")
    ] = None,
    workspace: Annotated[
        list[str] | None, typer.Option("--workspace", "-w", help="A workspace.yaml; can be repeated.")
    ] = None,
    queue: Annotated[list[str] | None, typer.Option("--queue", "-q", help="A queue of steps; can be repeated.")] = None,
    concurrency: Annotated[int, typer.Option(envvar="OQ_CONCURRENCY", help="Concurrent steps per queue.")] = 4,
    host: Annotated[str, typer.Option("--host", "-h", help="The webserver's address.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", help="The webserver's port.")] = 3000,
    log_level: Annotated[str, typer.Option(envvar="OQ_LOG_LEVEL", help="debug, info, warning or error.")] = "info",
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
) -> None:
    """Run `dagster dev` with workers for its steps, and an embedded server unless OQ_URL is set."""
    log_to_stderr(log_level)
    code = [
        argument
        for option, names in (("-m", module), ("-f", file), ("-w", workspace))
        for name in names or ()
        for argument in (option, name)
    ]
    if importlib.util.find_spec("dagster") is None or importlib.util.find_spec("dagster_webserver") is None:
        raise UsageError(
            "`oq dagster dev` needs Dagster and its webserver, and one is not installed; "
            "run `pip install 'orchestration-queue[dagster,embedded]' dagster-webserver`."
        )
    from orchestration_queue.dagster.develop import develop
    from orchestration_queue.dagster.steps import CodeLocation

    if not code and not CodeLocation.of_project(str(Path.cwd())):
        raise UsageError(_NO_CODE)
    worker = (*_OQ, "dagster", "worker", *code, "--concurrency", str(concurrency), "--drain", "5", "--prefix", prefix)
    sys.exit(
        develop(
            parse_url(url),
            (sys.executable, "-m", "dagster", "dev", *code, "--host", host, "--port", str(port)),
            [(*worker, "--queue", name) for name in queue or ("dagster",)],
        )
    )


@app.command("daemon", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    sensor_pause: Annotated[
        float,
        typer.Option(min=0.05, max=5, help="Seconds between checks for due sensors."),
    ] = 0.25,
) -> None:
    """Run Dagster's daemon with short pauses between sensor ticks. Other options go to `dagster-daemon run`."""
    _require_home("a daemon")
    with _import_without_gc():
        from orchestration_queue.dagster._compat import read_migrations_once, run_daemon
        from orchestration_queue.dagster.steps.database import sqlite_engines
    read_migrations_once()
    sqlite_engines.share()
    run_daemon(context.args, sensor_pause)


@app.command("sweep")
def tidy(
    queue: Annotated[
        list[str] | None, typer.Option("--queue", "-q", help="Another queue of steps to check; can be repeated.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Stop jobs whose runs have ended or were deleted, and resume or fail runs whose jobs have ended."""
    _require_home("a sweep")
    with _import_without_gc():
        import dagster as dg

        from orchestration_queue.dagster.runs.sweep import sweep
    with dg.DagsterInstance.get() as instance:
        swept = sweep(instance, queue or ())
    report(as_json, str(swept), **asdict(swept))
