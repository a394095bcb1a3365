"""`oq queue`: list, show and control whole queues."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import typer

from orchestration_queue.cli.common import (
    FailureKindOption,
    JsonFlag,
    Prefix,
    Url,
    Yes,
    ask,
    moment_text,
    name_fields,
    parse_backoff,
    seconds_text,
    show_json,
    show_table,
    time_text,
)
from orchestration_queue.cli.statistics import stats
from orchestration_queue.cli.verbs import Details, Done, Listing, format_count, report_moved, verb
from orchestration_queue.client import Queue
from orchestration_queue.options import RateLimit, Retention, seconds
from orchestration_queue.options.queue import QueueSettingsFields
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.server import Connection

__all__ = ["app"]

app = typer.Typer(help="Inspect, pause, limit, retry and clean queues.", no_args_is_help=True)


@app.callback()
def _noun() -> None:
    pass


@app.command("ls")
def ls(url: Url = None, prefix: Prefix = DEFAULT_PREFIX, as_json: JsonFlag = False) -> None:
    """List queues, with the number of jobs in each state."""
    with Connection.open(url) as connection:
        rows = []
        for name in Queue.names(connection=connection, prefix=prefix):
            queue = Queue(name, connection=connection, prefix=prefix)
            rows.append({"queue": name, **asdict(queue.counts()), "paused": queue.is_paused()})
    if as_json:
        show_json(rows)
        return
    show_table(
        ("queue", "waiting", "active", "delayed", "completed", "failed", "suspended", ""),
        [[str(value) for value in list(row.values())[:-1]] + ["paused" if row["paused"] else ""] for row in rows],
    )


@verb(app, "show")
def _show(client: Queue) -> Details:
    """Show a queue: its jobs by state, the oldest ready job, its limits and workers."""
    limit = client.global_rate_limit()
    shown = {
        "queue": client.name,
        "paused": client.is_paused(),
        **asdict(client.counts()),
        "oldest_ready": client.oldest_ready(),
        "global_concurrency": client.global_concurrency(),
        "global_rate_limit": None if limit is None else f"{limit.max} in {limit.duration}",
        "workers": len(client.workers()),
        "schedulers": len(client.schedulers.list()),
    }
    return Details(shown, name_fields({**shown, "oldest_ready": time_text(shown["oldest_ready"])}))


@verb(app, "pause", may_create=True)
def _pause(client: Queue) -> Done:
    """Pause a queue: workers take no more jobs; active jobs continue."""
    client.pause()
    return Done(f"Queue {client.name} is paused.", {"paused": True})


@verb(app, "resume")
def _resume(client: Queue) -> Done:
    """Resume a paused queue."""
    client.resume()
    return Done(f"Queue {client.name} is running.", {"paused": False})


@verb(app, "retry")
def _retry(
    client: Queue,
    count: Annotated[int, typer.Option(help="Maximum number of jobs, the oldest first; 0 means all.")] = 0,
    kind: FailureKindOption = None,
) -> Done:
    """Retry failed jobs, with all their attempts."""
    retried = client.retry_jobs(count or None, kind)
    return Done(f"To run again: {format_count(retried, 'job')}.", {"retried": retried})


@verb(app, "move")
def _move(
    client: Queue,
    to: Annotated[str, typer.Option("--to", help="The queue to move them to.")],
    name: Annotated[str | None, typer.Option(help="Only jobs of this name.")] = None,
    state: Annotated[str | None, typer.Option(help="Only jobs in this state.")] = None,
    kind: FailureKindOption = None,
    limit: Annotated[int, typer.Option(help="Maximum number of jobs.", min=1)] = 1000,
    delay: Annotated[
        float | None, typer.Option(help="Seconds until they are due there; default: as they were.")
    ] = None,
    yes: Yes = False,
) -> Done:
    """Move jobs that are not running to another queue, with their ids, history and tags."""
    found = client.search(name, state, None, limit, kind)
    ask(yes, f"Move {format_count(len(found), 'job')} of queue {client.name} to {to}?")
    return report_moved(client.move_jobs([job.id for job in found], to, delay=delay), to)


@verb(app, "drain")
def _drain(
    client: Queue,
    delayed: Annotated[bool, typer.Option("--delayed", help="Remove delayed jobs as well.")] = False,
    yes: Yes = False,
) -> Done:
    """Remove all waiting jobs."""
    ask(yes, f"Remove all waiting jobs of queue {client.name}?")
    removed = client.drain(delayed=delayed)
    return Done(f"Removed {format_count(removed, 'job')}.", {"removed": removed})


@verb(app, "clean")
def _clean(
    client: Queue,
    older_than: Annotated[float, typer.Option(help="Only jobs that ended more than this many seconds ago.")] = 0,
    state: Annotated[Literal["completed", "failed"], typer.Option(help="Which finished jobs.")] = "completed",
    limit: Annotated[int, typer.Option(help="Maximum number of jobs.")] = 1000,
    kind: FailureKindOption = None,
    yes: Yes = False,
) -> Done:
    """Remove finished jobs, oldest first."""
    ask(yes, f"Remove up to {limit} {state} jobs of queue {client.name}?")
    removed = client.clean(timedelta(seconds=older_than), limit, state, kind)
    return Done(f"Removed {format_count(len(removed), 'job')}.", {"removed": removed})


@verb(app, "obliterate")
def _obliterate(
    client: Queue,
    force: Annotated[bool, typer.Option("--force", help="Remove it even while jobs are active.")] = False,
    yes: Yes = False,
) -> Done:
    """Remove a queue and everything that belongs to it."""
    ask(yes, f"Remove queue {client.name} with all its jobs?")
    removed = client.obliterate(force=force)
    return Done(f"Queue {client.name} is gone; {format_count(removed, 'key')} removed.", {"removed_keys": removed})


@verb(app, "limit", may_create=True)
def _limit(
    client: Queue,
    concurrency: Annotated[
        int | None, typer.Option(help="Maximum active jobs across all workers; 0 removes the limit.")
    ] = None,
    rate: Annotated[int | None, typer.Option(help="Maximum job starts per window; 0 removes the limit.")] = None,
    per: Annotated[float, typer.Option(help="Length of the rate window, in seconds.")] = 1,
) -> Done:
    """Set a queue's limits across all workers; without options, show them."""
    if concurrency is not None:
        client.set_global_concurrency(concurrency or None)
    if rate is not None:
        client.set_global_rate_limit(RateLimit(max=rate, duration=per) if rate else None)
    most, window = client.global_concurrency(), client.global_rate_limit()
    facts = {
        "concurrency": most,
        "rate": None if window is None else window.max,
        "per": None if window is None else seconds(window.duration),
    }
    starts = "no rate limit" if window is None else f"{window.max} starts in {seconds(window.duration):g} s"
    active = "no concurrency limit" if most is None else f"at most {most} active jobs"
    return Done(f"Queue {client.name}: {active}, {starts}.", facts)


