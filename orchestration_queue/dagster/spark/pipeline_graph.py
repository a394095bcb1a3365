"""What a declarative pipeline is made of: its datasets, and which of them reads which. Asks no server.

The pipeline's Python files are executed, as Spark's own command does it; their queries are only built, not run. Spark
does not tell dependencies before a run, so they are read from the unresolved queries: for Python exactly, for SQL files
by the names after FROM and JOIN.
"""

from __future__ import annotations

import os
import re
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from threading import Lock
from typing import Any, cast

from pyspark.pipelines.cli import load_pipeline_spec, register_definitions
from pyspark.pipelines.flow import AutoCdcFlow, Flow
from pyspark.pipelines.graph_element_registry import GraphElementRegistry
from pyspark.pipelines.output import Output, Sink, StreamingTable, TemporaryView
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.session import SparkSession as ConnectSession

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.spark.connect.control import channel_builder
from orchestration_queue.spark.failure import SparkFailure

__all__ = ["FULL_REFRESH", "Dataset", "Pipeline", "read_pipeline"]

FULL_REFRESH = "--full-refresh="
"""What precedes the name of a dataset to fill from the beginning, among the words for the program."""
_NOWHERE = "sc://localhost:1"
_CREATES = re.compile(
    r"\bCREATE\s+(?:OR\s+REFRESH\s+)?(?P<kind>MATERIALIZED\s+VIEW|STREAMING\s+TABLE|TEMPORARY\s+VIEW)\s+"
    r"(?:IF\s+NOT\s+EXISTS\s+)?(?P<name>[\w.`]+)",
    re.IGNORECASE,
)
_READS = re.compile(r"\b(?:FROM|JOIN)\s+(?:STREAM\s*\(?\s*)?(?P<name>[\w.`]+)", re.IGNORECASE)
_COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_lock = Lock()


