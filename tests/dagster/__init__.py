"""Real Dagster instances on real servers and workers."""
