"""`oq chasqui`: the queues of ChasquiMQ."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

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
    name_fields,
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
from orchestration_queue.cli.worker import MetricsHost, MetricsPort
from orchestration_queue.errors import DeadLetterNotFoundError, UsageError
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.worker.signals import owning_signals

if TYPE_CHECKING:
    from orchestration_queue.wires.chasquimq import ChasquiQueue, ChasquiSchedule

__all__ = ["NAME", "app"]

NAME: Final = "chasqui"
"""The noun of its commands."""

app = typer.Typer(help="Use ChasquiMQ queues (requires the extra `msgpack`).", no_args_is_help=True)
dead = typer.Typer(help="Inspect and replay dead letters: jobs that failed for good.", no_args_is_help=True)
scheduler = typer.Typer(help="List and remove repeatable jobs.", no_args_is_help=True)
job = typer.Typer(help="Add, list and cancel jobs.", no_args_is_help=True)
for noun, name in ((dead, "dead"), (scheduler, "scheduler"), (job, "job")):
    app.add_typer(noun, name=name)


class Direction(StrEnum):
    """Which wire a queue is moved to."""

    OWN = "own"
    CHASQUIMQ = "chasquimq"


Limit = Annotated[int, typer.Option(help="Maximum number.", min=1)]


def _open(queue: str, url: str | None) -> ChasquiQueue:
    # Late: the wire needs a package that is an extra.
    from orchestration_queue.wires.chasquimq import ChasquiQueue

    return ChasquiQueue(queue, url=url)


@app.command("inspect")
def inspect(queue: QueueName, url: Url = None, as_json: JsonFlag = False) -> None:
    """Count a queue's jobs by state."""
    with _open(queue, url) as client:
        counts = asdict(client.counts())
    if as_json:
        show_json(counts)
        return
    show_fields(name_fields(counts))


@app.command("pause")
def pause(queue: QueueName, url: Url = None, as_json: JsonFlag = False) -> None:
    """Pause a queue: workers start no more jobs. Those of chasquimq 1.3.0 ignore it."""
    with _open(queue, url) as client:
        client.pause()
    report(as_json, f"Queue {queue} is paused.", queue=queue, is_paused=True)


@app.command("resume")
def resume(queue: QueueName, url: Url = None, as_json: JsonFlag = False) -> None:
    """Resume a paused queue."""
    with _open(queue, url) as client:
        client.resume()
    report(as_json, f"Queue {queue} is running again.", queue=queue, is_paused=False)


@app.command("events")
def events(
    queue: QueueName,
    after: Annotated[str, typer.Option(help="Start after this event id; 0: from the oldest; $: from now on.")] = "$",
    limit: Annotated[int | None, typer.Option(help="Exit after this many; default never.", min=1)] = None,
    url: Url = None,
    as_json: JsonFlag = False,
) -> None:
    """Print a queue's events as they happen."""
    from orchestration_queue.wires.chasquimq import ChasquiEvents

    with ChasquiEvents(queue, url=url, after=after) as listener:
        for number, event in enumerate(listener, 1):
            if as_json:
                show_json(asdict(event))
            else:
                fields = " ".join(f"{name}={value[:80]}" for name, value in sorted(event.fields.items()))
                print_line(
                    f"{event.at.isoformat()} {event.id} {event.type} {event.job_id or '-'} {event.job_name} {fields}"
                )
            if number == limit:
                return


