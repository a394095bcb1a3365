"""All imports from Dagster's private modules, in one place because they may move."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from types import ModuleType, SimpleNamespace
from typing import Any, TypeAlias

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._core.event_api import EventLogCursor
from dagster._core.events import EngineEventData
from dagster._core.execution.context.compute import current_execution_context
from dagster._core.execution.context.system import IStepContext, PlanOrchestrationContext, StepExecutionContext
from dagster._core.execution.plan.active import ActiveExecution
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext
from dagster._core.execution.plan.objects import ErrorSource, StepFailureData, StepRetryData
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.plan.state import KnownExecutionState
from dagster._core.execution.plan.step import ExecutionStep
from dagster._core.execution.retries import RetryMode, get_retries_config
from dagster._core.execution.step_dependency_config import StepDependencyConfig, get_step_dependency_config_field
from dagster._core.execution.tags import get_tag_concurrency_limits_config
from dagster._core.executor.step_delegating import StepHandlerContext
from dagster._core.launcher.base import (
    CheckRunHealthResult,
    LaunchRunContext,
    ResumeRunContext,
    RunLauncher,
    WorkerStatus,
)
from dagster._core.pipes.reattach import (
    PipesLaunchHandle,
    find_latest_launch_handle,
    record_external_launch,
    record_external_reattach,
)
from dagster._core.run_coordinator.base import RunCoordinator, SubmitRunContext
from dagster._core.storage.cloud_storage_compute_log_manager import CloudStorageComputeLogManager
from dagster._core.storage.compute_log_manager import (
    CapturedLogContext,
    CapturedLogSubscription,
    ComputeIOType,
)
from dagster._core.storage.event_log import InMemoryEventLogStorage, SqlEventLogStorage
from dagster._core.storage.local_compute_log_manager import IO_TYPE_EXTENSION, LocalComputeLogManager
from dagster._core.storage.runs import InMemoryRunStorage, SqlRunStorage
from dagster._core.storage.tags import GLOBAL_CONCURRENCY_TAG
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._grpc.types import ExecuteRunArgs, ExecuteStepArgs, ResumeRunArgs
from dagster._serdes import ConfigurableClass, ConfigurableClassData
from dagster._utils.error import serializable_error_info_from_exc_info
from dagster._utils.interrupts import capture_interrupts, check_captured_interrupt
from dagster_shared.error import SerializableErrorInfo
from dagster_shared.record import replace
from dagster_shared.serdes.errors import DeserializationError

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import UsageError

__all__ = [
    "IO_TYPE_EXTENSION",
    "LISTENS",
    "ActiveExecution",
    "CapturedLogContext",
    "CapturedLogSubscription",
    "CheckRunHealthResult",
    "CloudStorageComputeLogManager",
    "ComputeIOType",
    "ConfigurableClass",
    "ConfigurableClassData",
    "DeserializationError",
    "EngineEventData",
    "ErrorSource",
    "EventLogCursor",
    "ExecuteRunArgs",
    "ExecuteStepArgs",
    "ExecutionPlan",
    "ExecutionStep",
    "IStepContext",
    "InstanceConcurrencyContext",
    "KnownExecutionState",
    "LaunchRunContext",
    "LoadableTargetOrigin",
    "LocalComputeLogManager",
    "PipesLaunchHandle",
    "PlanOrchestrationContext",
    "ResumeRunArgs",
    "ResumeRunContext",
    "RetryMode",
    "RunCoordinator",
    "RunLauncher",
    "RunTarget",
    "SerializableErrorInfo",
    "SqlEventLogStorage",
    "StepContext",
    "StepDependencyConfig",
    "StepExecutionContext",
    "StepFailureData",
    "StepHandlerContext",
    "StepKey",
    "StepRetryData",
    "SubmitRunContext",
    "UnresolvedAssetJobDefinition",
    "WorkerStatus",
    "attempt_of",
    "can_be_copied",
    "capture_interrupts",
    "capture_logs_directly",
    "check_captured_interrupt",
    "current_error",
    "error_log_listeners",
    "execute_run",
    "execute_step",
    "find_latest_launch_handle",
    "get_retries_config",
    "get_step_dependency_config_field",
    "get_tag_concurrency_limits_config",
    "guard_events",
    "in_memory_storages",
    "load_definitions",
    "location_origins",
    "pool_of",
    "project_origins",
    "read_migrations_once",
    "record_external_launch",
    "record_external_reattach",
    "rehearse",
    "replace",
    "resume_run",
    "resumptions",
    "running_step",
    "sqlite_event_log",
    "sqlite_storages",
    "step_key_of",
    "step_stopped",
    "storage_id",
    "warm_up",
]

log = get_logger("orchestration_queue.dagster")

RunTarget: TypeAlias = dg.JobDefinition | UnresolvedAssetJobDefinition | dg.AssetSelection
"""The target of a sensor's runs. ``dagster.define_asset_job`` returns the second type; Dagster does not export it."""

