"""The pages about Python's names: what is public, whose docstrings the site shows; and the errors, as a tree."""

from __future__ import annotations

from collections.abc import Iterator

from orchestration_queue import errors

__all__ = ["MODULES", "error_tree", "python_page"]

MODULES = {
    "client": "Clients: queues, jobs, events, flows",
    "worker": "Workers",
    "tasks": "Tasks",
    "flows": "Flows",
    "schedules": "Schedules",
    "options": "Options",
    "dagster": "Dagster",
    "dagster.spark": "Dagster on Spark",
    "spark": "Spark",
    "testing": "Testing",
    "telemetry.tracing": "Traces",
}
"""Public modules, and what their pages are called."""


def python_page(note: str, module: str) -> str:
    """Return the page of one module."""
    return f"# {MODULES[module]}\n\n{note}\n\n::: orchestration_queue.{module}\n"


def error_tree(note: str) -> str:
    """Return the page about errors."""
    lines = [
        "# Errors",
        "",
        note,
        "",
        "Every message says what happened, why, and what to do, in one sentence; what programs need are fields. The",
        "label `error` of `orchestration_queue_errors_total` has these names.",
        "",
        *_branch(errors.OrchestrationQueueError, 0),
        "",
        f"`UnrecoverableError` is separate. {_first_line(errors.UnrecoverableError)}",
        "",
    ]
    return "\n".join(lines)


def _branch(kind: type[BaseException], depth: int) -> Iterator[str]:
    yield f"{'    ' * depth}* `{kind.__name__}`: {_first_line(kind)}"
    for below in sorted(kind.__subclasses__(), key=lambda each: each.__name__):
        if below.__module__ == errors.__name__:
            yield from _branch(below, depth + 1)


def _first_line(kind: type[BaseException]) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]
