"""Spark's declarative pipelines as assets: what is read of them without a server, and what a run reports."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import pytest

from orchestration_queue.client import Queue
from orchestration_queue.dagster.spark import PipesSparkClient, pipeline_assets
from orchestration_queue.dagster.spark.pipelines import PipelineConfig
from orchestration_queue.errors import InvalidOptionError, JobFailedError
from orchestration_queue.spark import ConnectServer
from orchestration_queue.spark.connect.address import read_state
from tests.waiting import wait_until_sync

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.spark,
    pytest.mark.timeout(300),  # seconds of processor time, on however busy a machine
    # Dagster's own Pipes read these from the context of an asset.
    pytest.mark.filterwarnings("ignore:AssetExecutionContext.*is deprecated:DeprecationWarning"),
]

TABLES = """
import os
from pyspark import pipelines as dp
from pyspark.sql import functions as F

@dp.materialized_view(comment="As they come.")
def oq_orders():
    return spark.range(10).select("id", (F.col("id") % 3).alias("customer"))

@dp.temporary_view
def big():
    return spark.read.table("oq_orders").where("id > 3")

@dp.materialized_view
def oq_totals():
    return spark.table("big").groupBy("customer").agg(F.count("*").alias("orders"))
"""
SQL = """
-- FROM nowhere, says a comment
CREATE MATERIALIZED VIEW oq_per_customer AS SELECT customer, count(*) AS orders FROM oq_orders GROUP BY customer;
"""
BROKEN = """
from pyspark import pipelines as dp

@dp.materialized_view
def oq_broken():
    return spark.table("oq_orders").selectExpr("raise_error('seven is no number') as x")
"""


STREAM = """
from pyspark import pipelines as dp

@dp.table
def oq_stream():
    return spark.readStream.schema("id int").json("INPUT")

@dp.materialized_view
def oq_stream_total():
    return spark.read.table("oq_stream").groupBy().count()