StepContext: TypeAlias = dg.OpExecutionContext | dg.AssetExecutionContext
"""The context that Dagster passes to a step's function."""

StepKey: TypeAlias = tuple[str, str, int]
"""A run's id, a step's key, and the number of earlier attempts."""

LISTENS: Mapping[str, str] = {"orchestration_queue/listens": "true"}
"""Tag of a sensor whose ticks wait for events."""


def storage_id(instance: dg.DagsterInstance) -> str:
    """Return the id of an instance's run storage; empty if the storage has none."""
    storage = instance.run_storage
    return storage.get_run_storage_id() if isinstance(storage, SqlRunStorage) else ""


def in_memory_storages(instance: dg.DagsterInstance) -> list[str]:
    """Return the names of an instance's storages of runs and events that exist in the memory of its process only."""
    storages = (instance.event_log_storage, instance.run_storage)
    return [type(one).__name__ for one in storages if isinstance(one, InMemoryEventLogStorage | InMemoryRunStorage)]


def pool_of(step: ExecutionStep) -> str | None:
    """Return the pool of a step, which may also be named by a tag."""
    return step.pool or step.tags.get(GLOBAL_CONCURRENCY_TAG)


def current_error() -> SerializableErrorInfo:
    """Return the exception that is being handled, for an event."""
    return serializable_error_info_from_exc_info(sys.exc_info())


def attempt_of(context: StepContext) -> StepKey:
    """Return the run, step and attempt of a context; each element of a dynamic output has its own step."""
    return step_key_of(context.get_step_execution_context())


def step_key_of(step: StepExecutionContext) -> StepKey:
    """Return the run, step and attempt of the context that Dagster passes to IO managers."""
    return step.run_id, step.step.key, step.previous_attempt_count


def running_step() -> StepExecutionContext | None:
    """Return the step whose function calls this; None outside a step."""
    context = current_execution_context.get()
    return None if context is None else context.op_execution_context.get_step_execution_context()


def step_stopped(start: dg.DagsterEvent) -> dg.DagsterEvent:
    """Return the failure of a step that was stopped before it reported its end, from the event of its start."""
    error = SerializableErrorInfo("The step was stopped before it reported its end.", [], None)
    return start._replace(
        event_type_value=dg.DagsterEventType.STEP_FAILURE.value,
        event_specific_data=StepFailureData(error, user_failure_data=None, error_source=ErrorSource.INTERRUPT),
        message=f'Execution of step "{start.step_key}" failed.',
        pid=None,
    )


# Bodies of Dagster's own commands, which workers run. They import Dagster's whole command line, so import them late.


def execute_step(
    args: ExecuteStepArgs, instance: dg.DagsterInstance, run: dg.DagsterRun, attempt: int, isolation: str
) -> None:
    """Run the body of ``dagster api execute_step``.

    Args:
        args: The step to execute.
        instance: The instance that stores the events.
        run: The run.
        attempt: The number of the attempt, lost ones included: a later one writes STEP_RESTARTED, as in Dagster's
            own executors. The retry policy of the step does not count lost attempts, so its known state omits them.
        isolation: The isolation that the event STEP_WORKER_STARTED shows.
    """
    from dagster._cli.api import _execute_step_command_body

    originals: dict[str, Any] = {
        "step_start_event": dg.DagsterEvent.step_start_event,
        "step_worker_started": dg.DagsterEvent.step_worker_started,
    }

    def start_worker_event(*args: Any, metadata: Mapping[str, Any], **others: Any) -> Any:
        metadata = {**metadata, "isolation": isolation}
        return originals["step_worker_started"](*args, metadata=metadata, **others)

    replaced: dict[str, Any] = {"step_worker_started": start_worker_event}
    if attempt > 1:
        replaced["step_start_event"] = partial(dg.DagsterEvent.step_restarted_event, previous_attempts=attempt - 1)
    try:
        for name, build in replaced.items():
            setattr(dg.DagsterEvent, name, staticmethod(build))
        for _ in _execute_step_command_body(args, instance, run):
            pass
    finally:
        for name, build in originals.items():
            setattr(dg.DagsterEvent, name, staticmethod(build))


