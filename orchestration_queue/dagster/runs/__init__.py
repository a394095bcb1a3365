"""Runs as jobs: the launcher, the coordinator, and the sweep that cleans up after processes that died."""
