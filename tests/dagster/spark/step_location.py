"""A job whose step can be killed: it runs in a process of its own, and says which."""

# No `from __future__ import annotations` here: Dagster reads the annotation of `context`, and a string fails.

import os
from pathlib import Path

import dagster as dg

from orchestration_queue.dagster.spark import PipesSparkClient


def killable() -> dg.JobDefinition:
    """One asset, made by a script that waits; a step that dies is tried again at once."""
    scratch = os.environ["TEST_SCRATCH"]
    defs = dg.Definitions(
        [_asset(scratch)],
        jobs=[dg.define_asset_job("killable", "*")],
        resources={"spark": PipesSparkClient(url=dg.EnvVar("OQ_URL"), default_queue=os.environ["TEST_QUEUE"])},
        executor=dg.multiprocess_executor.configured({"max_concurrent": 1}),
    )
    return defs.resolve_job_def("killable")


def _asset(scratch: str) -> dg.AssetsDefinition:
    checks = [dg.AssetCheckSpec("not_empty", asset="made")]

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=1), check_specs=checks)
    def made(context, spark: PipesSparkClient):  # type: ignore[no-untyped-def]
        with Path(scratch, "steps").open("a") as steps:
            steps.write(f"{os.getpid()}\n")
        invocation = spark.run(
            context=context, script="totals.py", arguments=["wait", scratch], extras={"shift": "night"}
        )
        return invocation.get_materialize_result()

    return made
