"""How jobs and flows ended, as the payload of a trigger's event: written by the triggerer, read by the resumed task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk.exceptions import AirflowException

from orchestration_queue.errors import FlowFailedError, JobFailedError, OrchestrationQueueError

__all__ = ["describe_error", "describe_result", "read_outcome"]


def describe_result(result: object) -> dict[str, Any]:
    """Return the payload of work that completed."""
    return {"result": result}


def describe_error(error: OrchestrationQueueError) -> dict[str, Any]:
    """Return the payload of work that failed, or that can no longer be waited for."""
    if not isinstance(error, JobFailedError):
        return {"error": str(error)}
    failure: dict[str, Any] = {"queue": error.queue, "job_id": error.job_id, "reason": error.reason}
    if isinstance(error, FlowFailedError):
        failure |= {"node": error.node, "dependents": list(error.dependents)}
    return {"failure": failure}


def read_outcome(event: Mapping[str, Any]) -> Any:
    """Return the result of work that completed.

    Raises:
        JobFailedError: The job failed.
        FlowFailedError: A node of the flow failed.
        AirflowException: The work can no longer be waited for.
    """
    if failure := event.get("failure"):
        raise FlowFailedError(**failure) if "node" in failure else JobFailedError(**failure)
    if error := event.get("error"):
        raise AirflowException(error)
    return event.get("result")
