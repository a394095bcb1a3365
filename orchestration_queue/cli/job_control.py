"""`oq job`: the verbs that change a job."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestration_queue.cli.common import (
    Yes,
    ask,
    moment_text,
    parse_json,
)
from orchestration_queue.cli.job import JobId, app
from orchestration_queue.cli.verbs import Done, Listing, verb
from orchestration_queue.client import Cancellation, Queue
from orchestration_queue.errors import StateError

__all__: list[str] = []


@verb(app, "retry")
def _retry(
    client: Queue,
    job_id: JobId,
    from_step: Annotated[
        str | None, typer.Option(help="Forget this durable step, and those that were stored after it.")
    ] = None,
) -> Done:
    """Retry a failed job, with all its attempts. It continues after its last stored step."""
    client.get(job_id).retry(from_step=from_step)
    where = "" if from_step is None else f" from step {from_step}"
    return Done(f"Job {job_id} runs again{where}.", {"id": job_id, "retried": True})


@verb(app, "forget")
def _forget(
    client: Queue,
    job_id: JobId,
    step: Annotated[str, typer.Argument(help="The durable step.")],
    following: Annotated[bool, typer.Option(help="Also forget the steps that were stored after it.")] = False,
) -> Done:
    """Forget a durable step of a job that is not running, so that its next attempt runs it again."""
    forgotten = client.get(job_id).forget_step(step, following=following)
    sentence = f"Job {job_id} has forgotten {forgotten:,} step{'' if forgotten == 1 else 's'}."
    return Done(sentence, {"id": job_id, "forgotten": forgotten})


@verb(app, "promote")
def _promote(client: Queue, job_id: JobId) -> Done:
    """Make a delayed job ready now."""
    client.get(job_id).promote()
    return Done(f"Job {job_id} is ready.", {"id": job_id, "promoted": True})


@verb(app, "cancel")
def _cancel(client: Queue, job_id: JobId) -> Done:
    """Cancel a job: waiting jobs fail at once, active ones when their worker is notified."""
    job = client.get(job_id)
    if job.record.is_finished:
        raise StateError(
            f"Job {job_id!r} of queue {client.name!r} has ended ({job.record.state}), so it can't be cancelled."
        )
    done = job.cancel()
    happens = "is notified to stop" if done is Cancellation.FLAGGED else "will not run"
    return Done(f"Job {job_id} {happens}.", {"id": job_id, "cancellation": done})


@verb(app, "rm")
def _rm(
    client: Queue,
    job_id: JobId,
    force: Annotated[bool, typer.Option("--force", help="Remove it even while other jobs wait for it.")] = False,
    yes: Yes = False,
) -> Done:
    """Remove a job with its logs and results."""
    job = client.get(job_id)
    ask(yes, f"Remove job {job_id} ({job.record.name}, {job.record.state})?")
    return Done(f"Job {job_id} is removed.", {"id": job_id, "removed": job.remove(force=force)})


@verb(app, "release")
def _release(client: Queue, job_id: JobId) -> Done:
    """Take an active job from its worker and make it ready again, without counting an attempt."""
    client.get(job_id).release()
    return Done(f"Job {job_id} is ready again.", {"id": job_id, "released": True})


@verb(app, "move")
def _move(
    client: Queue,
    job_id: JobId,
    to: Annotated[str, typer.Option("--to", help="The queue to move it to.")],
    delay: Annotated[float | None, typer.Option(help="Seconds until it is due there; default: as it was.")] = None,
) -> Done:
    """Move a job that is not active to another queue, with its id, history, tags and dependents."""
    job = client.get(job_id).move(to, delay=delay)
    return Done(f"Job {job_id} is {job.state} in queue {to}.", {"id": job_id, "queue": to, "state": job.state})


@verb(app, "depends")
def _depends(
    client: Queue,
    job_id: JobId,
    on: Annotated[list[str] | None, typer.Option(help="A job that it waits for from now on; can be repeated.")] = None,
    off: Annotated[list[str] | None, typer.Option(help="A job that it waits for no more; can be repeated.")] = None,
) -> Done:
    """Change which jobs of its queue a waiting job depends on."""
    job = client.get(job_id)
    job.depends(on=on or (), off=off or ())
    state = job.read_state()
    return Done(f"Job {job_id} is {state} now.", {"id": job_id, "state": state})


@verb(app, "track")
def _track(client: Queue, job_id: JobId) -> Done:
    """Keep a job past retention, with its history and logs; `oq job tracked` lists such jobs."""
    client.get(job_id).track()
    return Done(f"Job {job_id} is tracked.", {"id": job_id, "tracked": True})


@verb(app, "untrack")
def _untrack(client: Queue, job_id: JobId) -> Done:
    """Stop tracking a job; it is removed if it is past retention."""
    client.get(job_id).untrack()
    return Done(f"Job {job_id} is not tracked.", {"id": job_id, "tracked": False})


@verb(app, "tracked")
def _tracked(client: Queue) -> Listing:
    """List the tracked jobs of a queue."""
    jobs = client.tracked()
    facts = [{"id": job.id, "name": job.name, "state": job.state, "added_at": job.record.added_at} for job in jobs]
    rows = [[job.id, job.name, job.state, moment_text(job.record.added_at), str(len(job.history))] for job in jobs]
    return Listing(facts, ("job", "name", "state", "added", "history"), rows)


@verb(app, "signal")
def _signal(
    client: Queue,
    job_id: JobId,
    name: Annotated[str, typer.Argument(help="The signal's name.")],
    data: Annotated[str, typer.Option(help="The signal's data, as JSON.")] = "null",
) -> Done:
    """Send a signal to a suspended job, which then resumes."""
    sent = parse_json(data)
    if not client.get(job_id).signal(name, sent):
        raise StateError(f"Job {job_id!r} of queue {client.name!r} is not suspended; the signal was not delivered.")
    return Done(f"Job {job_id} resumes with signal {name}.", {"id": job_id, "signal": name, "delivered": True})


@verb(app, "priority")
def _priority(
    client: Queue,
    job_id: JobId,
    priority: Annotated[int, typer.Argument(help="From 1, the most urgent, to 2048; 0 for none.")],
) -> Done:
    """Change the priority of a job that has not started."""
    client.get(job_id).change_priority(priority)
    return Done(f"Job {job_id} has priority {priority}.", {"id": job_id, "priority": priority})


@verb(app, "delay")
def _delay(
    client: Queue, job_id: JobId, seconds: Annotated[float, typer.Argument(help="Seconds from now until it is ready.")]
) -> Done:
    """Change when a job that has not started becomes ready."""
    client.get(job_id).change_delay(seconds)
    return Done(f"Job {job_id} is ready in {seconds:g} s.", {"id": job_id, "delay": seconds})


@verb(app, "update")
def _update(client: Queue, job_id: JobId, data: Annotated[str, typer.Argument(help="The new data, as JSON.")]) -> Done:
    """Replace a job's data; an active attempt keeps the old data."""
    client.get(job_id).update_data(parse_json(data))
    return Done(f"Job {job_id} has new data.", {"id": job_id, "updated": True})
