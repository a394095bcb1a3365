"""Run the measurements and print JSON: for each scenario the medians of several runs, and how we compare.

The same goes to standard error as tables in Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from contextlib import nullcontext
from typing import Any

from orchestration_queue import __version__
from tests.bench.contenders import PEERS
from tests.bench.functions import costs
from tests.bench.scenarios import SCENARIOS, Figures
from tests.bench.server import Meter, server


def _compare(name: str, url: str, meter: Meter, jobs: int, runs: int, peers: list[str]) -> dict[str, object]:
    """Run a scenario with each contender in turn; medians, and ours divided by each peer's."""
    figures: dict[str, list[Figures]] = {contender: [] for contender in ["ours", *peers]}
    for run in range(runs):
        for contender in figures:
            print(f"{name}: {contender}, run {run + 1} of {runs}", file=sys.stderr)
            meter.reset()
            figures[contender].append(SCENARIOS[name](contender, url, jobs))
    medians = {
        contender: {figure: statistics.median(run[figure] for run in measured) for figure in measured[0]}
        for contender, measured in figures.items()
    }
    ours = medians["ours"]
    ratios = {
        peer: {figure: round(ours[figure] / medians[peer][figure], 2) for figure in ours if medians[peer][figure]}
        for peer in peers
    }
    return {"what": SCENARIOS[name].__doc__, "median": medians, "ours_to": ratios, "runs": figures}


def _row(*cells: object) -> str:
    return "| " + " | ".join("" if cell is None else str(cell) for cell in cells) + " |"


def _tables(scenarios: dict[str, Any], functions: dict[str, Any], peers: list[str]) -> str:
    """Return the report as tables in Markdown: rates or waits of all, our costs, and each function's limit."""
    costs_of_ours = ("client_us", "server_us", "commands")
    lines = [
        _row("", "Ours", *(f"{peer} (ours to it)" for peer in peers), "Client, µs", "Server, µs", "Commands"),
        _row("---", *["---:"] * (len(peers) + 4)),
    ]
    for name, scenario in scenarios.items():
        medians, ratios = scenario["median"], scenario["ours_to"]
        ours = medians["ours"]
        costs_left = [ours.get(cost) for cost in costs_of_ours]
        for figure in [figure for figure in ours if figure == "jobs_per_s" or figure.startswith("p")]:
            theirs = (f"{medians[peer][figure]:,} ({ratios[peer].get(figure, '-')})" for peer in peers)
            lines.append(_row(f"{name}, {figure}", f"{ours[figure]:,}", *theirs, *costs_left))
            costs_left = [None] * len(costs_of_ours)
    lines += ["", _row("Function", "Server, µs a job", "Its commands alone", "Ratio", "Commands")]
    lines.append(_row("---", *["---:"] * 4))
    fields = ("server_us", "bare_commands_us", "to_bare_commands", "commands")
    lines += [_row(f"`{name}`", *(cost[field] for field in fields)) for name, cost in functions.items()]
    return "\n".join(lines)


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000, help="jobs a run (default 10000)")
    parser.add_argument("--runs", type=int, default=3, help="runs a scenario (default 3)")
    parser.add_argument("--only", nargs="*", choices=list(SCENARIOS), default=list(SCENARIOS))
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=["taskiq", "saq", "dramatiq"])
    arguments = parser.parse_args()
    # ChasquiMQ needs a Redis 8.6, and everybody is measured on the same server.
    place = nullcontext(os.environ["OQ_TEST_REDIS86"]) if "chasquimq" in arguments.peers else server()
    with place as url, Meter(url) as meter:
        functions = costs(url)
        scenarios = {
            name: _compare(name, url, meter, arguments.jobs, arguments.runs, arguments.peers) for name in arguments.only
        }
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    report = {"version": __version__, "machine": machine, "jobs": arguments.jobs}
    report |= {"scenarios": scenarios, "functions": functions}
    print(json.dumps(report, indent=2))
    print(_tables(scenarios, functions, arguments.peers), file=sys.stderr)


if __name__ == "__main__":
    main()
