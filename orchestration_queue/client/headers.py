"""Headers added to every job that this process adds, usually a trace context."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from orchestration_queue.options import JobOptions
from orchestration_queue.options.job import Headers

__all__ = ["HeaderSource", "sources", "with_headers"]

HeaderSource: TypeAlias = Callable[[str, str], Mapping[str, str]]
"""Returns the headers of a job, given its queue's name and its own."""

sources: list[HeaderSource] = []
"""Called for each job that is added."""


def with_headers(queue: str, name: str, options: JobOptions) -> JobOptions:
    """Return the options with the sources' headers. Headers that the caller set take precedence."""
    if not sources:
        return options
    said = {header: value for source in sources for header, value in source(queue, name).items()}
    return options.model_copy(update={"headers": Headers({**said, **options.headers})})
