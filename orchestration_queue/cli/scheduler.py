"""`oq scheduler`: set repeatable jobs, read and control them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from orchestration_queue.cli import schedule_text
from orchestration_queue.cli.calendar import calendar
from orchestration_queue.cli.common import (
    JsonFlag,
    Prefix,
    Url,
    Yes,
    ask,
    parse_instant,
    parse_json,
    show_json,
    show_table,
)
from orchestration_queue.cli.drawing import span_text
from orchestration_queue.cli.flow import find_dag
from orchestration_queue.cli.text import print_line, styled
from orchestration_queue.cli.verbs import Details, Done, Listing, open_queue, verb
from orchestration_queue.client import JobSchedulers, Queue
from orchestration_queue.errors import ScheduleError, StateError
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.schedules import (
    Cron,
    Every,
    FlowTemplate,
    JobTemplate,
    MissedRuns,
    Overlap,
    RepeatAfterComplete,
    Schedule,
    SchedulerEntry,
)

__all__ = ["app"]

app = typer.Typer(help="Schedule repeatable jobs and flows.", no_args_is_help=True)

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The scheduler's queue.")]
SchedulerName = Annotated[str, typer.Argument(metavar="NAME", help="The scheduler.")]


class Missed(StrEnum):
    """What to do about missed runs."""

    FIRE_ONCE = "fire_once"
    SKIP = "skip"
    FIRE_ALL = "fire_all"


@app.callback()
def _noun() -> None:
    pass


@contextmanager
def _scheduler(queue: str, name: str, url: str | None, prefix: str) -> Iterator[tuple[JobSchedulers, SchedulerEntry]]:
    """Open the schedulers of a queue, with the entry of one that must exist."""
    with open_queue(queue, url, prefix) as client:
        yield client.schedulers, client.schedulers.get(name)


@verb(app, "ls")
def _ls(client: Queue) -> Listing:
    """List a queue's schedulers and their next runs, each in its time zone."""
    entries = client.schedulers.list()
    rows = [
        (
            name,
            schedule_text.rhythm(entry),
            entry.timing.tz or "UTC",
            schedule_text.time_there(entry, entry.next_run) or "",
            str(entry.iteration_count),
            schedule_text.state_of(entry),
        )
        for name, entry in entries.items()
    ]
    facts = [schedule_text.describe(name, entry) for name, entry in entries.items()]
    return Listing(facts, ("scheduler", "runs", "zone", "next run", "made", ""), rows)


@verb(app, "show")
def _show(client: Queue, name: SchedulerName) -> Details:
    """Show a scheduler: its schedule, its jobs, and the outcome of its last runs."""
    entry, history = client.schedulers.get(name), client.schedulers.history(name)
    facts = {**schedule_text.describe(name, entry), "history": [asdict(run) for run in history]}
    return Details(facts, schedule_text.fields(client.name, name, entry, history))


