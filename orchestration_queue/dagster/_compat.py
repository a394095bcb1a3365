"""Everything we take from Dagster's private modules, in one place, because it may move."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeAlias

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._grpc.types import ExecuteRunArgs, ExecuteStepArgs, ResumeRunArgs
from dagster._utils.interrupts import capture_interrupts
from dagster_shared.record import replace
from dagster_shared.serdes.errors import DeserializationError

with suppress(ImportError):  # before 1.13 Dagster had no launch handles; PipesQueueClient alone needs them
    from dagster._core.pipes.reattach import (
        PipesLaunchHandle,
        find_latest_launch_handle,
        record_external_launch,
        record_external_reattach,
    )

__all__ = [
    "DeserializationError",
    "ExecuteRunArgs",
    "ExecuteStepArgs",
    "PipesLaunchHandle",
    "ResumeRunArgs",
    "RunTarget",
    "StepContext",
    "attempt_of",
    "capture_interrupts",
    "execute_run",
    "execute_step",
    "find_latest_launch_handle",
    "record_external_launch",
    "record_external_reattach",
    "replace",
    "resume_run",
]

RunTarget: TypeAlias = dg.JobDefinition | UnresolvedAssetJobDefinition | dg.AssetSelection
"""What a sensor's runs execute. The second is what ``dagster.define_asset_job`` returns, a type it does not export."""

StepContext: TypeAlias = dg.OpExecutionContext | dg.AssetExecutionContext
"""What a step's function is given."""


def attempt_of(context: StepContext) -> tuple[str, str, int]:
    """Which attempt of which step of which run it is; each element of a dynamic output has a step of its own."""
    step = context.get_step_execution_context()
    return context.run.run_id, step.step.key, step.previous_attempt_count


# What workers do with the bodies of Dagster's own commands. They are imported late: they bring the whole command line.


def execute_step(args: ExecuteStepArgs, instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Do what ``dagster api execute_step`` does."""
    from dagster._cli.api import _execute_step_command_body

    for _ in _execute_step_command_body(args, instance, run):
        pass


def execute_run(run_id: str, instance: dg.DagsterInstance) -> int:
    """Do what ``dagster api execute_run`` does; 1 when the run failed, else 0."""
    from dagster._cli.api import _execute_run_command_body

    return _execute_run_command_body(run_id, instance, lambda _: None, set_exit_code_on_failure=True)


def resume_run(run_id: str, instance: dg.DagsterInstance) -> int:
    """Do what ``dagster api resume_run`` does; 1 when the run failed, else 0."""
    from dagster._cli.api import _resume_run_command_body

    return _resume_run_command_body(run_id, instance, lambda _: None, set_exit_code_on_failure=True)
