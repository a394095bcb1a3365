"""Dagster's run launchers on the same job, machine and storage: how soon runs start, how many a minute.

``python -m tests.bench.dagster --part runs`` prints it. ``launch_ms`` is how long ``launch_run()`` keeps its caller,
``start_ms`` the time from its call to the run's PIPELINE_START, medians of single runs on an idle fleet.
``runs_a_minute`` counts many runs from the first launch to the last end, four at a time with us.
"""

# No `from __future__ import annotations` here: Dagster reads the types of contexts, and would find texts.

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget

from tests.bench.server import server
from tests.dagster.launches import launcher_of
from tests.dagster.step_workers import READY, home_is
from tests.processes import OQ, running_process
from tests.waiting import wait_until_sync

__all__ = ["defs", "measure_runs"]

Figures = dict[str, float | int]

_HERE = "tests.bench.dagster_runs"
_ROOT = Path(__file__).parents[2]
_QUEUE = "bench-runs"
_PLACES = 4
_LONGEST_S = 600


@dg.op
def nothing(context: dg.OpExecutionContext) -> None:
    """Do next to nothing."""
    context.log.info("done")


@dg.job(executor_def=dg.in_process_executor)
def five() -> None:
    """Five steps in the process of the run."""
    for number in range(5):
        nothing.alias(f"nothing_{number}")()


defs = dg.Definitions(jobs=[five])


def _measure(context: WorkspaceProcessContext, rounds: int, runs: int) -> Figures:
    """Launch single runs, and then many."""
    instance = context.instance
    _finish(instance, [_launch(context)[0]])  # once to warm up
    launches, starts = [], []
    for _ in range(rounds):
        run_id, begun, returned = _launch(context)
        _finish(instance, [run_id])
        launches.append(returned - begun)
        starts.append((instance.get_run_stats(run_id).start_time or 0.0) - begun)
    begun = time.time()
    _finish(instance, [_launch(context)[0] for _ in range(runs)])
    return {
        "launch_ms": round(statistics.median(launches) * 1000),
        "start_ms": round(statistics.median(starts) * 1000),
        "runs_a_minute": round(runs / (time.time() - begun) * 60, 1),
        "rounds": rounds,
        "runs": runs,
    }


def _launch(context: WorkspaceProcessContext) -> tuple[str, float, float]:
    """A new run's id, and when its launch began and returned."""
    workspace = context.create_request_context()
    remote = workspace.get_code_location(_HERE).get_repository("__repository__").get_full_job("five")
    run = context.instance.create_run_for_job(
        five, remote_job_origin=remote.get_remote_origin(), job_code_origin=remote.get_python_origin()
    )
    begun = time.time()
    context.instance.launch_run(run.run_id, workspace)
    return run.run_id, begun, time.time()


def _finish(instance: dg.DagsterInstance, run_ids: Sequence[str]) -> None:
    for run_id in run_ids:
        wait_until_sync(lambda run_id=run_id: _is_finished(instance, run_id), "a run to end", _LONGEST_S)  # type: ignore[misc]  # bound at once
    if any(run is None or not run.is_success for run in map(instance.get_run_by_id, run_ids)):
        raise RuntimeError("a run failed")


def _is_finished(instance: dg.DagsterInstance, run_id: str) -> bool:
    run = instance.get_run_by_id(run_id)
    return run is not None and run.is_finished


def _measure_ours(rounds: int, runs: int) -> Figures:
    with ExitStack() as stack:
        url = stack.enter_context(server())
        log = Path(stack.enter_context(TemporaryDirectory())) / "worker.log"
        overrides = {"run_launcher": launcher_of(url=url, queue=_QUEUE)}
        instance = stack.enter_context(dg.instance_for_test(overrides=overrides))
        context = stack.enter_context(WorkspaceProcessContext(instance, _TARGET))
        stack.enter_context(home_is(instance.root_directory))
        command = [OQ, "dagster", "worker", "-m", _HERE, "-q", _QUEUE, "--concurrency", str(_PLACES)]
        stack.enter_context(running_process(command, url, log))
        wait_until_sync(lambda: READY in log.read_text(), "the worker to be ready", 120)
        return _measure(context, rounds, runs)


def _measure_default(rounds: int, runs: int) -> Figures:
    with dg.instance_for_test() as instance, WorkspaceProcessContext(instance, _TARGET) as context:
        return _measure(context, rounds, runs)


_TARGET = ModuleTarget(_HERE, None, str(_ROOT), _HERE)


def measure_runs(rounds: int, runs: int) -> dict[str, Figures]:
    """Launch single runs, and then many, with each launcher."""
    return {"queue": _measure_ours(rounds, runs), "default": _measure_default(max(1, rounds // 2), runs)}
