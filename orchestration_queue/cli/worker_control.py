"""`oq worker ls` and the verbs that reach workers through the server: ping, pause, resume, stop, concurrency."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
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
    seconds_text,
    show_json,
    show_table,
)
from orchestration_queue.cli.verbs import format_count, open_queue
from orchestration_queue.client import WorkerInfo, WorkerJob, WorkerReply
from orchestration_queue.errors import UsageError
from orchestration_queue.options import seconds
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.protocol.operations.worker_signals import WorkerVerb

__all__ = ["add_verbs", "workers"]

_MEGABYTE = 1_000_000
_PROGRESS_LENGTH = 60

_SIMPLE: dict[WorkerVerb, str] = {
    "ping": "Ask workers whether they are alive. The exit code is 1 if one does not answer in time.",
    "pause": "Have workers take no jobs; active ones continue. Other workers serve the queue meanwhile.",
    "resume": "Have paused workers take jobs again, unless their queue is paused.",
}

Names = Annotated[list[str] | None, typer.Argument(help="Ids of the workers, see `oq worker ls`.", metavar="WORKER")]
All = Annotated[bool, typer.Option("--all", help="All workers of the queue.")]
Timeout = Annotated[float, typer.Option(help="Seconds to wait for answers.", min=0.01)]


def add_verbs(app: typer.Typer) -> None:
    """Add `ls` and the verbs that workers obey."""
    app.command("ls")(workers)
    for verb, what in _SIMPLE.items():
        app.command(verb, help=what)(_simple(verb))
    app.command("stop")(stop)
    app.command("concurrency")(concurrency)


def workers(
    queue: QueueName,
    jobs: Annotated[bool, typer.Option("--jobs", help="List their active jobs, longest-running first.")] = False,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """List the live workers of a queue, as they last reported."""
    with open_queue(queue, url, prefix) as client:
        found = client.workers()
    if as_json:
        show_json([asdict(worker) for worker in found])
    elif jobs:
        show_table(
            ("worker", "job", "name", "since", "progress", "lease left"),
            [[worker.id, *_job_row(job)] for worker in found for job in worker.jobs],
        )
    else:
        columns = ("worker", "host", "pid", "since", "state", "active jobs", "of", "MB", "code", "tasks")
        show_table(columns, [_row(worker) for worker in found])


def _row(worker: WorkerInfo) -> list[str]:
    return [
        worker.id,
        worker.host,
        str(worker.pid),
        moment_text(worker.started_at),
        "paused" if worker.is_paused else "taking jobs",
        str(worker.active_jobs),
        "-" if worker.concurrency is None else str(worker.concurrency),
        "-" if worker.memory_bytes is None else str(round(worker.memory_bytes / _MEGABYTE)),
        worker.code_version or "-",
        ", ".join(worker.tasks) or "-",
    ]


def _job_row(job: WorkerJob) -> list[str]:
    progress = "-" if job.progress is None else json.dumps(job.progress, ensure_ascii=False)[:_PROGRESS_LENGTH]
    left = "-" if job.lease_left is None else f"{seconds(job.lease_left):.0f} s"
    return [job.id, job.name, moment_text(job.started_at), progress, left]


def _simple(verb: WorkerVerb) -> Callable[..., None]:
    def command(
        queue: QueueName,
        names: Names = None,
        everyone: All = False,
        timeout: Timeout = 2,
        url: Url = None,
        prefix: Prefix = DEFAULT_PREFIX,
        as_json: JsonFlag = False,
    ) -> None:
        _send_command(verb, queue, names, everyone, timeout, url, prefix, as_json)

    return command


def stop(
    queue: QueueName,
    names: Names = None,
    everyone: All = False,
    timeout: Timeout = 2,
    yes: Yes = False,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Stop workers after their active jobs, as on SIGTERM. A supervisor may restart them."""
    _check(names, everyone)
    ask(yes, f"Stop {'all workers' if everyone else format_count(len(names or ()), 'worker')} of queue {queue}?")
    _send_command("stop", queue, names, everyone, timeout, url, prefix, as_json)


def concurrency(
    queue: QueueName,
    jobs: Annotated[int, typer.Argument(help="Concurrent jobs of each worker, until it exits.")],
    names: Names = None,
    everyone: All = False,
    timeout: Timeout = 2,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Change the concurrency of workers. Active jobs continue, even beyond it."""
    _send_command("concurrency", queue, names, everyone, timeout, url, prefix, as_json, jobs)


def _check(names: Sequence[str] | None, everyone: bool) -> None:
    if bool(names) is everyone:
        raise UsageError("No worker is named; pass worker ids, or --all; see `oq worker ls`.")


def _send_command(
    verb: WorkerVerb,
    queue: str,
    names: Sequence[str] | None,
    everyone: bool,
    timeout: float,
    url: str | None,
    prefix: str,
    as_json: bool,
    slots: int | None = None,
) -> None:
    _check(names, everyone)
    with open_queue(queue, url, prefix) as client:
        replies = client.control_workers(verb, names or None, concurrency=slots, timeout=timeout)
    if as_json:
        show_json([asdict(reply) | {"latency": reply.latency and reply.latency.total_seconds()} for reply in replies])
    else:
        show_table(
            ("worker", "answer", "state", "active jobs", "of", "seconds"), [_reply_row(reply) for reply in replies]
        )
    if not all(reply.has_obeyed for reply in replies):
        raise typer.Exit(1)


def _reply_row(reply: WorkerReply) -> list[str]:
    if not reply.answered:
        return [reply.worker, "none", "-", "-", "-", "-"]
    return [
        reply.worker,
        reply.problem or "ok",
        "paused" if reply.is_paused else "taking jobs",
        str(reply.active_jobs),
        str(reply.concurrency),
        seconds_text(None if reply.latency is None else reply.latency.total_seconds()),
    ]
