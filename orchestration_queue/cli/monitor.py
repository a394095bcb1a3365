"""`oq queue events`, `oq queue top` and `oq usage`: what happens, and what jobs have used."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from orchestration_queue.cli.common import JsonFlag, Prefix, QueueName, Url, console, show_json, show_table
from orchestration_queue.cli.text import dump, styled
from orchestration_queue.cli.verbs import open_queue
from orchestration_queue.client import JobCounts, LogTail, Queue, QueueEvents, UsageLedger
from orchestration_queue.client.tailing import LOG, TailFilter, event_text
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.server import Connection
from orchestration_queue.server.clock import now_ms

__all__ = ["events", "top", "usage"]

_LOGS_S = 0.5
_ANY_QUEUE = "usage"
"""The ledger of one queue reads the usage of all."""


def events(
    queue: QueueName,
    after: Annotated[
        str, typer.Option(help="Start after the event of this id; 0-0: with the oldest, $: with the next.")
    ] = "$",
    limit: Annotated[int | None, typer.Option(help="Exit after this many; default on Ctrl-C.", min=1)] = None,
    kinds: Annotated[
        list[str] | None, typer.Option("--kind", help="Only these types of events, or `log`; repeatable.")
    ] = None,
    text: Annotated[str, typer.Option(help="Only lines that contain this, in any case.")] = "",
    job: Annotated[str, typer.Option(help="Only of this job.")] = "",
    logs: Annotated[bool, typer.Option("--logs", help="Also what jobs log, about twice a second.")] = False,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
) -> None:
    """Print a queue's events, and what its jobs log, as they happen, one line of JSON each."""
    chosen = TailFilter(kinds or (), text, job)
    has_logs = logs or LOG in chosen.kinds
    if kinds and has_logs:
        chosen = replace(chosen, kinds=[*kinds, LOG])
    with open_queue(queue, url, prefix) as client, client.events(after) as events_:
        tail = client.log_tail() if has_logs else None
        for line in islice(_lines(events_, tail, chosen), limit):
            typer.echo(dump(line))


def _lines(events_: QueueEvents, tail: LogTail | None, chosen: TailFilter) -> Iterator[Mapping[str, object]]:
    jobs = [chosen.job_id] if chosen.job_id else []
    while True:
        for event in (found := events_.read(timeout=_LOGS_S if tail else None)):
            if chosen.matches(event.type, event.job_id, event_text(event)):
                line = {"id": event.id, "at": event.at.isoformat(), "type": event.type, "job_id": event.job_id}
                yield line | dict(event.fields)
        if tail is None:
            continue
        tail.note(found)
        for said in tail.read(chosen.reads_log, jobs, finds_active=not jobs):
            if chosen.matches(LOG, said.job_id, said.text):
                yield {"type": LOG, "job_id": said.job_id, "number": said.number, "line": said.text}


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """What was read of a queue at one time."""

    at_s: float
    counts: JobCounts
    oldest_s: float | None
    is_paused: bool

    @property
    def ended(self) -> int:
        """How many finished jobs are kept: 0 for a queue that keeps none."""
        return self.counts.completed + self.counts.failed


def _take_snapshot(queue: Queue) -> _Snapshot:
    since = queue.oldest_ready()
    oldest_s = None if since is None else max(0.0, now_ms() / 1000 - since.timestamp())
    return _Snapshot(time.monotonic(), queue.counts(), oldest_s, queue.is_paused())


def top(
    interval: Annotated[float, typer.Option(help="Seconds between two rounds.", min=0.1)] = 1.0,
    rounds: Annotated[int | None, typer.Option(help="Exit after this many; default on Ctrl-C.", min=1)] = None,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Watch the depth, throughput and latency of all queues."""
    with Connection.open(url) as connection, Live(console=Console(), auto_refresh=False, transient=True) as live:
        queues: dict[str, Queue] = {}
        before: dict[str, _Snapshot] = {}
        done = 0
        while True:
            # Finding their names scans all keys.
            if done % 10 == 0:
                names = Queue.names(connection=connection, prefix=prefix)
                queues = {name: Queue(name, connection=connection, prefix=prefix) for name in names}
            now = {name: _take_snapshot(queue) for name, queue in queues.items()}
            if as_json:
                typer.echo(dump(_facts(now, before)))
            else:
                table = _table(now, before)
                live.update(table, refresh=True)
            before, done = now, done + 1
            if rounds is not None and done >= rounds:
                break
            time.sleep(interval)
    if not as_json:
        console().print(table)


def _rate(snapshot: _Snapshot, before: _Snapshot | None) -> float | None:
    if before is None or before is snapshot:
        return None
    return max(0, snapshot.ended - before.ended) / (snapshot.at_s - before.at_s)


def _facts(now: Mapping[str, _Snapshot], before: Mapping[str, _Snapshot]) -> list[dict[str, object]]:
    return [
        {
            "queue": name,
            **asdict(snapshot.counts),
            "ended_per_s": _rate(snapshot, before.get(name)),
            "oldest_ready_s": snapshot.oldest_s,
            "paused": snapshot.is_paused,
        }
        for name, snapshot in now.items()
    ]


def _table(now: Mapping[str, _Snapshot], before: Mapping[str, _Snapshot]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("queue")
    for column in ("waiting", "active", "delayed", "failed", "ended/s", "oldest"):
        table.add_column(column, justify="right")
    table.add_column("")
    for name, snapshot in now.items():
        rate = _rate(snapshot, before.get(name))
        counts = snapshot.counts
        table.add_row(
            styled(name),
            str(counts.waiting),
            styled(str(counts.active), "cyan" if counts.active else ""),
            str(counts.delayed),
            styled(str(counts.failed), "red" if counts.failed else ""),
            "-" if rate is None else f"{rate:.0f}",
            "-" if snapshot.oldest_s is None else f"{snapshot.oldest_s:.0f} s",
            styled("paused" if snapshot.is_paused else "", "yellow"),
        )
    return table


def usage(
    queues: Annotated[list[str] | None, typer.Argument(help="Queues; default all that ever reported usage.")] = None,
    hours: Annotated[float, typer.Option(help="How far back.", min=0.02, max=720)] = 1,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Show the token usage and costs reported by jobs."""
    with UsageLedger(_ANY_QUEUE, url=url, prefix=prefix) as ledger:
        found = ledger.summary(queues or None, start=datetime.now(UTC) - timedelta(hours=hours))
    if as_json:
        show_json(asdict(found))
        return
    rows = [*found.queues.items(), ("all", found.total)]
    show_table(
        ("queue", "jobs", "tokens", "cost", "unit"),
        [(name, str(each.jobs), f"{each.tokens:g}", f"{each.cost:g}", each.cost_unit or "-") for name, each in rows],
    )
