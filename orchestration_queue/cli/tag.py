"""`oq tag`: the jobs of a queue by tag."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from orchestration_queue.cli.common import (
    JsonFlag,
    Prefix,
    QueueName,
    Url,
    Yes,
    ask,
    moment_text,
    show_json,
    show_table,
    state_text,
)
from orchestration_queue.cli.verbs import Done, format_count, open_queue, report_moved, verb
from orchestration_queue.client import Queue
from orchestration_queue.protocol.keys import DEFAULT_PREFIX

__all__ = ["app"]

app = typer.Typer(help="Find, cancel, retry and remove jobs by tag.", no_args_is_help=True)

TagName = Annotated[str, typer.Argument(help="The tag.")]
TagNames = Annotated[list[str], typer.Argument(help="The tags.")]
JobId = Annotated[str, typer.Argument(help="The job's id.")]


@app.command("ls")
def ls(
    queue: QueueName,
    limit: Annotated[int, typer.Option(help="Maximum number of tags, the most used first.", min=1)] = 50,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """List the tags of a queue, most used first."""
    with open_queue(queue, url, prefix) as client:
        counts = client.tags.list(limit=limit)
    if as_json:
        show_json([asdict(count) for count in counts])
        return
    show_table(("tag", "jobs"), [(count.tag, str(count.jobs)) for count in counts])


@app.command("show")
def show(
    queue: QueueName,
    tag: TagName,
    limit: Annotated[int, typer.Option(help="Maximum number of jobs, the oldest first.", min=1)] = 50,
    offset: Annotated[int, typer.Option(help="Skip this many of the oldest.", min=0)] = 0,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """List the jobs with a tag, oldest first."""
    with open_queue(queue, url, prefix) as client:
        jobs = client.tags.jobs(tag, limit=limit, offset=offset)
    rows = [
        {"id": job.id, "name": job.name, "state": job.state, "added_at": job.record.added_at, "tags": job.tags}
        for job in jobs
    ]
    if as_json:
        show_json(rows)
        return
    show_table(
        ("job", "name", "state", "added", "tags"),
        [
            [job.id, job.name, state_text(job.state), moment_text(job.record.added_at), ", ".join(job.tags)]
            for job in jobs
        ],
    )


@verb(app, "add")
def _add(client: Queue, job_id: JobId, tags: TagNames) -> Done:
    """Add tags to a job."""
    job = client.get(job_id)
    job.tag(*tags)
    return Done(f"Job {job_id} has the tags {', '.join(job.tags)}.", {"id": job_id, "tags": job.tags})


@verb(app, "drop")
def _drop(client: Queue, job_id: JobId, tags: TagNames) -> Done:
    """Remove tags from a job."""
    job = client.get(job_id)
    job.untag(*tags)
    return Done(f"Job {job_id} has {format_count(len(job.tags), 'tag')}.", {"id": job_id, "tags": job.tags})


@verb(app, "retry")
def _retry(client: Queue, tag: TagName) -> Done:
    """Retry the failed jobs with a tag, with all their attempts."""
    retried = client.tags.retry(tag)
    return Done(f"To run again: {format_count(retried, 'job')}.", {"tag": tag, "retried": retried})


@verb(app, "move")
def _move(
    client: Queue,
    tag: TagName,
    to: Annotated[str, typer.Option("--to", help="The queue to move them to.")],
    delay: Annotated[
        float | None, typer.Option(help="Seconds until they are due there; default: as they were.")
    ] = None,
    yes: Yes = False,
) -> Done:
    """Move the jobs with a tag that are not active to another queue, with their ids, history and tags."""
    ask(yes, f"Move all jobs of tag {tag} in queue {client.name} to {to}?")
    return report_moved(client.tags.move(tag, to, delay=delay), to)


@verb(app, "cancel")
def _cancel(client: Queue, tag: TagName, yes: Yes = False) -> Done:
    """Cancel the unfinished jobs with a tag."""
    ask(yes, f"Cancel all unfinished jobs of tag {tag} in queue {client.name}?")
    cancelled = client.tags.cancel(tag)
    return Done(f"Cancelled {format_count(cancelled, 'job')}.", {"tag": tag, "cancelled": cancelled})


@verb(app, "rm")
def _rm(client: Queue, tag: TagName, yes: Yes = False) -> Done:
    """Remove the jobs with a tag, whatever their state."""
    ask(yes, f"Remove all jobs of tag {tag} in queue {client.name}?")
    removed = client.tags.remove(tag)
    return Done(f"Removed {format_count(removed, 'job')}.", {"tag": tag, "removed": removed})
