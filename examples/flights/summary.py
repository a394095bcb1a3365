"""What the demo ends with: the tree of all nodes, the worst hours, and where everything lies."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from rich.console import Console

from examples.flights import settings
from examples.flights.screen import flow_tree, result_table
from examples.flights.watch import Snapshot

__all__ = ["show"]

_HEADINGS = {
    "origin": "origin",
    "hour": "hour",
    "flights": "flights",
    "mean_dep_delay": "mean delay (min)",
    "late_share": "late",
}


def show(console: Console, snapshot: Snapshot, logs: Path) -> None:
    """Print it."""
    console.print(flow_tree(snapshot))
    delays, report = snapshot.node(settings.DELAYS).record, snapshot.node(settings.REPORT).record
    if delays is None or report is None:
        return
    worst = pd.DataFrame(delays.result["worst"]).rename(columns=_HEADINGS)
    worst["late"] = worst["late"].map("{:.0%}".format)
    console.print(result_table(worst, "Where and when to expect a late departure (2013)"))
    places = {
        "Clean flights": str(snapshot.table(settings.CLEAN_FLIGHTS)),
        "Delay tables": delays.result["path"],
        "Picture": report.result["picture_path"],
        "Report": report.result["path"],
    }
    for what, path in places.items():
        console.print(f"{what + ':':<15}{path}", soft_wrap=True, highlight=False)
    console.print(f"The repeatable job {settings.FRESHNESS} ran {snapshot.scheduled_runs} times.", highlight=False)
    runs = ", ".join(f"{run:%a %d %b %H:%M %Z}" for run in snapshot.daily_runs)
    console.print(f"{settings.DAILY} ('30 6 * * *', New York) runs next: {runs}.", highlight=False)
    fired = {log.stem: log.read_text().count(f"Schedule {settings.FRESHNESS} ") for log in logs.glob("worker-*.log")}
    led = ", ".join(f"{worker} {runs} times" for worker, runs in sorted(fired.items()))
    console.print(f"Scheduler leader, by the lock of tryLock: {led}.", highlight=False)
