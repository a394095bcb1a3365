"""Tests that start a real Spark."""
