"""What happens in the replayed day: who adds which jobs when, how long they take, and what goes wrong.

From Saturday, 2026-03-28 00:00 UTC, to Sunday morning, with three incidents:

* At noon a mail server fails. Until then some e-mails fail because mailboxes are full, and for three hours after it
  many fail because connections are refused.
* At 02:07 in the night the machine ``batch-2`` is lost. It runs one of the two workers of ``reports``, one of ``etl``,
  and the only one of ``exports``, which starts again elsewhere at 02:24.
* At 01:00 UTC clocks go forward in Berlin, from 02:00 to 03:00, and the nightly export of 02:30 does not run. The flow
  ``catalog``, which reads its file, fails from then on.
"""

from __future__ import annotations

import linecache
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from orchestration_queue import Cron, Dag, Failed, FlowTemplate, JobTemplate, Node, UnrecoverableError
from orchestration_queue.options import AlertRule
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.schedules import Schedule

__all__ = ["ALERTS", "END", "LOST", "LOST_HOST", "NOON", "SCHEDULES", "START", "TEAM", "Addition", "Staff", "additions",
           "error_of", "history", "seconds_of"]  # fmt: skip

START, END = datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 3, 29, 7, 30, tzinfo=UTC)
NOON = datetime(2026, 3, 28, 12, 4, tzinfo=UTC)
_NOON_ENDS = datetime(2026, 3, 28, 15, 10, tzinfo=UTC)
LOST = datetime(2026, 3, 29, 2, 7, 20, tzinfo=UTC)
LOST_HOST = "batch-2"
_REPLACED = datetime(2026, 3, 29, 2, 24, tzinfo=UTC)
_FORWARD = datetime(2026, 3, 29, 1, tzinfo=UTC)
_ZONE = "Europe/Berlin"


@dataclass(frozen=True)
class Staff:
    """A worker: its queue, name and machine, how many jobs it runs, and when it starts."""

    queue: str
    name: str
    host: str
    concurrency: int
    tasks: tuple[str, ...]
    start: datetime = START


_ETL = ("extract", "transform", "load", "read-export", "publish", "count", "compare")
TEAM = (
    Staff("orders", "orders-1", "app-1", 3, ("charge", "ship")),
    Staff("orders", "orders-2", "app-2", 3, ("charge", "ship")),
    Staff("emails", "emails-1", "app-1", 4, ("send", "newsletter")),
    Staff("emails", "emails-2", "app-2", 4, ("send", "newsletter")),
    Staff("reports", "reports-1", "batch-1", 2, ("statement",)),
    Staff("reports", "reports-2", LOST_HOST, 2, ("statement",)),
    Staff("etl", "etl-1", "batch-1", 4, _ETL),
    Staff("etl", "etl-2", LOST_HOST, 4, _ETL),
    Staff("exports", "exports-1", LOST_HOST, 2, ("nightly-export", "sync-crm", "cleanup", "partner-feed")),
    Staff("exports", "exports-2", "batch-1", 2, ("nightly-export", "sync-crm", "cleanup", "partner-feed"), _REPLACED),
)

_SALES = Dag(
    "sales",
    [
        Node("extract-orders"), Node("extract-refunds"),
        Node("transform", deps=["extract-orders", "extract-refunds"]),
        Node("by-country", deps=["transform"]), Node("by-product", deps=["transform"]),
        Node("load", deps=["by-country", "by-product"]),
    ],
    "etl",
)  # fmt: skip
_INVENTORY = Dag(
    "inventory", [Node("count-eu"), Node("count-us"), Node("compare", deps=["count-eu", "count-us"])], "etl"
)
_CATALOG = Dag(
    "catalog",
    [
        Node("read-export"), Node("extract-prices"), Node("merge", deps=["read-export", "extract-prices"]),
        Node("publish", deps=["merge"]),
    ],
    "etl",
)  # fmt: skip
SCHEDULES: tuple[tuple[str, str, Schedule, JobTemplate], ...] = (
    ("etl", "sales", Cron("5 * * * *"), FlowTemplate(_SALES)),
    ("etl", "inventory", Cron("*/30 * * * *"), FlowTemplate(_INVENTORY)),
    ("etl", "catalog", Cron("10 */2 * * *"), FlowTemplate(_CATALOG)),
    ("exports", "nightly-export", Cron("30 2 * * *", tz=_ZONE), JobTemplate(data={"format": "parquet"})),
    ("exports", "sync-crm", Cron("*/10 * * * *"), JobTemplate()),
    ("exports", "cleanup", Cron("0 * * * *"), JobTemplate()),
    ("exports", "partner-feed", Cron("15 * * * *"), JobTemplate()),
    ("exports", "bank-file", Cron("0 7 * * MON-FRI", tz=_ZONE), JobTemplate()),
    ("emails", "newsletter", Cron("0 18 * * SAT", tz=_ZONE), JobTemplate()),
)
ALERTS = {
    "mail-failures": AlertRule(
        kind="failure_rate", queue="emails", threshold=0.15, window=900, pending=120, to=("ops",)
    ),
    "mail-dead-letters": AlertRule(kind="dead_letters", queue="emails", threshold=40, to=("ops",)),
    "slow-statements": AlertRule(
        kind="oldest_waiting", queue="reports", threshold=6600, to=("ops",), note="https://wiki.example.org/statements"
    ),
    "exports-worker": AlertRule(kind="no_worker", queue="exports", pending=60, to=("ops", "oncall")),
    "etl-failures": AlertRule(kind="dead_letters", queue="etl", to=("ops",)),
    "exports-overdue": AlertRule(kind="schedule_overdue", queue="exports", threshold=120, to=("ops",)),
}


