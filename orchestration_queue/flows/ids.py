"""Ids of a flow's jobs: made of the flow's id and the node's name, so that submitting twice adds each once."""

from __future__ import annotations

from orchestration_queue.errors import InvalidNameError
from orchestration_queue.options import MAX_NAME_LENGTH, name_problem

__all__ = ["check_flow_id", "checked_job_id", "job_id_of", "split_job_id"]

_SCHEDULED = "repeat"
"""What the ids of scheduled jobs start with."""


def job_id_of(flow_id: str, node: str) -> str:
    """The id of a node's job: the same for each submission, so that submitting twice adds it once."""
    return f"{flow_id}.{node}"


def split_job_id(job_id: str) -> tuple[str, str] | None:
    """The flow's id and the node's name in a job id; None when it cannot be a flow's."""
    flow_id, dot, node = job_id.partition(".")
    return (flow_id, node) if dot and flow_id and node and flow_id != _SCHEDULED else None


def check_flow_id(flow_id: str) -> None:
    """Refuse an id that could not be told from the node's name in a job's id.

    Raises:
        InvalidNameError: It could not.
    """
    problem = name_problem(flow_id) or ("contains '.'" if "." in flow_id else None)
    if problem or flow_id == _SCHEDULED:
        raise InvalidNameError(
            f"Flow id {flow_id!r} {problem or 'is what scheduled jobs go by'}, and could not be told from the node in "
            "`{flow_id}.{node}`; use letters, digits, '-' and '_'."
        )


def checked_job_id(flow_id: str, node: str) -> str:
    """A node's job id.

    Raises:
        InvalidNameError: It is longer than the wire carries.
    """
    job_id = job_id_of(flow_id, node)
    if len(job_id) > MAX_NAME_LENGTH:
        raise InvalidNameError(
            f"Job id {job_id!r} is longer than {MAX_NAME_LENGTH} characters; shorten the flow id or the node's name."
        )
    return job_id