@app.command("move")
def move(
    queue: QueueName,
    direction: Annotated[Direction, typer.Option("--to", help="Which wire the queue is moved to.")],
    own_queue: Annotated[str | None, typer.Option("--queue", help="Our queue's name; default the same.")] = None,
    own_url: Annotated[str | None, typer.Option("--queue-url", help="Our queue's server; default the same.")] = None,
    yes: Yes = False,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Move a queue's waiting jobs and schedules to this package's wire, or back to ChasquiMQ's."""
    from orchestration_queue.wires.chasquimq import ChasquiMove

    ours = own_queue or queue
    names = f"ChasquiMQ queue {queue}", f"our queue {ours}"
    source, target = names if direction is Direction.OWN else reversed(names)
    ask(yes, f"Move {source} to {target}?")
    with ChasquiMove(queue, ours, url=url, our_url=own_url, prefix=prefix) as mover:
        moved = mover.to_ours() if direction is Direction.OWN else mover.to_theirs()
    sentence = (
        f"Moved {format_count(moved.jobs, 'ready job')}, {format_count(moved.delayed, 'delayed job')} and "
        f"{format_count(moved.schedules, 'schedule')}; left {moved.left.total():,}."
    )
    report(as_json, sentence, jobs=moved.jobs, delayed=moved.delayed, schedules=moved.schedules, left=dict(moved.left))
    if not as_json:
        for reason, number in moved.left.most_common():
            print_line(f"  {number:,} left: {reason}")
    if moved.left:
        raise typer.Exit(1)


@app.command("worker")
@owning_signals()
def worker(
    queue: QueueName,
    handler: Annotated[str, typer.Argument(help="The handler, like `app:handler`.")],
    concurrency: Annotated[int, typer.Option(help="Concurrent jobs.", min=1)] = 100,
    store_results: Annotated[bool, typer.Option(help="Keep results for an hour.")] = False,
    rate: Rate = None,
    per: Per = None,
    sandbox: Sandbox = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    url: Url = None,
) -> None:
    """Run a queue's jobs until SIGTERM or SIGINT."""
    from orchestration_queue.wires.chasquimq import ChasquiObserver, ChasquiWorker, ChasquiWorkerOptions

    found = find_handler(handler, sandbox)
    options = ChasquiWorkerOptions(
        concurrency=concurrency, store_results=store_results, rate_limit=parse_rate(rate, per)
    )
    observer: ChasquiObserver | None = None
    with ExitStack() as stack:
        if metrics_port is not None:
            from orchestration_queue.telemetry import TelemetryServer
            from orchestration_queue.wires.chasquimq.metrics import ChasquiMetrics

            observer = metrics = ChasquiMetrics(queue)
            stack.enter_context(TelemetryServer(metrics.registry, host=metrics_host, port=metrics_port))
        asyncio.run(ChasquiWorker(queue, found, url=url, options=options, observer=observer).run())


@job.command("add")
def add_job(
    queue: QueueName,
    name: Annotated[str, typer.Argument(help="The job's name.")],
    data: Annotated[str, typer.Option(help="Its data, as JSON.")] = "null",
    delay: Annotated[float | None, typer.Option(help="Seconds to wait.", min=0)] = None,
    attempts: Annotated[int | None, typer.Option(help="Maximum attempts; default the worker's.", min=0)] = None,
    job_id: Annotated[str | None, typer.Option("--id", help="Its id.")] = None,
    url: Url = None,
    as_json: JsonFlag = False,
) -> None:
    """Add a job."""
    with _open(queue, url) as client:
        added = client.add(name, parse_json(data), delay=delay, attempts=attempts, job_id=job_id)
    sentence = f"Added job {added.id}." if added.is_new else f"The id {added.id} is taken; nothing was added."
    report(as_json, sentence, queue=queue, id=added.id, is_new=added.is_new)


@job.command("ls")
def list_jobs(queue: QueueName, limit: Limit = 20, url: Url = None, as_json: JsonFlag = False) -> None:
    """List ready and active jobs, oldest first."""
    with _open(queue, url) as client:
        jobs = client.list_jobs(limit)
    if as_json:
        show_json([asdict(found) for found in jobs])
        return
    rows = [[found.id, found.name, str(found.attempt), moment_text(found.created_at)] for found in jobs]
    show_table(("job", "name", "failed attempts", "added"), rows)


@job.command("cancel")
def cancel_job(
    queue: QueueName,
    job_id: Annotated[str, typer.Argument(help="The job's id.")],
    url: Url = None,
    as_json: JsonFlag = False,
) -> None:
    """Remove a delayed job."""
    with _open(queue, url) as client:
        is_cancelled = client.cancel(job_id)
    sentence = f"Cancelled job {job_id}." if is_cancelled else f"Job {job_id} does not wait for its time."
    report(as_json, sentence, queue=queue, id=job_id, is_cancelled=is_cancelled)


@dead.command("ls")
def list_dead(queue: QueueName, limit: Limit = 50, url: Url = None, as_json: JsonFlag = False) -> None:
    """List the dead letters of a queue, the oldest first."""
    with _open(queue, url) as client:
        letters = client.dead_letters(limit)
    if as_json:
        show_json([asdict(letter) | {"envelope": letter.envelope.hex()} for letter in letters])
        return
    rows = [
        [
            letter.id,
            letter.name,
            letter.job_id or "-",
            moment_text(letter.added_at),
            letter.reason,
            (letter.detail or "")[:80],
        ]
        for letter in letters
    ]
    show_table(("dead letter", "name", "job", "added", "reason", "detail"), rows)


@dead.command("show")
def show_dead(
    queue: QueueName,
    letter_id: Annotated[str, typer.Argument(help="The dead letter's id, see `oq chasqui dead ls`.")],
    url: Url = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a dead letter: which job failed, with what data, and why."""
    with _open(queue, url) as client:
        letter = client.find_dead_letter(letter_id)
    if letter is None:
        raise DeadLetterNotFoundError(queue, letter_id)
    shown = asdict(letter) | {"envelope": letter.envelope.hex()}
    if as_json:
        show_json(shown)
        return
    shown |= {"added_at": moment_text(letter.added_at), "data": dump(letter.data)}
    show_fields(name_fields(shown))


@dead.command("replay")
def replay_dead(
    queue: QueueName,
    ids: Annotated[list[str] | None, typer.Argument(help="Dead letters to replay.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All dead letters of the queue.")] = False,
    reason: Annotated[str | None, typer.Option(help="Only those that failed for this reason.")] = None,
    limit: Annotated[int | None, typer.Option(help="At most this many, the oldest first.", min=0)] = None,
    url: Url = None,
    as_json: JsonFlag = False,
) -> None:
    """Retry dead letters, with all their attempts."""
    if bool(ids) is everything:
        raise UsageError("Name dead letters, or pass --all; see `oq chasqui dead ls`.")
    with _open(queue, url) as client:
        replayed = client.replay_dead_letters(limit, ids=ids or None, reason=reason)
    report(as_json, f"Ready again: {format_count(replayed, 'job')}.", queue=queue, replayed=replayed)


@dead.command("purge")
def purge_dead(queue: QueueName, yes: Yes = False, url: Url = None, as_json: JsonFlag = False) -> None:
    """Remove all dead letters of a queue."""
    ask(yes, f"Remove all dead letters of queue {queue}?")
    with _open(queue, url) as client:
        removed = client.purge_dead_letters()
    report(as_json, f"Removed {format_count(removed, 'dead letter')}.", queue=queue, removed=removed)


@scheduler.command("ls")
def list_schedules(queue: QueueName, limit: Limit = 100, url: Url = None, as_json: JsonFlag = False) -> None:
    """List a queue's repeatable jobs, next to run first."""
    with _open(queue, url) as client:
        schedules = client.schedules(limit)
    if as_json:
        show_json([_schedule(found) for found in schedules])
        return
    rows = [[found.key, _name(found), moment_text(found.next_at), str(found.fired)] for found in schedules]
    show_table(("schedule", "name", "next fire", "fired"), rows)


def _schedule(found: ChasquiSchedule) -> dict[str, object]:
    return {"key": found.key, "name": _name(found), "next_at": found.next_at, "fired": found.fired}


def _name(found: ChasquiSchedule) -> str:
    return found.spec.job_name if found.spec else "-"


@scheduler.command("rm")
def remove_schedule(
    queue: QueueName,
    key: Annotated[str, typer.Argument(help="The schedule's key.")],
    url: Url = None,
    as_json: JsonFlag = False,
) -> None:
    """Remove a repeatable job."""
    with _open(queue, url) as client:
        is_removed = client.remove_schedule(key)
    sentence = f"Removed schedule {key}." if is_removed else f"Queue {queue} has no schedule {key}."
    report(as_json, sentence, queue=queue, key=key, is_removed=is_removed)
