"""What travels with every job that this process adds, beside what its adder says: the context of a trace, usually."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from orchestration_queue.options import JobOptions
from orchestration_queue.options.job import Headers

__all__ = ["HeaderSource", "sources", "with_headers"]

HeaderSource: TypeAlias = Callable[[str, str], Mapping[str, str]]
"""From a queue's name and a job's, the headers to give the job."""

sources: list[HeaderSource] = []
"""Asked for each job that is added. Empty, it costs nothing."""


def with_headers(queue: str, name: str, options: JobOptions) -> JobOptions:
    """Return the options with what the sources say; what the adder said stays."""
    if not sources:
        return options
    said = {header: value for source in sources for header, value in source(queue, name).items()}
    return options.model_copy(update={"headers": Headers({**said, **options.headers})})
