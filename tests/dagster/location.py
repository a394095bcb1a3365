"""A code location for a real daemon: a flow, and a sensor for its end."""

from __future__ import annotations

import os
from datetime import timedelta

import dagster as dg

from orchestration_queue.dagster import AssetTask, QueueResource, flow_completed_sensor, queue_flow_assets

QUEUE = os.environ.get("TEST_QUEUE", "unset")
SCRATCH = os.environ.get("TEST_SCRATCH", "/nonexistent")

load = queue_flow_assets(
    [
        AssetTask("raw", "produce", {"scratch": SCRATCH, "name": "raw", "rows": 5}),
        AssetTask(dg.AssetSpec("clean", deps=["raw"]), "total"),
    ],
    name="load",
    queue=QUEUE,
)


@dg.asset(deps=["clean"])
def summary() -> None:
    """What the sensor asks for."""


load_job = dg.define_asset_job("load_job", dg.AssetSelection.assets(load), executor_def=dg.in_process_executor)
summary_job = dg.define_asset_job("summary_job", dg.AssetSelection.assets(summary), executor_def=dg.in_process_executor)

defs = dg.Definitions(
    assets=[load, summary],
    jobs=[load_job, summary_job],
    sensors=[
        flow_completed_sensor(
            "load",
            last_nodes=["clean"],
            name="loaded",
            queue=QUEUE,
            job=summary_job,
            start="oldest",
            wait=timedelta(seconds=10),
            default_status=dg.DefaultSensorStatus.RUNNING,
        )
    ],
    resources={"queue": QueueResource(url=dg.EnvVar("OQ_URL"))},
)
