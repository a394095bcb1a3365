"""Runs one job of :mod:`tests.dagster.steps` in a process of its own, so that a test can interrupt it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import dagster as dg

from tests.dagster import steps


def main(job: str, run_id: str, config: str) -> None:
    """Run the job in the instance of ``DAGSTER_HOME``, and leave the types of its result's events."""
    with dg.DagsterInstance.get() as instance:
        result = dg.execute_job(
            dg.reconstructable(getattr(steps, job)),
            instance,
            run_config={"execution": {"config": json.loads(config)}},
            raise_on_error=False,
            tags={"test": run_id},
        )
    types = [event.event_type_value for event in result.all_events]
    Path(json.loads(config)["env"]["SCRATCH"], "result").write_text("\n".join(types))


if __name__ == "__main__":
    main(*sys.argv[1:])
