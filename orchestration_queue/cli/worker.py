"""`oq worker`: run jobs until a signal stops it, with an endpoint for metrics and probes."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer
from typer.core import TyperGroup

from orchestration_queue._extras import named_extra
from orchestration_queue.cli.common import Prefix, Url
from orchestration_queue.cli.reload import run_with_reload
from orchestration_queue.cli.targets import find_object
from orchestration_queue.cli.worker_control import add_verbs
from orchestration_queue.client import Queue
from orchestration_queue.errors import UsageError
from orchestration_queue.options import WorkerOptions
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.protocol.shards import shard_names
from orchestration_queue.server import Connection
from orchestration_queue.worker import Handler, Polling, Router, SharedSlots, Worker, run_workers
from orchestration_queue.worker.observability import JsonFormatter
from orchestration_queue.worker.signals import owning_signals

__all__ = ["MetricsHost", "MetricsPort", "MetricsQueue", "QueueMetrics", "app", "endpoint", "log_to_stderr"]

MetricsPort: TypeAlias = Annotated[
    int | None, typer.Option(envvar="OQ_METRICS_PORT", help="Serve /metrics, /livez and /readyz here; 0 takes any.")
]
MetricsHost: TypeAlias = Annotated[str, typer.Option(envvar="OQ_METRICS_HOST", help="Where to serve them.")]
QueueMetrics: TypeAlias = Annotated[
    bool, typer.Option(envvar="OQ_QUEUE_METRICS", help="Show there how full the queues are, too.")
]
MetricsQueue: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="Show there how full this queue is, whichever worker serves it; can be repeated."),
]

_SOON = timedelta(seconds=1)
_IDLE_THREADS_LEAVE_S = 1.0


@contextmanager
def endpoint(
    workers: Sequence[Worker],
    host: str,
    port: int | None,
    queues: Sequence[str] = (),
    *,
    url: str | None,
    prefix: str,
) -> Iterator[None]:
    """Serve the metrics and probes of workers; without a port nothing.

    Args:
        workers: The workers of this process.
        host: The address to listen on.
        port: The port; 0 for any.
        queues: The queues whose depth is shown, too.
        url: Their server.
        prefix: First part of their keys.

    Raises:
        MissingExtraError: prometheus-client is not installed.
        UsageError: The port can't be listened on.
    """
    if port is None:
        yield
        return
    with named_extra():
        from orchestration_queue.telemetry import CallMetrics, QueueCollector, TelemetryServer, WorkerMetrics
    metrics = WorkerMetrics()
    for worker in workers:
        metrics.watch(worker)
    with ExitStack() as stack:
        if queues:
            # A connection that gives up early: scrapers wait only a few seconds.
            connection = stack.enter_context(Connection.open(url, connect_timeout=_SOON))
            shown = [Queue(name, connection=connection, prefix=prefix) for name in queues]
            QueueCollector(shown, metrics.registry)
        stack.enter_context(CallMetrics(metrics.registry))
        stack.enter_context(TelemetryServer(metrics.registry, workers, host=host, port=port))
        yield


class _RunByDefault(TyperGroup):
    """`oq worker app:tasks` is short for `oq worker run app:tasks`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Describe the short form with its options, then the commands."""
        run = self.commands["run"]
        run.format_help(type(ctx)(run, parent=ctx.parent, info_name=ctx.info_name), formatter)
        super().format_help(ctx, formatter)


app = typer.Typer(cls=_RunByDefault, help="Run workers, list them, and control running ones.", no_args_is_help=True)


add_verbs(app)


@app.command("run", context_settings={"auto_envvar_prefix": "OQ_WORKER"})
@owning_signals()
def run(
    target: Annotated[str, typer.Argument(help="Tasks or a handler function, as module:object or file.py:object.")],
    queue: Annotated[
        list[str] | None,
        typer.Option(envvar="OQ_QUEUE", help="A queue to serve; can be repeated. Default the tasks' own."),
    ] = None,
    concurrency: Annotated[
        int, typer.Option(envvar="OQ_CONCURRENCY", help="Concurrent jobs per queue, or with --polling in total.")
    ] = 1,
    processes: Annotated[
        int, typer.Option(help="Worker processes, each with the full concurrency; restarted if they die.", min=1)
    ] = 1,
    polling: Annotated[
        Polling | None,
        typer.Option(
            envvar="OQ_POLLING",
            help="Share the slots among the queues: ordered serves a queue only while those named before it "
            "have no ready job, round-robin serves all in turn. Default: slots for each queue.",
        ),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(
            help="Serve this many shards of each queue, the queues NAME.0, NAME.1 and so on, with the same slots, "
            "round-robin unless --polling is given."
        ),
    ] = None,
    lease: Annotated[
        float, typer.Option(help="Lease: seconds without a renewal after which another worker takes over a job.")
    ] = 30,
    stalled_interval: Annotated[float, typer.Option(help="Seconds between searches for such jobs.")] = 30,
    promotion_interval: Annotated[float, typer.Option(help="Maximum seconds between checks of delayed jobs.")] = 5,
    drain: Annotated[float, typer.Option(help="Seconds that active jobs get to finish after a stop signal.")] = 30,
    dead_letter_queue: Annotated[
        str | None, typer.Option(help="The queue for copies of jobs that failed for good; see `oq dead`.")
    ] = None,
    step_events: Annotated[
        bool, typer.Option("--step-events", help="Emit an event for each durable step; see `oq queue events`.")
    ] = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    queue_metrics: QueueMetrics = False,
    metrics_queue: MetricsQueue = None,
    code_version: Annotated[
        str, typer.Option(help="Version of the code, such as a commit; shown by `oq worker ls`.")
    ] = "",
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when a Python file of this directory changes; for development.")
    ] = False,
    log_level: Annotated[str, typer.Option(envvar="OQ_LOG_LEVEL", help="debug, info, warning or error.")] = "info",
    log_format: Annotated[
        Literal["text", "json"],
        typer.Option(envvar="OQ_LOG_FORMAT", help="text, or json: one line of JSON per record, with its job."),
    ] = "text",
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
) -> None:
    """Run a queue's jobs until SIGTERM or SIGINT, then finish active ones. A second signal exits at once.

    `oq worker module:tasks --queue mail` is short for `oq worker run module:tasks --queue mail`. Modules of the working
    directory come first. The exit code is 1 when active jobs were left behind, which other workers run again once their
    leases end.
    """
    if processes > 1 and metrics_port is not None:
        raise UsageError(
            "--metrics-port works with one process, and --processes starts several; run one `oq worker` for each."
        )
    log_to_stderr(log_level, as_json=log_format == "json")
    if reload:
        arguments = [argument for argument in sys.argv[1:] if argument != "--reload"]
        raise typer.Exit(run_with_reload(arguments, Path.cwd()))
    options = WorkerOptions(
        concurrency=concurrency,
        lease=lease,
        stalled_interval=stalled_interval,
        promotion_interval=promotion_interval,
        drain=drain,
        dead_letter_queue=dead_letter_queue,
        code_version=code_version,
        emit_step_events=step_events,
    )
    handler = _load(target)
    names = list(dict.fromkeys(queue or _own_queue(target, handler)))
    if shards is not None:
        names = [shard for name in names for shard in shard_names(name, shards)]
        polling = polling or "round-robin"
    slots = SharedSlots(concurrency, polling) if polling and len(names) > 1 else None
    serving = [Worker(name, handler, url=url, options=options, prefix=prefix, slots=slots) for name in names]
    shown = dict.fromkeys([*(names if queue_metrics else ()), *(metrics_queue or ())])
    with endpoint(serving, metrics_host, metrics_port, [*shown], url=url, prefix=prefix):
        gave_up = run_workers(*serving, processes=processes)
    if gave_up or _jobs_linger():
        # Threads cannot be stopped, and the interpreter would wait for them.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(1)


def _own_queue(target: str, handler: Handler | Router) -> list[str]:
    """Return the queue that the tasks name themselves."""
    own = getattr(handler, "queue", None)
    if not isinstance(own, str):
        raise UsageError(f"No queue is given for {target}; pass --queue, or set one in Tasks(queue=...).")
    return [own]


def log_to_stderr(level: str, *, as_json: bool = False) -> None:
    """Log from this level on, as text or as lines of JSON.

    Raises:
        UsageError: There is no such level.
    """
    known = logging.getLevelNamesMapping()
    if level.upper() not in known:
        raise UsageError(
            f"`--log-level` must be debug, info, warning or error, got {level!r}; pass `--log-level info`."
        )
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if as_json else text)
    logging.basicConfig(level=known[level.upper()], handlers=[handler])


def _load(target: str) -> Handler | Router:
    found = find_object(target, "runs jobs", "pipeline:tasks")
    if isinstance(found, Router) or callable(found):
        return found
    raise UsageError(
        f"{target!r} is a {type(found).__name__}, which runs no jobs; name a Tasks or a function of a job."
    )


def _jobs_linger() -> bool:
    """Whether functions still run that did not finish in time."""
    deadline = time.monotonic() + _IDLE_THREADS_LEAVE_S
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("oq-job")]
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return any(thread.is_alive() for thread in threads)
