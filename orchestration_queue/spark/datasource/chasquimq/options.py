"""What can be read of a ChasquiMQ queue, and the options of reading and writing one."""

from __future__ import annotations

from dataclasses import dataclass

from orchestration_queue.dialects.chasquimq.keys import ChasquiKeys
from orchestration_queue.dialects.chasquimq.library import LIBRARY
from orchestration_queue.spark.datasource.columns import Column, Tables
from orchestration_queue.spark.datasource.queue_address import ADDRESS_OPTIONS, QueueAddress
from orchestration_queue.spark.datasource.source_options import SourceOptions
from orchestration_queue.spark.datasource.write_options import WRITE_OPTIONS

__all__ = ["CHASQUI_WRITE_OPTIONS", "COLUMNS", "STREAM_OPTIONS", "ChasquiReadOptions", "chasqui_address"]

_ADDRESS_OPTIONS = tuple(name for name in ADDRESS_OPTIONS if name != "prefix")
_READ_OPTIONS = (*_ADDRESS_OPTIONS, "read", "columns", "numPartitions")
STREAM_OPTIONS = (*_READ_OPTIONS, "startingOffsets", "maxRowsPerTrigger", "failOnDataLoss")
CHASQUI_WRITE_OPTIONS = tuple(
    name for name in WRITE_OPTIONS if name not in ("prefix", "priority", "priorityColumn", "emitEvents")
)
_MOST_PARTS = 10_000

COLUMNS: Tables = {
    "jobs": {
        "id": Column("string"),
        "name": Column("string"),
        "state": Column("string"),
        "data": Column("string"),
        "attempt": Column("bigint"),
        "created_at": Column("timestamp"),
        "due_at": Column("timestamp"),
    },
    "events": {
        "id": Column("string"),
        "at": Column("timestamp"),
        "event": Column("string"),
        "job_id": Column("string"),
        "job_name": Column("string"),
        "fields": Column("map<string,string>"),
    },
    "dead_letters": {
        "id": Column("string"),
        "job_id": Column("string"),
        "name": Column("string"),
        "reason": Column("string"),
        "detail": Column("string"),
        "data": Column("string"),
        "added_at": Column("timestamp"),
    },
}
"""By what is read, its columns in their order."""


@dataclass(frozen=True)
class ChasquiReadOptions:
    """What to read, and in how many parts.

    Attributes:
        address: The queue.
        read: ``jobs``, ``events`` or ``dead_letters``.
        columns: The columns wanted; all when empty.
        parts: Into how many parts a stream is cut at most.
    """

    address: QueueAddress[ChasquiKeys]
    read: str
    columns: tuple[str, ...]
    parts: int

    @classmethod
    def of(cls, given: SourceOptions, parts: int) -> ChasquiReadOptions:
        """Read them from Spark's options; ``parts`` is the default of ``numPartitions``.

        Raises:
            UsageError: One is outside its limits.
        """
        return cls(
            address=chasqui_address(given),
            read=given.choice("read", tuple(COLUMNS), "jobs"),
            columns=tuple(given.names("columns")),
            parts=given.count("numPartitions", parts, _MOST_PARTS) or parts,
        )


def chasqui_address(given: SourceOptions) -> QueueAddress[ChasquiKeys]:
    """Read where a queue is.

    Raises:
        UsageError: No queue is named, or the URL cannot be read, or carries a password.
    """
    return QueueAddress.of(given, ChasquiKeys, (LIBRARY,))
