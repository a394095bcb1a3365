"""How long it takes from a queue's event to the run that a sensor asks for, with a real daemon. Prints JSON.

Run it with ``python -m tests.bench.dagster_events``. Events come one at a time, each some seconds after the run for the
one before was there, so that the sensor listens when they come; ``--pause 0`` shows what the daemon's own loop of five
seconds adds when they come close upon each other. Runs are made, and not launched.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg
import redis

from tests.bench.server import server
from tests.dagster.test_daemon import BIN, in_own_group
from tests.dagster.test_sensor_daemon import INSTANCE, LOCATION
from tests.dagster.ticks import happened
from tests.waiting import wait_until_sync

_QUEUE = "bench"


def latencies(url: str, home: Path, events: int, pause_s: float) -> list[float]:
    """Seconds from each event, by the server's clock, to the creation of its run."""
    (home / "dagster.yaml").write_text(INSTANCE)
    environment = {**os.environ, "DAGSTER_HOME": str(home), "OQ_URL": url, "TEST_QUEUES": _QUEUE}
    client = redis.Redis(unix_socket_path=url.removeprefix("unix://"), decode_responses=True)
    found = []
    with (
        dg.DagsterInstance.from_config(str(home)) as instance,
        in_own_group(str(BIN / "dagster-daemon"), "run", *LOCATION, environment=environment, log=home / "daemon.log"),
    ):
        for number in range(events + 1):
            job_id = f"job-{number}"
            event_id = happened(client, _QUEUE, "failed", job_id)
            only = dg.RunsFilter(tags={"job": job_id})
            wait_until_sync(lambda only=only: instance.get_run_records(only), "the run", seconds=120)  # type: ignore[misc]
            (record,) = instance.get_run_records(only)
            if number:  # the first one waits for the daemon to start
                found.append(record.create_timestamp.timestamp() - int(event_id.partition("-")[0]) / 1000)
            time.sleep(pause_s * random.uniform(1, 1.5))
    client.close()
    return found


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.dagster_events", description=__doc__)
    parser.add_argument("--events", type=int, default=20, help="events of the measurement (default 20)")
    parser.add_argument("--pause", type=float, default=6, help="seconds between two of them, at least (default 6)")
    given = parser.parse_args()
    with server() as url, TemporaryDirectory() as home:
        took = sorted(latencies(url, Path(home), given.events, given.pause))
    report = {
        "events": len(took),
        "pause_s": given.pause,
        "load_1m": round(os.getloadavg()[0], 1),
        "event_to_run_s": {
            "min": round(took[0], 3),
            "p50": round(statistics.median(took), 3),
            "p90": round(took[int(len(took) * 0.9)], 3),
            "max": round(took[-1], 3),
        },
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
