"""`oq tag`: the jobs of a queue by tag."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from orchestration_queue.cli.common import (
    Yes,
    ask,
    moment_text,
    state_text,
)
from orchestration_queue.cli.verbs import Done, Listing, format_count, report_moved, verb
from orchestration_queue.client import Queue

__all__ = ["app"]

app = typer.Typer(help="Find, cancel, retry and remove jobs by tag.", no_args_is_help=True)

TagName = Annotated[str, typer.Argument(help="The tag.")]
TagNames = Annotated[list[str], typer.Argument(help="The tags.")]
JobId = Annotated[str, typer.Argument(help="The job's id.")]


@verb(app, "ls")
def _ls(
    client: Queue,
    limit: Annotated[int, typer.Option(help="Maximum number of tags, the most used first.", min=1)] = 50,
) -> Listing:
    """List the tags of a queue, most used first."""
    counts = client.tags.list(limit=limit)
    rows = [(count.tag, str(count.jobs)) for count in counts]
    return Listing([asdict(count) for count in counts], ("tag", "jobs"), rows)


@verb(app, "show")
def _show(
    client: Queue,
    tag: TagName,
    limit: Annotated[int, typer.Option(help="Maximum number of jobs, the oldest first.", min=1)] = 50,
    offset: Annotated[int, typer.Option(help="Skip this many of the oldest.", min=0)] = 0,
) -> Listing:
    """List the jobs with a tag, oldest first."""
    jobs = client.tags.jobs(tag, limit=limit, offset=offset)
    facts = [
        {"id": job.id, "name": job.name, "state": job.state, "added_at": job.record.added_at, "tags": job.tags}
        for job in jobs
    ]
    rows = [
        (job.id, job.name, state_text(job.state), moment_text(job.record.added_at), ", ".join(job.tags)) for job in jobs
    ]
    return Listing(facts, ("job", "name", "state", "added", "tags"), rows)


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
