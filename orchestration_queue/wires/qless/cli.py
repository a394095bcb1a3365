"""`oq qless`: the queues of qless."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from orchestration_queue.cli.common import (
    JsonFlag,
    Per,
    Prefix,
    QueueName,
    Rate,
    Url,
    Yes,
    ask,
    moment_text,
    parse_json,
    parse_rate,
    report,
    show_fields,
    show_json,
    show_table,
)
from orchestration_queue.cli.targets import Sandbox, find_handler
from orchestration_queue.cli.text import dump, print_line
from orchestration_queue.cli.verbs import format_count
from orchestration_queue.cli.worker import MetricsHost, MetricsPort, QueueMetrics
from orchestration_queue.errors import JobNotFoundError
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.wires.qless import (
    QlessClient,
    QlessEvents,
    QlessMove,
    QlessWorker,
    QlessWorkerOptions,
    run_class,
)
from orchestration_queue.worker.sandbox import sandboxed
from orchestration_queue.worker.signals import owning_signals

if TYPE_CHECKING:
    from orchestration_queue.wires.qless import QlessJob, QlessObserver

__all__ = ["NAME", "app"]

NAME: Final = "qless"
"""The noun of its commands."""

app = typer.Typer(help="Use qless queues, alongside its other clients.", no_args_is_help=True)
job = typer.Typer(help="Add, list and cancel jobs.", no_args_is_help=True)
config = typer.Typer(help="Show and set server options.", no_args_is_help=True)
app.add_typer(job, name="job")
app.add_typer(config, name="config")

Jid = Annotated[str, typer.Argument(help="The job's id.")]
Limit = Annotated[int, typer.Option(help="Maximum number.", min=1)]
State = Literal["waiting", "running", "stalled", "scheduled", "depends", "recurring"]


@app.command("queues")
def list_queues(url: Url = None, as_json: JsonFlag = False) -> None:
    """List the queues and count their jobs."""
    with QlessClient(url=url) as client:
        queues = [asdict(counts) for counts in client.queues()]
    if as_json:
        show_json(queues)
        return
    columns = ("name", "waiting", "running", "stalled", "scheduled", "depends", "recurring", "paused")
    show_table(columns, [[str(counts[name]) for name in columns] for counts in queues])


@app.command("pause")
def pause(queue: QueueName, url: Url = None, as_json: JsonFlag = False) -> None:
    """Pause a queue: it hands out no jobs."""
    with QlessClient(url=url) as client:
        client.pause(queue)
    report(as_json, f"Queue {queue} is paused.", queue=queue, is_paused=True)


@app.command("resume")
def resume(queue: QueueName, url: Url = None, as_json: JsonFlag = False) -> None:
    """Resume a paused queue."""
    with QlessClient(url=url) as client:
        client.unpause(queue)
    report(as_json, f"Queue {queue} is running again.", queue=queue, is_paused=False)


@app.command("workers")
def list_workers(url: Url = None, as_json: JsonFlag = False) -> None:
    """List the workers of the last day, most recently seen first."""
    with QlessClient(url=url) as client:
        workers = client.workers()
    if as_json:
        show_json([asdict(worker) for worker in workers])
        return
    show_table(("worker", "jobs", "stalled"), [[found.name, str(found.jobs), str(found.stalled)] for found in workers])


@app.command("failed")
def list_failed(
    group: Annotated[str | None, typer.Argument(help="A group, to list its jobs; default all groups.")] = None,
    limit: Limit = 25,
    url: Url = None,
    as_json: JsonFlag = False,
) -> None:
    """Count the failed jobs by group, or list those of one."""
    with QlessClient(url=url) as client:
        if group is None:
            groups = client.failures()
            if as_json:
                show_json(groups)
            else:
                show_table(("group", "jobs"), [[name, str(count)] for name, count in sorted(groups.items())])
            return
        jobs = client.get_many(client.failed(group, 0, limit))
    _show_jobs(jobs, as_json)


@app.command("unfail")
def unfail(
    queue: QueueName,
    group: Annotated[str, typer.Argument(help="The group.")],
    limit: Limit = 25,
    url: Url = None,
    as_json: JsonFlag = False,
) -> None:
    """Make failed jobs ready in a queue, oldest failures first."""
    with QlessClient(url=url) as client:
        count = client.unfail(queue, group, limit)
    report(
        as_json, f"Ready again in queue {queue}: {format_count(count, 'job')}.", queue=queue, group=group, count=count
    )


@app.command("check")
def check(
    fix: Annotated[bool, typer.Option("--fix", help="Repair what is found.")] = False,
    url: Url = None,
    as_json: JsonFlag = False,
) -> None:
    """Find records that contradict each other, such as jobs in no queue. Exits with 1 when some are left."""
    columns = (TextColumn("checking"), TextColumn("{task.completed:,.0f} keys and entries"), TimeElapsedColumn())
    with QlessClient(url=url) as client, Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("checking", total=None)
        found = client.check(repair=fix, on_progress=lambda checked: progress.update(task, completed=checked))
    if as_json:
        show_json(found)
    elif found:
        show_table(("repaired" if fix else "found", "how many"), [[kind, str(found[kind])] for kind in sorted(found)])
    else:
        print_line("Nothing is wrong.")
    if found and not fix:
        raise typer.Exit(1)


@app.command("events")
def events(
    channels: Annotated[list[str] | None, typer.Argument(help="Channels without `ql:`; default log.")] = None,
    limit: Annotated[int | None, typer.Option(help="Exit after this many; default never.", min=1)] = None,
    url: Url = None,
    as_json: JsonFlag = False,
) -> None:
    """Print messages as they are published."""
    with QlessEvents(*(channels or ()), url=url) as listener:
        for number, event in enumerate(listener, 1):
            if as_json:
                show_json(asdict(event))
            else:
                print_line(f"{event.channel} {event.name} {event.jid or '-'} {dump(event.fields)}")
            if number == limit:
                return


@app.command("move")
def move(
    queue: QueueName,
    own_queue: Annotated[str | None, typer.Option("--queue", help="Our queue's name; default the same.")] = None,
    own_url: Annotated[str | None, typer.Option("--queue-url", help="Our queue's server; default the same.")] = None,
    yes: Yes = False,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Move a queue's waiting and recurring jobs to our own wire. Exits with 1 when some are left."""
    ours = own_queue or queue
    ask(yes, f"Move qless queue {queue} to our queue {ours}?")
    with QlessMove(queue, ours, url=url, our_url=own_url, prefix=prefix) as mover:
        moved = mover.to_ours()
    sentence = (
        f"Moved {format_count(moved.jobs, 'ready job')}, {format_count(moved.delayed, 'delayed job')}, "
        f"{format_count(moved.dependent, 'dependent job')} as {format_count(moved.flows, 'flow')} and "
        f"{format_count(moved.schedules, 'recurring job')}; left {moved.left.total():,}."
    )
    report(as_json, sentence, **asdict(moved))
    if not as_json:
        for reason, number in moved.left.most_common():
            print_line(f"  {number:,} left: {reason}")
    if moved.left:
        raise typer.Exit(1)


