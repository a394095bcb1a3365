"""Run Spark work on Spark Connect servers: one server for many jobs, each in its own session."""
