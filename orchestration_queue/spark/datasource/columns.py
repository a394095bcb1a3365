"""The columns of jobs, results, steps, events, dead letters and statistics: their names in Spark and on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from orchestration_queue.errors import InvalidOptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["COLUMNS", "Column", "Kind", "Tables", "chosen", "column_array", "ddl"]

Kind = Literal["string", "bigint", "double", "timestamp", "map<string,string>"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        type: Its type in Spark's DDL.
        field: Its field in the job's record; empty if it is computed.
    """

    type: Kind
    field: str = ""


_JOB = {
    "id": Column("string", "id"),
    "name": Column("string", "name"),
    "state": Column("string", "state"),
    "data": Column("string", "data"),
    "result": Column("string", "returnvalue"),
    "failed_reason": Column("string", "failedReason"),
    "attempts_made": Column("bigint", "attemptsMade"),
    "max_attempts": Column("bigint", "maxAttempts"),
    "priority": Column("bigint", "priority"),
    "added_at": Column("timestamp", "timestamp"),
    "started_at": Column("timestamp", "processedOn"),
    "finished_at": Column("timestamp", "finishedOn"),
    "parent_id": Column("string", "parentId"),
    "parent_queue": Column("string", "parentQueue"),
    "group": Column("string", "groupKey"),
    "options": Column("string", "opts"),
    "tags": Column("string", "tags"),
    "failure_kind": Column("string", "failureKind"),
    "share": Column("string", "share"),
    "tracked_at": Column("timestamp", "tracked"),
    "steps": Column("bigint", "steps"),
}

Tables: TypeAlias = Mapping[str, Mapping[str, Column]]
"""The columns of each value of the option ``read``, in order."""

COLUMNS: Tables = {
    "jobs": _JOB,
    "results": {
        name: _JOB[name] for name in ("id", "name", "result", "attempts_made", "added_at", "started_at", "finished_at")
    },
    "steps": {
        "job_id": Column("string"),
        "job_name": Column("string"),
        "name": Column("string"),
        "number": Column("bigint"),
        "kind": Column("string"),
        "attempt": Column("bigint"),
        "started_at": Column("timestamp"),
        "ended_at": Column("timestamp"),
        "until": Column("timestamp"),
        "duration_s": Column("double"),
        "size": Column("bigint"),
    },
    "events": {
        "id": Column("string"),
        "at": Column("timestamp"),
        "event": Column("string"),
        "job_id": Column("string"),
        "fields": Column("map<string,string>"),
    },
    "dead_letters": {
        "id": Column("string"),
        "original_job_id": Column("string"),
        "name": Column("string"),
        "data": Column("string"),
        "failed_reason": Column("string"),
        "attempts_made": Column("bigint"),
        "added_at": Column("timestamp"),
    },
    "statistics": {
        "day": Column("string"),
        "name": Column("string"),
        **{name: Column("bigint") for name in ("started", "completed", "failed", "retried")},
        **{
            f"{what}_{part}_s": Column("double")
            for what in ("wait", "run")
            for part in ("mean", "deviation", "p50", "p90", "p99")
        },
        "steps": Column("bigint"),
    },
}


def ddl(read: str, names: Sequence[str], tables: Tables = COLUMNS) -> str:
    """Return the schema of the named columns, or of all, as Spark's DDL.

    Raises:
        InvalidOptionError: A column does not exist.
    """
    known = tables[read]
    for name in names:
        _known(read, name, tables)
    return ", ".join(f"`{name}` {known[name].type}" for name in names or known)


def _known(read: str, name: str, tables: Tables) -> Column:
    if name not in tables[read]:
        raise InvalidOptionError(f"{read!r} has no column {name!r}; use {', '.join(tables[read])}.")
    return tables[read][name]


def chosen(read: str, schema: StructType, tables: Tables = COLUMNS) -> dict[str, Column]:
    """Return the columns of a schema, which the user may have given.

    Raises:
        InvalidOptionError: A column does not exist, or has another type.
    """
    columns = {field.name: _known(read, field.name, tables) for field in schema.fields}
    for field in schema.fields:
        if (theirs := field.dataType.simpleString()) != columns[field.name].type:
            raise InvalidOptionError(
                f"Column {field.name!r} of {read!r} must have type {columns[field.name].type}, got {theirs}; "
                "read it with that type, and cast it afterwards."
            )
    return columns


def column_array(values: Sequence[Any], wanted: pa.DataType) -> pa.Array:
    """Convert stored text to a column of a type; what cannot be converted is null.

    Bytes that are not UTF-8 keep their readable part.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        texts = pa.array(values, pa.string())
    except (pa.ArrowInvalid, UnicodeDecodeError):
        texts = pa.array([value and value.decode("utf-8", "replace") for value in values], pa.string())
    if pa.types.is_string(wanted):
        return texts
    try:
        numbers = texts.cast(pa.int64())
    except pa.ArrowInvalid:  # other clients may write an empty text, or a fraction
        numbers = pa.array([_whole(value) for value in values], pa.int64())
    if pa.types.is_timestamp(wanted):
        known = pc.if_else(pc.equal(numbers, 0), None, numbers)
        return known.cast(pa.timestamp("ms", "UTC")).cast(wanted)
    return numbers


def _whole(value: bytes | None) -> int | None:
    try:
        return int(float(value)) if value else None
    except (ValueError, OverflowError):
        return None