@app.command("worker")
@owning_signals()
def worker(
    queues: Annotated[list[str], typer.Argument(help="The queues, most important first.")],
    handler: Annotated[
        str | None, typer.Option(help="The handler, like `app:handler`; default the class that each job names.")
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Concurrent jobs.", min=1)] = 10,
    order: Annotated[
        Literal["ordered", "round-robin"], typer.Option(help="Order in which queues are polled.")
    ] = "ordered",
    rate: Rate = None,
    per: Per = None,
    sandbox: Sandbox = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    queue_metrics: QueueMetrics = False,
    url: Url = None,
) -> None:
    """Run the jobs of queues until SIGTERM, SIGINT or SIGQUIT."""
    by_class = sandboxed(run_class) if sandbox else None
    found = by_class if handler is None else find_handler(handler, sandbox)
    options = QlessWorkerOptions(concurrency=concurrency, order=order, rate_limit=parse_rate(rate, per))
    with ExitStack() as stack:
        observer: QlessObserver | None = None
        if metrics_port is not None:
            from orchestration_queue.telemetry import TelemetryServer
            from orchestration_queue.wires.qless.metrics import QlessCollector, QlessMetrics

            observer = metrics = QlessMetrics()
            if queue_metrics:
                QlessCollector(stack.enter_context(QlessClient(url=url)), metrics.registry)
            stack.enter_context(TelemetryServer(metrics.registry, host=metrics_host, port=metrics_port))
        asyncio.run(QlessWorker(queues, found, url=url, options=options, observer=observer).run())


@job.command("add")
def add_job(
    queue: QueueName,
    klass: Annotated[str, typer.Argument(help="The class that runs it.")],
    data: Annotated[str, typer.Option(help="Its data, as JSON.")] = "{}",
    delay: Annotated[float, typer.Option(help="Seconds to wait.", min=0)] = 0,
    priority: Annotated[float | None, typer.Option(help="Higher values run first.")] = None,
    retries: Annotated[int | None, typer.Option(help="Maximum retries, including lost attempts.", min=0)] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="A tag; can be repeated.")] = None,
    jid: Annotated[str | None, typer.Option("--id", help="Its id.")] = None,
    url: Url = None,
    as_json: JsonFlag = False,
) -> None:
    """Add a job to a queue, or move the job with that id to it."""
    with QlessClient(url=url) as client:
        options: dict[str, Any] = {"delay": delay, "priority": priority, "retries": retries, "tags": tags, "jid": jid}
        jid = client.put(queue, klass, parse_json(data), **options)
    report(as_json, f"Added job {jid}.", queue=queue, id=jid)


