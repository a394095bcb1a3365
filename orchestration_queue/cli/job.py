"""`oq job`: add, show and follow jobs."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from dataclasses import asdict
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from orchestration_queue.cli.common import (
    FailureKindOption,
    JsonFlag,
    Prefix,
    QueueName,
    Url,
    moment_text,
    parse_backoff,
    parse_header,
    parse_instant,
    parse_json,
    seconds_text,
    show_json,
    state_text,
    time_text,
    warn,
)
from orchestration_queue.cli.declared import takes_declared
from orchestration_queue.cli.job_text import describe, describe_step, history_text, read_field, step_texts
from orchestration_queue.cli.limits import parse_pools
from orchestration_queue.cli.text import clean, dump, print_line
from orchestration_queue.cli.verbs import Details, Listing, open_queue, verb
from orchestration_queue.client import Queue
from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.options import Deduplication, Fallback, JobOptions, Ordering, Retention
from orchestration_queue.options.job import BACKOFF_TYPES
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.protocol.operations.job_output import FIRST_ENTRY
from orchestration_queue.protocol.operations.steps import COUNTER
from orchestration_queue.protocol.operations.worker_registry import MOST_TASKS
from orchestration_queue.states import JobState

__all__ = ["app"]

app = typer.Typer(help="Add, inspect, retry, cancel and move jobs.", no_args_is_help=True)

JobId = Annotated[str, typer.Argument(help="The job's id.")]
_POLL_S = 0.5


@app.command("add")
@takes_declared
def add(
    queue: QueueName,
    name: Annotated[str, typer.Argument(help="The job's name: the task to run.")],
    data: Annotated[str, typer.Option(help="The job's data, as JSON.")] = "{}",
    delay: Annotated[float, typer.Option(help="Start no earlier than this many seconds from now.")] = 0,
    at: Annotated[
        str | None, typer.Option(help="Start no earlier than this time (ISO 8601), instead of a delay.")
    ] = None,
    priority: Annotated[int, typer.Option(help="From 1, the most urgent, to 2048; 0 for none.")] = 0,
    lifo: Annotated[bool, typer.Option("--lifo", help="Start before waiting jobs, newest first.")] = False,
    attempts: Annotated[int, typer.Option(help="Maximum attempts.")] = 0,
    backoff: Annotated[
        str | None, typer.Option(help="Pause before a retry: seconds, or type:seconds like exponential:2.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Time limit of an attempt, in seconds.")] = None,
    ttl: Annotated[
        float, typer.Option(help="Expire the job if it has not started after this many seconds; 0: never.")
    ] = 0,
    lease: Annotated[
        float | None,
        typer.Option(help="Seconds without a renewal until another worker takes it; default: the worker's."),
    ] = None,
    job_id: Annotated[str | None, typer.Option(help="Your own id; adding the same id again adds nothing.")] = None,
    key: Annotated[
        str | None, typer.Option(help="Ordering key: jobs with this key run in order, one at a time.")
    ] = None,
    cost: Annotated[float, typer.Option(help="Tokens that it pays from its key's bucket; 0 means one.")] = 0,
    dedup: Annotated[
        str | None, typer.Option(help="Deduplication id: add nothing while a job of this id is unfinished.")
    ] = None,
    keep_completed: Annotated[
        int | None, typer.Option(help="Completed jobs to keep, this one included.", min=0)
    ] = None,
    keep_failed: Annotated[int | None, typer.Option(help="Failed jobs to keep, this one included.", min=0)] = None,
    fallback: Annotated[
        list[str] | None, typer.Option(help="What its next retry should use instead; can be repeated.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=TEXT", help="A string stored with it; can be repeated.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag; can be repeated.")] = None,
    pool: Annotated[
        list[str] | None,
        typer.Option(help="A pool in which it holds one slot, or two with warehouse=2; can be repeated."),
    ] = None,
    wait: Annotated[float | None, typer.Option(help="Wait this many seconds for the result, and print it.")] = None,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
    *,
    declared: dict[str, Any],
) -> None:
    """Add a job."""
    options = JobOptions(
        job_id=job_id,
        delay=delay,
        delay_until=parse_instant("at", at),
        priority=priority,
        lifo=lifo,
        attempts=attempts,
        backoff=None if backoff is None else parse_backoff(backoff),
        timeout=timeout,
        ttl=ttl,
        lease=lease,
        ordering=None if key is None else Ordering(key=key),
        cost=cost,
        deduplication=None if dedup is None else Deduplication(id=dedup),
        remove_on_complete=None if keep_completed is None else Retention(count=keep_completed),
        remove_on_fail=None if keep_failed is None else Retention(count=keep_failed),
        fallbacks=tuple(Fallback(model=model) for model in fallback or ()),
        headers=dict(map(parse_header, header or ())),
        tags=tuple(tag or ()),
        pools=parse_pools(pool),
        **declared,
    )
    with Queue(queue, url=url, prefix=prefix) as client:
        job = client.add(name, parse_json(data), options)
        added: dict[str, Any] = {"queue": queue, "id": job.id, "is_new": job.is_new}
        with suppress(OrchestrationQueueError):  # only a warning, which a producer may not be allowed to look for
            _warn_of_unknown_task(client, name, options)
        if wait is not None:
            added["result"] = job.wait(wait)
    if as_json:
        show_json(added)
    elif wait is not None:
        typer.echo(dump(added["result"]))
    else:
        print_line(f"Added job {job.id} to queue {queue}." if job.is_new else f"Job {job.id} already exists.")


def _warn_of_unknown_task(client: Queue, name: str, options: JobOptions) -> None:
    """Say that no live worker has this task or backoff, if all of them have registered what they have."""
    workers = client.workers()
    backoff = "fixed" if options.backoff is None else options.backoff.type
    may_know = not workers or any(worker.strategies is None or backoff in worker.strategies for worker in workers)
    if backoff not in BACKOFF_TYPES and not may_know:
        warn(
            f"No live worker of queue {client.name!r} has a strategy {backoff!r}, so the job's retries wait for its "
            "plain delay; use fixed or exponential, or start workers with that strategy."
        )
    known = {task for worker in workers for task in worker.tasks}
    if name in known or not all(0 < len(worker.tasks) < MOST_TASKS for worker in workers) or not workers:
        return
    close = get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"they have {', '.join(sorted(known))}."
    warn(f"No live worker of queue {client.name!r} has a task {name!r}, so the job will fail with them; {hint}")


@verb(app, "show")
def _show(client: Queue, job_id: JobId) -> Details:
    """Show a job: its state, failed attempts, durable steps, data, result and logs."""
    queue, job = client.name, client.get(job_id)
    logs = job.logs()
    steps = job.steps() if COUNTER in job.record.fields else []
    record = job.record
    return Details(
        {"queue": queue, **describe(job), "steps": [describe_step(step) for step in steps], "logs": logs},
        {
            "job": f"{record.id} of queue {queue}",
            "name": record.name,
            "state": state_text(record.state),
            "added": time_text(record.added_at),
            "started": time_text(record.started_at),
            "finished": time_text(record.finished_at),
            "seconds": None if record.seconds is None else seconds_text(record.seconds),
            "attempts failed": f"{record.attempts_made} of {max(1, record.max_attempts)}",
            "stalled": f"{record.stalled_count} times" if record.stalled_count else None,
            "reason": record.failed_reason,
            "failure kind": record.failure_kind,
            "traceback": "\n".join(clean(line) for line in (record.traceback or "").splitlines()),
            "history": "\n".join(history_text(entry, record.traceback) for entry in record.history),
            "steps": "\n".join(step_texts(steps)),
            "tags": ", ".join(record.tags),
            "pools": ", ".join(f"{pool}={slots}" for pool, slots in record.pools.items()),
            "share": record.share,
            "ordering key": record.group,
            "tracked": "yes" if record.is_tracked else None,
            "progress": None if record.progress is None else dump(record.progress),
            "data": read_field(job, "data"),
            "result": read_field(job, "returnvalue"),
            "options": record.fields.get("opts"),
            "waited for by": record.parent_id and f"{record.parent_id} of queue {record.parent_queue or queue}",
            "logs": "\n".join(clean(line) for line in logs),
        },
    )


@app.command("why")
def why(
    queue: QueueName, job_id: JobId, url: Url = None, prefix: Prefix = DEFAULT_PREFIX, as_json: JsonFlag = False
) -> None:
    """Explain what a job waits for, which worker has it, or why it failed."""
    with open_queue(queue, url, prefix) as client:
        found = client.get(job_id).explain()
    if as_json:
        show_json({"queue": queue, **asdict(found)})
        return
    print_line(f"{job_id} is {found.state}. {found.sentence}")
    if found.action:
        print_line(f"What to do: {found.action}.")


@verb(app, "ls")
def _ls(
    client: Queue,
    state: Annotated[JobState | None, typer.Option(help="Only those in this state.")] = None,
    name: Annotated[str | None, typer.Option(help="Only jobs of this name.")] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of jobs.", min=1)] = 50,
    kind: FailureKindOption = None,
) -> Listing:
    """List jobs: active first, then waiting and delayed, then finished.

    Of jobs that wait for others, it lists those that called these; --state waiting-children finds all, among all keys.
    """
    jobs = client.search(name, state=state, limit=limit, kind=kind)
    rows = [
        (
            job.id,
            job.record.name,
            state_text(job.record.state),
            moment_text(job.record.added_at),
            str(job.record.attempts_made),
            (job.record.failed_reason or "")[:60],
        )
        for job in jobs
    ]
    return Listing(
        [describe(job) for job in jobs], ("job", "name", "state", "added", "attempts failed", "reason"), rows
    )


@app.command("watch")
def watch(
    queue: QueueName,
    job_id: JobId,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Follow a job's progress and log until it finishes."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[said]}", markup=False),
        TimeElapsedColumn(),
    )
    with ExitStack() as stack:
        job = stack.enter_context(open_queue(queue, url, prefix)).get(job_id)
        bars = stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
        bar = bars.add_task(clean(f"{job.record.name} {job_id}"), total=None, said="")
        shown = 0
        while True:
            for line in (lines := job.logs(offset=shown)):
                bars.console.print(clean(line, lines=True), markup=False, highlight=False)
            shown += len(lines)
            record = job.refresh()
            percent, said = _progress(record.progress)
            bars.update(
                bar, total=None if percent is None else 100, completed=percent or 0, said=clean(said or record.state)
            )
            if record.is_finished:
                break
            time.sleep(_POLL_S)
    if as_json:
        show_json({"queue": queue, **describe(job)})
    else:
        seconds = "" if record.seconds is None else f" after {record.seconds:.2f} s"
        reason = f": {record.failed_reason}" if record.failed_reason else "."
        print_line(f"Job {job_id} {record.state}{seconds}{reason}")
    if record.state is JobState.FAILED:
        raise typer.Exit(1)


def _progress(value: Any) -> tuple[float | None, str]:
    """Return a percentage and a text from the progress that a handler reported."""
    if isinstance(value, dict):
        percent, said = value.get("percent", value.get("progress")), value.get("text", value.get("message", ""))
    else:
        percent, said = value, ""
    if isinstance(percent, bool) or not isinstance(percent, (int, float)):
        return None, str(said)
    return float(percent), str(said)


@app.command("logs")
def logs(
    queue: QueueName, job_id: JobId, url: Url = None, prefix: Prefix = DEFAULT_PREFIX, as_json: JsonFlag = False
) -> None:
    """Print a job's log."""
    with open_queue(queue, url, prefix) as client:
        lines = client.get(job_id).logs()
    if as_json:
        show_json(lines)
        return
    for line in lines:
        print_line(line, lines=True)


@app.command("stream")
def stream(
    queue: QueueName,
    job_id: JobId,
    after: Annotated[str, typer.Option(help="Start after the entry of this id.")] = FIRST_ENTRY,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
) -> None:
    """Print what a job's handler streams until it finishes, one line of JSON per entry."""
    with open_queue(queue, url, prefix) as client:
        for entry in client.get(job_id).stream(after):
            typer.echo(dump({"id": entry.id, **entry.fields}))
