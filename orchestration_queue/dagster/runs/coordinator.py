"""The run coordinator: runs stay queued until a worker takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import dagster as dg

from orchestration_queue.dagster._compat import (
    ConfigurableClass,
    ConfigurableClassData,
    LaunchRunContext,
    RunCoordinator,
    SubmitRunContext,
)
from orchestration_queue.dagster.runs.launcher import QueueRunLauncher
from orchestration_queue.errors import StateError, UsageError

__all__ = ["QueueRunCoordinator"]


class QueueRunCoordinator(RunCoordinator[dg.DagsterInstance], ConfigurableClass):
    """Puts runs on the queue of the instance's :class:`QueueRunLauncher`, where they wait for a worker.

    Dagster shows them as queued until a worker has taken them; no daemon is involved. The workers' concurrency and the
    queue's limits decide how many run at a time, and ``dagster/priority`` decides which is next.

    In ``dagster.yaml``, beside the launcher::

        run_coordinator:
          module: orchestration_queue.dagster
          class: QueueRunCoordinator

    Args:
        inst_data: Dagster's own.
    """

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        self._inst_data = inst_data

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        """Dagster's data for creating another instance."""
        return self._inst_data

    @classmethod
    def config_type(cls) -> dict[str, dg.Field]:
        """Return an empty schema: the launcher has the configuration."""
        return {}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> Self:  # noqa: ARG003  Dagster's
        """Create one from the configuration in ``dagster.yaml``."""
        return cls(inst_data)

    def register_instance(self, instance: dg.DagsterInstance) -> None:
        """Store the instance.

        Raises:
            UsageError: ``dagster.yaml`` sets limits that only Dagster's own coordinator enforces.
        """
        settings = instance.get_settings("concurrency") or {}
        unsupported = [
            f"concurrency.runs.{name}" for name, value in (settings.get("runs") or {}).items() if value is not None
        ]
        if (settings.get("pools") or {}).get("granularity") == "run":
            unsupported.append("concurrency.pools.granularity: run")
        if unsupported:
            raise UsageError(
                f"QueueRunCoordinator does not enforce {', '.join(unsupported)}, because workers start runs; "
                "limit runs with `oq dagster worker --concurrency`, or remove run_coordinator from dagster.yaml."
            )
        super().register_instance(instance)

    @property
    def _launcher(self) -> QueueRunLauncher:
        launcher = self._instance.run_launcher
        if not isinstance(launcher, QueueRunLauncher):
            raise UsageError(
                f"QueueRunCoordinator requires a QueueRunLauncher, but this instance has a {type(launcher).__name__}; "
                "configure run_launcher in dagster.yaml, too."
            )
        return launcher

    def submit_run(self, context: SubmitRunContext) -> dg.DagsterRun:
        """Put the run on its queue, in one exchange. A run that was submitted before is unchanged.

        Raises:
            InvalidOptionError: A tag of the run is invalid.
            UsageError: The instance has another launcher, or the run has no code origin.
            TransportError: The server is unreachable.
        """
        launcher = self._launcher
        run = context.dagster_run
        if run.status is dg.DagsterRunStatus.NOT_STARTED:
            # Before the launch, so that a fast worker's next state follows this one.
            self._instance.report_dagster_event(dg.DagsterEvent.job_enqueue(run), run_id=run.run_id)
        if run.status in (dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.QUEUED):
            launcher.launch_run(LaunchRunContext(run, context.workspace))
        if (submitted := self._instance.get_run_by_id(run.run_id)) is None:
            raise StateError(f"Run {run.run_id!r} was deleted while it was submitted; submit another.")
        return submitted

    def cancel_run(self, run_id: str) -> bool:
        """Cancel a run, queued or running; see :meth:`QueueRunLauncher.terminate`.

        Either it is cancelled before a worker takes it, and never starts, or its worker stops it.
        """
        return self._launcher.terminate(run_id)
