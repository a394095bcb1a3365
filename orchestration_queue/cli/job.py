"""`oq job`: add a job, look at one."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.markup import escape

from orchestration_queue.cli.common import (
    JsonFlag,
    Prefix,
    Url,
    parsed_json,
    seconds_text,
    show_fields,
    show_json,
    state_text,
    time_text,
)
from orchestration_queue.client import Job, Queue
from orchestration_queue.errors import PayloadError
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.keys import DEFAULT_PREFIX

__all__ = ["app"]

app = typer.Typer(help="Jobs.", no_args_is_help=True)


@app.command("add")
def add(
    queue: Annotated[str, typer.Argument(help="The queue.")],
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
    queue: Annotated[str, typer.Argument(help="The queue.")],
    job_id: Annotated[str, typer.Argument(help="The job's id.")],
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Show a job: where it is, what it was given, what it returned, what it logged."""
    with Queue(queue, url=url, prefix=prefix) as client:
        job = client.get_job(job_id)
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
