"""Protocols of other queues, each with its own clients and workers on this package's connections."""
