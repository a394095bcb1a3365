"""How long a backfill takes with a run for each partition: coordinator, launcher, executor and one worker. Prints JSON.

Run it with ``python -m tests.bench.dagster_backfill``. Each run is a job, and its one step another; the instance is in
SQLite, and this process does what Dagster's daemon does.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg

from tests.bench.server import server
from tests.dagster.days import DAYS
from tests.dagster.launches import launches
from tests.dagster.step_workers import READY
from tests.waiting import wait_until_sync

_PATIENCE_S = 7_200


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.dagster_backfill", description=__doc__)
    parser.add_argument("--partitions", type=int, default=500, help="how many, at most 500 (default 500)")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    days = DAYS.get_partition_keys()[: given.partitions]
    with server() as url, TemporaryDirectory() as scratch, launches(url, Path(scratch)) as made:
        log = Path(scratch, "worker.log")
        with made.worker(log=log):
            wait_until_sync(lambda: READY in log.read_text(), "the worker to be ready", 180)
            begun = time.monotonic()
            made.backfill("day_by_day", days, _PATIENCE_S)
            took_s = time.monotonic() - begun
        done = made.lines("days")
        statuses = Counter(record.dagster_run.status.value for record in made.instance.get_run_records())
    report = {
        "partitions": len(days),
        "load_1m": round(os.getloadavg()[0], 1),
        "seconds": round(took_s, 1),
        "runs_per_minute": round(len(days) / took_s * 60),
        "done_once": sorted(done) == sorted(days),
        "runs": {dg.DagsterRunStatus(status).value: count for status, count in statuses.items()},
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
