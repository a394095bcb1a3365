"""The demo's summary: the tree of all nodes, the worst hours, and the paths of the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from pathlib import Path
from typing import cast

import dagster as dg
import pandas as pd
from rich.console import Console

from examples.flights import settings
from examples.flights.kill import find_leaders
from examples.flights.screen import flow_tree, result_table
from examples.flights.watch import Snapshot

__all__ = ["show"]

ON_SPARK = {*settings.MONTH_NODES.values(), settings.CLEAN_FLIGHTS, settings.CLEAN_WEATHER, settings.DELAYS}

_HEADINGS = {
    "origin": "origin",
    "hour": "hour",
    "flights": "flights",
    "mean_dep_delay": "mean delay (min)",
    "late_share": "late",
}


def show(console: Console, snapshot: Snapshot, logs: Path, instance: dg.DagsterInstance) -> None:
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
    leaders = find_leaders(logs)
    led = ", ".join(f"{worker} fired {runs} runs" for worker, runs in sorted(Counter(leaders).items()))
    console.print(f"Scheduler leader, by the lock of tryLock: {led}; {leaders[-1]} led last.", highlight=False)
    calls = _count_calls(instance, snapshot.runs[0].run_id or "")
    counts = ", ".join(f"{calls[name]} {name}" for name in ("addFlow", "addJob", "registerParent"))
    console.print(f"Flow {settings.FLOW} was submitted as {counts}, in Kahn's order.", highlight=False)
    spark, whole = _add_seconds(snapshot, ON_SPARK), _add_seconds(snapshot, {node.name for node in snapshot.nodes})
    share = f"{len(ON_SPARK)} of {len(snapshot.nodes)} jobs, {spark:.0f} of their {whole:.0f} s"
    console.print(f"On Spark: {share}.", highlight=False)


def _count_calls(instance: dg.DagsterInstance, run_id: str) -> Counter[str]:
    """Count a run's calls of glide-mq's functions, as the metadata of its assets lists them."""
    calls: Counter[str] = Counter()
    for log in instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION):
        if made := log.asset_materialization:
            listed = cast("list[str]", made.metadata["orchestration_queue/calls"].value)
            calls.update(call.split()[0].removeprefix("glidemq_") for call in listed)
    return calls


def _add_seconds(snapshot: Snapshot, nodes: Set[str]) -> float:
    records = (snapshot.node(name).record for name in nodes)
    return sum(record.seconds or 0 for record in records if record)
