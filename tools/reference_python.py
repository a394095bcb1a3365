"""The pages about Python's names: what is public, whose docstrings the site shows; and the errors, as a tree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orchestration_queue import errors
from orchestration_queue.server.refusals import REFUSALS_OF_SERVERS

__all__ = ["MODULES", "error_tree", "errors_module", "python_page"]

MODULES = {
    "client": "Clients: queues, jobs, events, flows",
    "worker": "Workers",
    "tasks": "Tasks",
    "flows": "Flows",
    "schedules": "Schedules",
    "options": "Options",
    "dagster": "Dagster",
    "dagster.spark": "Dagster on Spark",
    "airflow.provider": "Airflow's provider",
    "spark": "Spark",
    "testing": "Testing",
    "telemetry.tracing": "Traces",
}
"""Public modules, and what their pages are called."""


def python_page(module: str) -> str:
    """Return the page of one module."""
    return f"# {MODULES[module]}\n\n::: orchestration_queue.{module}\n"


def error_tree() -> str:
    """Return the page about errors."""
    lines = [
        "# Errors",
        "",
        "Every message says what happened, why, and what to do, in one sentence; what programs need are fields. The",
        "label `error` of `orchestration_queue_errors_total` has these names.",
        "",
        *_branch(errors.OrchestrationQueueError, 0),
        "",
        "Three errors are separate; handlers raise them:",
        "",
        f"* `Failed`: {_first_line(errors.Failed)}",
        f"* `UnrecoverableError`: {_first_line(errors.UnrecoverableError)}",
        f"* `RateLimitError`: {_first_line(errors.RateLimitError)}",
        "",
        *_server_refusals(),
        "",
    ]
    return "\n".join(lines)


def _server_refusals() -> Iterator[str]:
    yield "## What the server refuses"
    yield ""
    yield "A refused call was not applied. The `code` of a `ServerError` is the first word of the server's error."
    yield "Some codes say something about the server, and pass: the call is sent again, up to `connect_timeout` (5"
    yield "s), before the error is raised; while the server loads its data, for up to 60 s. A pipeline sends only its"
    yield "refused calls again, a transaction all of them. A worker that meets a code that passes waits for as long"
    yield "as it lasts."
    yield ""
    yield "| Code | What the server says with it | A client sends the call again | A worker waits |"
    yield "|---|---|---|---|"
    for code, refusal in REFUSALS_OF_SERVERS.items():
        waits = "yes" if refusal.passes else "no"
        yield f"| `{code}` | {refusal.meaning} | {refusal.resend} | {waits} |"


def _branch(kind: type[BaseException], depth: int) -> Iterator[str]:
    yield f"{'    ' * depth}* `{kind.__name__}`: {_first_line(kind)}"
    for below in sorted(kind.__subclasses__(), key=lambda each: each.__name__):
        if below.__module__ == errors.__name__:
            yield from _branch(below, depth + 1)


def errors_module() -> str:
    """Return the text of ``errors.py`` with the tree of its docstring drawn from the classes."""
    source = Path(errors.__file__).read_text()
    before, _, rest = source.partition("::\n\n")
    _, _, after = rest.partition("\n\n")
    kinds = dict(_drawn(errors.OrchestrationQueueError, "", ""))
    width = max(map(len, kinds)) + 2
    tree = "\n".join(f"    {name:{width}}{line}" for name, line in kinds.items())
    return f"{before}::\n\n{tree}\n\n{after}"


def _drawn(kind: type[BaseException], edge: str, margin: str) -> Iterator[tuple[str, str]]:
    yield f"{edge}{kind.__name__}", _first_line(kind).removesuffix(".")
    below = [each for each in kind.__subclasses__() if each.__module__ == errors.__name__]
    for each in below:
        is_last = each is below[-1]
        yield from _drawn(each, margin + ("└── " if is_last else "├── "), margin + ("    " if is_last else "│   "))


def _first_line(kind: type[BaseException]) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]
