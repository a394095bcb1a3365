"""Checks of what is installed on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

from orchestration_queue.doctor.finding import Finding, hint, problem
from orchestration_queue.errors import JavaNotFoundError

__all__ = ["MACHINE_CHECKS"]

_HERE = "this machine"


def java() -> Iterator[Finding]:
    """Check that Java is available where PySpark is installed."""
    if find_spec("pyspark") is None:
        return
    from orchestration_queue.spark.java import java_home

    try:
        java_home()
    except JavaNotFoundError as error:
        yield problem(_HERE, str(error).rstrip("."), "Spark tasks fail here", "follow the message")


def dagster() -> Iterator[Finding]:
    """Check that Dagster's instance opens where `DAGSTER_HOME` is set, and that run monitoring is on."""
    if "DAGSTER_HOME" not in os.environ or find_spec("dagster") is None:
        return
    from dagster import DagsterInstance

    try:
        with DagsterInstance.get() as instance:
            watches = instance.run_monitoring_enabled
    except Exception as error:  # whatever its storage raises
        yield problem(
            _HERE,
            f"Dagster's instance in {os.environ['DAGSTER_HOME']} does not open: {str(error).strip() or repr(error)}",
            "neither steps nor sensors run",
            "repair dagster.yaml or its storage",
        )
        return
    if not watches:
        yield hint(
            _HERE,
            "Dagster's run monitoring is off",
            "a run whose process dies is never marked as failed",
            "run_monitoring: {enabled: true} in dagster.yaml",
        )


MACHINE_CHECKS = (java, dagster)
