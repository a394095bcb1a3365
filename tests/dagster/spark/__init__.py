"""Tests of what brings Dagster and Spark together."""
