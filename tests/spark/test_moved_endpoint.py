"""An address that leads to another server while Spark reads and writes, as a managed service's does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from orchestration_queue.client import NewJob, Queue
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.spark.datasource.options import QueueAddress, SourceOptions, own_keys
from orchestration_queue.spark.datasource.write_options import WRITE_OPTIONS, WriteOptions
from orchestration_queue.spark.datasource.writer import RowEncoder, add_rows
from tests.endpoints import Endpoint, moving_endpoint
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(300)]


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    with moving_endpoint(tmp_path) as made:
        yield made


def test_a_write_adds_each_row_once_although_its_address_moves(endpoint: Endpoint, queue_name: str) -> None:
    """What a task of a write does with its batches, on its one connection."""
    given = {"url": endpoint.url, "queue": queue_name, "task": "load", "idColumn": "row"}
    source = SourceOptions(given, WRITE_OPTIONS, "writing to a queue")
    schema = StructType([StructField("row", StringType())])
    options = WriteOptions.of(source, schema, QueueAddress.of(source, own_keys(source)))
    encoder, added = RowEncoder(options, "0."), []
    with options.address.connect() as connection:
        for first in range(0, 6000, 2000):
            batch = pa.RecordBatch.from_pydict({"row": [str(row) for row in range(first, first + 2000)]})
            added.append(add_rows(connection, options, encoder, batch))
            if first == 0:
                endpoint.move()
    assert added == [2000] * 3
    entries: Any = endpoint.replica.raw.xrange(QueueKeys(queue_name).stream)
    assert len(entries) == 6000
    assert {fields["jobId"] for _, fields in entries} == {f"load-{row}" for row in range(6000)}


@pytest.mark.parametrize("read", ["events", "jobs"])
def test_a_stream_returns_each_row_once_although_its_address_moves(
    spark: Any, endpoint: Endpoint, queue_name: str, tmp_path: Path, read: str
) -> None:
    column = {"events": "job_id", "jobs": "id"}[read]
    seen: Counter[str] = Counter()
    options = {"url": endpoint.url, "queue": queue_name, "startingOffsets": "earliest", "read": read}
    frame = spark.readStream.format("orchestration_queue").options(**options).load()
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: seen.update(row[column] for row in batch.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        with Queue(queue_name, url=endpoint.url) as queue:
            for first in (0, 100, 200):
                jobs = [NewJob("work", {}, JobOptions(job_id=f"j{number}")) for number in range(first, first + 100)]
                queue.add_bulk(jobs)
                wait_until_sync(lambda: len(seen) >= first + 100 or not query.isActive, "the rows", 120)  # noqa: B023
                assert query.exception() is None
                if first == 0:
                    endpoint.move()
    finally:
        query.stop()
    assert seen == dict.fromkeys((f"j{number}" for number in range(300)), 1)
