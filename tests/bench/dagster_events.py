"""How long it takes from a queue's event to the run that a sensor asks for, with a real daemon.

``python -m tests.bench.dagster --part events`` prints it. Events come one at a time: some seconds after the run for the
one before was there, so that the sensor listens when they come, and another right after its run, which shows what the
daemon's own loop of five seconds adds, and what is left of it with ``oq dagster daemon``. Runs are made, not launched.
"""

from __future__ import annotations

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

__all__ = ["measure_events"]

_QUEUE = "bench"


_PAUSE_S = 6
_DAEMONS = {"dagster-daemon run": [str(BIN / "dagster-daemon"), "run"], "oq dagster daemon": [OQ, "dagster", "daemon"]}


def measure_events(count: int) -> dict[str, dict[str, float]]:
    """Return the medians, in seconds, of as many events under each daemon."""
    found = {}
    for name, daemon in _DAEMONS.items():
        with server() as url, TemporaryDirectory() as home:
            listening, after = _latencies(url, Path(home), daemon, count)
        found[name] = {
            "while_it_listens_s": round(statistics.median(listening), 3),
            "right_after_a_run_s": round(statistics.median(after), 3),
            "events": count,
        }
    return found


def _latencies(url: str, home: Path, daemon: list[str], count: int) -> tuple[list[float], list[float]]:
    """Return the times from each event, by the server's clock, to the creation of its run."""
    (home / "dagster.yaml").write_text(INSTANCE.format(home=home))
    environment = {**os.environ, "DAGSTER_HOME": str(home), "OQ_URL": url, "TEST_QUEUES": _QUEUE}
    client = redis.Redis(unix_socket_path=url.removeprefix("unix://"), decode_responses=True)

    def latency(job_id: str) -> float:
        event_id = happened(client, _QUEUE, "failed", job_id)
        only = dg.RunsFilter(tags={"job": job_id})
        wait_until_sync(lambda: instance.get_run_records(only), "the run", seconds=120)
        (record,) = instance.get_run_records(only)
        return record.create_timestamp.timestamp() - int(event_id.partition("-")[0]) / 1000

    listening, after = [], []
    with (
        dg.DagsterInstance.from_config(str(home)) as instance,
        in_own_group(*daemon, *LOCATION, environment=environment, log=home / "daemon.log"),
    ):
        latency("first")  # which waits for the daemon to start
        for number in range(count):
            time.sleep(_PAUSE_S * random.uniform(1, 1.5))
            listening.append(latency(f"job-{number}"))
            after.append(latency(f"job-{number}-second"))
    client.close()
    return listening, after
