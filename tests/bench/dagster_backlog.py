"""How a real daemon catches up with events that happened while it was down. Prints JSON.

Run it with ``python -m tests.bench.dagster_backlog``; for thousands of events with an empty database of Postgres:
``--postgres postgresql+psycopg2://user@/name?host=/directory``. The events lie in as many queues as it takes for each
to keep its own; every event but one asks for an observation, the last one for a run. A daemon stores the observations
of a tick one after the other, in a transaction each: that, and not the queue, is what takes time.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg
import redis
import yaml

from tests.bench.server import server
from tests.dagster.test_daemon import BIN, in_own_group
from tests.dagster.test_sensor_daemon import INSTANCE, LOCATION
from tests.dagster.ticks import happened
from tests.waiting import wait_until_sync

_PER_QUEUE = 1_000
"""As many as a queue keeps."""
_PAGE = 1_000
_PATIENCE_S = 1_800


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.dagster_backlog", description=__doc__)
    parser.add_argument("--events", type=int, default=200, help="events that the daemon has missed (default 200)")
    parser.add_argument("--postgres", metavar="URL", help="a database of Postgres to store runs in, instead of SQLite")
    given = parser.parse_args()
    with server() as url, TemporaryDirectory() as home:
        seen, took_s, runs = caught_up(url, Path(home), given.events, given.postgres)
    report = {
        "events": given.events,
        "storage": "Postgres" if given.postgres else "SQLite",
        "load_1m": round(os.getloadavg()[0], 1),
        "seconds": round(took_s, 1),
        "per_second": round(given.events / took_s),
        "observed": len(seen),
        "observed_more_than_once": sum(count > 1 for count in seen.values()),
        "runs": runs,
    }
    print(json.dumps(report, indent=2))


def caught_up(url: str, home: Path, events: int, postgres: str | None) -> tuple[Counter[str], float, int]:
    """How often each event was observed; the seconds from the daemon's first tick to the last; and how many runs."""
    queues = [f"missed-{number}" for number in range(-(-events // _PER_QUEUE))]
    client = redis.Redis(unix_socket_path=url.removeprefix("unix://"), decode_responses=True)
    for number in range(events):
        happened(client, queues[number % len(queues)], "completed", str(number))
    happened(client, queues[0], "failed", "last")
    client.close()
    storage = yaml.safe_dump({"storage": {"postgres": {"postgres_url": postgres}}}) if postgres else ""
    (home / "dagster.yaml").write_text(INSTANCE + storage)
    environment = {**os.environ, "DAGSTER_HOME": str(home), "OQ_URL": url, "TEST_QUEUES": ",".join(queues)}
    daemon = (str(BIN / "dagster-daemon"), "run", *LOCATION)
    with (
        dg.DagsterInstance.from_config(str(home)) as instance,
        in_own_group(*daemon, environment=environment, log=home / "daemon.log"),
    ):
        wait_until_sync(lambda: instance.all_instigator_state(), "the sensor to begin", seconds=120)
        begun = time.monotonic()
        while not (runs := instance.get_runs(dg.RunsFilter(tags={"job": "last"}))):
            if time.monotonic() - begun > _PATIENCE_S:
                raise SystemExit(f"Not caught up after {_PATIENCE_S} s:\n{(home / 'daemon.log').read_text()[-5_000:]}")
            time.sleep(0.5)
        return Counter(_observed(instance)), time.monotonic() - begun, len(runs)


def _observed(instance: dg.DagsterInstance) -> Iterator[str]:
    """The events whose observations are stored."""
    cursor = None
    while True:
        found = instance.fetch_observations(dg.AssetKey("table"), limit=_PAGE, cursor=cursor)
        for record in found.records:
            if (observation := record.event_log_entry.asset_observation) is not None:
                queue, event_id = (
                    observation.metadata[f"orchestration_queue/{name}"] for name in ("queue", "event_id")
                )
                yield f"{queue.value}:{event_id.value}"
        if not found.has_more:
            return
        cursor = found.cursor


if __name__ == "__main__":
    main()
