"""Tests of orchestration_queue."""
