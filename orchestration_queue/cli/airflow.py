"""`oq airflow`: what Airflow needs of the queue."""

from __future__ import annotations

import importlib.util
import logging
import sys
from contextlib import nullcontext
from datetime import timedelta
from typing import Annotated

import typer

from orchestration_queue.cli.common import Prefix, Url
from orchestration_queue.cli.worker import MetricsHost, MetricsPort, endpoint, log_to_stderr
from orchestration_queue.errors import MissingExtraError
from orchestration_queue.options import WorkerOptions
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.worker import run_workers
from orchestration_queue.worker.signals import owning_signals

__all__ = ["app"]

app = typer.Typer(help="Run Airflow's tasks on workers.", no_args_is_help=True)

_MIB = 1 << 20


@app.callback()
def _group() -> None:
    pass


@app.command("worker")
@owning_signals()
def work(
    queue: Annotated[
        str, typer.Option("--queue", "-q", help="Airflow's queue: the `queue` of an operator.")
    ] = "default",
    concurrency: Annotated[int, typer.Option(envvar="OQ_CONCURRENCY", help="Concurrent tasks.")] = 16,
    lease: Annotated[
        float, typer.Option(help="Lease: seconds without a renewal after which a task counts as lost.")
    ] = 30,
    stalled_interval: Annotated[float, typer.Option(help="Seconds between searches for lost tasks.")] = 10,
    drain: Annotated[float, typer.Option(help="Seconds that active tasks get to finish after a stop signal.")] = 600,
    grace: Annotated[float, typer.Option(help="Seconds that a cancelled task gets to clean up.")] = 10,
    max_items: Annotated[
        int | None, typer.Option(help="Replace a fork server after this many tasks; default never.")
    ] = None,
    max_memory: Annotated[int | None, typer.Option(help="Replace it above this many MiB; default never.")] = None,
    bundles: Annotated[int, typer.Option(help="Versions of DAG bundles that are kept warm.")] = 8,
    serve_logs: Annotated[
        bool, typer.Option("--serve-logs", help="Serve the tasks' logs to Airflow's UI, on its worker_log_server_port.")
    ] = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    log_level: Annotated[str, typer.Option(envvar="OQ_LOG_LEVEL", help="debug, info, warning or error.")] = "info",
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
) -> None:
    """Run Airflow's tasks until SIGTERM or SIGINT, then finish active ones. A second signal exits at once."""
    if importlib.util.find_spec("airflow") is None:
        raise MissingExtraError("airflow", "airflow")
    log_to_stderr(log_level)
    from orchestration_queue.airflow import AirflowWorker
    from orchestration_queue.airflow.log_server import serving_logs
    from orchestration_queue.worker.forks.fork_pool import Recycling

    worker = AirflowWorker(
        queue,
        url=url,
        options=WorkerOptions(concurrency=concurrency, lease=lease, stalled_interval=stalled_interval, drain=drain),
        prefix=prefix,
        recycling=Recycling(max_items, None if max_memory is None else max_memory * _MIB),
        grace=timedelta(seconds=grace),
        bundles=bundles,
    )
    logs = serving_logs() if serve_logs else nullcontext()
    with logs, endpoint([worker], metrics_host, metrics_port, [], url=url, prefix=prefix):
        told_twice = run_workers(worker)
    if told_twice:
        logging.shutdown()
        sys.exit(1)