@verb(app, "failures")
def _failures(client: Queue) -> Listing:
    """Count failed jobs by kind of failure, with an example of each."""
    groups = client.failures()
    rows = [
        [group.kind, f"{group.count:,}", moment_text(group.last_at), group.job_id, group.name, group.reason[:80]]
        for group in groups
    ]
    return Listing([asdict(group) for group in groups], ("kind", "jobs", "latest", "job", "name", "reason"), rows)


@verb(app, "config", may_create=True)
def _config(
    client: Queue,
    attempts: Annotated[int | None, typer.Option(help="Maximum attempts; 0 removes the setting.")] = None,
    backoff: Annotated[
        str | None, typer.Option(help="Pause before a retry: 2, or exponential:2; 0 removes it.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Timeout of the handler, in seconds; 0 removes the setting.")
    ] = None,
    keep_completed: Annotated[int | None, typer.Option(help="Completed jobs to keep; -1 keeps all.", min=-1)] = None,
    keep_failed: Annotated[int | None, typer.Option(help="Failed jobs to keep; -1 keeps all.", min=-1)] = None,
    lease: Annotated[float | None, typer.Option(help="Lease, in seconds; 0 restores the workers' own.")] = None,
    dead_letter_queue: Annotated[
        str | None, typer.Option(help="Queue for jobs that failed for good; '' restores the workers' own.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Maximum active jobs across all workers; 0 removes the limit.")
    ] = None,
    rate: Annotated[int | None, typer.Option(help="Maximum job starts per window; 0 removes the limit.")] = None,
    per: Annotated[float, typer.Option(help="Length of the rate window, in seconds.")] = 1,
) -> Done:
    """Set defaults for all jobs and workers of a queue; without options, show them."""
    settings = QueueSettingsFields()
    if attempts is not None:
        settings["attempts"] = attempts or None
    if backoff is not None:
        settings["backoff"] = None if backoff == "0" else parse_backoff(backoff)
    if timeout is not None:
        settings["timeout"] = timeout or None
    if keep_completed is not None:
        settings["remove_on_complete"] = None if keep_completed < 0 else Retention(count=keep_completed)
    if keep_failed is not None:
        settings["remove_on_fail"] = None if keep_failed < 0 else Retention(count=keep_failed)
    if lease is not None:
        settings["lease"] = lease or None
    if dead_letter_queue is not None:
        settings["dead_letter_queue"] = dead_letter_queue or None
    if concurrency is not None:
        settings["concurrency"] = concurrency or None
    if rate is not None:
        settings["rate_limit"] = RateLimit(max=rate, duration=per) if rate else None
    found = client.configure(**settings)
    facts = _in_seconds(found.model_dump(exclude_none=True))
    said = ", ".join(f"{name} {_format_setting(value)}" for name, value in facts.items()) or "no settings"
    return Done(f"Queue {client.name}: {said}.", {"settings": facts})


def _in_seconds(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with durations in seconds."""
    facts = {}
    for name, value in settings.items():
        value = seconds(value) if isinstance(value, timedelta) else value
        facts[name] = _in_seconds(value) if isinstance(value, dict) else value
    return facts


def _format_setting(value: Any) -> str:
    if not isinstance(value, dict):
        return f"{value:g}" if isinstance(value, float) else str(value)
    return "(" + ", ".join(f"{name} {_format_setting(part)}" for name, part in value.items()) + ")"


@verb(app, "metrics")
def _metrics(
    client: Queue,
    state: Annotated[Literal["completed", "failed"], typer.Option(help="Which finished jobs.")] = "completed",
    hours: Annotated[float, typer.Option(help="How far back.", min=0.02, max=744)] = 1,
) -> Listing:
    """Show how many jobs finished in each minute, and how long they took."""
    found = client.metrics(state, start=datetime.now(UTC) - timedelta(hours=hours))
    minutes = [asdict(minute) for minute in found.minutes]
    rows = [
        (moment_text(minute.at), str(minute.count), seconds_text(minute.mean_duration.total_seconds()))
        for minute in found.minutes
    ]
    facts = {"queue": client.name, "state": state, "count": found.count, "minutes": minutes}
    return Listing(facts, ("minute", state, "mean seconds"), rows)


app.command("stats")(stats)
