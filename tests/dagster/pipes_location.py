"""A job whose step can be killed: it runs in a process of its own, and says which."""

# No `from __future__ import annotations` here: Dagster reads the annotation of `context`, and a string fails.

import os
from pathlib import Path

import dagster as dg

from orchestration_queue.dagster.pipes import PipesQueueClient


def killable() -> dg.JobDefinition:
    """One asset, made by a slow task; a step that dies is tried again at once."""
    scratch = os.environ["TEST_SCRATCH"]
    defs = dg.Definitions(
        [_asset(scratch)],
        jobs=[dg.define_asset_job("killable", "*")],
        resources={"pipes": PipesQueueClient(url=dg.EnvVar("OQ_URL"))},
        executor=dg.multiprocess_executor.configured({"max_concurrent": 1}),
    )
    return defs.resolve_job_def("killable")


def _asset(scratch: str) -> dg.AssetsDefinition:
    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=1))
    def made(context, pipes: PipesQueueClient):  # type: ignore[no-untyped-def]
        with Path(scratch, "steps").open("a") as steps:
            steps.write(f"{os.getpid()}\n")
        queue = os.environ["TEST_QUEUE"]
        invocation = pipes.run(context=context, queue=queue, task="report_slowly", data={"scratch": scratch})
        context.log.info(f"told: {invocation.get_custom_messages()}")
        return invocation.get_materialize_result()

    return made
