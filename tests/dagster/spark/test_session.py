"""Warm sessions in the bodies of assets: each step has its own, and leaves nothing behind."""

# No `from __future__ import annotations` here: Dagster reads the annotations of parameters, and strings fail.

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import grpc
import pytest

from orchestration_queue.dagster.spark import SparkSessionResource
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.spark.connect.address import ServerState
from orchestration_queue.spark.connect.control import SessionControl
from tests.waiting import wait_until_sync

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.spark,
    pytest.mark.timeout(300),  # seconds of processor time, on however busy a machine
]


@dg.asset
def first(spark: SparkSessionResource) -> dg.MaterializeResult[None]:
    spark.session.range(3).createOrReplaceTempView("mine")
    assert spark.session is spark.session
    metadata = {"session": session_id(spark), "parts": spark.session.conf.get("spark.sql.shuffle.partitions")}
    return dg.MaterializeResult(metadata=metadata)


@dg.asset(deps=[first])
def second(spark: SparkSessionResource) -> dg.MaterializeResult[None]:
    seen = spark.session.catalog.tableExists("mine")
    return dg.MaterializeResult(metadata={"session": session_id(spark), "seen": seen})


def session_id(spark: SparkSessionResource) -> str:
    session: Any = spark.session
    return str(session.session_id)


def test_each_step_has_a_session_of_its_own_and_none_is_left(
    session: SparkSessionResource, instance: dg.DagsterInstance, connect_state: ServerState
) -> None:
    result = dg.materialize([first, second], instance=instance, resources={"spark": session})
    one, two = (event.materialization.metadata for event in result.get_asset_materialization_events())
    assert one["session"].value != two["session"].value
    assert (one["parts"].value, two["seen"].value) == ("2", False)
    for metadata in (one, two):
        closed = str(metadata["session"].value)
        with (
            SessionControl(connect_state.url, closed) as control,
            pytest.raises(grpc.RpcError, match="SESSION_CLOSED"),
        ):
            control.open()


def beats(sign: str) -> Any:
    """A function for ``mapInArrow`` that creates a file and then takes its time."""

    def beat(batches: Iterable[Any]) -> Iterator[Any]:
        with Path(sign).open("a") as file:
            for _ in range(600):
                file.write("x")
                file.flush()
                time.sleep(0.1)
        yield from batches

    return beat


def slow(sign: str, retry_policy: dg.RetryPolicy | None = None) -> dg.AssetsDefinition:
    """An asset whose first attempt runs a query for a minute."""

    @dg.asset(retry_policy=retry_policy)
    def made(context: dg.AssetExecutionContext, spark: SparkSessionResource) -> None:
        Path(f"{sign}-session").write_text(session_id(spark))
        spark.session.range(0, 1, 1, 1).mapInArrow(beats(sign), "id long").collect()

    return made


def test_a_cancelled_step_ends_its_query(
    session: SparkSessionResource, instance: dg.DagsterInstance, connect_state: ServerState, tmp_path: Path
) -> None:
    sign = tmp_path / "beats"

    def cancel() -> None:
        wait_until_sync(sign.exists, "the query to run", 240)
        os.kill(os.getpid(), signal.SIGINT)  # as Dagster's run worker does when a run is terminated

    cancelling = threading.Thread(target=cancel)
    cancelling.start()
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        dg.materialize([slow(str(sign))], instance=instance, resources={"spark": session})
    cancelling.join()
    with SessionControl(connect_state.url, Path(f"{sign}-session").read_text()) as control:
        assert control.running() == []


def test_the_next_attempt_ends_what_a_killed_one_left_running(connect_state: ServerState, tmp_path: Path) -> None:
    """The first attempt plays one whose process is gone: only the next attempt closes its session."""
    sign = tmp_path / "beats"
    attempts = []

    @dg.op(retry_policy=dg.RetryPolicy(max_retries=1))
    def work(context: dg.OpExecutionContext, spark: SparkSessionResource) -> None:
        attempts.append(session_id(spark))
        if context.retry_number == 0:
            query = spark.session.range(0, 1, 1, 1).mapInArrow(beats(str(sign)), "id long")
            threading.Thread(target=swallow, args=(query,), daemon=True).start()
            wait_until_sync(sign.exists, "the query to run", 240)
            raise RuntimeError("lost")
        with SessionControl(connect_state.url, attempts[0]) as control:
            assert control.running() == []

    @dg.job(resource_defs={"spark": SparkSessionResource(url=connect_state.url)})
    def lost() -> None:
        work()

    assert lost.execute_in_process().success
    assert len(set(attempts)) == 2


def swallow(query: Any) -> None:
    """Run a query that the test ends."""
    try:
        query.collect()
    except Exception:
        return


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "http://host"}, "must be the address of a Spark Connect server"),
        ({"url": "sc://host", "memory": "2g"}, r"SparkSessionResource\.memory configures a server on this machine"),
        (
            {"url": "sc://host", "master": "local[2]"},
            r"SparkSessionResource\.master configures a server on this machine",
        ),
        ({"memory": "much"}, r"SparkOptions\.memory \(given 'much'\)"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidOptionError, match=words):
        _ = SparkSessionResource.model_validate(options).session
