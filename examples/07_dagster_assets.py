"""Define two assets whose functions run on a worker, and one that Dagster computes itself.

``dagster dev -f examples/07_dagster_assets.py`` shows the same in the browser; run any number of
``oq worker examples/07_dagster_assets.py:tasks --queue weather`` alongside it.

Prints::

    warmest: LGA, 27.1 degrees
    materialized: readings, warmest, advice
    checks passed: has_rows
"""

from typing import Any

import dagster as dg

from orchestration_queue import Queue, Tasks
from orchestration_queue.dagster import QueueResource, queue_asset
from orchestration_queue.testing import running_worker

URL = "embedded://.oq"
tasks = Tasks(queue="weather")
DEGREES = {"JFK": [21.5, 24.0], "LGA": [26.2, 28.0], "EWR": [25.0, 27.1]}


@queue_asset(tasks, checks=["has_rows"])
def readings() -> dict[str, Any]:
    """Return a value that becomes the asset's metadata and its checks."""
    return {"rows": sum(map(len, DEGREES.values())), "checks": {"has_rows": bool(DEGREES)}}


@queue_asset(tasks, dg.AssetSpec("warmest", deps=["readings"]))
def warmest() -> dict[str, Any]:
    """Return the airport with the highest mean."""
    means = {airport: sum(degrees) / len(degrees) for airport, degrees in DEGREES.items()}
    airport = max(means, key=means.__getitem__)
    return {"airport": airport, "degrees": round(means[airport], 1)}


@dg.asset(deps=["warmest"])
def advice(context: dg.AssetExecutionContext) -> None:
    """Compute an asset without the queue, as plain Dagster does."""
    event = context.instance.get_latest_materialization_event(dg.AssetKey("warmest"))
    told = event and event.asset_materialization and event.asset_materialization.metadata
    if told:
        print(f"warmest: {told['airport'].value}, {told['degrees'].value} degrees")


defs = dg.Definitions(assets=[readings, warmest, advice], resources={"queue": QueueResource(url=URL)})

if __name__ == "__main__":
    with Queue("weather", url=URL) as queue, running_worker(queue, tasks), dg.DagsterInstance.ephemeral() as instance:
        job = defs.resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(instance=instance)
        made = [event.step_key or "" for event in result.get_asset_materialization_events()]
        print("materialized:", ", ".join(made))
        checks = [check.check_name for check in result.get_asset_check_evaluations() if check.passed]
        print("checks passed:", ", ".join(checks))