@dataclass(slots=True)
class Dataset:
    """A table, view or sink of a pipeline.

    Attributes:
        name: As the pipeline calls it.
        is_kept: Whether it is there after the run; a temporary view is not.
        is_append_only: Whether it is a streaming table that is only appended to.
        comment: What its author says of it.
        place: Its file and line.
        flows: Names of the flows that fill it.
        reads: Names of what they read.
    """

    name: str
    is_kept: bool = True
    is_append_only: bool = False
    comment: str | None = None
    place: str = ""
    flows: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline.

    Attributes:
        name: Its name.
        datasets: By name, what it is made of.
    """

    name: str
    datasets: Mapping[str, Dataset]

    @property
    def kept(self) -> list[Dataset]:
        """What is there after a run."""
        return [dataset for dataset in self.datasets.values() if dataset.is_kept]

    def upstream(self, dataset: Dataset) -> list[str]:
        """Return what a dataset is made of: kept datasets, through views that are not, and outside tables."""
        found: dict[str, None] = {}
        seen: set[str] = set()
        to_see = list(dataset.reads)
        while to_see:
            name = to_see.pop(0)
            known = self.datasets.get(name)
            if known is not None and not known.is_kept and name not in seen:
                to_see += known.reads
            elif known is None or known.is_kept:
                found[name] = None
            seen.add(name)
        return [name for name in found if name != dataset.name]

    def of_flow(self, flow: str) -> Dataset | None:
        """Return the dataset that a flow fills. Spark puts catalog and database before the names of flows."""
        for dataset in self.datasets.values():
            if any(f".{flow}".endswith(f".{name}") for name in dataset.flows):
                return dataset
        return None


class InputReading(GraphElementRegistry):
    """Takes in what a pipeline's files define.

    Args:
        session: For which their queries are built.
        behind: Who else receives the registrations: Spark's own registry, when the pipeline runs.
    """

    def __init__(self, session: Any, behind: GraphElementRegistry | None = None) -> None:
        self.datasets: dict[str, Dataset] = {}
        self._session, self._behind = session, behind

    def register_output(self, output: Output) -> None:
        """Register a dataset."""
        at = output.source_code_location
        known = self._dataset(output.name)
        known.is_kept = not isinstance(output, (TemporaryView, Sink))
        known.is_append_only = isinstance(output, StreamingTable)
        known.comment, known.place = output.comment, f"{at.filename}:{at.line_number}"
        if self._behind is not None:
            self._behind.register_output(output)

    def register_flow(self, flow: Flow) -> None:
        """Register a query that fills one."""
        target = self._dataset(flow.target)
        target.flows.append(flow.name)
        if self._behind is not None:
            self._behind.register_flow(flow)
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that PySpark gave up on a server that there is not
                plan = cast(Any, flow.func())._plan.plan(self._session.client)
        except Exception as error:
            raise InvalidOptionError(
                f"The query of dataset {flow.target!r} can't be analyzed without a server ("
                f"{SparkFailure.of(error).message}); don't request a schema, rows or SQL while it is defined."
            ) from None
        target.reads += [name for name in _tables(plan) if name not in target.reads]

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        """Register a stream of changes that keeps one up to date."""
        target = self._dataset(flow.target)
        target.flows.append(flow.name or flow.target)
        target.reads.append(flow.source)
        target.is_append_only = False
        if self._behind is not None:
            self._behind.register_auto_cdc_flow(flow)

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        """Register a file of SQL."""
        for statement in _COMMENTS.sub(" ", sql_text).split(";"):
            if created := _CREATES.search(statement):
                target = self._dataset(_bare(created["name"]))
                target.is_kept = not created["kind"].upper().startswith("TEMPORARY")
                target.is_append_only = created["kind"].upper().startswith("STREAMING")
                target.place = str(file_path)
                target.flows.append(target.name)
                read = (_bare(match["name"]) for match in _READS.finditer(statement, created.end()))
                target.reads += [name for name in dict.fromkeys(read) if name not in target.reads]
        if self._behind is not None:
            self._behind.register_sql(sql_text, file_path)

    def _dataset(self, name: str) -> Dataset:
        return self.datasets.setdefault(name, Dataset(name))


def read_pipeline(spec_path: Path) -> Pipeline:
    """Read a pipeline's specification and definitions.

    Raises:
        InvalidOptionError: There is no such file, or what it names cannot be read.
    """
    if not spec_path.is_file():
        raise InvalidOptionError(f"There is no pipeline specification {spec_path}; correct its path.")
    with _lock, _offline() as session:  # Spark's own reading changes the process's working directory
        reading = InputReading(session)
        try:
            spec = load_pipeline_spec(spec_path)
            with redirect_stderr(StringIO()), redirect_stdout(StringIO()):  # it tells of each file
                register_definitions(spec_path, reading, spec, session, "")
        except InvalidOptionError:
            raise
        except Exception as error:  # of the pipeline's own files, too
            raise InvalidOptionError(
                f"The pipeline {spec_path} cannot be read: {SparkFailure.of(error).message}; correct it."
            ) from None
    return Pipeline(spec.name, reading.datasets)


@contextmanager
def _offline() -> Iterator[Any]:
    """Open a session without a server: queries can be built in it."""
    before = os.environ.get("SPARK_CONNECT_MODE_ENABLED")
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # by which PySpark's functions know what to build
    session = ConnectSession(connection=channel_builder(_NOWHERE, str(uuid.uuid4())))
    session.client.set_retry_policies([DefaultPolicy(max_retries=0)])
    session.release_session_on_close = False
    try:
        yield session
    finally:
        session.client.close()
        if before is None:
            del os.environ["SPARK_CONNECT_MODE_ENABLED"]


def _tables(message: Any) -> Iterator[str]:
    """List the names of tables that a query reads, wherever in it."""
    for field_, value in message.ListFields():
        if field_.name == "unparsed_identifier" and message.DESCRIPTOR.name == "NamedTable":
            yield _bare(value)
        elif field_.type == field_.TYPE_MESSAGE:
            for inner in value if field_.is_repeated else [value]:
                if hasattr(inner, "ListFields"):
                    yield from _tables(inner)


def _bare(name: str) -> str:
    return name.replace("`", "")