@job.command("ls")
def list_jobs(
    queue: QueueName,
    state: Annotated[State, typer.Option(help="Only jobs in this state.")] = "waiting",
    limit: Limit = 25,
    url: Url = None,
    as_json: JsonFlag = False,
) -> None:
    """List a queue's jobs in a state, the next ones first."""
    with QlessClient(url=url) as client:
        if state == "recurring":
            found = [client.recurring(jid) for jid in client.jobs(queue, state, 0, limit)]
            recurring = [each for each in found if each is not None]
            if as_json:
                show_json([asdict(each) for each in recurring])
            else:
                rows = [[each.jid, each.klass, f"{each.interval:g}", str(each.count)] for each in recurring]
                show_table(("job", "class", "interval", "made"), rows)
            return
        jobs = client.get_many(client.jobs(queue, state, 0, limit)) if state != "waiting" else client.peek(queue, limit)
    _show_jobs(jobs, as_json)


@job.command("show")
def show_job(jid: Jid, url: Url = None, as_json: JsonFlag = False) -> None:
    """Show a job."""
    with QlessClient(url=url) as client:
        found = client.get(jid)
    if found is None:
        raise JobNotFoundError("*", jid)
    if as_json:
        show_json(asdict(found))
        return
    show_fields(
        {
            "job": found.jid,
            "class": found.klass,
            "queue": found.queue or "-",
            "state": found.state,
            "worker": found.worker or "-",
            "lock expires": moment_text(found.expires),
            "priority": f"{found.priority:g}",
            "retries left": f"{found.remaining} of {found.retries}",
            "tags": " ".join(found.tags) or "-",
            "waits for": " ".join(found.dependencies) or "-",
            "data": found.encoded,
            "failure": f"{found.failure.group}: {found.failure.message}" if found.failure else "-",
            "history": " ".join(str(entry.get("what")) for entry in found.history),
        }
    )


@job.command("cancel")
def cancel_job(jid: Jid, yes: Yes = False, url: Url = None, as_json: JsonFlag = False) -> None:
    """Remove a job, unless it is complete or another job waits for it."""
    ask(yes, f"Remove job {jid}?")
    with QlessClient(url=url) as client:
        client.cancel(jid)
    report(as_json, f"Cancelled job {jid}.", id=jid)


@config.command("ls")
def list_config(url: Url = None, as_json: JsonFlag = False) -> None:
    """List the options."""
    with QlessClient(url=url) as client:
        options = client.config()
    if as_json:
        show_json(options)
        return
    show_table(("option", "value"), [[name, str(value)] for name, value in sorted(options.items())])


@config.command("set")
def set_config(
    option: Annotated[str, typer.Argument(help="The option, such as `heartbeat`.")],
    value: Annotated[str | None, typer.Argument(help="Its value; omit to restore the default.")] = None,
    url: Url = None,
    as_json: JsonFlag = False,
) -> None:
    """Set an option, or restore its default."""
    with QlessClient(url=url) as client:
        if value is None:
            client.unset_config(option)
        else:
            client.set_config(option, value)
    sentence = f"Option {option} has its default again." if value is None else f"Option {option} is {value} now."
    report(as_json, sentence, option=option, value=value)


def _show_jobs(jobs: list[QlessJob], as_json: bool) -> None:
    if as_json:
        show_json([asdict(found) for found in jobs])
        return
    rows = [
        [
            found.jid,
            found.klass,
            found.state,
            found.worker or "-",
            f"{found.priority:g}",
            f"{found.failure.group}: {found.failure.message}"[:80] if found.failure else "-",
        ]
        for found in jobs
    ]
    show_table(("job", "class", "state", "worker", "priority", "failure"), rows)


@app.command("script")
def print_script() -> None:
    """Print the function library as a script for EVAL, for clients that load their own script."""
    from orchestration_queue.wires.qless.commands import script_text

    typer.echo(script_text(), nl=False)
