"""Trigger rules: what must have become of a node's dependencies for it to run."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["TriggerRule"]


class TriggerRule(StrEnum):
    """When a node runs, with Airflow's names and meanings.

    A node that will not run ends as ``upstream_failed`` or ``skipped`` as soon as that is certain, and so decides for
    its dependents. The outcome does not depend on the order in which dependencies end. A dependency that ended as
    ``upstream_failed`` counts as failed; optional dependencies are waited for and not counted.
    """

    ALL_SUCCESS = "all_success"
    """All have completed."""
    ALL_FAILED = "all_failed"
    """All have failed."""
    ALL_DONE = "all_done"
    """All have ended, however that was."""
    ONE_SUCCESS = "one_success"
    """One has completed; the others are not waited for."""
    ONE_FAILED = "one_failed"
    """One has failed; the others are not waited for."""
    NONE_FAILED = "none_failed"
    """All have completed or were skipped."""
    NONE_FAILED_MIN_ONE_SUCCESS = "none_failed_min_one_success"
    """All have completed or were skipped, and one at least has completed."""
    ALWAYS = "always"
    """Whatever becomes of them: nothing is waited for."""
