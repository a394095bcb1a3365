"""Read the datasets of a declarative pipeline and their dependencies, without a server.

The pipeline's Python files are executed, as by Spark's own command; their queries are only built, not run. Spark
reports no dependencies before a run, so they are read from the unresolved queries: exactly for Python, and by the names
after FROM and JOIN for SQL files.
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
"""Prefix of an argument of the program that names a dataset to fill from the beginning."""
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
        name: Its name in the pipeline.
        is_kept: Whether it exists after the run, unlike a temporary view.
        is_append_only: Whether it is a streaming table that is only appended to.
        comment: Its author's comment.
        place: Its file and line.
        flows: Names of the flows that fill it.
        reads: Names of the tables and datasets that these flows read.
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
        datasets: Its datasets by name.
    """

    name: str
    datasets: Mapping[str, Dataset]

    @property
    def kept(self) -> list[Dataset]:
        """The datasets that exist after a run."""
        return [dataset for dataset in self.datasets.values() if dataset.is_kept]

    def upstream(self, dataset: Dataset) -> list[str]:
        """Return the kept datasets and outside tables that a dataset reads, directly or through temporary views."""
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
        """Return the dataset that a flow fills. Spark prefixes the names of flows with catalog and database."""
        for dataset in self.datasets.values():
            if any(f".{flow}".endswith(f".{name}") for name in dataset.flows):
                return dataset
        return None


class DatasetRegistry(GraphElementRegistry):
    """Collects the datasets that a pipeline's files define.

    Args:
        session: The session for which to build their queries.
        behind: Another registry to pass the registrations to: Spark's own, when the pipeline runs.
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
        """Register a query that fills a dataset."""
        target = self._dataset(flow.target)
        target.flows.append(flow.name)
        if self._behind is not None:
            self._behind.register_flow(flow)
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # PySpark warns that it cannot reach the server
                plan = cast(Any, flow.func())._plan.plan(self._session.client)
        except Exception as error:
            raise InvalidOptionError(
                f"The query of dataset {flow.target!r} can't be analyzed without a server ("
                f"{SparkFailure.of(error).message}); don't request a schema, rows or SQL while it is defined."
            ) from None
        target.reads += [name for name in _tables(plan) if name not in target.reads]

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        """Register a stream of changes that updates a dataset."""
        target = self._dataset(flow.target)
        target.flows.append(flow.name or flow.target)
        target.reads.append(flow.source)
        target.is_append_only = False
        if self._behind is not None:
            self._behind.register_auto_cdc_flow(flow)

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        """Register the datasets of an SQL file."""
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
        InvalidOptionError: The file does not exist, or it or a file of the pipeline cannot be read.
    """
    if not spec_path.is_file():
        raise InvalidOptionError(f"Pipeline specification {spec_path} does not exist; correct its path.")
    with _lock, _offline() as session:  # Spark's own reading changes the process's working directory
        registry = DatasetRegistry(session)
        try:
            spec = load_pipeline_spec(spec_path)
            with redirect_stderr(StringIO()), redirect_stdout(StringIO()):  # it prints a line for each file
                register_definitions(spec_path, registry, spec, session, "")
        except InvalidOptionError:
            raise
        except Exception as error:  # including those of the pipeline's own files
            raise InvalidOptionError(
                f"The pipeline {spec_path} cannot be read: {SparkFailure.of(error).message}; correct it."
            ) from None
    return Pipeline(spec.name, registry.datasets)


@contextmanager
def _offline() -> Iterator[Any]:
    """Open a session without a server, which can build queries."""
    before = os.environ.get("SPARK_CONNECT_MODE_ENABLED")
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # PySpark's functions build Connect plans with this
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
    """Yield the names of tables that a query reads, at any depth."""
    for field_, value in message.ListFields():
        if field_.name == "unparsed_identifier" and message.DESCRIPTOR.name == "NamedTable":
            yield _bare(value)
        elif field_.type == field_.TYPE_MESSAGE:
            for inner in value if field_.is_repeated else [value]:
                if hasattr(inner, "ListFields"):
                    yield from _tables(inner)


def _bare(name: str) -> str:
    return name.replace("`", "")
