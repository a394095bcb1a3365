"""A ChasquiMQ queue as a data source: its jobs, events and dead letters as rows, and rows as jobs."""

from orchestration_queue.spark.datasource.chasquimq.source import ChasquiDataSource

__all__ = ["ChasquiDataSource"]
