"""Spark Connect servers as the place where Spark work runs: one server for many jobs, each in a session of its own."""
