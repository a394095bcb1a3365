"""What Spark looks for: it registers the ``DefaultSource`` of every module whose name begins with ``pyspark_``."""

from orchestration_queue.wires.chasquimq.spark import ChasquiDataSource as DefaultSource

__all__ = ["DefaultSource"]