@app.command("add")
def add(
    queue: QueueName,
    name: SchedulerName,
    cron: Annotated[str | None, typer.Option(help="Run on this cron pattern, like '30 2 * * 1-5'.")] = None,
    every: Annotated[float | None, typer.Option(help="Run every this many seconds.")] = None,
    after: Annotated[float | None, typer.Option(help="Run this many seconds after each job has finished.")] = None,
    tz: Annotated[str | None, typer.Option(help="IANA time zone of the pattern; default UTC.")] = None,
    day_or: Annotated[
        bool | None, typer.Option("--day-or/--day-and", help="Match either day of month or day of week, or both.")
    ] = None,
    start: Annotated[str | None, typer.Option(help="No run before this time, in ISO 8601.")] = None,
    end: Annotated[str | None, typer.Option(help="No run after this time.")] = None,
    limit: Annotated[int | None, typer.Option(help="Stop after this many jobs.")] = None,
    jitter: Annotated[float, typer.Option(help="Delay each run by up to this many random seconds.")] = 0,
    missed: Annotated[Missed, typer.Option(help="What to do about missed runs.")] = Missed.FIRE_ONCE,
    missed_max: Annotated[int | None, typer.Option(help="With fire_all: at most this many, the latest.")] = None,
    overlap: Annotated[
        Overlap, typer.Option(help="What to do while the previous job has not finished.")
    ] = Overlap.ALLOW,
    job: Annotated[str | None, typer.Option(help="The jobs' name; default the scheduler's.")] = None,
    data: Annotated[str | None, typer.Option(help="The jobs' data, as JSON.")] = None,
    priority: Annotated[int, typer.Option(help="From 1, the most urgent, to 2048; 0 for none.")] = 0,
    attempts: Annotated[int, typer.Option(help="Maximum attempts of each job.")] = 0,
    flow: Annotated[
        str | None, typer.Option(metavar="MODULE:DAG", help="Submit this flow in each run instead of adding a job.")
    ] = None,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Add or replace a scheduler, by a cron pattern, an interval, or a pause after each job."""
    bounds: dict[str, Any] = {
        "start": parse_instant("start", start, tz),
        "end": parse_instant("end", end, tz),
        "limit": limit,
    }
    policies = {"jitter": jitter, "missed": _parse_missed(missed, missed_max), "overlap": overlap}
    schedule = _schedule(cron, every, after, tz, day_or, {**bounds, **policies})
    options = JobOptions(priority=priority, attempts=attempts)
    template = JobTemplate(name=job, data=None if data is None else parse_json(data), options=options)
    if flow is not None:
        if data is not None or template != JobTemplate():
            raise ScheduleError(
                "--job, --data, --priority and --attempts describe a job, but --flow submits a flow; drop them."
            )
        template = FlowTemplate(find_dag(flow))
    with JobSchedulers(queue, url=url, prefix=prefix) as schedulers:
        entry = schedulers.upsert(name, schedule, template)
    if as_json:
        show_json(schedule_text.describe(name, entry))
    elif entry.is_paused:
        print_line(f"Scheduler {name} is still paused; resume it with `oq scheduler resume {queue} {name}`.")
    else:
        print_line(f"Scheduler {name} runs next at {schedule_text.time_there(entry, entry.next_run)}.")


def _schedule(
    cron: str | None,
    every: float | None,
    after: float | None,
    tz: str | None,
    day_or: bool | None,
    options: dict[str, Any],
) -> Schedule:
    given = [name for name, value in (("--cron", cron), ("--every", every), ("--after", after)) if value is not None]
    if len(given) != 1:
        raise ScheduleError(
            f"A scheduler needs exactly one of --cron, --every and --after, got {' and '.join(given) or 'none'}; "
            "pass one."
        )
    if cron is not None:
        return Cron(cron, tz, day_or=day_or, **options)
    if tz is not None or day_or is not None:
        raise ScheduleError(f"--tz and --day-or apply to a --cron pattern, but not to {given[0]}; drop them.")
    if every is not None:
        return Every(every, **options)
    return RepeatAfterComplete(after or 0, **options)


def _parse_missed(mode: Missed, most: int | None) -> MissedRuns:
    if (mode is Missed.FIRE_ALL) is (most is None):
        raise ScheduleError("--missed fire_all and --missed-max need each other; pass both or neither.")
    if most is not None:
        return MissedRuns.fire_all(most)
    return MissedRuns.skip() if mode is Missed.SKIP else MissedRuns.fire_once()


@verb(app, "rm")
def _rm(client: Queue, name: SchedulerName, yes: Yes = False) -> Done:
    """Remove a scheduler; jobs that it added are kept."""
    client.schedulers.get(name)
    ask(yes, f"Remove scheduler {name}?")
    is_removed = client.schedulers.remove(name)
    return Done(f"Scheduler {name} is removed.", {"scheduler": name, "is_removed": is_removed})


@verb(app, "pause")
def _pause(client: Queue, name: SchedulerName) -> Done:
    """Pause a scheduler: it adds no jobs until it is resumed."""
    entry = client.schedulers.pause(name)
    then = f"resume it with `oq scheduler resume {client.name} {name}`"
    return Done(f"Scheduler {name} is paused; {then}.", schedule_text.describe(name, entry))


@verb(app, "resume")
def _resume(client: Queue, name: SchedulerName) -> Done:
    """Resume a paused scheduler; runs that were due meanwhile are skipped."""
    entry = client.schedulers.resume(name)
    run = schedule_text.time_there(entry, entry.next_run)
    then = f"runs next at {run}" if run else "continues when its job has ended"
    return Done(f"Scheduler {name} {then}.", schedule_text.describe(name, entry))


@app.command("run")
def run(
    queue: QueueName, name: SchedulerName, url: Url = None, prefix: Prefix = DEFAULT_PREFIX, as_json: JsonFlag = False
) -> None:
    """Run a schedule now, in addition to its planned runs."""
    with open_queue(queue, url, prefix) as client:
        job = client.schedulers.run_now(name)
        entry = None if job else client.schedulers.find(name)
    if job is None and not (entry and entry.queued):
        raise StateError(
            f"Scheduler {name!r} added no job, because the previous run's job has not ended and its overlap policy "
            f"allows only one; see which with `oq scheduler show {queue} {name}`."
        )
    if as_json:
        show_json({"queue": queue, "scheduler": name, "id": job.id if job else None, "is_queued": job is None})
    elif job is None:
        print_line(f"Scheduler {name} adds a job as soon as the previous run's job has ended.")
    else:
        print_line(f"Scheduler {name} added job {job.id}.")


@app.command("next")
def next_(
    queue: QueueName,
    name: SchedulerName,
    count: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 10,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """List the next planned runs, in the scheduler's time zone and in UTC."""
    with _scheduler(queue, name, url, prefix) as (schedulers, entry):
        runs = schedulers.next_runs(name, count)
    if as_json:
        show_json([{"at": run, "utc": run.astimezone(UTC)} for run in runs])
        return
    if not runs:
        print_line(f"Scheduler {name} has no planned run: {schedule_text.why_none(entry)}.")
        return
    now = datetime.now(UTC)
    is_utc = runs[0].tzinfo is UTC
    show_table(
        ("UTC", "in") if is_utc else (entry.timing.tz or "", "UTC", "in"),
        [
            [
                *([] if is_utc else [schedule_text.day_and_time(run)]),
                schedule_text.day_and_time(run.astimezone(UTC)),
                span_text((run - now).total_seconds()) if run > now else styled("due", "red"),
            ]
            for run in runs
        ],
    )


app.command("calendar")(calendar)
