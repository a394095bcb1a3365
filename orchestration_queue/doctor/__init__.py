"""Checks of `oq doctor`: the server, queues, and what Spark and Dagster need here."""

from orchestration_queue.doctor.checks import CHECKS, run_checks
from orchestration_queue.doctor.finding import Finding, Severity

__all__ = ["CHECKS", "Finding", "Severity", "run_checks"]
