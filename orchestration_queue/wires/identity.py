"""Ids of another wire's jobs in this package's queues."""

from __future__ import annotations

import hashlib
from urllib.parse import quote

__all__ = ["own_id"]

_MAX_ID = 200


def own_id(job_id: str) -> str:
    """Return a valid job id for this package's protocol, always the same for the same id."""
    safe = quote(job_id, safe="")
    return safe if len(safe) <= _MAX_ID else hashlib.sha256(job_id.encode()).hexdigest()
