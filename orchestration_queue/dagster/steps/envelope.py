"""The part of a work item that a worker reads without importing Dagster."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from orchestration_queue.options.isolation import Isolation

__all__ = ["INSTANCE", "WorkEnvelope", "WorkKind", "run_job_id", "run_prefix"]


INSTANCE = "dagster.instance"
"""The header with the instance of a run: several instances may share a queue."""


class WorkKind(StrEnum):
    """The kind of a work item; the value is the job's name."""

    STEP = "dagster.step"
    RUN = "dagster.run"
    RESUME = "dagster.resume_run"


class WorkEnvelope(BaseModel):
    """The data of a work item's job: compressed arguments, and options for the worker."""

    model_config = ConfigDict(extra="ignore")

    args: str
    location: str = ""
    resume_attempt: int = 0
    attempt: int = 1
    isolation: Isolation = Isolation.AUTO
    timeout_ms: int | None = None
    env: dict[str, str] = Field(default_factory=dict)
    code_version: str = ""
    memory_mib: int | None = None
    cpu_seconds: int | None = None


def run_prefix(run_id: str) -> str:
    """Return the prefix of the ids of a run's jobs."""
    return f"dagster.{run_id}."


def run_job_id(run_id: str, resumed: int) -> str:
    """Return the id of the job that executes a run, or resumes it for the n-th time."""
    return f"{run_prefix(run_id)}-resume.{resumed}" if resumed else f"{run_prefix(run_id)}-run"
