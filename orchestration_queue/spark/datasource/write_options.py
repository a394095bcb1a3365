"""Options for writing rows as jobs, validated before Spark starts any task."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.sql.types import ArrayType, DataType, StructType

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import JobOptions, name_problem
from orchestration_queue.options.base import MAX_COUNT, MAX_PRIORITY
from orchestration_queue.spark.datasource.options import ADDRESS_OPTIONS, QueueAddress, SourceOptions, duration

__all__ = ["WRITE_OPTIONS", "WriteOptions"]

WRITE_OPTIONS = (
    *ADDRESS_OPTIONS,
    "task",
    "taskColumn",
    "idColumn",
    "idPrefix",
    "positionIds",
    "payloadColumn",
    "payloadColumns",
    "priority",
    "priorityColumn",
    "delay",
    "delayColumn",
    "attempts",
    "emitEvents",
    "nanAsNull",
)
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_PLAIN = (*_WHOLE, "string", "boolean", "float", "double")
_AS_TEXT = ("timestamp", "timestamp_ntz", "date")
"""Types that JSON lacks, written as text at the top level of a payload only."""


@dataclass(frozen=True)
class WriteOptions:
    """How rows become jobs.

    Attributes:
        address: The queue.
        task: The task of all jobs; None if a column has it.
        task_column: The column with each job's task.
        id_column: The column from which a job's id is made; None uses the row's position.
        id_prefix: Prefix of the ids; None uses the task's name.
        payload_column: The column with the payload; None makes an object of columns.
        payload_columns: The columns of that object.
        options: Priority, delay and attempts of all jobs.
        priority_column: The column with each job's priority.
        delay_column: The column with each job's delay in seconds.
        emit_events: Emit an event for each job.
        nan_as_null: Write NaN and infinities, which JSON lacks, as null.
    """

    address: QueueAddress[Any]
    task: str | None
    task_column: str | None
    id_column: str | None
    id_prefix: str | None
    payload_column: str | None
    payload_columns: tuple[str, ...]
    options: JobOptions
    priority_column: str | None
    delay_column: str | None
    emit_events: bool
    nan_as_null: bool

    @classmethod
    def of(cls, given: SourceOptions, schema: StructType, address: QueueAddress[Any]) -> WriteOptions:
        """Read them from Spark's options, for rows of a schema.

        Raises:
            UsageError: An option is invalid, or names a column that does not exist or has the wrong type.
        """
        delay, id_column = given.text("delay"), given.text("idColumn")
        if id_column and given.flag("positionIds", False):
            raise InvalidOptionError("Options idColumn and positionIds exclude each other; pass one of them.")
        if not id_column and not given.flag("positionIds", False):
            raise InvalidOptionError(
                "Option idColumn is missing, so a row that Spark writes again would become a second job; name a column "
                "with unique values, or pass positionIds=true if the plan has no shuffle."
            )
        made = cls(
            address=address,
            task=given.text("task"),
            task_column=given.text("taskColumn"),
            id_column=id_column,
            id_prefix=given.text("idPrefix"),
            payload_column=given.text("payloadColumn"),
            payload_columns=_payload_columns(given, schema),
            options=JobOptions(
                priority=given.count("priority", 0, MAX_PRIORITY) or 0,
                delay=duration(delay, "delay") if delay else timedelta(0),
                attempts=given.count("attempts", 0, MAX_COUNT) or 0,
            ),
            priority_column=given.text("priorityColumn"),
            delay_column=given.text("delayColumn"),
            emit_events=given.flag("emitEvents", True),
            nan_as_null=given.flag("nanAsNull", False),
        )
        made._check(schema)
        return made

    def _check(self, schema: StructType) -> None:
        if (self.task is None) == (self.task_column is None):
            raise InvalidOptionError(
                "Pass either option task, for all rows, or taskColumn, a column with each row's task."
            )
        if self.id_prefix is None and self.task is not None and (problem := name_problem(self.task)):
            raise InvalidOptionError(
                f"Job ids begin with the task's name, but {self.task!r} {problem}; pass another beginning as idPrefix."
            )
        if self.id_prefix is not None and (problem := name_problem(self.id_prefix)):
            raise InvalidOptionError(f"Option idPrefix is invalid: {self.id_prefix!r} {problem}; pass another.")
        _column(schema, "taskColumn", self.task_column, ("string",))
        _column(schema, "idColumn", self.id_column, ("string", *_WHOLE))
        _column(schema, "payloadColumn", self.payload_column, ("string",))
        _column(schema, "priorityColumn", self.priority_column, _WHOLE)
        _column(schema, "delayColumn", self.delay_column, (*_WHOLE, "float", "double"))
        for name in self.payload_columns:
            if (unsupported := _find_unsupported(schema[name].dataType, is_column=True)) is not None:
                raise InvalidOptionError(
                    f"Column {name!r} contains {unsupported}, which JSON cannot represent; leave it out with "
                    "payloadColumns, or convert it with to_json() or cast()."
                )


def _payload_columns(given: SourceOptions, schema: StructType) -> tuple[str, ...]:
    names = given.names("payloadColumns")
    if given.text("payloadColumn"):
        if names:
            raise InvalidOptionError("Options payloadColumn and payloadColumns exclude each other; pass one of them.")
        return ()
    control = {given.text(name) for name in ("taskColumn", "priorityColumn", "delayColumn")}
    for name in names:
        _column(schema, "payloadColumns", name, None)
    return tuple(names) or tuple(name for name in schema.names if name not in control)


def _column(schema: StructType, option: str, name: str | None, types: tuple[str, ...] | None) -> None:
    if name is None:
        return
    if name not in schema.names:
        raise InvalidOptionError(
            f"Option {option} must name a column of the rows, got {name!r}; use {', '.join(schema.names)}."
        )
    if types and (found := schema[name].dataType.simpleString()) not in types:
        raise InvalidOptionError(
            f"Option {option} needs a column of type {' or '.join(types)}, but {name!r} is {found}; cast it."
        )


def _find_unsupported(kind: DataType, *, is_column: bool = False) -> str | None:
    """Return the first type in a type that cannot be part of a payload; None without one."""
    name = kind.simpleString()
    if name in _PLAIN or (is_column and (name in _AS_TEXT or name.startswith("decimal"))):
        return None
    if isinstance(kind, ArrayType):
        return _find_unsupported(kind.elementType)
    if isinstance(kind, StructType):
        return next((found for field in kind.fields if (found := _find_unsupported(field.dataType))), None)
    return str(name)
