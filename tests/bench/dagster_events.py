"""How long it takes from a queue's event to the run that a sensor asks for, with a real daemon. Prints JSON.

Run it with ``python -m tests.bench.dagster_events``. Events come one at a time, each some seconds after the run for the
one before was there, so that the sensor listens when they come; ``--pause 0`` shows what the daemon's own loop of five
seconds adds when each comes right after the run for the one before, and ``--sensor-pause 0.25`` what is left of that
under ``oq dagster daemon``. Runs are made, and not launched.
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
from tests.processes import OQ
from tests.waiting import wait_until_sync

_QUEUE = "bench"


def latencies(url: str, home: Path, given: argparse.Namespace) -> list[float]:
    """Seconds from each event, by the server's clock, to the creation of its run."""
    daemon = [str(BIN / "dagster-daemon"), "run"]
    if given.sensor_pause is not None:
        daemon = [OQ, "dagster", "daemon", "--sensor-pause", str(given.sensor_pause)]
    (home / "dagster.yaml").write_text(INSTANCE)
    environment = {**os.environ, "DAGSTER_HOME": str(home), "OQ_URL": url, "TEST_QUEUES": _QUEUE}
    client = redis.Redis(unix_socket_path=url.removeprefix("unix://"), decode_responses=True)
    found = []

    def latency(job_id: str) -> float:
        event_id = happened(client, _QUEUE, "failed", job_id)
        only = dg.RunsFilter(tags={"job": job_id})
        wait_until_sync(lambda: instance.get_run_records(only), "the run", seconds=120)
        (record,) = instance.get_run_records(only)
        return record.create_timestamp.timestamp() - int(event_id.partition("-")[0]) / 1000

    with (
        dg.DagsterInstance.from_config(str(home)) as instance,
        in_own_group(*daemon, *LOCATION, environment=environment, log=home / "daemon.log"),
    ):
        latency("first")  # which waits for the daemon to start
        for number in range(given.events):
            time.sleep(given.pause * random.uniform(1, 1.5))
            took = latency(f"job-{number}")
            found.append(latency(f"job-{number}-second") if given.second else took)
    client.close()
    return found


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.dagster_events", description=__doc__)
    parser.add_argument("--events", type=int, default=20, help="events of the measurement (default 20)")
    parser.add_argument("--pause", type=float, default=6, help="seconds between two of them, at least (default 6)")
    parser.add_argument("--sensor-pause", type=float, help="of `oq dagster daemon`; default Dagster's own daemon")
    parser.add_argument("--second", action="store_true", help="measure another event right after the run for each")
    given = parser.parse_args()
    with server() as url, TemporaryDirectory() as home:
        took = sorted(latencies(url, Path(home), given))
    report = {
        "events": len(took),
        "pause_s": given.pause,
        "sensor_pause_s": given.sensor_pause,
        "second": given.second,
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
