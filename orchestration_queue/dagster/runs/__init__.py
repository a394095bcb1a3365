"""Runs as jobs: the launcher, the coordinator, and the sweep that repairs what they left half done."""
