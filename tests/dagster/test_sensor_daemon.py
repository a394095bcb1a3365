"""Events that happen while no daemon listens are met afterwards; a daemon that is killed asks for no run twice."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import redis

from orchestration_queue.dagster import QueueResource, queue_event_sensor
from tests.dagster.test_daemon import BIN, ROOT, in_own_group
from tests.dagster.ticks import SHORT, happened, target, tick
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.timeout(600)]

LOCATION = ("-m", "tests.dagster.sensor_location", "-d", str(ROOT))
INSTANCE = """\
telemetry: {{enabled: false}}
sensors: {{use_threads: true, num_workers: 2}}
concurrency: {{runs: {{max_concurrent_runs: 0}}}}
event_log_storage:
  module: tests.dagster.mortal_storage
  class: MortalEventLogStorage
  config: {{base_dir: {home}/history/runs}}
"""
"""Runs stay in Dagster's own queue: that they are asked for is all that matters here."""


def test_ten_thousand_events_that_nobody_heard_are_caught_up(
    resource: QueueResource, queue_name: str, raw: redis.Redis
) -> None:
    """Ten queues, each with as many events as the server keeps: some become runs, most observations, each once."""
    queues = [f"{queue_name}-{number}" for number in range(10)]
    written = raw.pipeline(transaction=False)
    for number in range(10_000):
        entry: dict[Any, Any] = {"event": "failed" if number % 100 == 0 else "completed", "jobId": str(number)}
        key = f"glide:{{{queues[number % 10]}}}:events"
        written.xadd(key, entry, maxlen=1000, approximate=True)
    written.execute()
    sensor = queue_event_sensor(
        lambda event, _: (
            dg.AssetObservation("table", metadata={"job": event.job_id})
            if event.type == "completed"
            else dg.RunRequest(tags={"job": event.job_id})
        ),
        name="heard",
        queue=queues,
        job=target,
        events=["completed", "failed"],
        start="oldest",
        wait=SHORT,
        limit=150,
        on_gap="fail",
    )
    seen: Counter[str] = Counter()
    run_keys: set[str | None] = set()
    cursor, ticks = None, 0
    while (result := tick(sensor, resource, cursor)).run_requests or result.asset_events:
        seen.update(str(event.metadata["job"].value) for event in result.asset_events)
        seen.update(request.tags["job"] for request in result.run_requests)
        run_keys.update(request.run_key for request in result.run_requests)
        cursor, ticks = result.cursor, ticks + 1
    assert seen == Counter({str(number): 1 for number in range(10_000)})
    assert len(run_keys) == 100
    assert ticks == 7  # 1,000 events of each queue, 150 of each in a tick


@contextmanager
def daemon(home: Path, environment: dict[str, str], name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A real daemon with its code server; both are killed at the end."""
    command = (str(BIN / "dagster-daemon"), "run", *LOCATION)
    with in_own_group(*command, environment=environment, log=home / f"{name}.log") as process:
        yield process


def observed(instance: dg.DagsterInstance) -> list[str]:
    """The events whose observations Dagster stored."""
    records = instance.fetch_observations(dg.AssetKey("table"), limit=1000).records
    observations = [record.event_log_entry.asset_observation for record in records]
    return [str(one.metadata["orchestration_queue/event_id"].value) for one in observations if one]


def test_a_daemon_killed_between_asset_events_and_cursor_loses_none_and_asks_for_no_run_twice(
    server_url: str, queue_name: str, raw: redis.Redis, tmp_path: Path
) -> None:
    completed = [happened(raw, queue_name, "completed", str(number)) for number in range(60)]
    for number in range(5):
        happened(raw, queue_name, "failed", f"bad-{number}")
    (tmp_path / "dagster.yaml").write_text(INSTANCE.format(home=tmp_path))
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(tmp_path),
        "OQ_URL": server_url,
        "PYTHONPATH": str(ROOT),
        "TEST_QUEUES": queue_name,
    }
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:

        def requested() -> Counter[str]:
            return Counter(run.tags["job"] for run in instance.get_runs())

        with daemon(tmp_path, {**environment, "TEST_OBSERVATIONS": "20"}, "first") as first:
            assert first.wait(200) == -signal.SIGKILL, "it was killed half-way"
        before = observed(instance)
        assert len(before) == 20
        assert not requested()
        with daemon(tmp_path, environment, "second"):
            wait_until_sync(lambda: sum(requested().values()) >= 5, "the runs", seconds=200)
            again = happened(raw, queue_name, "failed", "last")
            wait_until_sync(lambda: requested()["last"], "the cursor to have moved on", seconds=120)
        stored = Counter(observed(instance))
        assert set(stored) == set(completed)
        assert {event for event, count in stored.items() if count > 1} == set(before)
        assert max(stored.values()) == 2
        assert requested() == Counter({**{f"bad-{number}": 1 for number in range(5)}, "last": 1})
        (last,) = instance.get_runs(dg.RunsFilter(tags={"job": "last"}))
        assert last.tags["dagster/run_key"] == again
