"""Options of Spark work, and their conversion to Spark's properties."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from orchestration_queue.options import Options
from orchestration_queue.options.durations import DurationField

__all__ = ["ISOLATION", "JOB_PROPERTY", "FileFormat", "SparkOptions", "properties_text", "write_properties"]

JOB_PROPERTY = "spark.orchestration_queue.job"
"""The property that holds the job's id. The application's name is not reliable: code may change it."""

FileFormat: TypeAlias = Literal["parquet", "orc", "delta"]
"""Formats in which DataFrames are written; ``delta`` needs Delta Lake's jars."""

ISOLATION = "spark.sql.artifact.isolation.enabled"
"""Whether each session of a Connect server has separate class loaders."""

_OF_SERVER = ("master", "memory", "env", "python", "java_home", "quick_start", "grace")

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_LONG_LIVED = ("-XX:+UseParallelGC", "-XX:MetaspaceSize=256m")
"""Java's own choice, G1, has regions of 1 MB for a small heap, which Spark's buffers exceed: such buffers caused 44 of
92 collections in five runs of a pipeline, and collecting took 1.4 s of processor time per run, against 0.5 with the
parallel collector. Metaspace starts at 21 MB; growing it for Spark's classes took five full collections, 0.7 s."""
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_JAVA_PROPERTIES = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")


def _check_settings(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Refuse names and values that an environment or a properties file cannot hold."""
    for name, value in settings.items():
        if not name or re.search(r"[\0\n\r=]", name) or "\0" in value:
            raise ValueError(
                f"has {name!r}, which cannot be set; use a name without '=' and line breaks, and a value without NUL"
            )
    return settings


_SETTABLE = AfterValidator(_check_settings)


class SparkOptions(Options):
    """How Spark work runs."""

    master: Annotated[str, Field(min_length=1)] = "local[*]"
    """Where: ``local[N]`` in the process's own JVM, or a cluster's URL."""
    app_name: str | None = None
    """The application's name; default: that of the function or script."""
    memory: Annotated[str, Field(pattern=r"^\d+[kmgt]?$")] = "1g"
    """The driver's heap; in local mode, all of Spark's memory."""
    shuffle_partitions: Annotated[int, Field(ge=1)] | None = None
    """Partitions of a shuffle; default: 8 in local mode, where Spark's own 200 only cost time."""
    conf: Annotated[Mapping[str, str], _SETTABLE] = {}
    """Any of Spark's properties; they take precedence over all other options."""
    env: Annotated[Mapping[str, str], _SETTABLE] = {}
    """Environment variables to add."""
    python: Path | None = None
    """The interpreter that runs the work; default: the worker's own. It needs this package, too."""
    java_home: Path | None = None
    """The Java to use; default: what :func:`~orchestration_queue.spark.java.java_home` finds."""
    quick_start: bool = True
    """In local mode, have Java compile quickly instead of optimizing; turn it off for work that takes minutes."""
    timeout: Annotated[DurationField, Field(gt=timedelta(0))] | None = None
    """How long the whole run may take, including Spark's start; default: no limit."""
    grace: Annotated[DurationField, Field(ge=timedelta(0))] = timedelta(seconds=5)
    """How long processes may take to exit after being asked, before they are killed."""

    results: str | None = None
    """Where DataFrames that tasks return are written: a directory or a URI that every worker can access.

    Default: the variable ``OQ_SPARK_RESULTS``.
    """
    result_format: FileFormat = "parquet"
    """The format of these files; ``delta`` needs Delta Lake's jars on the server."""
    result_partition_by: tuple[str, ...] = ()
    """Columns by whose values the files are partitioned into directories."""
    result_files: Annotated[int, Field(ge=1)] | None = None
    """Maximum files per DataFrame, or maximum tasks with partition columns; default: Spark's own number."""

    @property
    def session_conf(self) -> dict[str, str]:
        """The properties that apply to one session on a server, not to the server."""
        partitions = self.shuffle_partitions
        return ({} if partitions is None else {"spark.sql.shuffle.partitions": str(partitions)}) | dict(self.conf)

    @property
    def of_server(self) -> SparkOptions:
        """The options that apply to a server, not to one session on it. A server runs long, so Java optimizes."""
        said = {name: getattr(self, name) for name in _OF_SERVER if name in self.model_fields_set}
        return SparkOptions(**{"quick_start": False} | said)

    @property
    def is_local(self) -> bool:
        """Whether Spark runs inside one process, without a cluster."""
        return self.master.startswith("local")

    @property
    def is_isolated(self) -> bool:
        """Whether sessions of a server share neither generated code nor Python processes."""
        return self.conf.get(ISOLATION, "false" if self.is_local else "true").lower() == "true"

    @property
    def _tuning(self) -> list[str]:
        """Java options for local mode. Java does not start with two collectors, so the user's replaces ours."""
        environment = os.environ | dict(self.env)
        said = [self.conf.get(name, "") for name in _JAVA_PROPERTIES]
        said += [environment.get(name, "") for name in _JAVA_VARIABLES]
        has_collector = any(map(_COLLECTOR.search, said))
        ours = _SHORT_LIVED if self.quick_start else _LONG_LIVED
        return [option for option in ours if not (has_collector and _COLLECTOR.match(option))]

    def properties(self, scratch: Path, name: str, job_id: str | None) -> dict[str, str]:
        """Return all of Spark's properties for one run.

        Args:
            scratch: A directory for this run alone.
            name: The application's name, unless the options set one.
            job_id: The job that it runs for.
        """
        java = [f'-Dlog4j2.configurationFile="{_LOG_SETTINGS}"', f'-Dderby.system.home="{scratch}"']
        properties = {
            "spark.master": self.master,
            "spark.app.name": self.app_name or name,
            "spark.driver.memory": self.memory,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        if self.is_local:
            properties["spark.sql.warehouse.dir"] = str(scratch / "warehouse")
            java.append(f'-Djava.io.tmpdir="{scratch}"')  # where even a killed Java leaves nothing for long
            java += self._tuning
        if partitions := self.shuffle_partitions or (8 if self.is_local else None):
            properties["spark.sql.shuffle.partitions"] = str(partitions)
        properties |= self.conf
        # Spark knows this property only once, and the user's part of it must come last to win.
        theirs = self.conf.get("spark.driver.extraJavaOptions", "")
        properties["spark.driver.extraJavaOptions"] = " ".join([*java, theirs]).rstrip()
        return properties | ({JOB_PROPERTY: job_id} if job_id else {})


_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r"})


def properties_text(properties: Mapping[str, str]) -> str:
    """Return properties in Java's file format."""
    return "".join(f"{name}={value.translate(_ESCAPES)}\n" for name, value in properties.items())


def write_properties(directory: Path, properties: Mapping[str, str]) -> Path:
    """Write properties to a file that only its owner can read; every user can read a command line."""
    path = directory / "spark.properties"
    path.touch(mode=0o600)
    path.write_text(properties_text(properties), "utf-8")
    return path
