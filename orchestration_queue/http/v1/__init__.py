"""Our own routes below ``/v1``, for features that glide-mq's proxy lacks, with errors as problem+json."""

from __future__ import annotations

from orchestration_queue.http.v1.routes import OWN_ROUTES, answer, problem

__all__ = ["OWN_ROUTES", "answer", "problem"]
