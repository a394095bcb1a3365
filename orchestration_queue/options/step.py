"""Options of a durable step."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from orchestration_queue.options.base import MAX_COUNT, Options
from orchestration_queue.options.durations import Positive
from orchestration_queue.options.job import Backoff

__all__ = ["StepOptions"]


class StepOptions(Options):
    """How a durable step runs."""

    attempts: Annotated[int, Field(ge=1, le=MAX_COUNT)] = 1
    """How often its function may run within one attempt of the job, which keeps its slot in between."""
    backoff: Backoff | None = None
    """The pauses between these runs; None for a second, doubled each time. Strategies of a worker don't apply."""
    timeout: Positive | None = None
    """How long one run may take, in coroutines; functions in threads can't be stopped."""
    codec: str = "json"
    """How its result is stored: ``json``, ``gzip``, ``msgpack``, or the name of one from :func:`register_codec`."""
    store_errors: tuple[type[Exception], ...] = ()
    """Errors that are the step's result: later attempts raise them without running the function."""
