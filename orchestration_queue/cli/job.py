"""`oq job`: add jobs, look at them, steer them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from orchestration_queue.cli.common import (
    JsonFlag,
    Prefix,
    QueueName,
    Url,
    Yes,
    ask,
    moment_text,
    parsed_json,
    seconds_text,
    show_fields,
    show_json,
    show_table,
    state_text,
    time_text,
)
from orchestration_queue.cli.verbs import Done, verb
from orchestration_queue.client import Cancellation, Job, Queue
from orchestration_queue.errors import PayloadError, StateError
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.states import JobState

__all__ = ["app"]

app = typer.Typer(help="Jobs.", no_args_is_help=True)

JobId = Annotated[str, typer.Argument(help="The job's id.")]
_LOOK_AGAIN_S = 0.5
_LISTED = (
    JobState.ACTIVE,
    JobState.WAITING,
    JobState.DELAYED,
    JobState.SUSPENDED,
    JobState.FAILED,
    JobState.COMPLETED,
)
"""States that the wire keeps a list of."""


@app.command("add")
def add(
    queue: QueueName,
    name: Annotated[str, typer.Argument(help="What kind of job it is: the task's name.")],
    data: Annotated[str, typer.Option(help="The job's data, as JSON.")] = "{}",
    delay: Annotated[float, typer.Option(help="Start no earlier than this many seconds from now.")] = 0,
    priority: Annotated[int, typer.Option(help="1 is the most urgent, 2048 the least; 0 stands outside.")] = 0,
    attempts: Annotated[int, typer.Option(help="Tries in all.")] = 0,
    job_id: Annotated[str | None, typer.Option(help="Your own id: adding it twice adds it once.")] = None,
    wait: Annotated[float | None, typer.Option(help="Wait this many seconds for the result, and print it.")] = None,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Add a job."""
    options = JobOptions(job_id=job_id, delay=delay, priority=priority, attempts=attempts)
    with Queue(queue, url=url, prefix=prefix) as client:
        job = client.add(name, parsed_json(data), options)
        added: dict[str, Any] = {"queue": queue, "id": job.id, "is_new": job.is_new}
        if wait is not None:
            added["result"] = job.wait(wait)
    if as_json:
        show_json(added)
    elif wait is not None:
        typer.echo(json.dumps(added["result"], ensure_ascii=False))
    else:
        typer.echo(f"Added job {job.id} to queue {queue}." if job.is_new else f"Job {job.id} was there already.")


