"""How rows become jobs, as one value that is checked before Spark starts any task."""

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
"""Types that JSON has no word for, and that are written as text when they are columns of their own."""


@dataclass(frozen=True)
class WriteOptions:
    """How rows become jobs.

    Attributes:
        address: The queue.
        task: What all jobs are, or None when a column says it.
        task_column: The column that says what each job is.
        id_column: The column from which a job's id follows; None takes the row's position.
        id_prefix: What ids begin with; None begins them with the task's name.
        payload_column: The column that is the payload; None makes an object of columns.
        payload_columns: These columns.
        options: How all jobs are placed.
        priority_column: The column that says a job's priority.
        delay_column: The column that says how many seconds a job waits.
        emit_events: Notify listeners of each job.
        nan_as_null: Write NaN and infinities, for which JSON has no word, as null.
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
            UsageError: One is out of its limits, or names a column that is not there or cannot be that.
        """
        delay, id_column = given.text("delay"), given.text("idColumn")
        if id_column and given.flag("positionIds", False):
            raise InvalidOptionError("Both idColumn and positionIds are given, and one would be ignored; give either.")
        if not id_column and not given.flag("positionIds", False):
            raise InvalidOptionError(
                "No idColumn is given, so that a row that Spark writes again would be another job; name a column whose "
                "value is each row's own, or pass positionIds=true if no shuffle comes between the source and here."
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
            raise InvalidOptionError("Name what the jobs are by either task, one for all, or taskColumn.")
        if self.id_prefix is None and self.task is not None and (problem := name_problem(self.task)):
            raise InvalidOptionError(
                f"Job ids begin with the task's name, and {self.task!r} {problem}; say by idPrefix how they begin."
            )
        if self.id_prefix is not None and (problem := name_problem(self.id_prefix)):
            raise InvalidOptionError(f"The option idPrefix is {self.id_prefix!r}, which {problem}; use another.")
        _column(schema, "taskColumn", self.task_column, ("string",))
        _column(schema, "idColumn", self.id_column, ("string", *_WHOLE))
        _column(schema, "payloadColumn", self.payload_column, ("string",))
        _column(schema, "priorityColumn", self.priority_column, _WHOLE)
        _column(schema, "delayColumn", self.delay_column, (*_WHOLE, "float", "double"))
        for name in self.payload_columns:
            if (problem_type := _unsayable(schema[name].dataType, is_column=True)) is not None:
                raise InvalidOptionError(
                    f"The column {name!r} holds {problem_type}, which JSON cannot say; leave it out by payloadColumns, "
                    "or write it with to_json or cast."
                )


def _payload_columns(given: SourceOptions, schema: StructType) -> tuple[str, ...]:
    names = given.names("payloadColumns")
    if given.text("payloadColumn"):
        if names:
            raise InvalidOptionError(
                "Both payloadColumn and payloadColumns are given, and one would be ignored; give either."
            )
        return ()
    steering = {given.text(name) for name in ("taskColumn", "priorityColumn", "delayColumn")}
    for name in names:
        _column(schema, "payloadColumns", name, None)
    return tuple(names) or tuple(name for name in schema.names if name not in steering)


def _column(schema: StructType, option: str, name: str | None, types: tuple[str, ...] | None) -> None:
    if name is None:
        return
    if name not in schema.names:
        raise InvalidOptionError(
            f"The option {option} names {name!r}, and the rows have no such column; "
            f"they have {', '.join(schema.names)}."
        )
    if types and (found := schema[name].dataType.simpleString()) not in types:
        raise InvalidOptionError(
            f"The option {option} names {name!r}, which is {found}; it must be {' or '.join(types)}."
        )


def _unsayable(kind: DataType, *, is_column: bool = False) -> str | None:
    """Return the first type in this one that cannot go into a payload; None when all can."""
    name = kind.simpleString()
    if name in _PLAIN or (is_column and (name in _AS_TEXT or name.startswith("decimal"))):
        return None
    if isinstance(kind, ArrayType):
        return _unsayable(kind.elementType)
    if isinstance(kind, StructType):
        return next((found for field in kind.fields if (found := _unsayable(field.dataType))), None)
    return str(name)