@dataclass(frozen=True, order=True)
class Addition:
    """A job that a program adds."""

    at: datetime
    queue: str
    name: str
    data: dict[str, object] = field(compare=False)


def additions(chance: random.Random, scale: float) -> Iterator[Addition]:
    """Yield the jobs that programs add, in no order; ``scale`` is for the usual rates."""
    for queue, names, by_day, by_night in (("orders", ("charge", "ship"), 50, 10), ("emails", ("send",), 110, 14)):
        at, number = START, 0
        while True:
            per_hour = scale * (by_day if 6 <= at.hour < 21 else by_night)
            at += timedelta(hours=chance.expovariate(per_hour))
            if at >= END:
                break
            number += 1
            yield Addition(at, queue, chance.choice(names), {"n": number, "to": f"user{chance.randrange(10_000)}"})
    for day in (0, 1):  # statements of the night before, and the incident's
        at = START + timedelta(days=day, minutes=30)
        for number in range(100):
            yield Addition(at, "reports", "statement", {"customer": 7000 + number, "month": "2026-03"})
    for hour in range(7, 19):
        yield Addition(START + timedelta(hours=hour, minutes=20), "reports", "statement", {"customer": hour})


_TYPICAL_S = {
    "charge": 2.0, "ship": 6.0, "send": 0.8, "newsletter": 90.0, "statement": 250.0, "nightly-export": 700.0,
    "sync-crm": 35.0, "cleanup": 12.0, "bank-file": 60.0, "partner-feed": 20.0,
    "extract-orders": 75.0, "extract-refunds": 40.0,
    "transform": 160.0, "by-country": 45.0, "by-product": 60.0, "load": 30.0, "count-eu": 25.0, "count-us": 40.0,
    "compare": 15.0, "read-export": 20.0, "extract-prices": 90.0, "merge": 50.0, "publish": 8.0,
}  # fmt: skip


def seconds_of(name: str, chance: random.Random) -> float:
    """Return how long an attempt of a task takes."""
    return _TYPICAL_S[name] * chance.lognormvariate(0, 0.25)


def error_of(job: JobRecord, at: datetime, chance: random.Random) -> Exception | None:
    """Return what an attempt raises, with the traceback of the application's code; None if it completes."""
    if job.name == "send" and NOON <= at < _NOON_ENDS and chance.random() < 0.7:
        return _raised("send", ConnectionRefusedError(111, "Connection refused: smtp-2.example.org:587"))
    if job.name == "send" and chance.random() < 0.02:
        return _raised("send", _FinalError("552 mailbox full", kind="mailbox full"))
    if job.name == "charge" and chance.random() < 0.03:
        return _raised("charge", _FinalError("the bank declined the card", kind="card declined"))
    if job.name == "read-export" and at >= _FORWARD:
        return _raised("read-export", FileNotFoundError(2, "No such file", f"/exports/{at:%Y-%m-%d}.parquet"))
    return None


class _FinalError(Failed, UnrecoverableError):
    """A failure that no retry changes."""


_PATH = "/app/tasks.py"
_LINES = ("def send(message):", "    server.send(message)", "def charge(order):", "    bank.charge(order)",
          "def read_export(day):", "    return read(f'/exports/{day}.parquet')")  # fmt: skip
_AT = {"send": 2, "charge": 4, "read-export": 6}


def _raised(name: str, error: Exception) -> Exception:
    """Return the error as the application's function raises it."""
    linecache.cache[_PATH] = (0, None, [f"{line}\n" for line in _LINES], _PATH)
    function = name.replace("-", "_")
    line = _AT[name]
    text = "\n" * (line - 2) + f"def {function}(error):\n    raise error"
    space: dict[str, object] = {}
    exec(compile(text, _PATH, "exec"), space)  # noqa: S102
    try:
        space[function](error)  # type: ignore[operator]
    except Exception as raised:
        error = raised
    assert error.__traceback__ is not None
    return error.with_traceback(error.__traceback__.tb_next)  # without this function


def history(chance: random.Random) -> Iterator[tuple[str, datetime, str, list[tuple[int, int]], int]]:
    """Yield what workers counted on the 29 days before: queue, day, task, waits and runs in ms, and failures."""
    tasks = {
        "orders": ("charge", 850), "emails": ("send", 1750), "reports": ("statement", 112), "etl": ("transform", 430),
        "exports": ("sync-crm", 190),
    }  # fmt: skip
    for back in range(1, 30):
        day = START - timedelta(days=back) + timedelta(hours=12)
        for queue, (task, usual) in tasks.items():
            jobs = int(usual * chance.uniform(0.9, 1.1) * (0.8 if day.weekday() > 4 else 1))
            times = [(int(chance.lognormvariate(1, 1)), int(1000 * seconds_of(task, chance))) for _ in range(jobs)]
            yield queue, day, task, times, chance.randint(10, 35) if queue in ("orders", "emails") else 0