@app.command("show")
def show(
    queue: QueueName,
    job_id: JobId,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Show a job: where it is, what it was given, what it returned, what it logged."""
    with Queue(queue, url=url, prefix=prefix) as client:
        job = client.get(job_id)
        logs = job.logs()
    if as_json:
        show_json({"queue": queue, **_described(job), "logs": logs})
        return
    record = job.record
    show_fields(
        {
            "job": f"{record.id} of queue {queue}",
            "name": record.name,
            "state": state_text(record.state),
            "added": time_text(record.added_at),
            "started": time_text(record.started_at),
            "finished": time_text(record.finished_at),
            "seconds": None if record.seconds is None else seconds_text(record.seconds),
            "attempts failed": f"{record.attempts_made} of {max(1, record.max_attempts)}",
            "reason": _plain(record.failed_reason),
            "progress": None if record.progress is None else _plain(json.dumps(record.progress, ensure_ascii=False)),
            "data": _stored(job, "data"),
            "result": _stored(job, "returnvalue"),
            "options": _plain(record.fields.get("opts")),
            "waited for by": _plain(record.parent_id),
            "logs": _plain("\n".join(logs)),
        }
    )


@app.command("ls")
def ls(
    queue: QueueName,
    state: Annotated[JobState | None, typer.Option(help="Only those in this state.")] = None,
    name: Annotated[str | None, typer.Option(help="Only jobs of this name.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 50,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """List jobs: those that run first, then those that are to run, and those that have ended."""
    with Queue(queue, url=url, prefix=prefix) as client:
        if name is None:
            jobs = _first_jobs(client, [state] if state else _LISTED, limit)
        else:
            jobs = client.search(name, state=state, limit=limit)
    if as_json:
        show_json([_described(job) for job in jobs])
        return
    show_table(
        ("job", "name", "state", "added", "attempts failed", "reason"),
        [
            [
                job.id,
                escape(job.record.name),
                state_text(job.record.state),
                moment_text(job.record.added_at),
                str(job.record.attempts_made),
                escape((job.record.failed_reason or "")[:60]),
            ]
            for job in jobs
        ],
    )


def _first_jobs(client: Queue, states: Iterable[JobState], limit: int) -> list[Job]:
    jobs: list[Job] = []
    for state in states:
        if len(jobs) < limit:
            jobs += client.jobs(state, limit=limit - len(jobs))
    return jobs


@app.command("watch")
def watch(
    queue: QueueName,
    job_id: JobId,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Follow a job until it ends: its progress, and each line that it logs."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"), TimeElapsedColumn())
    with (
        Queue(queue, url=url, prefix=prefix) as client,
        Progress(*columns, console=Console(stderr=True), transient=True) as bars,
    ):
        job = client.get(job_id)
        bar = bars.add_task(f"{job.record.name} {job_id}", total=None, said="")
        told = 0
        while True:
            for line in (lines := job.logs(offset=told)):
                bars.console.print(line, markup=False, highlight=False)
            told += len(lines)
            record = job.refresh()
            percent, said = _progress(record.progress)
            bars.update(bar, total=None if percent is None else 100, completed=percent or 0, said=said or record.state)
            if record.is_finished:
                break
            time.sleep(_LOOK_AGAIN_S)
    if as_json:
        show_json({"queue": queue, **_described(job)})
    else:
        seconds = "" if record.seconds is None else f" after {record.seconds:.2f} s"
        reason = f": {record.failed_reason}" if record.failed_reason else "."
        typer.echo(f"Job {job_id} {record.state}{seconds}{reason}")
    if record.state is JobState.FAILED:
        raise typer.Exit(1)


def _progress(value: Any) -> tuple[float | None, str]:
    """A percentage and a text, of whatever a handler may have reported."""
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
    """Print what a job logged."""
    with Queue(queue, url=url, prefix=prefix) as client:
        lines = client.get(job_id).logs()
    if as_json:
        show_json(lines)
        return
    for line in lines:
        typer.echo(line)


@verb(app, "retry")
def _retry(client: Queue, job_id: JobId) -> Done:
    """Give a failed job all its attempts again."""
    client.get(job_id).retry()
    return Done(f"Job {job_id} runs again.", {"id": job_id, "retried": True})


@verb(app, "promote")
def _promote(client: Queue, job_id: JobId) -> Done:
    """Make a delayed job ready now."""
    client.get(job_id).promote()
    return Done(f"Job {job_id} is ready.", {"id": job_id, "promoted": True})


@verb(app, "cancel")
def _cancel(client: Queue, job_id: JobId) -> Done:
    """Stop a job: one that waits fails at once, one that runs as soon as its worker hears of it."""
    job = client.get(job_id)
    if job.record.is_finished:
        raise StateError(f"Job {job_id!r} of queue {client.name!r} has ended ({job.record.state}); nothing is stopped.")
    done = job.cancel()
    happens = "is told to stop" if done is Cancellation.FLAGGED else "will not run"
    return Done(f"Job {job_id} {happens}.", {"id": job_id, "revocation": done})


@verb(app, "rm")
def _rm(client: Queue, job_id: JobId, yes: Yes = False) -> Done:
    """Remove a job and all that is known of it."""
    job = client.get(job_id)
    ask(yes, f"Remove job {job_id} ({job.record.name}, {job.record.state})?")
    return Done(f"Job {job_id} is removed.", {"id": job_id, "removed": job.remove()})


def _described(job: Job) -> dict[str, Any]:
    record = job.record
    return {
        "id": record.id,
        "name": record.name,
        "state": record.state,
        "added_at": record.added_at,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "seconds": record.seconds,
        "attempts_made": record.attempts_made,
        "max_attempts": record.max_attempts,
        "stalled_count": record.stalled_count,
        "priority": record.priority,
        "failed_reason": record.failed_reason,
        "progress": record.progress,
        "data": _readable(job, "data"),
        "result": _readable(job, "returnvalue"),
        "options": record.options,
        "parent_id": record.parent_id,
    }


def _readable(job: Job, field: str) -> Any:
    """A payload decoded, or as it is stored when another client's serializer wrote it."""
    try:
        return job.record.data if field == "data" else job.record.result
    except PayloadError:
        return job.record.fields.get(field)


def _stored(job: Job, field: str) -> str | None:
    if field not in job.record.fields:
        return None
    return _plain(json.dumps(_readable(job, field), ensure_ascii=False, default=str))


def _plain(words: str | None) -> str | None:
    """Text in which nothing is taken for markup."""
    return None if words is None else escape(words)
