"""`oq queue stats`: how long jobs waited and ran, and how many failed: of one day by task, or day by day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

import typer

from orchestration_queue.cli.common import JsonFlag, Prefix, QueueName, Url, show_json, show_table
from orchestration_queue.cli.drawing import span_text, spark
from orchestration_queue.cli.text import print_line
from orchestration_queue.cli.verbs import open_queue
from orchestration_queue.client import DayStatistics, Distribution, TaskStatistics
from orchestration_queue.errors import UsageError
from orchestration_queue.options import seconds
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.states import JobState

__all__ = ["stats"]

_BAR_WIDTH = 40
_KEPT_DAYS = 30
_HOUR = 60


def stats(
    queue: QueueName,
    day: Annotated[str | None, typer.Option(help="The day in UTC, as 2026-01-31; default today.")] = None,
    days: Annotated[
        int, typer.Option(min=1, max=_KEPT_DAYS, help="Show this many days up to today, and the last hour.")
    ] = 1,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Show how long a day's jobs waited and ran, and how many failed, by task; --days shows several days."""
    wanted = None if day is None else _parse_day(day)
    if wanted is not None and days > 1:
        raise UsageError("--day shows one day by task, and --days the last days; pass one of them.")
    with open_queue(queue, url, prefix) as client:
        found = client.statistics(wanted)
        if days > 1:
            before = [client.statistics(found.day - timedelta(days=back)) for back in range(days - 1, 0, -1)]
            start = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=_HOUR - 1)
            minutes = [
                {minute.at: minute.count for minute in client.metrics(state, start=start).minutes}
                for state in (JobState.COMPLETED, JobState.FAILED)
            ]
            hour = [start + timedelta(minutes=minute) for minute in range(_HOUR)]
            ended = [(at, minutes[0].get(at, 0), minutes[1].get(at, 0)) for at in hour]
            _show_days(queue, [*before, found], ended, as_json)
            return
    if as_json:
        tasks = {name: _describe(task) for name, task in found.tasks.items()}
        show_json({"queue": queue, "day": found.day, "all": _describe(found.all), "tasks": tasks})
        return
    rows = [*found.tasks.items(), *([("all", found.all)] if len(found.tasks) > 1 else [])]
    show_table(_STATISTICS, [[name, *_row(task)] for name, task in rows])
    for what, spread in (("wait", found.all.wait), ("run", found.all.run)):
        for line in _plot(what, spread):
            print_line(line)


_STATISTICS = (
    *("task", "completed", "failed", "retried", "wait p50", "wait p99"),
    *("run mean", "deviation", "p50", "p90", "p99"),
)


def _row(task: TaskStatistics) -> list[str]:
    wait, run = task.wait, task.run
    times = (wait.p50, wait.p99, run.mean, run.deviation, run.p50, run.p90, run.p99)
    counts = (task.completed, task.failed, task.retried)
    return [*map(str, counts), *(f"{time.total_seconds():.3f}" for time in times)]


def _parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--day {text!r} is not a day; write it as 2026-01-31.") from None


def _describe(task: TaskStatistics) -> dict[str, Any]:
    counts = {"completed": task.completed, "failed": task.failed, "retried": task.retried, "steps": task.steps}
    described: dict[str, Any] = {**counts, "kinds": dict(task.kinds)}
    for what, spread in (("wait", task.wait), ("run", task.run)):
        named = ("mean", "deviation", "p50", "p90", "p95", "p99")
        described[what] = {
            "count": spread.count,
            **{name: seconds(getattr(spread, name)) for name in named},
            "histogram": [{"until": seconds(until), "count": count} for until, count in spread.histogram],
        }
    return described


def _plot(what: str, spread: Distribution) -> list[str]:
    """Return the histogram as lines of bars, four buckets to a line: each line lasts to twice the one above."""
    # Four buckets make an octave.
    octaves: dict[int, int] = {}
    for bucket, count in spread.buckets.items():
        octaves[-(-bucket // 4)] = octaves.get(-(-bucket // 4), 0) + count
    if not octaves:
        return []
    most = max(octaves.values())
    lines = ["", f"{what}, seconds"]
    for octave in range(min(octaves), max(octaves) + 1):
        count = octaves.get(octave, 0)
        bar = "█" * -(-count * _BAR_WIDTH // most)
        lines.append(f"<= {2**octave / 1000:>10.3f}  {bar}{' ' if bar else ''}{count:,}")
    return lines


def _show_days(
    queue: str, days: Sequence[DayStatistics], ended: Sequence[tuple[datetime, int, int]], as_json: bool
) -> None:
    if as_json:
        described = [{"day": each.day, **_describe(each.all)} for each in days]
        hour = [{"minute": at, "completed": completed, "failed": failed} for at, completed, failed in ended]
        show_json({"queue": queue, "days": described, "last_hour": hour})
        return
    totals = [each.all for each in days]
    _draw("days", "completed", [each.completed for each in totals])
    _draw("days", "failed", [each.failed for each in totals])
    _draw("hour", "completed", [completed for _, completed, _ in ended])
    _draw("hour", "failed", [failed for _, _, failed in ended])
    print_line("")
    columns = ("day", "completed", "failed", "wait p50", "p95", "p99", "run p50", "p95", "p99", "failed by kind")
    rows = zip(days, totals, strict=True)
    show_table(columns, [[f"{each.day}", *_day_row(total)] for each, total in rows if total != TaskStatistics()])


def _draw(what: str, state: str, counts: Sequence[int]) -> None:
    label = "last hour" if what == "hour" else f"{len(counts)} days"
    most = max(counts, default=0)
    print_line(f"{label:<9}  {state:<9}  {spark(counts, most or 1)}  {sum(counts):,}, at most {most:,}")


def _day_row(total: TaskStatistics) -> list[str]:
    times = [each for spread in (total.wait, total.run) for each in _times(spread)]
    kinds = ", ".join(f"{kind} {count}" for kind, count in Counter(total.kinds).most_common(3))
    return [str(total.completed), str(total.failed), *times, kinds]


def _times(spread: Distribution) -> list[str]:
    return [span_text(each.total_seconds()) if spread.count else "" for each in (spread.p50, spread.p95, spread.p99)]
