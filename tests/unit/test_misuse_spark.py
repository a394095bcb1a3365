"""Mistakes at Spark's entry points: refused at the caller, by an error of this package, in one sentence."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from orchestration_queue import spark
from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.spark import (
    ConnectServer,
    DataFrameRef,
    SparkOptions,
    SparkSubmit,
    run_spark,
    run_submit,
    spark_script,
    spark_submit,
    spark_task,
)
from orchestration_queue.spark.datasource.options import QueueAddress, SourceOptions, duration

APP = __file__
REFERENCE: dict[str, Any] = {"location": "/data/orders", "columns": {"id": "bigint"}, "rows": 5}
CLUSTER = {"deploy_mode": "cluster"}


def work(session: Any, day: str) -> str:
    return day


class Work:
    """No function."""


def misspelt(name: str) -> dict[str, Any]:
    return {name: "3"}


def given(**options: str) -> SourceOptions:
    return SourceOptions(options, ("queue", "url", "urlVariable", "state", "limit", "events"), "A read of a queue")


CASES: dict[str, list[Callable[[], object]]] = {
    "SparkOptions": [
        lambda: SparkOptions(master=5),
        lambda: SparkOptions(master=""),
        lambda: SparkOptions(memory="much"),
        lambda: SparkOptions(**misspelt("memry")),
        lambda: SparkOptions(conf=["a"]),
        lambda: SparkOptions(conf={"a": 1}),
        lambda: SparkOptions(conf={"a\nb": "1"}),
        lambda: SparkOptions(conf={"": "1"}),
        lambda: SparkOptions(env=None),
        lambda: SparkOptions(env={"A": "\0"}),
        lambda: SparkOptions(env={"A=B": "x"}),
        lambda: SparkOptions(timeout="soon"),
        lambda: SparkOptions(timeout=0),
        lambda: SparkOptions(grace=-1),
        lambda: SparkOptions(python=5),
        lambda: SparkOptions(shuffle_partitions=0),
        lambda: SparkOptions(result_format="csv"),
        lambda: SparkOptions(result_partition_by="month"),
        lambda: SparkOptions(result_files=0),
    ],
    "DataFrameRef": [
        lambda: DataFrameRef(**misspelt("path")),
        lambda: DataFrameRef(**{**REFERENCE, "location": 5}),
        lambda: DataFrameRef(**{**REFERENCE, "format": "csv"}),
        lambda: DataFrameRef(**{**REFERENCE, "rows": -1}),
        lambda: DataFrameRef(**{**REFERENCE, "columns": ["id"]}),
        lambda: DataFrameRef(**REFERENCE, **misspelt("row")),
        lambda: DataFrameRef.model_validate(None),
        lambda: DataFrameRef.model_validate("/data/orders"),
        lambda: DataFrameRef.model_validate({**REFERENCE, "kind": "table"}),
    ],
    "SparkSubmit": [
        lambda: SparkSubmit(**misspelt("num_executors")),
        lambda: SparkSubmit(executors="many"),
        lambda: SparkSubmit(jars="a.jar"),
        lambda: SparkSubmit(jars=("a.jar,b.jar",)),
        lambda: SparkSubmit(packages=("",)),
        lambda: SparkSubmit(livy_url="livy:8998"),
        lambda: SparkSubmit(rest_url="http://me:word@host"),
        lambda: SparkSubmit(ui_url="page"),
        lambda: SparkSubmit(queue=5),
        lambda: SparkSubmit(deploy_mode="elsewhere"),
        lambda: SparkSubmit(proxy_user="me", principal="etl", keytab="k").complete(),
        lambda: SparkSubmit(keytab="k").complete(),
        lambda: SparkSubmit(livy_url="http://livy:8998", master="yarn").complete(),
    ],
    "run_submit": [
        lambda: run_submit(5),  # type: ignore[arg-type]
        lambda: run_submit(None),  # type: ignore[arg-type]
        lambda: run_submit(""),
        lambda: run_submit("a\0b"),
        lambda: run_submit("/no/such/app.py"),
        lambda: run_submit(APP, 5),  # type: ignore[arg-type]
        lambda: run_submit(APP, None),  # type: ignore[arg-type]
        lambda: run_submit(APP, "one two"),
        lambda: run_submit(APP, b"one"),  # type: ignore[arg-type]
        lambda: run_submit(APP, [1]),  # type: ignore[list-item]
        lambda: run_submit(APP, [], SparkOptions()),  # type: ignore[arg-type]
        lambda: run_submit(APP, [], {"memry": "1g"}),  # type: ignore[arg-type]
        lambda: run_submit(APP, [], "yarn"),  # type: ignore[arg-type]
        lambda: run_submit(APP, [], SparkSubmit(main_class="Main")),
        lambda: run_submit(APP, [], SparkSubmit(deploy_mode="cluster")),
        lambda: run_submit(APP, [], SparkSubmit(master="spark://a:1,b:1", deploy_mode="cluster")),
        lambda: run_submit(APP, log=5),  # type: ignore[arg-type]
        lambda: run_submit(APP, should_stop=True),  # type: ignore[arg-type]
        lambda: run_submit(APP, progress=None),  # type: ignore[arg-type]
    ],
    "run_spark": [
        lambda: run_spark(5),  # type: ignore[arg-type]
        lambda: run_spark(""),
        lambda: run_spark("/no/such/script.py"),
        lambda: run_spark("json:loads", ["a"]),
        lambda: run_spark(APP, {"a": 1}),
        lambda: run_spark(APP, "one two"),
        lambda: run_spark(APP, [], {"memry": "1g"}),  # type: ignore[arg-type]
        lambda: run_spark(APP, [], 5),  # type: ignore[arg-type]
        lambda: run_spark(APP, log="x"),  # type: ignore[arg-type]
        lambda: run_spark(lambda session: 1, {}),
    ],
    "spark_task": [
        lambda: spark_task(5),  # type: ignore[call-overload]
        lambda: spark_task("count"),  # type: ignore[call-overload]
        lambda: spark_task(Work),  # type: ignore[arg-type]
        lambda: spark_task(int),
        lambda: spark_task(asyncio.sleep),
        lambda: spark_task(lambda: 1),  # type: ignore[arg-type, misc]
        lambda: spark_task(options={"memry": "2g"}),  # type: ignore[call-overload]
        lambda: spark_task(options=5),  # type: ignore[call-overload]
        lambda: spark_task(runtime="cluster"),  # type: ignore[call-overload]
        lambda: spark_task(server="sc://host:15002"),  # type: ignore[call-overload]
        lambda: spark_task(server=ConnectServer(), options=SparkOptions(memory="2g")),
        lambda: spark_task(server=ConnectServer(), runtime="process"),
        lambda: spark_task(runtime="process")(lambda session: 1),
    ],
    "spark_script": [
        lambda: spark_script(5),  # type: ignore[arg-type]
        lambda: spark_script(""),
        lambda: spark_script("a.py", {"memry": "2g"}),  # type: ignore[arg-type]
        lambda: spark_script("a.py", 5),  # type: ignore[arg-type]
        lambda: spark_script("/no/such/script.py")([]),
    ],
    "spark_submit": [
        lambda: spark_submit(None),  # type: ignore[arg-type]
        lambda: spark_submit(""),
        lambda: spark_submit("a.py", SparkOptions()),  # type: ignore[arg-type]
        lambda: spark_submit("a.py", {"memry": "2g"}),  # type: ignore[arg-type]
        lambda: spark_submit(APP)("one two"),
        lambda: spark_submit("/no/such/app.py")([]),
    ],
    "ConnectServer": [
        lambda: ConnectServer({"memry": "1g"}),  # type: ignore[arg-type]
        lambda: ConnectServer(5),  # type: ignore[arg-type]
        lambda: ConnectServer(url=5),  # type: ignore[arg-type]
        lambda: ConnectServer(url="http://host"),
        lambda: ConnectServer(url="sc://host:port"),
        lambda: ConnectServer(url="sc://127.0.0.1/;token=x"),
        lambda: ConnectServer(SparkOptions(), url="sc://host:1"),
        lambda: ConnectServer(max_jobs=0),
        lambda: ConnectServer(max_jobs="many"),  # type: ignore[arg-type]
        lambda: ConnectServer(max_memory_gib=-1),
        lambda: ConnectServer(linger="long"),  # type: ignore[arg-type]
        lambda: ConnectServer(linger=-1),
        lambda: ConnectServer(start_timeout=0),
    ],
    "data source": [
        lambda: given(quue="q"),
        lambda: given(state="ended").choice("state", ("completed", "failed"), "completed"),
        lambda: given(events="maybe").flag("events", True),
        lambda: given(limit="0").count("limit", None, 10),
        lambda: given(limit="many").count("limit", None, 10),
        lambda: duration("soon", "delay"),
        lambda: QueueAddress.of(given(), QueueKeys),
        lambda: QueueAddress.of(given(queue="q", url="redis://h", urlVariable="U"), QueueKeys),
        lambda: QueueAddress.of(given(queue="q", url="redis://:secret@h"), QueueKeys),
        lambda: QueueAddress.of(given(queue="q", url="nonsense://h"), QueueKeys),
    ],
}
WITHOUT_ARGUMENTS = {"java_home", "bundled_java_home"}


@pytest.mark.parametrize(
    ("entry", "number"), [(entry, at) for entry, cases in CASES.items() for at in range(len(cases))]
)
def test_a_mistake_is_refused_in_one_sentence(entry: str, number: int) -> None:
    with pytest.raises(UsageError) as caught:
        CASES[entry][number]()
    message = str(caught.value)
    assert message.endswith("."), message
    assert "\n" not in message, message


def test_every_entry_point_with_an_argument_has_a_case() -> None:
    assert set(spark.__all__) - WITHOUT_ARGUMENTS == set(CASES) - {"data source"}
    for name in WITHOUT_ARGUMENTS:
        assert not inspect.signature(getattr(spark, name)).parameters