"""


def write(root: Path, **files: str) -> Path:
    """A pipeline of these files, below a directory."""
    place = root / "shop"
    (place / "transformations").mkdir(parents=True)
    for name, text in files.items():
        (place / "transformations" / name.replace("_", ".")).write_text(text)
    spec = place / "spark-pipeline.yml"
    spec.write_text(
        f"name: shop\nstorage: file://{root}/storage\nlibraries:\n  - glob:\n      include: transformations/**\n"
    )
    return spec


@pytest.fixture(scope="module", autouse=True)
def pipelines(scripts: Path) -> None:
    """What the worker serves: a pipeline, and one that fails on its way."""
    write(scripts / "whole", tables_py=TABLES, more_sql=SQL)
    write(scripts / "half", tables_py=TABLES, broken_py=BROKEN)


def test_datasets_and_dependencies_are_read_without_a_server(tmp_path: Path) -> None:
    late = "CREATE STREAMING TABLE late AS SELECT * FROM STREAM(raw.events) JOIN `big` USING (id);"
    more = f"{SQL}{late}"
    spec = write(tmp_path, tables_py=TABLES, more_sql=more)
    assets = pipeline_assets(spec, scripts=tmp_path, key_prefix=["lake"], group_name="gold", pool="warehouse")
    specs = {spec.key.to_user_string(): spec for spec in assets.specs}
    deps = {key: sorted(dep.asset_key.to_user_string() for dep in spec.deps) for key, spec in specs.items()}
    assert deps == {
        "lake/oq_orders": [],
        "lake/oq_totals": ["lake/oq_orders"],
        "lake/oq_per_customer": ["lake/oq_orders"],
        "lake/late": ["lake/oq_orders", "raw/events"],
    }
    orders = specs["lake/oq_orders"]
    assert (orders.description, orders.group_name) == ("As they come.", "gold")
    assert str(orders.metadata["orchestration_queue/defined_at"]).endswith("transformations/tables.py:6")
    assert (assets.op.name, assets.op.pool, assets.can_subset) == ("lake__shop", "warehouse", True)


def materialized(result: dg.ExecuteInProcessResult) -> dict[str, Mapping[str, dg.MetadataValue]]:
    """What a run tells of each dataset."""
    made = [event.materialization for event in result.get_asset_materialization_events()]
    return {materialization.asset_key.to_user_string(): materialization.metadata for materialization in made}


def test_a_run_refreshes_all_datasets_as_one_job(
    client: PipesSparkClient, instance: dg.DagsterInstance, scripts: Path
) -> None:
    assets = pipeline_assets(scripts / "whole" / "shop" / "spark-pipeline.yml", scripts=scripts)
    result = dg.materialize([assets], instance=instance, resources={"spark": client})
    told = materialized(result)
    assert set(told) == {"oq_orders", "oq_totals", "oq_per_customer"}
    assert len({str(metadata["orchestration_queue/job_id"].value) for metadata in told.values()}) == 1
    assert told["oq_orders"]["dagster/table_name"].value == "spark_catalog.default.oq_orders"
    assert "Flow spark_catalog.default.oq_totals has COMPLETED." in str(
        told["oq_totals"]["orchestration_queue/log"].value
    )


def test_what_is_selected_is_refreshed_and_told_although_another_fails(
    client: PipesSparkClient, server_url: str, instance: dg.DagsterInstance, scripts: Path
) -> None:
    assets = pipeline_assets(scripts / "half" / "shop" / "spark-pipeline.yml", scripts=scripts)
    chosen = ["oq_orders", "oq_broken"]
    result = dg.materialize(
        [assets], selection=chosen, instance=instance, resources={"spark": client}, raise_on_error=False
    )
    assert not result.success
    assert set(materialized(result)) == {"oq_orders"}
    (failure,) = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    assert "oq_broken" in str(failure.event_specific_data)
    assert "seven is no number" in str(failure.event_specific_data)
    (job_id,) = {str(metadata["orchestration_queue/job_id"].value) for metadata in materialized(result).values()}
    with Queue(client.default_queue, url=server_url) as queue:
        log = "\n".join(queue.get(job_id).logs())
    assert "Flow 'spark_catalog.default.oq_totals' is EXCLUDED" in log


def test_a_streaming_table_outlives_its_server(
    client: PipesSparkClient, instance: dg.DagsterInstance, scripts: Path, tmp_path: Path, connect_server: ConnectServer
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    spec = write(scripts / "stream", tables_py=STREAM.replace("INPUT", str(source)))
    assets = pipeline_assets(spec, scripts=scripts)

    def run(rows: int = 0, **config: object) -> tuple[int, bool]:
        """Rows of the streaming table after a run that finds a number of new ones, and whether its check passed."""
        if rows:
            text = "".join(f'{{"id": {number}}}\n' for number in range(rows))
            (source / f"{len([*source.iterdir()])}.json").write_text(text)
        options = {"ops": {assets.op.name: {"config": config}}} if config else {}
        result = dg.materialize([assets], instance=instance, resources={"spark": client}, run_config=options)
        told = materialized(result)
        (check,) = result.get_asset_check_evaluations()
        assert told["oq_stream_total"]["dagster/row_count"].value == 1
        return int(str(told["oq_stream"]["dagster/row_count"].value)), check.passed

    assert run(10) == (10, True)
    state = read_state(connect_server.directory)
    assert state is not None
    (pid,) = [
        int(entry.name)
        for entry in Path("/proc").glob("[0-9]*")
        if f"{connect_server.directory.name}/{state.process}" in cwd_of(entry)
        and "ConnectServer" in (entry / "cmdline").read_text("utf-8", "replace")
    ]
    os.kill(pid, signal.SIGKILL)
    wait_until_sync(lambda: read_state(connect_server.directory) not in (None, state), "a new server", 240)
    assert run() == (10, True), "nothing was lost"
    assert run(5) == (15, True), "and nothing comes twice"
    assert run(full_refresh=["oq_stream"]) == (15, True)
    shutil.rmtree(scripts / "stream" / "storage" / "_tables")
    with pytest.raises(Exception, match=r"oq_stream` has checkpoints in .*, but does not exist"):
        run()
    assert run(full_refresh=["*"]) == (15, True)


def cwd_of(process: Path) -> str:
    """A process's working directory; empty when it is gone, or another user's."""
    with contextlib.suppress(OSError):
        return str((process / "cwd").readlink())
    return ""


def test_a_dataset_that_is_not_refreshed_cannot_be_filled_anew() -> None:
    assert PipelineConfig(full_refresh=["*"]).select(["a", "b"]) == ["a", "b"]
    with pytest.raises(dg.Failure, match="`full_refresh` has 'c', but the run refreshes a, b"):
        PipelineConfig(full_refresh=["c"]).select(["a", "b"])


def test_a_pipeline_is_not_submitted(server_url: str, client: PipesSparkClient) -> None:
    with (
        Queue(client.default_queue, url=server_url) as queue,
        pytest.raises(JobFailedError, match="requires a Connect server and can't run by spark-submit"),
    ):
        queue.add("spark_step", {"script": "whole/shop/spark-pipeline.yml", "by_submit": True}).wait(60)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "defines no table or materialized view"),
        ({"tables_py": "raise ValueError('seven')"}, "cannot be read: seven"),
        ({"tables_txt": ""}, "cannot be read: .*UNSUPPORTED_DEFINITIONS_FILE"),
        (
            {"tables_py": TABLES.replace(".where(", '.select(spark.table("x").columns).where(')},
            "The query of dataset 'big' can't be analyzed without a server",
        ),
    ],
)
def test_a_pipeline_that_cannot_be_read_is_refused(tmp_path: Path, files: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidOptionError, match=words):
        pipeline_assets(write(tmp_path, **files), scripts=tmp_path)


def test_a_specification_in_the_wrong_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"Pipeline specification .*none\.yml does not exist"):
        pipeline_assets(tmp_path / "none.yml", scripts=tmp_path)
    with pytest.raises(InvalidOptionError, match=r"is not below .*, where workers read it"):
        pipeline_assets("/etc/spark-pipeline.yml", scripts=tmp_path)
    broken = write(tmp_path)
    broken.write_text("name: shop\nstorag: x\n")
    with pytest.raises(InvalidOptionError, match=r"cannot be read: .*UNEXPECTED_FIELD"):
        pipeline_assets(broken, scripts=tmp_path)
