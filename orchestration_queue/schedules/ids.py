"""Ids of jobs that schedules add, derived from the scheduler's name and the due time, so that no run is added twice."""

from __future__ import annotations

import hashlib

from orchestration_queue.options import FORBIDDEN_IN_NAMES, MAX_NAME_LENGTH

__all__ = ["flow_id_of", "scheduled_job_id"]


def scheduled_job_id(scheduler: str, due_ms: int, *, reserve: int = 0) -> str:
    """Return the id of the job for one run of a scheduler, which is unique and the same for every leader.

    Characters that job ids can't contain are written as ``%`` and their bytes in hexadecimal. A name that is too long
    is truncated, and made unique by its digest. ``reserve`` is how many characters may follow.
    """
    name = "".join(_escaped(character) for character in scheduler)
    room = MAX_NAME_LENGTH - len(f"repeat..{due_ms}") - reserve
    if len(name) > room:
        digest = hashlib.sha256(scheduler.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        name = f"{name[: room - len(digest) - 2]}%-{digest}"
    return f"repeat.{name}.{due_ms}"


def _escaped(character: str) -> str:
    if character == "%" or character in FORBIDDEN_IN_NAMES or not character.isprintable():
        return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
    return character


def flow_id_of(job_id: str) -> str:
    """Return the id of the flow that a schedule's job submits: the same each time the job runs."""
    kind, _, rest = job_id.partition(".")
    flow_id = (rest if kind == "repeat" and rest else f"scheduled-{job_id}").replace(".", "%2E")
    if len(flow_id) > _LONGEST_FLOW_ID:
        digest = hashlib.sha256(job_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        flow_id = f"{flow_id[:40]}%-{digest}"
    return flow_id


_LONGEST_FLOW_ID = 180
"""Leaves room for nodes' names in the ids of jobs."""
