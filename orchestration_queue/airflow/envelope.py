"""The job of a workload: what the executor adds, and what a worker reads of it without importing Airflow."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from orchestration_queue.options import Retention

__all__ = ["ALREADY_RUNNING", "CONTINUES", "KEPT", "LOST", "UNREACHABLE", "DagBundle", "WorkloadEnvelope", "queue_of"]

KEPT: Final = Retention(age=timedelta(days=1))
"""How long to keep jobs after their end, for inspection; Airflow's database has the states of its tasks."""
LOST: Final = "Lost: "
"""Prefix of the failure reason of a job whose process was lost."""
ALREADY_RUNNING: Final = "already running"
"""The outcome of a job whose task runs as another job: neither a success nor a failure."""
CONTINUES: Final = "continues as another job"
"""The outcome of a job whose task was deferred or rescheduled: Airflow queues it again."""
UNREACHABLE: Final = "unreachable"
"""The outcome of a try whose supervisor could not reach Airflow's API server, mostly before its task began."""
_PREFIX: Final = "airflow."


def queue_of(airflow_queue: str) -> str:
    """Return the name of our queue for one of Airflow's, so that Airflow's ``default`` is not any other ``default``."""
    return _PREFIX + airflow_queue


@dataclass(frozen=True, slots=True)
class DagBundle:
    """A version of a DAG bundle: the code of one fork server.

    Attributes:
        bundle: The bundle's name; '' for workloads without a DAG.
        version: Its version; '' if it has none.
    """

    bundle: str = ""
    version: str = ""

    @property
    def name(self) -> str:
        """Its name and version."""
        return f"{self.bundle}@{self.version}" if self.version else self.bundle

    @property
    def label(self) -> str:
        """What it is called in logs and errors."""
        return f"DAG bundle {self.name!r}"

    def settings(self) -> dict[str, str]:
        """Return it as JSON."""
        return {"bundle": self.bundle, "version": self.version}


class WorkloadEnvelope(BaseModel):
    """The data of a workload's job.

    The token of the workload is stored encrypted, in ``token``: who can read a queue must not become a task.
    """

    model_config = ConfigDict(extra="ignore")

    workload: dict[str, Any]
    token: str
    timeout_ms: int | None = None
    env: dict[str, str] = Field(default_factory=dict)
    memory_mib: int | None = None
    cpu_seconds: int | None = None
    postponed: int = 0
    """How often it was postponed because Airflow's API server was unreachable."""

    @property
    def dag_bundle(self) -> DagBundle:
        """The code that it needs."""
        info = self.workload.get("bundle_info") or {}
        return DagBundle(str(info.get("name") or ""), str(info.get("version") or ""))

    @property
    def dag_version(self) -> tuple[str, str]:
        """The id of a task's DAG, and that of the DAG's version; each '' if unknown."""
        task = self.workload.get("ti") or {}
        return str(task.get("dag_id") or ""), str(task.get("dag_version_id") or "")
