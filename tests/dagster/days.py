"""Two assets of 500 days: one run for all, and a run for each."""

import warnings

import dagster as dg

from tests.dagster_project.traces import note

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2025-05-15")

with warnings.catch_warnings():
    warnings.simplefilter("ignore", dg.BetaWarning)  # which backfill policies are

    @dg.asset(partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
    def days_at_once(context: dg.AssetExecutionContext) -> None:
        """All days of a backfill in one run."""
        note("days", len(context.partition_keys))


@dg.asset(partitions_def=DAYS)
def day_by_day(context: dg.AssetExecutionContext) -> None:
    """A run for each day."""
    note("days", context.partition_key)
