"""Streaming tables of a pipeline, kept where their checkpoints are.

Spark's catalog in memory ends with its server, and the tables with it, while checkpoints stay in the storage:
the next run would go on after the last batch, with an empty table. So the tables' files lie in the storage, too, and
what was processed but cannot be found stops the run.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.pipelines.flow import AutoCdcFlow, Flow
from pyspark.pipelines.graph_element_registry import GraphElementRegistry
from pyspark.pipelines.output import Output, StreamingTable

from orchestration_queue.errors import UnrecoverableError

__all__ = ["PlacedTables"]

_LOCATION = "location"
_CLEARED = "oq_cleared"
"""The column of a table that was cleared and not filled again: its rows are gone, too."""
_NOTHING_THERE = frozenset({"PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"})


class PlacedTables(GraphElementRegistry):
    """Passes a pipeline's definitions on, with a location for each streaming table that would end with the server.

    Args:
        spark: The session.
        behind: Spark's own registry.
        storage: The pipeline's storage.
        catalog: The pipeline's catalog; None for the session's.
        database: Likewise its database.
    """

    def __init__(
        self, spark: Any, behind: GraphElementRegistry, storage: str, catalog: str | None, database: str | None
    ) -> None:
        self._spark, self._behind, self._storage = spark, behind, storage.rstrip("/")
        self._catalog = catalog or spark.catalog.currentCatalog()
        self._database = database or spark.catalog.currentDatabase()
        implementation = spark.conf.get("spark.sql.catalogImplementation", "in-memory")
        self._is_volatile = self._catalog == "spark_catalog" and implementation == "in-memory"
        self._placed: dict[str, tuple[str, str]] = {}  # format and location

    def register_output(self, output: Output) -> None:
        """Place a streaming table that says no location of its own."""
        if self._is_volatile and isinstance(output, StreamingTable) and _LOCATION not in output.table_properties:
            location = f"{self._storage}/_tables/{'/'.join(self._path(output.name))}"
            self._placed[output.name] = (output.format or "parquet", location)
            output = replace(output, table_properties={**output.table_properties, _LOCATION: location})
        self._behind.register_output(output)

    def register_flow(self, flow: Flow) -> None:
        """Pass it on."""
        self._behind.register_flow(flow)

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        """Pass it on."""
        self._behind.register_auto_cdc_flow(flow)

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        """Pass it on; a table of SQL has the location that its text says, or none."""
        self._behind.register_sql(sql_text, file_path)

    def table_name(self, name: str) -> str:
        """Return a dataset's name in the catalog."""
        return ".".join(f"`{word}`" for word in self._path(name))

    def clear(self, names: Collection[str]) -> None:
        """Remove the files of tables that must be filled from the beginning; Spark truncates all others itself."""
        for name in names:
            if name in self._placed:
                form, location = self._placed[name]
                self._spark.sql(f"DROP TABLE IF EXISTS {self.table_name(name)}")
                empty = self._spark.range(0).withColumnRenamed("id", _CLEARED)
                empty.write.format(form).mode("overwrite").save(location)

    def refuse_lost(self, names: Collection[str]) -> None:
        """Refuse to go on from checkpoints of tables that are gone.

        Raises:
            UnrecoverableError: A table has processed batches, and its rows are nowhere.
        """
        for name in names:
            checkpoints = f"{self._storage}/_checkpoints/{'/'.join(self._path(name))}"
            if self._has_files(f"{checkpoints}/*/*/commits") and not self._exists(name):
                raise UnrecoverableError(
                    f"Table {self.table_name(name)} has batches behind it, by its checkpoints in {checkpoints}, and is "
                    "gone, as when its catalog in memory ended with the server; fill it again by a run with "
                    f"full_refresh: [{name!r}], and give SQL tables a location or the server a lasting catalog."
                )

    def _exists(self, name: str) -> bool:
        if name not in self._placed:
            return bool(self._spark.catalog.tableExists(self.table_name(name)))
        form, location = self._placed[name]
        try:
            columns = self._spark.read.format(form).load(location).columns
        except PySparkException as error:
            if error.getCondition() in _NOTHING_THERE:
                return False
            raise
        return bool(columns != [_CLEARED])

    def _has_files(self, path: str) -> bool:
        """Ask Spark, which knows every file system."""
        files = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        try:
            return len(files.load(path).select("path").take(1)) > 0
        except PySparkException as error:
            if error.getCondition() in _NOTHING_THERE:
                return False
            raise

    def _path(self, name: str) -> list[str]:
        words = name.replace("`", "").split(".")
        return [*[self._catalog, self._database][: 3 - len(words)], *words]
