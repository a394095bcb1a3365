"""`oq scheduler calendar`: what the schedules of a queue, or of all queues, will do in the coming days."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

import typer

from orchestration_queue.cli.common import JsonFlag, Prefix, Url, console, show_json, show_table
from orchestration_queue.cli.drawing import spark
from orchestration_queue.cli.text import Cell, print_line, styled
from orchestration_queue.cli.verbs import format_count, require_queue
from orchestration_queue.client import Queue
from orchestration_queue.options import seconds
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.schedules import Calendar, plan_calendar
from orchestration_queue.schedules.calendar import CalendarDay, ClockChange, Deviation, PlannedRuns, Unplanned
from orchestration_queue.schedules.planning import MOST_DAYS, pick_histories
from orchestration_queue.server import Connection
from orchestration_queue.server.clock import now_ms

__all__ = ["calendar"]

_MOST_ROWS = 20
"""Schedules listed for a day in a terminal; JSON has more."""


def calendar(
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Only this queue; default all.")] = None,
    days: Annotated[int, typer.Option(min=1, max=MOST_DAYS, help="How many days after today.")] = 7,
    zone: Annotated[str, typer.Option(help="IANA time zone of the days and hours.")] = "UTC",
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Show what schedules will do, runs per hour, clock changes, and runs that were late or missed."""
    with Connection.open(url) as connection:
        if queue is not None:
            require_queue(connection, Queue(queue, connection=connection, prefix=prefix))
        names = [queue] if queue is not None else Queue.names(connection=connection, prefix=prefix)
        queues = {name: Queue(name, connection=connection, prefix=prefix) for name in names}
        entries = {
            (name, scheduler): entry
            for name, client in queues.items()
            for scheduler, entry in client.schedulers.list().items()
        }
        history = {
            (name, scheduler): past
            for name, schedulers in pick_histories(entries).items()
            for scheduler, past in queues[name].schedulers.histories(schedulers).items()
        }
    planned = plan_calendar(entries, now_ms(), days=days, zone=zone, history=history)
    if as_json:
        show_json(_describe(planned))
    else:
        _show(planned)


def _describe(planned: Calendar) -> dict[str, Any]:
    described = asdict(planned)
    for change in described["changes"]:
        change["shift"] = seconds(change["shift"])
        change["skipped"] = [{"queue": queue, "scheduler": scheduler} for queue, scheduler in change["skipped"]]
    return described


def _show(planned: Calendar) -> None:
    print_line(
        f"{format_count(planned.schedules, 'schedule')}, {format_count(planned.runs, 'run')} until "
        f"{planned.end:%a %Y-%m-%d %H:%M} ({planned.zone})"
    )
    for change in planned.changes:
        console().print(styled(_change_text(change), "yellow"), soft_wrap=True)
    if planned.busiest:
        busiest = planned.busiest
        print_line(f"Busiest hour: {busiest.start:%a %m-%d %H:00}, {format_count(busiest.runs, 'run')}")
        print_line("")
        rows = [[f"{day.day:%a %m-%d}", _hours_text(day, busiest.runs), str(day.runs)] for day in planned.days]
        show_table(("day", "0     6     12    18", "runs"), rows)
        print_line("")
        show_table(("day", "queue", "schedule", "runs", "when"), [row for day in planned.days for row in _rows(day)])
    _show_deviations(planned.deviations)
    _show_unplanned(planned.unplanned)


def _change_text(change: ClockChange) -> str:
    way = "forward" if change.shift > timedelta(0) else "back"
    skipped = ", ".join(f"{queue} {scheduler}" for queue, scheduler in change.skipped)
    lost = f"; without a run then: {skipped}" if skipped else ""
    return f"Clocks go {way} by {abs(change.shift)} in {change.zone}, to {change.at:%a %m-%d %H:%M}{lost}"


def _hours_text(day: CalendarDay, most: int) -> str:
    hours: Counter[int] = Counter()
    for each in day.hours:
        hours[each.start.hour] += each.runs
    return spark([hours.get(hour) for hour in range(24)], most)


def _rows(day: CalendarDay) -> list[list[str]]:
    listed = day.schedules[:_MOST_ROWS]
    rows = [[f"{day.day:%a %m-%d}", each.queue, each.scheduler, str(each.runs), _when(each)] for each in listed]
    more = day.more + len(day.schedules) - len(listed)
    return [*rows, *([[f"{day.day:%a %m-%d}", "", f"and {more} more", "", ""]] if more else [])]


def _when(runs: PlannedRuns) -> str:
    if runs.times:
        return ", ".join(f"{at:%H:%M:%S}" for at in runs.times)
    return f"{runs.first:%H:%M:%S} to {runs.last:%H:%M:%S}"


def _show_deviations(deviations: Sequence[Deviation]) -> None:
    if not deviations:
        return
    print_line("")
    rows: list[list[Cell]] = [
        [
            f"{each.due:%a %m-%d %H:%M:%S}",
            each.queue,
            each.scheduler,
            styled(each.outcome, "red" if each.outcome in ("overdue", "missed") else "yellow"),
            f"{each.at:%a %m-%d %H:%M:%S}" if each.at else "not yet",
        ]
        for each in deviations[:_MOST_ROWS]
    ]
    show_table(("not as planned", "queue", "schedule", "outcome", "evaluated"), rows)
    _say_more(len(deviations))


def _show_unplanned(unplanned: Sequence[Unplanned]) -> None:
    if not unplanned:
        return
    print_line("")
    rows = [[each.queue, each.scheduler, each.reason] for each in unplanned[:_MOST_ROWS]]
    show_table(("queue", "schedule", "without a planned run"), rows)
    _say_more(len(unplanned))


def _say_more(count: int) -> None:
    if count > _MOST_ROWS:
        print_line(f"and {count - _MOST_ROWS} more; --json lists them")
