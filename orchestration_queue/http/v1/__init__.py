"""Our own routes below ``/v1``: what the package offers and glide-mq's proxy lacks, with errors as problem+json."""

from __future__ import annotations

from orchestration_queue.http.v1.answers import answer, problem
from orchestration_queue.http.v1.table import OWN_ROUTES

__all__ = ["OWN_ROUTES", "answer", "problem"]
