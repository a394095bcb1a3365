"""A qless queue as a data source: its jobs, failures, completed jobs and statistics as rows."""

from orchestration_queue.spark.datasource.qless.source import QlessDataSource

__all__ = ["QlessDataSource"]
