"""Runs one job of :mod:`tests.dagster.steps` in a process of its own, so that a test can interrupt it."""

from __future__ import annotations

import json
import sys

import dagster as dg

from tests.dagster import steps


def main(job: str, run_id: str, config: str) -> None:
    """Run the job in the instance of ``DAGSTER_HOME``."""
    with dg.DagsterInstance.get() as instance:
        dg.execute_job(
            dg.reconstructable(getattr(steps, job)),
            instance,
            run_config={"execution": {"config": json.loads(config)}},
            raise_on_error=False,
            tags={"test": run_id},
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
