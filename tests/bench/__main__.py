"""Run the measurements and print JSON: for each scenario the median of several runs, and all of them."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys

from orchestration_queue import __version__
from tests.bench.functions import costs
from tests.bench.scenarios import SCENARIOS
from tests.bench.server import Meter, server


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000, help="jobs a run (default 10000)")
    parser.add_argument("--runs", type=int, default=3, help="runs a scenario (default 3)")
    parser.add_argument("--only", nargs="*", choices=list(SCENARIOS), default=list(SCENARIOS))
    arguments = parser.parse_args()
    scenarios: dict[str, object] = {}
    with server() as url:
        functions = costs(url)
        meter = Meter(url)
        for name in arguments.only:
            runs = []
            for run in range(arguments.runs):
                print(f"{name}: run {run + 1} of {arguments.runs}", file=sys.stderr)
                meter.reset()
                runs.append(SCENARIOS[name](url, meter, arguments.jobs))
            median = {figure: statistics.median(run[figure] for run in runs) for figure in runs[0]}
            scenarios[name] = {"what": SCENARIOS[name].__doc__, "median": median, "runs": runs}
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    report = {"version": __version__, "machine": machine, "jobs": arguments.jobs}
    report |= {"scenarios": scenarios, "functions": functions}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
