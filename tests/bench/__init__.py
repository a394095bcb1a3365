"""Measurements, not tests: `make bench` prints JSON."""