def execute_run(run_id: str, instance: dg.DagsterInstance) -> int:
    """Run the body of ``dagster api execute_run``; return 1 if the run failed, else 0."""
    from dagster._cli.api import _execute_run_command_body

    return _execute_run_command_body(run_id, instance, lambda _: None, set_exit_code_on_failure=True)


def resume_run(run_id: str, instance: dg.DagsterInstance) -> int:
    """Run the body of ``dagster api resume_run``; return 1 if the run failed, else 0."""
    from dagster._cli.api import _resume_run_command_body

    return _resume_run_command_body(run_id, instance, lambda _: None, set_exit_code_on_failure=True)


def resumptions(messages: Iterable[str]) -> int:
    """Return how often a run was resumed, from the messages of its engine events, as Dagster counts it."""
    from dagster._daemon.monitoring import RESUME_RUN_LOG_MESSAGE

    return sum(message == RESUME_RUN_LOG_MESSAGE for message in messages)


def guard_events(instance: dg.DagsterInstance, check: Callable[[], None]) -> None:
    """Call ``check`` before each event that this process stores through this instance."""
    storage = instance.event_log_storage
    for name in ("store_event", "store_event_batch"):
        setattr(storage, name, _with_check(getattr(storage, name), check))


def _with_check(store: Callable[..., None], check: Callable[[], None]) -> Callable[..., None]:
    def check_and_store(*args: object, **kwargs: object) -> None:
        check()
        store(*args, **kwargs)

    return check_and_store


def warm_up(instance: dg.DagsterInstance) -> None:
    """Load what the instance's storage needs, so that forks of this process inherit it."""
    from dagster._core.storage.event_log.migration import ASSET_KEY_INDEX_COLS
    from dagster._core.storage.event_log.schema import AssetEventTagsTable

    read_migrations_once()
    instance.get_runs_count()
    for name in ("has_run_stats_index_cols", "has_backfill_id_column"):
        # Dagster reflects the table of runs for each event of a run. A migration only adds columns.
        if (ask := getattr(instance.run_storage, name, None)) is not None:
            setattr(instance.run_storage, name, partial(bool, ask()))
    for name, asked in (("has_secondary_index", ASSET_KEY_INDEX_COLS), ("has_table", AssetEventTagsTable.name)):
        # Dagster asks in the transaction of each asset event, on another connection.
        if (ask := getattr(instance.event_log_storage, name, None)) is not None:
            setattr(instance.event_log_storage, name, known := cache(ask))
            known(asked)
    instance.get_latest_materialization_event(dg.AssetKey("warm_up"))
    manager = (ref := instance.get_ref()) and ref.compute_logs_data
    if manager is not None and manager.module_name.startswith(("dagster.", "orchestration_queue.")):
        _ = instance.compute_log_manager  # other managers might connect or start threads when they load


def read_migrations_once() -> None:
    """Cache Dagster's migrations after they are read.

    Dagster reads about a hundred of them for each SQLite file that it opens, one per run, which takes 45 ms.
    """
    from alembic.script import ScriptDirectory
    from dagster._core.storage import sql

    scripts = SimpleNamespace(from_config=cache(ScriptDirectory.from_config))
    setattr(sql, "ScriptDirectory", scripts)  # noqa: B010  not a name that modules export


def rehearse(adopt: Callable[[Any], None]) -> None:
    """Run a step that does nothing, in memory, with none of the user's code.

    Dagster and SQLAlchemy build constructors of records, patterns and statements on first use. Forked processes
    inherit those that this builds. If it fails, they build them themselves.

    Args:
        adopt: Called with each SQLAlchemy engine before it is used.
    """

    @dg.asset
    def rehearsal() -> None:
        """Do nothing."""

    with dg.DagsterInstance.ephemeral() as instance:
        for storage in (instance.run_storage, instance.event_log_storage):
            adopt(getattr(storage, "_engine"))  # noqa: B009  not a name it exports
        quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        ours = {"io_manager": dg.mem_io_manager}  # environment variables may name one of the user's as the default
        try:
            dg.materialize([rehearsal], instance=instance, run_config=quiet, resources=ours)
        except Exception as error:
            log.debug("The rehearsal of a step failed, so the first steps start more slowly: %s", error)


def sqlite_storages() -> Sequence[ModuleType]:
    """Return Dagster's modules that open SQLite files, each with its attribute ``create_engine``."""
    from dagster._core.storage.event_log.sqlite import sqlite_event_log
    from dagster._core.storage.runs.sqlite import sqlite_run_storage
    from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage

    return sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage


