"""How long a resumed run takes until it launches its next step, by the number of its steps. Prints JSON.

Run it with ``python -m tests.bench.dagster_resume --steps 1000 10000``. All steps but the last have ended: their events
are as many as steps with one input and one output write, ten each. ``plan_s`` is Dagster's own share: it creates
the plan from the definitions. ``resume_s`` is the executor's: it reads the log and rebuilds the state. All are
processor seconds of one process. No worker runs.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import dagster as dg
from dagster._core.events import EngineEventData
from dagster._core.execution.api import create_execution_plan
from dagster._core.execution.plan.active import ActiveExecution
from dagster._core.execution.plan.objects import StepSuccessData
from dagster._core.execution.plan.outputs import StepOutputData, StepOutputHandle
from dagster._core.execution.retries import RetryMode

from orchestration_queue.dagster.steps.resumption import DECISIVE, replay
from orchestration_queue.dagster.steps.run_log import RunLog

_LANES = 100
_OTHERS = 6
"""Events of a step that do not change the run's state: its logs, resources, input and so on."""


@dg.op
def zero() -> int:
    """The first of a lane."""
    return 0


@dg.op
def plus(x: int) -> int:
    """One of the others."""
    return x + 1


def _build(steps: int) -> dg.JobDefinition:
    """A job of lanes, each of steps one after the other."""

    @dg.job
    def long() -> None:
        for lane in range(_LANES):
            x = zero.alias(f"s{lane}_0")()
            for number in range(1, steps // _LANES):
                x = plus.alias(f"s{lane}_{number}")(x)

    return long


def _events(key: str, job: str) -> list[dg.DagsterEvent]:
    """What a step writes."""

    def event(kind: str, data: object = None) -> dg.DagsterEvent:
        return dg.DagsterEvent(kind, job, event_specific_data=data, message=f"{kind} of {key}", step_key=key)  # type: ignore[arg-type]

    output = StepOutputData(step_output_handle=StepOutputHandle(key))
    return [
        event("STEP_WORKER_STARTING", EngineEventData(metadata={"attempt": dg.MetadataValue.int(1)})),
        *(event("ENGINE_EVENT", EngineEventData()) for _ in range(_OTHERS)),
        event("STEP_START"),
        event("STEP_OUTPUT", output),
        event("STEP_SUCCESS", StepSuccessData(duration_ms=1.0)),
    ]


def _store(storage: Any, run_id: str, entries: Sequence[dg.EventLogEntry]) -> None:
    """Store events in one transaction; the first creates the run's file."""
    storage.store_event(entries[0])
    with storage.run_connection(run_id) as connection:
        for entry in entries[1:]:
            connection.execute(storage.prepare_insert_event(entry))


def _timed(call: Callable[[], object]) -> float:
    begun = time.process_time()
    call()
    return round(time.process_time() - begun, 2)


def measure(steps: int) -> dict[str, float | int]:
    """Write the log of a run with all steps but the last, and resume it."""
    job = _build(steps)
    with dg.instance_for_test() as instance:
        run = instance.create_run_for_job(job)
        plan = create_execution_plan(job)
        keys = [step.key for step in plan.get_all_steps_in_topo_order()]
        entries = [
            dg.EventLogEntry(
                error_info=None,
                level=10,
                user_message="",
                run_id=run.run_id,
                timestamp=time.time(),
                step_key=key,
                job_name=job.name,
                dagster_event=event,
            )
            for key in keys[:-1]
            for event in _events(key, job.name)
        ]
        _store(instance.event_log_storage, run.run_id, entries)
        events: list[tuple[dg.DagsterEvent, float]] = []
        with ActiveExecution(plan, RetryMode.ENABLED) as state:
            read_s = _timed(lambda: events.extend(RunLog(instance, run.run_id).read(DECISIVE)))
            rebuild_s = _timed(lambda: replay(state, events))
            assert state._executable == keys[-1:]
            state._executable.clear()  # a state that is left must be complete
        return {
            "steps": steps,
            "events": len(entries),
            "plan_s": _timed(lambda: create_execution_plan(job)),
            "read_s": read_s,
            "rebuild_s": rebuild_s,
            "resume_s": round(read_s + rebuild_s, 2),
        }


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.dagster_resume", description=__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=[1_000, 10_000], help="steps of each run")
    given = parser.parse_args()
    rows = [measure(steps) for steps in given.steps]
    print(json.dumps({"load_1m": round(os.getloadavg()[0], 1), "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
