"""A queue as a Spark data source: its jobs, results, events and dead letters as rows, and rows as jobs.

Spark finds it wherever this package is installed. It needs Spark 4.2 or newer.
"""

from orchestration_queue.spark.datasource.source import QueueDataSource

__all__ = ["QueueDataSource"]