def sqlite_event_log(instance: dg.DagsterInstance) -> Any:
    """Return an instance's event log if it is Dagster's own in SQLite files, one per run; else None."""
    from dagster._core.storage.event_log import SqliteEventLogStorage

    storage = instance.event_log_storage
    return storage if isinstance(storage, SqliteEventLogStorage) else None


def can_be_copied(instance: dg.DagsterInstance) -> bool:
    """Return whether a forked process can keep using this instance.

    Dagster's own storages open a connection for each transaction and keep none. Other storages might.
    """
    storages = (instance.run_storage, instance.event_log_storage, instance.schedule_storage)
    homes = {type(storage).__module__.partition(".")[0] for storage in storages}
    return homes <= {"dagster", "dagster_mysql", "dagster_postgres", "builtins"}


error_log_listeners: list[Callable[[str], None]] = []
"""Functions to call with the path of the file that receives the standard error, for any compute log manager."""


def capture_logs_directly(opened: Callable[[str], None]) -> None:
    """Make this process write its compute logs itself, without the four helpers that Dagster starts per step.

    The managers for clouds upload the same local files and work as before. Unlike Dagster, this does not also copy
    the output to the process's own.

    Args:
        opened: Called with the path of the file that receives the standard error.
    """
    from dagster._core.execution.compute_logs import redirect_to_file
    from dagster._core.storage import local_compute_log_manager
    from dagster._utils import ensure_file

    @contextmanager
    def write(stream: object, path: str) -> Iterator[None]:
        ensure_file(path)
        if stream is sys.stderr:
            opened(path)
        with redirect_to_file(stream, path):
            yield

    setattr(local_compute_log_manager, "mirror_stream_to_file", write)  # noqa: B010  not a name that modules export
    error_log_listeners.append(opened)


def run_daemon(arguments: Sequence[str], pause_s: float) -> None:
    """Run ``dagster-daemon run``, but check for due sensors more often than every five seconds.

    A sensor that listens, and whose last tick did not fail, is due at once: it waits within its tick, and Dagster's
    minimum of a second between the starts of two ticks would only delay events right after a run.

    Raises:
        UsageError: This version of Dagster has a different loop.
    """
    from dagster._daemon import sensor
    from dagster._daemon.cli import run_command

    pause, is_early = "MIN_INTERVAL_LOOP_TIME", getattr(sensor, name := "is_under_min_interval", None)
    if not hasattr(sensor, pause) or is_early is None:
        raise UsageError(
            f"Dagster {dg.__version__} has no known setting for the pause between its sensors' ticks; run "
            "`dagster-daemon run` instead."
        )

    def is_undue(state: Any, remote: Any, *more: Any) -> bool:
        has_ended_well = getattr(state.instigator_data, "last_tick_success_timestamp", None) is not None
        return not (has_ended_well and LISTENS.items() <= remote.tags.items()) and is_early(state, remote, *more)

    setattr(sensor, pause, pause_s)
    setattr(sensor, name, is_undue)
    run_command.main(args=list(arguments), prog_name="oq dagster daemon")


def load_definitions(origin: LoadableTargetOrigin, name: str) -> None:
    """Import a code location and build all its definitions, as a code server does when it starts."""
    import dagster._cli.api  # noqa: F401  every work item needs it, and it is slow to import
    from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext
    from dagster._grpc.server import LoadedRepositories

    with DefinitionsLoadContext.scoped(DefinitionsLoadContext.get()):
        LoadedRepositories(origin, None, [], None, code_location_name=name)


def location_origins(workspace_files: Sequence[str]) -> dict[str, LoadableTargetOrigin]:
    """Return the Python code locations of workspace files, by name."""
    from dagster._core.workspace.load import location_origins_from_yaml_paths

    return _python_origins(location_origins_from_yaml_paths(workspace_files))


def project_origins(pyproject: str) -> dict[str, LoadableTargetOrigin]:
    """Return the code locations that a pyproject.toml names for Dagster or ``dg``, by name."""
    from dagster._core.workspace.load_target import get_origins_from_toml

    return _python_origins(get_origins_from_toml(pyproject))


def _python_origins(origins: Iterable[Any]) -> dict[str, LoadableTargetOrigin]:
    from dagster._core.remote_origin import ManagedGrpcPythonEnvCodeLocationOrigin

    return {
        origin.location_name: origin.loadable_target_origin
        for origin in origins
        if isinstance(origin, ManagedGrpcPythonEnvCodeLocationOrigin)
    }
